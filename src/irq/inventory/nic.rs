//! The IRQs of a NIC.
//!
//! Sysfs lists them, whatever their names: `device` of the network device
//! (`Documentation/ABI/testing/sysfs-class-net`) leads to the PCI function with its `msi_irqs`
//! (sysfs-bus-pci), or to a part of the function with its own `irqs` (sysfs-bus-auxiliary). A
//! legacy INTx line, or a device that is not on PCI, has neither. Only then does the name in
//! /proc/interrupts decide.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::device::Device;
use super::interrupts::{Interrupt, Interrupts};
use super::lower::is_physical;
use super::queue::Queue;
use crate::base::error::Result;
use crate::irq::host::Host;
use crate::kernel::sysfs::{
    class_dir, entries, failed, file_name, is_pci_address, link_name, number, pci_dir,
};

/// A network device and its IRQs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    /// `None` when it has no driver, or is not a physical device.
    pub driver: Option<String>,
    /// The address of its PCI function, such as `0000:07:00.0`.
    pub pci: Option<String>,
    /// `None` if sysfs does not show it, or the machine has no nodes.
    pub numa_node: Option<u32>,
    /// Ascending by number.
    pub irqs: Vec<NicIrq>,
}

/// An IRQ of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicIrq {
    pub irq: u32,
    /// The name of its handler; `None` when it has none, for example while the NIC is down.
    pub name: Option<String>,
    /// Its queue, if the name contains it.
    pub queue: Option<Queue>,
}

impl Nic {
    /// Finds the IRQs of the network device `name` from `sys_root` (/sys except in tests) and
    /// /proc/interrupts. A virtual device has none: see [`super::lower::Lower`]. A name with a
    /// colon is the address of a PCI function, whose network device may be in another network
    /// namespace.
    ///
    /// Fails when gthctl's network namespace has no such device, or sysfs cannot be read.
    pub fn read(sys_root: &Path, interrupts: &Interrupts, name: &str) -> Result<Self> {
        let dir = dir_of(sys_root, name)?;
        let is_function = is_pci_address(name);
        let link = if is_function { dir } else { dir.join("device") };
        let device = match fs::canonicalize(&link) {
            Ok(device) => device,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Self { name: name.into(), ..Self::default() });
            }
            Err(e) => return Err(failed(&link, e)),
        };
        let devices = up_to_pci(&device);
        let pci = devices.last().filter(|dir| is_pci(dir));
        let names = Names {
            nic: name,
            driver: link_name(&device.join("driver")),
            device: file_name(&device),
            pci: pci.map(|dir| file_name(dir)),
            others: if is_function { Vec::new() } else { others(&device, name)? },
        };
        let mut numbers = Vec::new();
        for dir in devices.iter().flat_map(|dir| [dir.join("irqs"), dir.join("msi_irqs")]) {
            numbers = entries(&dir)?.iter().filter_map(|name| name.parse().ok()).collect();
            if !numbers.is_empty() {
                break;
            }
        }
        let mut irqs: Vec<NicIrq> = if numbers.is_empty() {
            // The file `irq` has the legacy line, or 0. Another network namespace may have a NIC
            // with the same name, but not on the same line.
            let line = pci.and_then(|dir| number(&dir.join("irq")));
            let all = interrupts.irqs.iter();
            let possible = all.filter(|interrupt| line.is_none_or(|irq| interrupt.irq == irq));
            possible.filter_map(|interrupt| names.by_name(interrupt)).collect()
        } else {
            numbers.iter().filter_map(|&irq| names.own(irq, interrupts.get(irq))).collect()
        };
        irqs.sort_by_key(|irq| irq.irq);
        let numa_node = devices.iter().find_map(|dir| number(&dir.join("numa_node")));
        Ok(Self { name: name.into(), driver: names.driver, pci: names.pci, numa_node, irqs })
    }

    /// As [`Nic::read`]; `None` when there is no such device (any more).
    pub fn find(sys_root: &Path, interrupts: &Interrupts, name: &str) -> Result<Option<Self>> {
        match Self::read(sys_root, interrupts, name) {
            Err(_) if dir_of(sys_root, name).is_err() => Ok(None),
            nic => nic.map(Some),
        }
    }
}

