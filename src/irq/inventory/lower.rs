//! The NICs under a virtual network device: a VLAN, a bond, a bridge, a macvlan, or a veth that
//! is a port of a bridge.
//!
//! Sysfs links each device to those directly under it in the same network namespace
//! (`lower_NAME`), and a port to its bridge (`master`; net/core/dev.c,
//! `netdev_adjacent_sysfs_add()`).

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::base::error::Result;
use crate::kernel::sysfs::{class_dir, entries, link_name, number};

/// What carries the packets of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lower {
    /// The physical devices, by name. A physical device is in its own list.
    pub nics: Vec<String>,
    /// Which of the device and those under it have their other end in another network namespace: a
    /// veth with its peer there, or a macvlan or VLAN with its parent there. Such a device has NICs
    /// only as a port of a bridge.
    pub elsewhere: Vec<String>,
}

/// The network devices of this network namespace. Any number of [`Lower::read`] calls can share
/// them.
pub struct Devices<'a> {
    /// /sys except in tests.
    sys_root: &'a Path,
    /// The [`ends`] of all devices, read on first use.
    ends: OnceCell<BTreeSet<(u32, u32)>>,
    /// The NICs that each bridge leads its ports to, found on first use.
    through: RefCell<BTreeMap<String, BTreeSet<String>>>,
}

impl<'a> Devices<'a> {
    /// The devices that sysfs at `sys_root` shows.
    pub fn of(sys_root: &'a Path) -> Self {
        Self { sys_root, ends: OnceCell::new(), through: RefCell::default() }
    }

    /// The NICs that the packets of a port of `bridge` go through.
    fn through(&self, bridge: &str) -> Result<BTreeSet<String>> {
        if let Some(known) = self.through.borrow().get(bridge) {
            return Ok(known.clone());
        }
        let (nics, _) = walk(self, bridge, false)?;
        self.through.borrow_mut().insert(bridge.into(), nics.clone());
        Ok(nics)
    }

    /// Whether one of the devices has the index `index` and its other end the index `linked`.
    fn have_ends(&self, index: u32, linked: u32) -> Result<bool> {
        let ends = match self.ends.get() {
            Some(ends) => ends,
            None => {
                let all = self.sys_root.join("class/net");
                let read = entries(&all)?.iter().filter_map(|name| ends(&all.join(name))).collect();
                self.ends.get_or_init(|| read)
            }
        };
        Ok(ends.contains(&(index, linked)))
    }
}

impl Lower {
    /// Finds what is under `name`, one of `devices`. Both lists are empty for a device that ends
    /// in this machine, such as `lo`, a tap, or a veth without a bridge whose ends are both in
    /// this network namespace.
    ///
    /// Fails when gthctl's network namespace has no such device, or sysfs cannot be read.
    pub fn read(devices: &Devices<'_>, name: &str) -> Result<Self> {
        class_dir(devices.sys_root, name)?;
        let (nics, elsewhere) = walk(devices, name, true)?;
        let list = |names: BTreeSet<String>| names.into_iter().collect();
        Ok(Self { nics: list(nics), elsewhere: list(elsewhere) })
    }
}

/// Walks down from `name` and returns the two lists of a [`Lower`]. `under` is false if `name` is
/// the bridge of the device in question: then the other ends of the other ports do not matter.
fn walk(
    devices: &Devices<'_>,
    name: &str,
    under: bool,
) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let (mut nics, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
    let mut seen = BTreeSet::from([name.to_owned()]);
    let mut left = vec![name.to_owned()];
    while let Some(name) = left.pop() {
        // The device may have gone since.
        let Ok(dir) = class_dir(devices.sys_root, &name) else { continue };
        let physical = is_physical(&dir);
        let entries = entries(&dir)?;
        let mut next: Vec<String> =
            entries.iter().filter_map(|entry| Some(entry.strip_prefix("lower_")?.into())).collect();
        if !physical && next.is_empty() && is_end(&dir) {
            // The packets of a port go through the other ports of its bridge.
            let bridge = link_name(&dir.join("master"));
            if under {
                nics.extend(bridge.map(|it| devices.through(&it)).transpose()?.unwrap_or_default());
                if !other_end_is_here(devices, &dir)? {
                    elsewhere.insert(name.clone());
                }
            } else {
                next.extend(bridge);
            }
        }
        next.retain(|name| seen.insert(name.clone()));
        left.extend(next);
        if physical {
            nics.insert(name);
        }
    }
    Ok((nics, elsewhere))
}

