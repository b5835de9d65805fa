//! The NICs of pods: what a network of a pod means on this machine.
//!
//! The kernel says what is under the network device in the pod: a device of the host (macvlan,
//! ipvlan, VLAN, veth) or a PCI function that was moved there (SR-IOV). Only when the pod has no
//! such device, as with a driver in user space, the address in the pod's annotation counts.
//! Whoever may change the pod chooses that, so it must be a virtual function of a NIC.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::patterns::{Budget, Dfa, compile};
use super::{IrqEntry, cgroups};
use crate::base::error::Result;
use crate::base::root::Root;
use crate::kernel::links::{Link, Lower};
use crate::kernel::procfs;
use crate::kernel::sysfs::{entries, file_name, link_name, number, pci_dir};
use crate::pods::networks::{Network, named};
use crate::pods::{Pod, selects};

/// What an entry of `irq` means for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNic {
    /// The index of the entry.
    pub entry: usize,
    pub nic: String,
    pub uid: String,
    /// Its namespace and name; empty if there is no such pod.
    pub pod: String,
    /// Network devices of this machine, or addresses of PCI functions.
    pub devices: Vec<String>,
    /// How it leads there.
    pub found: Vec<String>,
    /// Why something is not known.
    pub missing: Vec<String>,
    /// That may change without a change of the pod.
    pub may_come: bool,
}

/// Where pods are looked for.
pub struct Node<'a> {
    pub root: &'a Root,
    /// Where kubelets keep their kubepods cgroup besides the root.
    pub kubelets: &'a [String],
    /// The devices of the network namespace in a file.
    pub links: fn(&Path) -> Result<Vec<Link>>,
}

/// What the entries of `irq` mean for these pods. A pod whose annotation has become unreadable
/// stays with what it had `before`.
pub fn find(irq: &[IrqEntry], pods: &[Pod], node: &Node<'_>, before: &[PodNic]) -> Vec<PodNic> {
    let of = |entry: &IrqEntry| -> Vec<&Pod> {
        let is_one = |pod: &&Pod| selects(&entry.selectors, &entry.k8s_namespace, pod);
        pods.iter().filter(is_one).collect()
    };
    let entries = irq.iter().enumerate().filter(|(_, entry)| entry.of_pods());
    let selected: Vec<_> = entries.map(|(index, entry)| (index, entry, of(entry))).collect();
    let asked = |(_, entry, pods): &(usize, &IrqEntry, Vec<&'_ Pod>)| -> Vec<String> {
        let has = |pod: &&&Pod| !networks_of(pod, &entry.placement.nic).is_empty();
        pods.iter().filter(has).map(|pod| pod.uid.clone()).collect()
    };
    let uids: BTreeSet<String> = selected.iter().flat_map(asked).collect();
    let links = links_of(&uids, node);
    let mut all = Vec::new();
    for (index, entry, pods) in selected {
        let nic = &entry.placement.nic;
        let new = PodNic { entry: index, nic: nic.clone(), ..PodNic::default() };
        if pods.is_empty() {
            let missing = vec!["no pod of this node has these labels and namespaces".into()];
            all.push(PodNic { missing, ..new });
            continue;
        }
        for pod in pods {
            let (uid, name) = (pod.uid.clone(), format!("{}/{}", pod.namespace, pod.name));
            let mut one = PodNic { uid, pod: name, ..new.clone() };
            let old = before.iter().find(|old| (&old.uid, &old.nic) == (&one.uid, nic));
            one.resolve(pod, links.get(&pod.uid), node, old);
            all.push(one);
        }
    }
    all
}

/// The same while nobody knows the pods; `why` says that.
pub fn unknown(irq: &[IrqEntry], why: &str) -> Vec<PodNic> {
    let entries = irq.iter().enumerate().filter(|(_, entry)| entry.of_pods());
    let one = |(index, entry): (usize, &IrqEntry)| PodNic {
        entry: index,
        nic: entry.placement.nic.clone(),
        missing: vec![why.into()],
        ..PodNic::default()
    };
    entries.map(one).collect()
}