/// Where sysfs describes the NIC.
fn dir_of(sys_root: &Path, name: &str) -> Result<PathBuf> {
    if is_pci_address(name) { pci_dir(sys_root, name) } else { class_dir(sys_root, name) }
}

/// All NICs of gthctl's network namespace, by name.
///
/// Fails when sysfs cannot be read.
pub fn all(host: &Host, interrupts: &Interrupts) -> Result<Vec<Nic>> {
    let sys = host.sys();
    let dir = sys.join("class/net");
    let mut names = entries(&dir)?;
    // This does not look at what is under each virtual device: a node has hundreds of them.
    names.retain(|name| is_physical(&dir.join(name)));
    those_of(&sys, interrupts, names.iter().collect())
}

/// The NICs of `devices`, each once, by name, without those that have gone.
///
/// Fails when sysfs cannot be read.
pub fn all_of(sys_root: &Path, interrupts: &Interrupts, devices: &[Device]) -> Result<Vec<Nic>> {
    those_of(sys_root, interrupts, devices.iter().flat_map(|device| &device.nics).collect())
}

fn those_of(
    sys_root: &Path,
    interrupts: &Interrupts,
    names: BTreeSet<&String>,
) -> Result<Vec<Nic>> {
    let find = |name: &String| Nic::find(sys_root, interrupts, name).transpose();
    names.into_iter().filter_map(find).collect()
}

/// The names that the name of a NIC's IRQ may contain.
struct Names<'a> {
    nic: &'a str,
    driver: Option<String>,
    /// The driver's device, such as `virtio2`.
    device: String,
    pci: Option<String>,
    /// The other NICs of the same device.
    others: Vec<String>,
}

impl Names<'_> {
    /// One of the device's IRQs, as this NIC's; `None` when it is another NIC's.
    fn own(&self, irq: u32, interrupt: Option<&Interrupt>) -> Option<NicIrq> {
        let names = interrupt.map_or(&[][..], |interrupt| &interrupt.names);
        let of = |nic: &str| names.iter().find(|name| self.after_nic(name, nic).is_some());
        let name = of(self.nic);
        if name.is_none() && self.others.iter().any(|other| of(other).is_some()) {
            return None;
        }
        Some(self.irq(irq, name.or(names.first())))
    }

    /// The IRQ, if its name shows that it belongs to this NIC.
    fn by_name(&self, interrupt: &Interrupt) -> Option<NicIrq> {
        let ours = |name: &&String| {
            self.after_nic(name, self.nic).is_some()
                || after(name, &self.device).is_some()
                || self.pci.as_ref().is_some_and(|pci| has_address(name, pci))
        };
        interrupt.names.iter().find(ours).map(|name| self.irq(interrupt.irq, Some(name)))
    }

    fn irq(&self, irq: u32, name: Option<&String>) -> NicIrq {
        // Skips the NIC's name, which may look like a queue, such as rx0.
        let queue = name.and_then(|name| Queue::of(self.after_nic(name, self.nic).unwrap_or(name)));
        NicIrq { irq, name: name.cloned(), queue }
    }

    /// What follows the NIC's name in `NIC...` or `DRIVER-NIC...`.
    fn after_nic<'n>(&self, name: &'n str, nic: &str) -> Option<&'n str> {
        let after_driver =
            || name.strip_prefix(self.driver.as_deref()?).and_then(|rest| rest.strip_prefix('-'));
        after(name, nic).or_else(|| after(after_driver()?, nic))
    }
}

/// What follows `owner` at the start of `name`, if the owner's name ends there: eth10-TxRx-0
/// and eth1.5 are not eth1's.
fn after<'n>(name: &'n str, owner: &str) -> Option<&'n str> {
    name.strip_prefix(owner).filter(|rest| rest.is_empty() || rest.starts_with(['-', ':', ' ']))
}

/// True when `name` contains that PCI address, and not just as a part of a longer one.
fn has_address(name: &str, address: &str) -> bool {
    name.match_indices(address).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + address.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_hexdigit())
            && !after.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

