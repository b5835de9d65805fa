//! The CPUs that irqbalance's configuration bans: irqbalance moves no interrupt there.
//!
//! Administrators set them. So does CRI-O while a container with the annotation
//! `irq-load-balancing.crio.io: disable` runs: it bans the container's CPUs and restarts irqbalance
//! (irqbalance(1), ENVIRONMENT VARIABLES).

use std::fs;
use std::path::PathBuf;

use super::host::Host;
use super::inventory::mask;
use crate::base::cpulist::CpuList;

/// The file with the environment of irqbalance's service on Red Hat and SUSE.
pub const OF_RED_HAT: &str = "/etc/sysconfig/irqbalance";
/// The same on Debian.
pub const OF_DEBIAN: &str = "/etc/default/irqbalance";

/// The root directories to look in: this process's, and that of PID 1. In a container that sees the
/// host's processes, the latter is the host's.
const ROOTS: [&str; 2] = ["", "/proc/1/root"];

/// The paths where the host may have this file.
pub fn places(host: &Host, file: &str) -> [PathBuf; 2] {
    ROOTS.map(|root| host.root.path(&format!("{root}{file}")))
}

/// The banned CPUs; none if no file can be read.
pub fn cpus(host: &Host) -> CpuList {
    let files = [OF_RED_HAT, OF_DEBIAN].into_iter().flat_map(|file| places(host, file));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts.flat_map(|text| banned_by(&text).iter().collect::<Vec<_>>()).collect()
}

/// The CPUs that `text` bans. The last line that sets a variable counts.
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

    #[test]
    fn of_the_host_where_this_is_a_container() {
        let tree = Tree::new();
        tree.write("proc/1/root/etc/sysconfig/irqbalance", "IRQBALANCE_BANNED_CPUS=2\n");
        assert_eq!(cpus(&tree.host()).to_string(), "1");
    }
}
