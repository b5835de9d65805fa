//! The NICs of pods: what a network of a pod means on this machine.
//!
//! The kernel says what is under the network device in the pod: a device of the host (macvlan,
//! ipvlan, VLAN, veth) or a PCI function that was moved there (SR-IOV). The address in the pod's
//! annotation counts only when the pod has no such device, as with a driver in user space. Whoever
//! may change the pod chooses that address, so it must be that of a virtual function of a NIC.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::patterns::{Budget, Dfa, compile};
use super::{IrqEntry, cgroups};
use crate::base::error::{Error, Result};
use crate::base::root::Root;
use crate::kernel::links::{Link, Lower};
use crate::kernel::procfs;
use crate::kernel::sysfs::{entries, file_name, link_name, number, pci_dir};
use crate::pods::networks::{Network, named};
use crate::pods::{Pod, selects};
use crate::policy::NO_POD;

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
    /// How the network leads to these devices.
    pub found: Vec<String>,
    /// Why devices are unknown.
    pub missing: Vec<String>,
    /// Whether the missing devices may appear without a change of the pod.
    pub may_come: bool,
}

/// Where pods are looked for.
pub struct Node<'a> {
    pub root: &'a Root,
    /// Where kubelets keep their kubepods cgroup besides the root.
    pub kubelets: &'a [String],
    /// Reads the devices of the network namespace in a file.
    pub links: fn(&Path) -> Result<Vec<Link>>,
}

/// What the entries of `irq` mean for these pods. A pod whose annotation has become unreadable
/// keeps the devices that it had `before`.
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
            let missing = vec![NO_POD.into()];
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

/// As [`find`], while the pods are unknown; `why` is the reason.
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

/// The networks of a pod that `nic` names.
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
            None => Some("it has no annotation about its networks".to_owned()),
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
                    self.missing.push(why.to_string());
                    self.may_come = true;
                }
            }
        }
        self.devices.sort();
        self.devices.dedup();
    }
}

/// Why it is not known to which devices of this machine a network leads.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("none of its processes is running")]
    NoProcess,
    #[error("{0}")]
    NoLinks(Error),
    #[error("its network namespace has no device {name}")]
    NoDevice { name: String },
    #[error("{name}: its annotation names {address}: no virtual function of a NIC")]
    NoFunction { name: String, address: String },
    #[error("{name}: the device under it has gone")]
    Gone { name: String },
    #[error("{what} leads to a third network namespace")]
    Elsewhere { what: String },
    #[error("{what} leads to no device of this machine")]
    Nowhere { what: String },
}

/// The devices of this machine that a network leads to, and how.
fn devices_of(
    network: &Network,
    links: Option<&Result<Vec<Link>>>,
    node: &Node<'_>,
) -> std::result::Result<(Vec<String>, String), Unknown> {
    let name = if network.interface.is_empty() { &network.name } else { &network.interface };
    let no_link = match links {
        None => Unknown::NoProcess,
        Some(Err(e)) => Unknown::NoLinks(e.clone()),
        Some(Ok(links)) => match links.iter().find(|link| link.name == network.interface) {
            Some(link) => return under(link, links, node),
            None => Unknown::NoDevice { name: name.clone() },
        },
    };
    let address = network.pci.as_deref().ok_or(no_link)?;
    if !is_virtual_function(node.root, address) {
        return Err(Unknown::NoFunction { name: name.clone(), address: address.into() });
    }
    Ok((vec![address.into()], format!("{name} is {}", function(node.root, address))))
}