/// True when the network device `name` is down (`ip link set ... down`), by sysfs.
pub fn is_down(sys_root: &Path, name: &str) -> bool {
    const IFF_UP: u32 = 1;
    let path = sys_root.join("class/net").join(name).join("flags");
    let text = fs::read_to_string(path).unwrap_or_default();
    let flags = text.trim().strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    flags.is_some_and(|flags| flags & IFF_UP == 0)
}

/// The device and its ancestors, up to the PCI function: a virtio device or a USB adapter has the
/// function's IRQs. Only the device itself when none of them is on PCI.
fn up_to_pci(device: &Path) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = device.ancestors().map(Into::into).collect();
    let last = dirs.iter().position(|dir| is_pci(dir)).unwrap_or(0);
    dirs.into_iter().take(last + 1).collect()
}

fn is_pci(dir: &Path) -> bool {
    link_name(&dir.join("subsystem")).as_deref() == Some("pci")
}

/// The other network devices of the device at `dir`.
fn others(dir: &Path, nic: &str) -> Result<Vec<String>> {
    let all = entries(&dir.join("net"))?;
    Ok(all.into_iter().filter(|name| name != nic).collect())
}

/// The numbers of the queues that have an IRQ.
pub fn queues_of(nics: &[Nic]) -> BTreeSet<u32> {
    let irqs = nics.iter().flat_map(|nic| &nic.irqs);
    irqs.filter_map(|irq| irq.queue).map(|queue| queue.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    /// /proc/interrupts of one CPU with these IRQs and their handlers.
    fn interrupts(lines: &[(u32, &str)]) -> Interrupts {
        let lines = lines.iter().map(|(irq, names)| format!("{irq}: 7  PCI-MSIX  {names}\n"));
        let text = format!("  CPU0\n{}", lines.collect::<String>());
        Interrupts::parse(text.as_bytes()).unwrap()
    }

    /// The NIC, on a machine with these IRQs and their handlers.
    fn read(tree: &Tree, nic: &str, lines: &[(u32, &str)]) -> Nic {
        Nic::read(&tree.sys(), &interrupts(lines), nic).unwrap()
    }

    /// Each IRQ as `IRQ NAME QUEUE`.
    fn shown(nic: &Nic) -> Vec<String> {
        let one = |irq: &NicIrq| {
            let name = irq.name.as_deref().unwrap_or("-");
            let queue = irq.queue.map_or(String::new(), |queue| format!(" {queue}"));
            format!("{} {name}{queue}", irq.irq)
        };
        nic.irqs.iter().map(one).collect()
    }

    #[test]
    fn ixgbe() {
        let tree = Tree::new();
        let device = "pci0000:00/0000:00:02.0/0000:05:00.0";
        tree.pci("pci0000:00/0000:00:02.0", "pcieport", &[24]);
        tree.pci(device, "ixgbe", &[131, 129, 130]);
        tree.write(&format!("sys/devices/{device}/numa_node"), "1\n");
        tree.nic("eth0", device);
        let lines = [
            (24, "PCIe PME"),
            (129, "eth0-TxRx-0"),
            (130, "eth0-TxRx-1"),
            // Of another NIC whose name begins like this one's.
            (140, "eth0-x-TxRx-0"),
        ];
        let nic = read(&tree, "eth0", &lines);
        assert_eq!(shown(&nic), ["129 eth0-TxRx-0 rxtx0", "130 eth0-TxRx-1 rxtx1", "131 -"]);
        let found = (nic.driver.as_deref(), nic.pci.as_deref(), nic.numa_node);
        assert_eq!(found, (Some("ixgbe"), Some("0000:05:00.0"), Some(1)));
    }

    #[test]
    fn mlx5_by_sysfs_and_by_pci_address() {
        let tree = Tree::new();
        let device = "pci0000:00/0000:08:00.0";
        tree.pci(device, "mlx5_core", &[36, 37]);
        tree.write(&format!("sys/devices/{device}/numa_node"), "-1\n");
        tree.nic("enp8s0np0", device);
        let lines = [
            (36, "mlx5_async0@pci:0000:08:00.0"),
            (37, "mlx5_comp0@pci:0000:08:00.0"),
            (38, "mlx5_comp0@pci:10000:08:00.0"),
            (39, "mlx5_comp0@pci:0000:08:00.1"),
        ];
        let nic = read(&tree, "enp8s0np0", &lines);
        let ours = ["36 mlx5_async0@pci:0000:08:00.0", "37 mlx5_comp0@pci:0000:08:00.0 rxtx0"];
        assert_eq!(shown(&nic), ours);
        assert_eq!(nic.numa_node, None);
        fs::remove_dir_all(tree.path(&format!("sys/devices/{device}/msi_irqs"))).unwrap();
        assert_eq!(shown(&read(&tree, "enp8s0np0", &lines)), ours);
    }

    #[test]
    fn a_subfunction_has_irqs_of_its_own() {
        let tree = Tree::new();
        let function = "pci0000:00/0000:08:00.0";
        tree.pci(function, "mlx5_core", &[36, 37, 38]);
        let device = format!("{function}/mlx5_core.sf.4");
        tree.link(&format!("sys/devices/{device}/subsystem"), "sys/bus/auxiliary");
        tree.write(&format!("sys/devices/{device}/irqs/38"), "");
        tree.nic("en8f0pf0sf88", &device);
        let nic = read(&tree, "en8f0pf0sf88", &[(38, "mlx5_comp1@pci:0000:08:00.0")]);
        assert_eq!(shown(&nic), ["38 mlx5_comp1@pci:0000:08:00.0 rxtx1"]);
        assert_eq!(nic.pci.as_deref(), Some("0000:08:00.0"));
    }

    #[test]
    fn virtio_has_the_irqs_of_its_parent() {
        let tree = Tree::new();
        tree.pci("pci0000:00/0000:00:03.0", "virtio-pci", &[37, 38, 39]);
        tree.write("sys/devices/pci0000:00/0000:00:03.0/numa_node", "0\n");
        tree.virtio_nic("eth0", "pci0000:00/0000:00:03.0/virtio2");
        let lines = [
            (37, "virtio2-config"),
            (38, "virtio2-input.0"),
            (39, "virtio2-output.0"),
            (40, "virtio3-input.0"),
        ];
        let nic = read(&tree, "eth0", &lines);
        let ours = ["37 virtio2-config", "38 virtio2-input.0 rx0", "39 virtio2-output.0 tx0"];
        assert_eq!(shown(&nic), ours);
        let found = (nic.driver.as_deref(), nic.pci.as_deref(), nic.numa_node);
        assert_eq!(found, (Some("virtio_net"), Some("0000:00:03.0"), Some(0)));
    }

    #[test]
    fn virtio_without_pci_goes_by_name() {
        let tree = Tree::new();
        tree.virtio_nic("eth0", "platform/a003e00.virtio_mmio/virtio1");
        let lines = [(16, "virtio1"), (17, "virtio10"), (18, "virtio0")];
        let nic = read(&tree, "eth0", &lines);
        assert_eq!(shown(&nic), ["16 virtio1"]);
        assert_eq!(nic.pci, None);
    }

    #[test]
    fn two_devices_on_a_legacy_line() {
        let tree = Tree::new();
        // eth2 is down, so the line does not have its handler.
        for (nic, device) in
            [("eth0", "0000:00:19.0"), ("eth1", "0000:00:1a.0"), ("eth2", "0000:00:1b.0")]
        {
            let device = format!("pci0000:00/{device}");
            tree.pci_nic(nic, &device, "e1000", &[]);
            tree.write(&format!("sys/devices/{device}/irq"), "16\n");
        }
        let lines = [
            (16, "eth0, i801_smbus, eth1"),
            // Belongs to the eth0 of another network namespace.
            (17, "eth0"),
        ];
        let irqs_of = |nic| shown(&read(&tree, nic, &lines));
        assert_eq!(irqs_of("eth0"), ["16 eth0"]);
        assert_eq!(irqs_of("eth1"), ["16 eth1"]);
        assert!(irqs_of("eth2").is_empty());
    }

    #[test]
    fn names_after_the_driver_and_the_nic() {
        let tree = Tree::new();
        tree.link("sys/devices/platform/eth.0/driver", "sys/bus/platform/drivers/i40e");
        tree.nic("rx1", "platform/eth.0");
        let lines = [
            (1, "i40e-rx1-TxRx-3"),
            (2, "i40e-rx10-TxRx-3"),
            (3, "rx1"),
            (4, "rx1:tx-2"),
            (5, "rx1.5"),
            (6, "eth.0"),
        ];
        assert_eq!(
            shown(&read(&tree, "rx1", &lines)),
            ["1 i40e-rx1-TxRx-3 rxtx3", "3 rx1", "4 rx1:tx-2 tx2", "6 eth.0"]
        );
    }

    #[test]
    fn nics_of_one_device_have_irqs_of_their_own() {
        let tree = Tree::new();
        tree.pci_nic("eth2", "pci0000:00/0000:03:00.4", "cxgb4", &[50, 51, 52]);
        tree.nic("eth3", "pci0000:00/0000:03:00.4");
        let lines = [(50, "0000:03:00.4-FWeventq"), (51, "eth2-Rx0"), (52, "eth3-Rx0")];
        assert_eq!(
            shown(&read(&tree, "eth3", &lines)),
            ["50 0000:03:00.4-FWeventq", "52 eth3-Rx0 rx0"]
        );
    }

    #[test]
    fn virtual_devices_have_none_and_missing_ones_are_named() {
        let tree = Tree::new();
        tree.on_top("br0", &[]);
        let lines = [(1, "br0")];
        let nic = read(&tree, "br0", &lines);
        assert_eq!(nic, Nic { name: "br0".into(), ..Nic::default() });
        tree.write("sys/class/net/bonding_masters", "");
        for name in ["eth9", "", ".", "..", "../net/br0", "bonding_masters"] {
            let what = Nic::read(&tree.sys(), &interrupts(&lines), name).unwrap_err().what;
            assert!(what.starts_with(&format!("{name:?}: no such network device in ")), "{what}");
        }
    }

    #[test]
    fn one_that_has_gone_is_no_error_but_what_cannot_be_read_is() {
        let tree = Tree::new();
        tree.pci_nic("eth0", "pci0000:00/0000:07:00.0", "ixgbe", &[]);
        let find = |name| Nic::find(&tree.sys(), &interrupts(&[]), name);
        for name in ["eth0", "0000:07:00.0"] {
            assert_eq!(find(name).unwrap().unwrap().name, name);
        }
        assert_eq!((find("eth9").unwrap(), find("0000:07:00.1").unwrap()), (None, None));
        tree.write("sys/devices/pci0000:00/0000:07:00.0/msi_irqs", "no directory\n");
        for name in ["eth0", "0000:07:00.0"] {
            assert!(find(name).unwrap_err().what.contains("msi_irqs: "), "{name}");
        }
    }

    /// A node has hundreds of them, and gthctl looks for new NICs every 10 s.
    #[test]
    fn all_leave_virtual_devices_alone() {
        let tree = Tree::new();
        for (nic, slot) in [("eth1", 3), ("eth0", 4)] {
            tree.pci_nic(nic, &format!("pci0000:00/0000:00:0{slot}.0"), "ixgbe", &[]);
        }
        tree.on_top("n6", &["eth1", "eth0"]);
        tree.veth("veth1", 5, 2);
        tree.write("sys/class/net/bonding_masters", "");
        let host = Host { kind_of: |name| panic!("{name}"), ..tree.host() };
        let nics = all(&host, &interrupts(&[])).unwrap();
        assert!(nics.iter().map(|nic| nic.name.as_str()).eq(["eth0", "eth1"]), "{nics:?}");
    }

    #[test]
    fn of_this_machine() {
        let all = Interrupts::read(Path::new("/proc")).unwrap();
        for name in entries(Path::new("/sys/class/net")).unwrap() {
            if let Ok(nic) = Nic::read(Path::new("/sys"), &all, &name) {
                assert_eq!(nic.name, name);
            }
        }
    }
}