/// The networks of a pod that `nic` means.
fn networks_of<'p>(pod: &'p Pod, nic: &str) -> Vec<&'p Network> {
    pod.networks.iter().flatten().map(|all| named(all, nic)).next().unwrap_or_default()
}

impl PodNic {
    /// `links` are the devices in the pod's network namespace.
    fn resolve(
        &mut self,
        pod: &Pod,
        links: Option<&Result<Vec<Link>>>,
        node: &Node<'_>,
        before: Option<&Self>,
    ) {
        let unknown = match &pod.networks {
            None => Some("no annotation tells of its networks".to_owned()),
            Some(Err(why)) => {
                if let Some(Self { devices, found, .. }) = before {
                    (self.devices, self.found) = (devices.clone(), found.clone());
                }
                Some(format!("the annotation about its networks cannot be read: {why}"))
            }
            Some(Ok(all)) if networks_of(pod, &self.nic).is_empty() => {
                let names: Vec<&str> = all.iter().map(|network| network.name.as_str()).collect();
                Some(format!("{} is none of its networks ({})", self.nic, names.join(", ")))
            }
            Some(Ok(_)) => None,
        };
        self.missing.extend(unknown);
        for network in networks_of(pod, &self.nic) {
            match devices_of(network, links, node) {
                Ok((devices, found)) => {
                    self.devices.extend(devices);
                    self.found.push(found);
                }
                Err(why) => {
                    self.missing.push(why);
                    self.may_come = true;
                }
            }
        }
        self.devices.sort();
        self.devices.dedup();
    }
}

/// The devices of this machine that a network leads to, and how; or why they are not known.
fn devices_of(
    network: &Network,
    links: Option<&Result<Vec<Link>>>,
    node: &Node<'_>,
) -> std::result::Result<(Vec<String>, String), String> {
    let name = if network.interface.is_empty() { &network.name } else { &network.interface };
    let no_link = match links {
        None => "no process of it is there".into(),
        Some(Err(e)) => e.to_string(),
        Some(Ok(links)) => match links.iter().find(|link| link.name == network.interface) {
            Some(link) => return under(link, links, node),
            None => format!("its network namespace has no device {name}"),
        },
    };
    let address = network.pci.as_deref().ok_or(no_link)?;
    if !is_virtual_function(node.root, address) {
        return Err(format!("{name}: its annotation names {address}: no virtual function of a NIC"));
    }
    Ok((vec![address.into()], format!("{name} is {}", function(node.root, address))))
}

/// What is under a device in a pod.
fn under(
    link: &Link,
    links: &[Link],
    node: &Node<'_>,
) -> std::result::Result<(Vec<String>, String), String> {
    let (mut devices, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut functions, mut elsewhere) = (Vec::new(), false);
    let mut left = vec![link];
    while let Some(one) = left.pop() {
        if !seen.insert(one.index) {
            continue;
        }
        if let Some(address) = one.parent.as_ref().and_then(|parent| pci_of(node.root, parent)) {
            functions.push(function(node.root, &address));
            // A pod in the host's network has its devices here.
            let here = entries(&pci_net(node.root, &address)).unwrap_or_default();
            devices.insert(here.into_iter().find(|name| *name == one.name).unwrap_or(address));
        }
        match one.lower {
            Some(Lower::Beside(index)) => left.extend(links.iter().find(|it| it.index == index)),
            Some(Lower::Here(index)) => {
                let device = device(node.root, index);
                devices.insert(device.ok_or(format!("{}: what it is on has gone", link.name))?);
            }
            Some(Lower::Elsewhere) => elsewhere = true,
            None => {}
        }
        left.extend(links.iter().filter(|port| port.master == Some(one.index)));
    }
    let kind = link.kind.as_ref().map_or(String::new(), |kind| format!(" ({kind})"));
    let what = format!("{}{kind}", link.name);
    match (devices.is_empty(), elsewhere) {
        (true, true) => Err(format!("{what} leads to a third network namespace")),
        (true, false) => Err(format!("{what} leads to no device of this machine")),
        (false, _) if functions.len() == 1 && devices.len() == 1 => {
            let verb = if link.parent.is_some() { "is" } else { "is on" };
            Ok((devices.into_iter().collect(), format!("{what} {verb} {}", functions[0])))
        }
        (false, _) => {
            let devices: Vec<String> = devices.into_iter().collect();
            let to = devices.join(", ");
            Ok((devices, format!("{what} leads to {to}")))
        }
    }
}