/// The devices under a device in a pod, and how it leads to them.
fn under(
    link: &Link,
    links: &[Link],
    node: &Node<'_>,
) -> std::result::Result<(Vec<String>, String), Unknown> {
    let (mut devices, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut functions, mut elsewhere) = (Vec::new(), false);
    let mut left = vec![link];
    while let Some(one) = left.pop() {
        if !seen.insert(one.index) {
            continue;
        }
        if let Some(address) = one.parent.as_ref().and_then(|parent| pci_of(node.root, parent)) {
            functions.push(function(node.root, &address));
            // A pod in the host's network namespace has its devices here.
            let here = entries(&pci_net(node.root, &address)).unwrap_or_default();
            devices.insert(here.into_iter().find(|name| *name == one.name).unwrap_or(address));
        }
        match one.lower {
            Some(Lower::Beside(index)) => left.extend(links.iter().find(|it| it.index == index)),
            Some(Lower::Here(index)) => {
                let device = device(node.root, index);
                devices.insert(device.ok_or_else(|| Unknown::Gone { name: link.name.clone() })?);
            }
            Some(Lower::Elsewhere) => elsewhere = true,
            None => {}
        }
        left.extend(links.iter().filter(|port| port.master == Some(one.index)));
    }
    let kind = link.kind.as_ref().map_or(String::new(), |kind| format!(" ({kind})"));
    let what = format!("{}{kind}", link.name);
    match (devices.is_empty(), elsewhere) {
        (true, true) => Err(Unknown::Elsewhere { what }),
        (true, false) => Err(Unknown::Nowhere { what }),
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

/// The address of the PCI function that a device on this bus is, or that it belongs to, as a virtio
/// device does.
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
    // In ascending order: the sandbox's process, which is the first, comes before those that the
    // pod starts.
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        if wanted.is_empty() {
            break;
        }
        let Some(cgroup) = procfs::cgroup(&proc, pid).filter(|cgroup| !is_conmon(cgroup)) else {
            continue;
        };
        let is_its = |(_, dfas): &(&String, Vec<Dfa>)| {
            dfas.iter().any(|dfa| dfa.find(cgroup.as_bytes()) != 0)
        };
        let Some(at) = wanted.iter().position(is_its) else { continue };
        let netns = proc.join(pid.to_string()).join("ns/net");
        // A process that has ended has none. If gthctl has no right to look, the error from `links`
        // says so.
        if fs::metadata(&netns).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            continue;
        }
        found.insert(wanted.swap_remove(at).0.clone(), (node.links)(&netns));
    }
    found
}

/// Whether the cgroup is that of CRI-O's monitor of a container. With `conmon_cgroup = "pod"` the
/// monitor is in the pod's slice, but in the host's network namespace (crio.conf(5)).
fn is_conmon(cgroup: &str) -> bool {
    cgroup.rsplit('/').next().is_some_and(|name| name.starts_with("crio-conmon-"))
}