/// True when the network device at `dir` is a NIC.
pub(super) fn is_physical(dir: &Path) -> bool {
    dir.join("device").exists()
}

/// True when the device at `dir`, which has nothing under it, has another end.
fn is_end(dir: &Path) -> bool {
    // 0 means no link. An IP tunnel may have the number of the device that it is bound to, but
    // that is not its other end.
    ends(dir).is_some_and(|(index, linked)| linked != 0 && linked != index) && has_peers(dir)
}

/// True when the other end of the device at `dir` is in this network namespace.
///
/// A device here may have the same index as the other end, which is elsewhere, but does not link
/// back.
fn other_end_is_here(devices: &Devices<'_>, dir: &Path) -> Result<bool> {
    let Some((index, linked)) = ends(dir) else { return Ok(false) };
    devices.have_ends(linked, index)
}

/// The index of the device at `dir` and that of its other end, in the other end's network
/// namespace.
fn ends(dir: &Path) -> Option<(u32, u32)> {
    Some((number(&dir.join("ifindex"))?, number(&dir.join("iflink"))?))
}

/// True for the types of devices that may have another end: Ethernet, or no link layer (netkit);
/// include/uapi/linux/if_arp.h.
fn has_peers(dir: &Path) -> bool {
    const ARPHRD_ETHER: u32 = 1;
    const ARPHRD_NONE: u32 = 0xfffe;
    number(&dir.join("type")).is_none_or(|kind| [ARPHRD_ETHER, ARPHRD_NONE].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    fn lower(tree: &Tree, name: &str) -> (Vec<String>, Vec<String>) {
        let lower = Lower::read(&Devices::of(&tree.sys()), name).unwrap();
        (lower.nics, lower.elsewhere)
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    fn nics(tree: &Tree, names: &[&str]) {
        for (slot, name) in names.iter().enumerate() {
            let device = format!("pci0000:00/0000:0{slot}:00.0");
            tree.pci_nic(name, &device, "ixgbe", &[]);
        }
    }

    fn bridge(tree: &Tree, name: &str, ifindex: u32, ports: &[&str]) {
        tree.on_top(name, ports);
        tree.index(name, ifindex, ifindex);
        for port in ports {
            tree.link(&format!("sys/class/net/{port}/master"), &format!("sys/class/net/{name}"));
        }
    }

    #[test]
    fn what_is_below() {
        let tree = Tree::new();
        nics(&tree, &["eth0", "eth1", "eth2", "enP1s1"]);
        tree.on_top("bond0", &["eth1", "eth0"]);
        tree.on_top("bond0.100", &["bond0"]);
        tree.on_top("n3", &["eth0"]);
        tree.index("eth0", 2, 2);
        tree.index("n3", 7, 2);
        tree.link("sys/class/net/eth2/lower_enP1s1", "sys/class/net/enP1s1");
        tree.on_top("a", &["b", "a"]);
        tree.on_top("b", &["a", "eth0", "gone"]);
        for (case, name, nics) in [
            ("a VLAN on a bond of two NICs", "bond0.100", &["eth0", "eth1"][..]),
            ("a macvlan on a NIC", "n3", &["eth0"]),
            // Azure: packets of the synthetic NIC go through the virtual function.
            ("a device under a physical one counts too", "eth2", &["enP1s1", "eth2"]),
            ("cycles end", "a", &["eth0"]),
        ] {
            assert_eq!(lower(&tree, name), (strings(nics), vec![]), "{case}");
        }
    }

    #[test]
    fn the_other_end_of_a_veth() {
        let tree = Tree::new();
        nics(&tree, &["eth0"]);
        tree.index("eth0", 2, 2);
        // veth1 leads to a pod, where its peer has the index that eth0 has here.
        tree.veth("veth1", 5, 2);
        // Both ends here.
        tree.veth("veth2", 6, 7);
        tree.veth("veth3", 7, 6);
        // Without a bridge, routes decide where they lead.
        assert_eq!(lower(&tree, "veth1"), (vec![], strings(&["veth1"])));
        assert_eq!(lower(&tree, "veth2"), (vec![], vec![]));
        bridge(&tree, "br0", 8, &["eth0", "veth1", "veth2"]);
        assert_eq!(lower(&tree, "br0"), (strings(&["eth0"]), strings(&["veth1"])));
    }

    /// Otherwise, the time for hundreds of veths would grow with the square of their number.
    #[test]
    fn the_ends_of_all_are_read_once() {
        let tree = Tree::new();
        tree.veth("veth1", 5, 2);
        let sys = tree.sys();
        let devices = Devices::of(&sys);
        let elsewhere = |devices: &Devices<'_>| Lower::read(devices, "veth1").unwrap().elsewhere;
        assert_eq!(elsewhere(&devices), ["veth1"]);
        tree.veth("veth2", 2, 5);
        assert_eq!(elsewhere(&devices), ["veth1"]);
        assert_eq!(elsewhere(&Devices::of(&sys)), [""; 0]);
    }

    /// The other ports of a bridge are not looked at again for each of its ports.
    #[test]
    fn the_ports_of_a_bridge_are_read_once() {
        let tree = Tree::new();
        nics(&tree, &["eth0", "eth1"]);
        tree.index("eth0", 2, 2);
        tree.index("eth1", 3, 3);
        for (name, ifindex) in [("veth1", 5), ("veth2", 6)] {
            tree.veth(name, ifindex, 2);
        }
        bridge(&tree, "br0", 8, &["eth0", "veth1", "veth2"]);
        let sys = tree.sys();
        let devices = Devices::of(&sys);
        let nics = |devices: &Devices<'_>, name: &str| Lower::read(devices, name).unwrap().nics;
        assert_eq!(nics(&devices, "veth1"), ["eth0"]);
        tree.link("sys/class/net/br0/lower_eth1", "sys/class/net/eth1");
        assert_eq!(nics(&devices, "veth2"), ["eth0"]);
        assert_eq!(nics(&Devices::of(&sys), "veth2"), ["eth0", "eth1"]);
    }

    #[test]
    fn a_port_of_a_bridge_goes_on_through_the_others() {
        let tree = Tree::new();
        nics(&tree, &["eth0", "eth1"]);
        tree.index("eth0", 2, 2);
        tree.index("eth1", 3, 3);
        tree.on_top("bond0", &["eth0", "eth1"]);
        tree.index("bond0", 4, 4);
        for (name, ifindex, iflink) in [("veth1", 5, 2), ("veth2", 6, 7), ("veth3", 7, 6)] {
            tree.veth(name, ifindex, iflink);
        }
        tree.veth("tap0", 9, 9);
        bridge(&tree, "br0", 8, &["bond0", "veth1", "veth2", "tap0"]);
        let all = strings(&["eth0", "eth1"]);
        assert_eq!(lower(&tree, "veth1"), (all.clone(), strings(&["veth1"])));
        assert_eq!(lower(&tree, "veth2"), (all, vec![]));
        // The end without the bridge, and a port without another end.
        assert_eq!(lower(&tree, "veth3"), (vec![], vec![]));
        assert_eq!(lower(&tree, "tap0"), (vec![], vec![]));
        // The master of a NIC is above it.
        tree.link("sys/class/net/eth0/master", "sys/class/net/bond0");
        assert_eq!(lower(&tree, "eth0"), (strings(&["eth0"]), vec![]));
        // A bridge with only pods.
        tree.veth("veth4", 10, 2);
        bridge(&tree, "br1", 11, &["veth4"]);
        assert_eq!(lower(&tree, "veth4"), (vec![], strings(&["veth4"])));
    }

    #[test]
    fn what_ends_here_resolves_to_nothing() {
        let tree = Tree::new();
        for (name, ifindex, iflink) in [("lo", 1, 1), ("tap0", 3, 3), ("tunl0", 4, 0)] {
            tree.veth(name, ifindex, iflink);
        }
        // A GRE tunnel that is bound to device 2.
        tree.veth("gre1", 9, 2);
        tree.write("sys/class/net/gre1/type", "778\n");
        tree.on_top("bare", &[]);
        for name in ["lo", "tap0", "tunl0", "gre1", "bare"] {
            assert_eq!(lower(&tree, name), (vec![], vec![]), "{name}");
        }
        let what = Lower::read(&Devices::of(&tree.sys()), "eth9").unwrap_err().what;
        assert!(what.starts_with("\"eth9\": no such network device in "), "{what}");
    }
}