/// The network device of gthctl's network namespace with this index.
fn device(root: &Root, index: u32) -> Option<String> {
    let all = root.sys().join("class/net");
    let is_it = |name: &String| number(&all.join(name).join("ifindex")) == Some(index);
    entries(&all).ok()?.into_iter().find(is_it)
}

/// The address of the PCI function that a device on this bus is, or is a part of with its own
/// function, as a virtio device.
fn pci_of(root: &Root, (bus, name): &(String, String)) -> Option<String> {
    match bus.as_str() {
        "pci" => Some(name.clone()),
        "virtio" if !name.contains('/') => {
            let device = root.sys().join("bus/virtio/devices").join(name);
            let above = fs::canonicalize(device).ok()?.parent()?.to_owned();
            let is_pci = link_name(&above.join("subsystem")).as_deref() == Some("pci");
            is_pci.then(|| file_name(&above))
        }
        _ => None,
    }
}

fn pci_net(root: &Root, address: &str) -> std::path::PathBuf {
    root.sys().join("bus/pci/devices").join(address).join("net")
}

fn is_virtual_function(root: &Root, address: &str) -> bool {
    let Ok(dir) = pci_dir(&root.sys(), address) else { return false };
    // Network controllers (PCI_BASE_CLASS_NETWORK, linux/pci_ids.h).
    let class = fs::read_to_string(dir.join("class")).unwrap_or_default();
    class.starts_with("0x02") && dir.join("physfn").exists()
}

/// Such as `the virtual function 0000:03:02.1 of enp3s0f0`.
fn function(root: &Root, address: &str) -> String {
    let dir = pci_dir(&root.sys(), address);
    let Some(physical) = dir.ok().and_then(|dir| link_name(&dir.join("physfn"))) else {
        return format!("the PCI function {address}");
    };
    let names = entries(&pci_net(root, &physical)).unwrap_or_default();
    let of = names.into_iter().next().unwrap_or(physical);
    format!("the virtual function {address} of {of}")
}

/// The devices in the network namespace of each pod with a process, by the pod's uid.
fn links_of(uids: &BTreeSet<String>, node: &Node<'_>) -> BTreeMap<String, Result<Vec<Link>>> {
    let patterns = uids.iter().filter_map(|uid| Some((uid, pattern(uid, node.kubelets)?)));
    let mut wanted: Vec<(&String, Vec<Dfa>)> = patterns.collect();
    let mut found = BTreeMap::new();
    let proc = node.root.proc();
    let names = if wanted.is_empty() { Vec::new() } else { entries(&proc).unwrap_or_default() };
    // The sandbox's process, which is the first, goes before those that the pod starts.
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        if wanted.is_empty() {
            break;
        }
        let Some(cgroup) = procfs::cgroup(&proc, pid) else { continue };
        let is_its = |(_, dfas): &(&String, Vec<Dfa>)| {
            dfas.iter().any(|dfa| dfa.find(cgroup.as_bytes()) != 0)
        };
        let Some(at) = wanted.iter().position(is_its) else { continue };
        let netns = proc.join(pid.to_string()).join("ns/net");
        // One that has ended has none.
        if netns.exists() {
            found.insert(wanted.swap_remove(at).0.clone(), (node.links)(&netns));
        }
    }
    found
}

/// Finds the cgroups that the kubelet made for a pod.
fn pattern(uid: &str, kubelets: &[String]) -> Option<Vec<Dfa>> {
    compile(&[(0, &cgroups::pods([uid], kubelets))], &mut Budget::default()).ok()
}
