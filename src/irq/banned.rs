//! The CPUs that irqbalance's configuration bans: irqbalance moves no interrupt there.
//!
//! Administrators set them, and so does CRI-O, while a container with the annotation
//! `irq-load-balancing.crio.io: disable` runs: it bans the container's CPUs, and starts irqbalance
//! anew (irqbalance(1), ENVIRONMENT VARIABLES).

use std::fs;

use super::host::Host;
use super::inventory::mask;
use crate::base::cpulist::CpuList;

/// The file with the environment of irqbalance's service, of Red Hat and SUSE, and of Debian.
const FILES: [&str; 2] = ["/etc/sysconfig/irqbalance", "/etc/default/irqbalance"];

/// The banned CPUs; none if no file can be read.
pub fn cpus(host: &Host) -> CpuList {
    let texts = FILES.iter().filter_map(|file| fs::read_to_string(host.root.path(file)).ok());
    texts.flat_map(|text| banned_by(&text).iter().collect::<Vec<_>>()).collect()
}

/// The last line for a variable counts.
fn banned_by(text: &str) -> CpuList {
    let value = |name: &str| {
        let of = |line: &str| {
            let line = line.trim_start();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let value = line.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim().trim_matches(['"', '\'']).to_owned())
        };
        text.lines().filter_map(of).next_back()
    };
    let list = value("IRQBALANCE_BANNED_CPULIST").and_then(|list| list.parse().ok());
    let mask = value("IRQBALANCE_BANNED_CPUS").and_then(|text| mask::parse(&text));
    list.or(mask).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn in_either_form_and_file() {
        let tree = Tree::new();
        let found = || cpus(&tree.host()).to_string();
        assert_eq!(found(), "");
        for (text, banned) in [
            ("IRQBALANCE_BANNED_CPUS=0000000c\n", "2-3"),
            ("# x\nIRQBALANCE_BANNED_CPUS=\"1,00000001\"\n", "0,32"),
            ("export IRQBALANCE_BANNED_CPULIST='4-5,7'\n", "4-5,7"),
            ("IRQBALANCE_BANNED_CPUS=3\nIRQBALANCE_BANNED_CPUS=\n", ""),
            ("#IRQBALANCE_BANNED_CPUS=ff\nIRQBALANCE_ARGS=\"-i 4\"\n", ""),
        ] {
            tree.write("etc/sysconfig/irqbalance", text);
            assert_eq!(found(), banned, "{text}");
        }
        tree.write("etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=1\n");
        assert_eq!(found(), "1");
    }
}
