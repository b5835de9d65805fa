//! The networks of a pod, as Multus describes them in an annotation (Kubernetes Network Custom
//! Resource Definition De-facto Standard 1.3, 4.1: Network Status Annotation).
//!
//! Anyone who may change a pod may change its annotations.

use serde::Deserialize;

/// The annotation's key.
pub(super) const ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

/// A network that a pod is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Such as `core/n3`; without a namespace for the cluster's default network.
    pub name: String,
    /// The network device in the pod; empty if there is none.
    pub interface: String,
    /// The address of the PCI function that is the device.
    pub pci: Option<String>,
}

/// The parts of an entry that gthctl reads.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    interface: String,
    #[serde(rename = "device-info")]
    device: Option<DeviceInfo>,
}

#[derive(Deserialize)]
struct DeviceInfo {
    pci: Option<Pci>,
}

#[derive(Deserialize)]
struct Pci {
    #[serde(rename = "pci-address")]
    address: Option<String>,
}

/// Why the annotation does not follow the standard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Reads the annotation.
pub(super) fn parse(annotation: &str) -> Result<Vec<Network>, Unreadable> {
    let entries: Vec<Entry> =
        serde_json::from_str(annotation).map_err(|e| Unreadable(e.to_string()))?;
    let network = |entry: Entry| Network {
        name: entry.name,
        interface: entry.interface,
        pci: entry.device.and_then(|device| device.pci?.address),
    };
    Ok(entries.into_iter().map(network).collect())
}

/// The networks that `name` means: those with this interface, or else with this name, or else with
/// this name in any namespace.
pub fn named<'a>(networks: &'a [Network], name: &str) -> Vec<&'a Network> {
    let kinds: [&dyn Fn(&Network) -> bool; 3] =
        [&|network| network.interface == name, &|network| network.name == name, &|network| {
            network.name.rsplit_once('/').is_some_and(|(_, short)| short == name)
        }];
    let of = |is: &&dyn Fn(&Network) -> bool| networks.iter().filter(|one| is(one)).collect();
    kinds.iter().map(of).find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Multus 4 writes it for a pod with an SR-IOV network and a macvlan.
    const STATUS: &str = r#"[{
        "name": "cbr0", "interface": "eth0", "ips": ["10.244.1.7"], "mac": "de:ad:be:ef:00:07",
        "default": true, "dns": {}, "gateway": ["10.244.1.1"]
    },{
        "name": "core/n3", "interface": "net1", "ips": ["10.100.50.233"],
        "mac": "02:00:00:00:00:03", "mtu": 1500, "dns": {},
        "device-info": {"type": "pci", "version": "1.1.0",
            "pci": {"pci-address": "0000:03:02.1", "pf-pci-address": "0000:03:00.0"}}
    },{
        "name": "core/n6", "interface": "n6", "ips": null, "dns": {"nameservers": ["10.0.0.2"]}
    },{
        "name": "ran/n3", "interface": "net3", "dns": {},
        "device-info": {"type": "memif", "version": "1.0.0", "memif": {"role": "slave"}}
    }]"#;

    #[test]
    fn networks_by_interface_and_name() {
        let all = parse(STATUS).unwrap();
        let of = |name: &str| -> Vec<String> {
            named(&all, name).iter().map(|network| network.interface.clone()).collect()
        };
        assert_eq!(
            (of("net1"), of("core/n3"), of("eth0")),
            (vec!["net1".into()], vec!["net1".into()], vec!["eth0".into()])
        );
        assert_eq!(of("n3"), ["net1", "net3"]);
        // An interface takes precedence over a name.
        assert_eq!((of("n6"), of("cbr0")), (vec!["n6".into()], vec!["eth0".into()]));
        assert_eq!((of("n9"), of("core"), of("/n3")), (vec![], vec![], vec![]));
        let pci: Vec<_> = all.iter().map(|network| network.pci.as_deref()).collect();
        assert_eq!(pci, [None, Some("0000:03:02.1"), None, None]);
    }

    #[test]
    fn what_is_no_list_of_networks() {
        for bad in ["", "{", "7", "{\"name\": \"n3\"}", "[{\"name\": 3}]", "[3]"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let entry = parse("[{}]").unwrap().remove(0);
        let empty = Network { name: String::new(), interface: String::new(), pci: None };
        assert_eq!(entry, empty);
        assert_eq!(parse("[]").unwrap(), []);
    }
}
