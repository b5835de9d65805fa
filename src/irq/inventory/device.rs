//! The physical NICs that carry a network device's packets.

use std::fs;

use serde::Serialize;

use super::lower::{Devices, Lower};
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::kernel::sysfs::{class_dir, entries, is_pci_address, pci_dir};

/// A network device, and the NICs that carry its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    pub name: String,
    /// `macvlan`, `vlan`, `bond`, `bridge` and the like, if the kernel reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// By name. A physical device is among its own NICs.
    pub nics: Vec<String>,
    /// Which of the device and those under it lead to another network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

impl Device {
    /// Looks at the device `name` of this network namespace, or at the PCI function with that
    /// address.
    ///
    /// Fails when there is none.
    pub fn read(host: &Host, name: &str) -> Result<Self> {
        if is_pci_address(name) {
            pci_dir(&host.sys(), name)?;
            return Ok(Self { name: name.into(), nics: vec![name.into()], ..Self::default() });
        }
        Self::one_of(host, &Devices::of(&host.sys()), name)
    }

    /// Looks at the device `name`, one of `devices`.
    fn one_of(host: &Host, devices: &Devices<'_>, name: &str) -> Result<Self> {
        let Lower { nics, elsewhere } = Lower::read(devices, name)?;
        let device = Self { name: name.into(), kind: None, nics, elsewhere };
        let kind = if device.is_virtual() { kind(host, name)? } else { None };
        Ok(Self { kind, ..device })
    }

    /// As [`Device::read`], but also fails when no NIC is under the device.
    pub fn with_nics(host: &Host, name: &str) -> Result<Self> {
        let device = Self::read(host, name)?;
        if !device.nics.is_empty() {
            return Ok(device);
        }
        let what = format!("{name}: no physical NIC is under it in this network namespace");
        Err(match device.elsewhere.as_slice() {
            [] => Error::failure(what).help("`gthctl irq` lists the NICs"),
            others => {
                let others = others.join(", ");
                Error::failure(format!("{what}; {others} leads to another one"))
                    .help("name the NIC that the packets leave this machine through")
            }
        })
    }

    /// All devices, including virtual ones, that have NICs or lead to another network namespace.
    pub fn all(host: &Host) -> Result<Vec<Self>> {
        let mut names = entries(&host.sys().join("class/net"))?;
        names.sort();
        // Skips a device that has gone meanwhile, and bonding_masters, which is not a device.
        let sys = host.sys();
        let all = Devices::of(&sys);
        let devices = names.iter().filter_map(|name| Self::one_of(host, &all, name).ok());
        let leads = |device: &Self| !device.nics.is_empty() || !device.elsewhere.is_empty();
        Ok(devices.filter(leads).collect())
    }

    /// True unless the device itself is its only NIC.
    pub fn is_virtual(&self) -> bool {
        self.nics != [self.name.as_str()]
    }

    /// Such as `n6 is a macvlan on enp7s0`.
    pub fn on(&self) -> String {
        let kind = self.kind.as_deref().unwrap_or("virtual device");
        let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        format!("{} is {article} {kind} on {}", self.name, self.nics.join(", "))
    }
}

/// The kind of the virtual device `name`.
fn kind(host: &Host, name: &str) -> Result<Option<String>> {
    let uevent = fs::read_to_string(class_dir(&host.sys(), name)?.join("uevent"));
    let uevent = uevent.unwrap_or_default();
    let kind = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    Ok(kind.map(Into::into).or_else(|| (host.kind_of)(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn a_macvlan_says_what_it_is_on() {
        let tree = Tree::new();
        tree.pci_nic("enp7s0", "pci0000:00/0000:07:00.0", "ixgbe", &[40]);
        tree.on_top("n6", &["enp7s0"]);
        tree.write("sys/class/net/n6/uevent", "DEVTYPE=macvlan\nINTERFACE=n6\nIFINDEX=9\n");
        tree.on_top("ipvl0", &["enp7s0"]);
        tree.on_top("br0", &[]);
        let device = Device::with_nics(&tree.host(), "n6").unwrap();
        assert!(device.is_virtual());
        assert_eq!(device.on(), "n6 is a macvlan on enp7s0");
        let nic = Device::with_nics(&tree.host(), "enp7s0").unwrap();
        assert!(!nic.is_virtual() && nic.nics == ["enp7s0"]);
        let what = Device::with_nics(&tree.host(), "br0").unwrap_err().what;
        assert!(what.starts_with("br0: no physical NIC is under it"), "{what}");
        let ipvlan = Device::with_nics(&tree.host(), "ipvl0").unwrap();
        assert_eq!(ipvlan.on(), "ipvl0 is an ipvlan on enp7s0");
        let all = Device::all(&tree.host()).unwrap().into_iter().map(|device| device.name);
        assert!(all.eq(["enp7s0", "ipvl0", "n6"]));
        // The kind of a NIC is never looked up.
        let host = Host { kind_of: |name| panic!("{name}"), ..tree.host() };
        assert_eq!(Device::read(&host, "enp7s0").unwrap(), nic);
    }

    #[test]
    fn a_veth_into_a_pod_leads_elsewhere() {
        let tree = Tree::new();
        tree.veth("veth7", 7, 2);
        let e = Device::with_nics(&tree.host(), "veth7").unwrap_err();
        assert!(e.what.ends_with("; veth7 leads to another one"), "{e}");
        let all = Device::all(&tree.host()).unwrap();
        assert_eq!((all.len(), all[0].nics.len()), (1, 0));
        assert_eq!(all[0].elsewhere, ["veth7"]);
    }
}