/// A pattern for the cgroups that the kubelet made for a pod.
fn pattern(uid: &str, kubelets: &[String]) -> Option<Vec<Dfa>> {
    compile(&[(0, &cgroups::pods([uid], kubelets))], &mut Budget::default()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::place::wanted::Placement;
    use crate::irq::tree::Tree;
    use crate::pods::Selector;
    use crate::pods::networks::Unreadable;

    const UID: &str = "6a7c2f0e-0000-4000-8000-0123456789ab";
    const VF: &str = "0000:03:02.1";

    fn on_host(index: u32, name: &str, kind: &str, lower: Lower) -> Link {
        let (name, kind) = (name.into(), Some(kind.into()));
        Link { index, name, kind, lower: Some(lower), ..Link::default() }
    }

    fn on_bus(index: u32, name: &str, bus: &str, device: &str) -> Link {
        let parent = Some((bus.into(), device.into()));
        Link { index, name: name.into(), parent, ..Link::default() }
    }

    /// The devices in a made-up network namespace, whose file holds its name.
    fn links(netns: &Path) -> Result<Vec<Link>> {
        let vf = || on_bus(3, "net1", "pci", VF);
        Ok(match fs::read_to_string(netns).unwrap().as_str() {
            "macvlan" => vec![
                Link { index: 1, name: "lo".into(), ..Link::default() },
                on_host(2, "eth0", "veth", Lower::Here(7)),
                // With the index that its parent has on the host.
                on_host(5, "n3", "macvlan", Lower::Here(5)),
            ],
            "sriov" => vec![vf()],
            "on top" => vec![
                vf(),
                on_host(4, "n3", "macvlan", Lower::Beside(6)),
                on_host(6, "v6", "vlan", Lower::Beside(3)),
                on_host(8, "loop", "vlan", Lower::Beside(8)),
            ],
            "bond" => vec![
                Link { index: 9, name: "n3".into(), kind: Some("bond".into()), ..Link::default() },
                Link { master: Some(9), ..vf() },
                Link { master: Some(9), ..on_bus(4, "net2", "virtio", "virtio3") },
            ],
            "third" => vec![on_host(2, "n3", "macvlan", Lower::Elsewhere)],
            "gone" => vec![on_host(2, "n3", "macvlan", Lower::Here(77))],
            "tap" => vec![Link { index: 2, name: "n3".into(), ..Link::default() }],
            "empty" => vec![],
            other => return Err(Error::failure(format!("{other}: not permitted"))),
        })
    }

    /// A machine with eth1, a virtual function of it, and a virtio NIC.
    fn machine() -> Tree {
        let tree = Tree::new();
        let (physical, virtual_) = ("pci0000:00/0000:03:00.0", "pci0000:00/0000:03:02.1");
        tree.pci_nic("eth1", physical, "iavf", &[40]);
        tree.index("eth1", 5, 5);
        tree.pci(virtual_, "iavf", &[50, 51]);
        tree.pci("pci0000:00/0000:00:05.0", "virtio-pci", &[60]);
        tree.link("sys/devices/pci0000:00/0000:00:05.0/virtio3/subsystem", "sys/bus/virtio");
        tree.link("sys/bus/virtio/devices/virtio3", "sys/devices/pci0000:00/0000:00:05.0/virtio3");
        for device in [physical, virtual_] {
            tree.write(&format!("sys/devices/{device}/class"), "0x020000\n");
        }
        let physfn = format!("sys/devices/{virtual_}/physfn");
        tree.link(&physfn, &format!("sys/devices/{physical}"));
        tree
    }

    /// A process in the cgroup and network namespace.
    fn process(tree: &Tree, pid: u32, cgroup: &str, netns: &str) {
        tree.write(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
        tree.write(&format!("proc/{pid}/ns/net"), netns);
    }

    fn cgroup(uid: &str) -> String {
        format!("/kubepods/burstable/pod{uid}/c")
    }

    fn pod(networks: &[(&str, &str, Option<&str>)]) -> Pod {
        let network = |&(name, interface, pci): &(&str, &str, Option<&str>)| Network {
            name: name.into(),
            interface: interface.into(),
            pci: pci.map(Into::into),
        };
        Pod {
            uid: UID.into(),
            namespace: "core".into(),
            name: "upf-0".into(),
            labels: [("app".into(), "upf".into())].into(),
            networks: Some(Ok(networks.iter().map(network).collect())),
        }
    }

    fn entry(nic: &str) -> IrqEntry {
        let selectors = vec![Selector { key: "app".into(), value: "upf".into() }];
        let placement = Placement { nic: nic.into(), ..Placement::default() };
        IrqEntry { selectors, placement, ..IrqEntry::default() }
    }

    fn look(tree: &Tree, nic: &str, pods: &[Pod], before: &[PodNic]) -> Vec<PodNic> {
        let root = &Root::at(tree.path(""));
        find(&[entry(nic)], pods, &Node { root, kubelets: &[], links }, before)
    }

    /// The devices of n3 in a network namespace, how it leads to them or why not, and whether they
    /// may appear.
    fn n3(netns: &str, pci: Option<&str>) -> (Vec<String>, String, bool) {
        let tree = machine();
        process(&tree, 70, &cgroup(UID), netns);
        let name = if netns == "sriov" { "net1" } else { "n3" };
        let mut found = look(&tree, "n3", &[pod(&[("core/n3", name, pci)])], &[]);
        let PodNic { devices, found, missing, may_come, .. } = found.remove(0);
        (devices, [found, missing].concat().join("; "), may_come)
    }

    #[test]
    fn devices_of_every_kind_of_network() {
        for (netns, devices, how) in [
            ("macvlan", &["eth1"][..], "n3 (macvlan) leads to eth1"),
            ("sriov", &[VF], "net1 is the virtual function 0000:03:02.1 of eth1"),
            ("on top", &[VF], "n3 (macvlan) is on the virtual function 0000:03:02.1 of eth1"),
            ("bond", &["0000:00:05.0", VF], "n3 (bond) leads to 0000:00:05.0, 0000:03:02.1"),
        ] {
            let wanted = devices.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(n3(netns, None), (wanted, how.into(), false), "{netns}");
        }
        // What the kernel says takes precedence over the annotation.
        assert_eq!(n3("macvlan", Some(VF)).0, ["eth1"]);
    }

    #[test]
    fn a_function_that_a_driver_in_user_space_has() {
        let how = "n3 is the virtual function 0000:03:02.1 of eth1".to_owned();
        assert_eq!(n3("empty", Some(VF)), (vec![VF.into()], how.clone(), false));
        let tree = machine();
        let pods = [pod(&[("core/n3", "", Some(VF))])];
        // The pod's processes need not be visible.
        assert_eq!(look(&tree, "n3", &pods, &[])[0].found, [how.replace("n3 ", "core/n3 ")]);
        // Whoever may change the pod chooses the address, so not every device counts as one of the
        // pod's.
        for other in ["0000:03:00.0", "0000:03:09.9", "../../x:y", "eth1"] {
            let (devices, why, _) = n3("empty", Some(other));
            let wanted = format!("n3: its annotation names {other}: no virtual function of a NIC");
            assert_eq!((devices.len(), why), (0, wanted));
        }
        tree.write("sys/devices/pci0000:00/0000:03:02.1/class", "0x010802\n");
        assert_eq!(look(&tree, "n3", &pods, &[])[0].devices, [""; 0]);
    }

    #[test]
    fn why_a_nic_is_not_known() {
        for (netns, why) in [
            ("third", "n3 (macvlan) leads to a third network namespace"),
            ("gone", "n3: the device under it has gone"),
            ("tap", "n3 leads to no device of this machine"),
            ("empty", "its network namespace has no device n3"),
            ("secret", "secret: not permitted"),
        ] {
            assert_eq!(n3(netns, None), (vec![], why.into(), true), "{netns}");
        }
        let tree = machine();
        let why = |pods: &[Pod]| {
            let PodNic { devices, missing, may_come, .. } = look(&tree, "n3", pods, &[]).remove(0);
            assert_eq!((devices.len(), missing.len()), (0, 1));
            (missing[0].clone(), may_come)
        };
        let other = Pod { labels: BTreeMap::new(), ..pod(&[]) };
        let none = "no pod of this node has these labels and namespaces";
        assert_eq!(why(&[other]), (none.into(), false));
        let none = "it has no annotation about its networks";
        assert_eq!(why(&[Pod { networks: None, ..pod(&[]) }]), (none.into(), false));
        let none = "n3 is none of its networks (cbr0, core/n6)";
        let pods = [pod(&[("cbr0", "eth0", None), ("core/n6", "n6", None)])];
        assert_eq!(why(&pods), (none.into(), false));
        let pods = [pod(&[("core/n3", "n3", None)])];
        assert_eq!(why(&pods), ("none of its processes is running".into(), true));
        // Neither a process that has ended counts, nor one that named its own cgroup.
        tree.write("proc/70/cgroup", &format!("0::{}\n", cgroup(UID)));
        process(&tree, 71, &format!("/user.slice/user-1000.slice{}", cgroup(UID)), "macvlan");
        process(&tree, 72, &cgroup("6a7c2f0e-0000-4000-8000-0123456789ac"), "macvlan");
        assert_eq!(why(&pods).0, "none of its processes is running");
        let monitor = format!("/kubepods/burstable/pod{UID}/crio-conmon-{}.scope", "0a".repeat(32));
        process(&tree, 69, &monitor, "empty");
        process(&tree, 73, &cgroup(UID), "macvlan");
        process(&tree, 9000, &cgroup(UID), "empty");
        assert_eq!(look(&tree, "n3", &pods, &[])[0].devices, ["eth1"]);
    }

    #[test]
    fn an_annotation_that_becomes_unreadable_changes_nothing() {
        let tree = machine();
        process(&tree, 70, &cgroup(UID), "macvlan");
        let before = look(&tree, "n3", &[pod(&[("core/n3", "n3", None)])], &[]);
        let bad = [Pod { networks: Some(Err(Unreadable("no JSON".into()))), ..pod(&[]) }];
        let after = look(&tree, "n3", &bad, &before).remove(0);
        assert_eq!((&after.devices, &after.found), (&before[0].devices, &before[0].found));
        assert_eq!(after.missing, ["the annotation about its networks cannot be read: no JSON"]);
        let other = Pod { uid: UID.replace('6', "7"), ..bad[0].clone() };
        assert_eq!(look(&tree, "n3", &[other], &before)[0].devices, [""; 0]);
    }

    #[test]
    fn several_pods_and_entries() {
        let tree = machine();
        let other = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";
        process(&tree, 70, &cgroup(UID), "macvlan");
        process(&tree, 71, &format!("/kubepods/pod{other}/c"), "sriov");
        let upf_1 = pod(&[("core/n3", "net1", None)]);
        let upf_1 = Pod { uid: other.into(), name: "upf-1".into(), ..upf_1 };
        let pods = [pod(&[("core/n3", "n3", None), ("core/n6", "n6", None)]), upf_1];
        let device = IrqEntry { selectors: vec![], ..entry("eth0") };
        let irq = [device, entry("core/n3"), entry("n6")];
        let root = &Root::at(tree.path(""));
        let found = find(&irq, &pods, &Node { root, kubelets: &[], links }, &[]);
        let short: Vec<_> =
            found.iter().map(|one| (one.entry, &one.pod[..], one.devices.join(","))).collect();
        assert_eq!(
            short,
            [
                (1, "core/upf-0", "eth1".into()),
                (1, "core/upf-1", VF.into()),
                (2, "core/upf-0", String::new()),
                (2, "core/upf-1", String::new()),
            ]
        );
        let unknown = unknown(&irq, "nobody answers");
        assert_eq!(unknown.iter().map(|one| one.entry).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(unknown[0].missing, ["nobody answers"]);
    }
}
