//! Interrupts of NICs: whether irqbalance moves them, and whether there are queues for the CPUs.

use super::sight::Sight;
use crate::base::error::Result;
use crate::base::finding::Finding;
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::nic::is_down;
use crate::irq::inventory::steering::Steering;
use crate::irq::irqbalance::Irqbalance;

pub fn findings(sight: &Sight<'_>) -> Vec<Finding> {
    let mut findings = irqbalance(sight.host);
    findings.extend(nics(sight).unwrap_or_else(|e| {
        vec![Finding::note("nic-queues", format!("the NICs are unknown: {}", e.what))]
    }));
    findings
}

/// Whether irqbalance runs, and what it leaves alone.
pub fn irqbalance(host: &Host) -> Vec<Finding> {
    const CHECK: &str = "irqbalance";
    let running = match Irqbalance::running(host) {
        Ok(running) => running,
        Err(e) => return vec![Finding::note(CHECK, format!("unknown: {}", e.what))],
    };
    if running.is_empty() {
        return vec![Finding::ok(CHECK, "not running")];
    }
    let finding = |daemon: &Irqbalance| {
        let (pid, except) = (daemon.pid, daemon.except());
        // An irqbalance that did not answer may leave more alone.
        let unanswered = daemon.busy().map_or(String::new(), |why| format!(" (no answer: {why})"));
        let what = format!("irqbalance (PID {pid}) moves interrupts{except}{unanswered}");
        Finding::note(CHECK, what).fix(
            "gthctl irq pin --ban, or an irq entry of the policy with irqbalance: ban, keeps it \
             off those of a NIC",
        )
    };
    running.iter().map(finding).collect()
}

/// Whether several CPUs process what each NIC that is up receives.
fn nics(sight: &Sight<'_>) -> Result<Vec<Finding>> {
    const CHECK: &str = "nic-queues";
    let sys = sight.host.sys();
    let online = sight.host.topology()?.online;
    let cpus = online.len();
    let mut findings = Vec::new();
    for device in Device::all(sight.host)?.iter().filter(|device| !device.is_virtual()) {
        let name = &device.name;
        if is_down(&sys, name) {
            continue;
        }
        let queues = Steering::Rps.queues(&sys, name)?;
        let spread = |queue: &u32| Steering::Rps.read(&sys, name, *queue);
        let masks = queues.iter().map(spread).collect::<Result<Vec<_>>>()?;
        let rps = masks.iter().flatten().any(|mask| mask.common(&online).len() > 1);
        let count = queues.len();
        let what = format!("{name}: receive queues: {count}, for {cpus} CPUs");
        findings.push(match count {
            0 => Finding::note(CHECK, format!("{name}: its receive queues are unknown")),
            1 if cpus > 1 && !rps => {
                let what = format!("{what}: one CPU processes all that it receives");
                let fix = format!(
                    "ethtool -L {name} combined {cpus}, or gthctl irq pin {name} --rps --cpus LIST"
                );
                Finding::note(CHECK, what).fix(fix)
            }
            1 if cpus > 1 => Finding::ok(CHECK, format!("{what}, and RPS spreads it")),
            _ if count > cpus => Finding::note(CHECK, format!("{what}: some CPUs have several"))
                .fix(format!("ethtool -L {name} combined {cpus}")),
            _ => Finding::ok(CHECK, what),
        });
    }
    if findings.is_empty() {
        let what = "no NIC of this network namespace is up";
        findings.push(Finding::note(CHECK, what));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::{Daemon, Machine, Tree};

    fn found(tree: &Tree) -> Vec<Finding> {
        let host = tree.host();
        findings(&Sight::new(&host))
    }

    #[test]
    fn irqbalance_and_what_it_leaves_alone() {
        let tree = Tree::machine(&Machine::VIRTIO);
        assert_eq!(found(&tree)[0], Finding::ok("irqbalance", "not running"));
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0-i38\0");
        let noted = &found(&tree)[0];
        assert_eq!(noted.level, Level::Note);
        assert!(noted.what.ends_with("(PID 42) moves interrupts except IRQ 38"), "{}", noted.what);
        assert!(noted.fix.as_ref().unwrap().contains("irqbalance: ban"), "{noted:?}");
        let tree = Tree::machine(&Machine::VIRTIO);
        let _busy = Daemon::new(&tree, &[]);
        let silent = &found(&tree)[0].what;
        assert!(silent.contains("moves interrupts (no answer: "), "{silent}");
    }

    #[test]
    fn queues_against_cpus() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("n6", &["eth0"]);
        let queues = || found(&tree)[1..].to_vec();
        assert_eq!(queues(), [Finding::ok("nic-queues", "eth0: receive queues: 2, for 4 CPUs")]);
        std::fs::remove_dir_all(tree.path("sys/class/net/eth0/queues/rx-1")).unwrap();
        let one = queues();
        assert_eq!(one[0].level, Level::Note);
        assert!(one[0].fix.as_ref().unwrap().starts_with("ethtool -L eth0 combined 4"));
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "4\n");
        assert_eq!(queues(), one, "RPS moves all to one other CPU");
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "c\n");
        assert_eq!(queues()[0].level, Level::Ok);
        for queue in 1..5 {
            tree.write(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "0\n");
        }
        assert_eq!(queues()[0].level, Level::Note);
        // IFF_UP is not set.
        tree.write("sys/class/net/eth0/flags", "0x1002\n");
        assert!(queues()[0].what.contains("no NIC"), "{:?}", queues());
    }
}
