//! Keeping interrupts away from CPUs. Each interrupt stays on its other CPUs.

use super::saved::Saved;
use super::target::Target;
use crate::base::cpulist::CpuList;
use crate::base::error::{ExitCode, Result};
use crate::irq::banned;
use crate::irq::host::Host;
use crate::irq::inventory::interrupts::Interrupts;

/// Where interrupts go that have to avoid some CPUs.
pub(super) struct Detour<'a> {
    host: &'a Host,
    interrupts: &'a Interrupts,
    /// Also `None` for an unprivileged user, who may not read it.
    saved: Option<Saved>,
    away: &'a CpuList,
    online: &'a CpuList,
    /// The CPUs for interrupts whose own CPUs all have to be avoided.
    others: CpuList,
}

impl<'a> Detour<'a> {
    /// A detour around the CPUs `away`.
    ///
    /// Fails when the saved state cannot be read.
    pub fn new(
        host: &'a Host,
        interrupts: &'a Interrupts,
        away: &'a CpuList,
        online: &'a CpuList,
    ) -> Result<Self> {
        let others = online.without(away);
        let wanted = others.without(&banned::cpus(host));
        let others = if wanted.is_empty() { others } else { wanted };
        let saved = match Saved::load(host) {
            Err(e) if e.code == ExitCode::Permission => None,
            saved => saved?,
        };
        Ok(Self { host, interrupts, saved, away, online, others })
    }

    /// The CPUs for an IRQ that is on the CPUs `now`.
    pub fn of(&self, target: &Target, now: &CpuList) -> CpuList {
        let entry = self.saved.as_ref().and_then(|saved| saved.entry(target));
        let entry = entry.filter(|entry| entry.is_same(self.host, self.interrupts));
        // Somebody else has moved it to CPUs where it may stay.
        let by_policy = entry.and_then(|entry| entry.by_policy.as_ref());
        if by_policy.is_some_and(|placed| placed != now) && !now.meets(self.away) {
            return now.clone();
        }
        let base = match entry {
            Some(entry) => entry.without_policy(self.host),
            None => now.clone(),
        };
        let left = base.without(self.away);
        if left.meets(self.online) { left } else { self.others.clone() }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::cpulist::CpuList;
    use crate::irq::place::drift;
    use crate::irq::place::keep::Keeper;
    use crate::irq::place::restore::restore;
    use crate::irq::place::wanted::{Absent, Avoid, Placement};
    use crate::irq::tree::{Tree, affinities, affinity, on, pin, saved};

    fn off(cpus: &str) -> Placement {
        let away: CpuList = cpus.parse().unwrap_or_default();
        Placement { avoid: Some(Avoid::Exclusive), away, ..Placement::default() }
    }

    fn avoid(keeper: &mut Keeper, cpus: &str) {
        keeper.keep(&[off(cpus)]).unwrap();
    }

    #[test]
    fn away_and_back_as_exclusive_cpus_come_and_go() {
        let tree = Tree::with_this_process();
        tree.allow(40, "3");
        tree.allow(41, "0-1");
        let before = affinities(&tree);
        let mut keeper = Keeper::new(tree.host());
        avoid(&mut keeper, "");
        assert_eq!((affinities(&tree), saved(&tree)), (before.clone(), None));
        avoid(&mut keeper, "3");
        assert_eq!(affinities(&tree), ["0-2", "0-2", "0-2", "0-2", "0-1"]);
        avoid(&mut keeper, "2-3");
        assert_eq!(affinities(&tree), ["0-1"; 5]);
        avoid(&mut keeper, "2");
        assert_eq!(affinities(&tree), ["0-1,3", "0-1,3", "0-1,3", "3", "0-1"]);
        avoid(&mut keeper, "");
        assert_eq!((affinities(&tree), saved(&tree)), (before.clone(), None));
        avoid(&mut keeper, "2-3");
        keeper.end();
        assert_eq!((affinities(&tree), saved(&tree)), (before, None));
    }

    #[test]
    fn another_entry_for_the_nic_goes_first() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        let queue = Placement { queues: [1].into(), ..on("eth0", "3") };
        keeper.set(&[off("2-3"), queue], Absent::Refuse).unwrap();
        assert_eq!(affinities(&tree), ["0-1", "0-1", "0-1", "3", "3"]);
        let named = Placement { nic: "eth0".into(), ..off("1") };
        keeper.set(&[named], Absent::Refuse).unwrap();
        assert_eq!(affinities(&tree), ["0,2-3"; 5]);
        let none = Placement { nic: "eth9".into(), ..off("1") };
        assert!(keeper.set(&[none], Absent::Refuse).is_err());
    }

    #[test]
    fn others_may_move_them_as_long_as_they_keep_away() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        avoid(&mut keeper, "3");
        let away = |keeper: &Keeper| keeper.kept().report(&tree.host()).unwrap().away;
        tree.allow(38, "1");
        assert_eq!(away(&keeper), 0);
        tree.allow(39, "2-3");
        assert_eq!(away(&keeper), 1);
        avoid(&mut keeper, "3");
        assert_eq!((affinity(&tree, 38), affinity(&tree, 39)), ("1".into(), "0-2".into()));
    }

    #[test]
    fn what_others_moved_stays_there_while_it_may() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        avoid(&mut keeper, "3");
        tree.allow(38, "1");
        for away in ["2-3", "3", "0,3"] {
            avoid(&mut keeper, away);
            assert_eq!(affinity(&tree, 38), "1", "{away}");
        }
        assert_eq!(drift::look(&tree.host()).unwrap().away().count(), 0);
        avoid(&mut keeper, "1");
        assert_eq!(affinity(&tree, 38), "0,2-3");
    }

    #[test]
    fn what_was_placed_by_hand_avoids_them_too() {
        let tree = Tree::with_this_process();
        pin(&tree, "eth0", "2");
        let mut keeper = Keeper::new(tree.host());
        avoid(&mut keeper, "2-3");
        assert_eq!(affinities(&tree), ["0-1"; 5]);
        avoid(&mut keeper, "3");
        assert_eq!(affinities(&tree), ["2"; 5]);
        // Somebody moves one there.
        tree.allow(38, "3");
        avoid(&mut keeper, "3");
        assert_eq!(affinities(&tree), ["2"; 5]);
    }

    /// What is saved about the last device with this number does not apply to the next one.
    #[test]
    fn the_irq_of_another_device_avoids_them() {
        let tree = Tree::with_this_process();
        pin(&tree, "eth0", "1");
        tree.irq_40_passes_to_another_device();
        tree.allow(40, "0-3");
        avoid(&mut Keeper::new(tree.host()), "3");
        assert_eq!(affinities(&tree), ["1", "1", "1", "0-2", "1"]);
    }

    /// An IRQ's list may hold CPUs that are not online. The kernel refuses a list of only such
    /// CPUs.
    #[test]
    fn one_that_has_no_other_cpu_online() {
        let tree = Tree::with_this_process();
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        tree.allow(38, "2-3");
        avoid(&mut Keeper::new(tree.host()), "2");
        assert_eq!([37, 38].map(|irq| affinity(&tree, irq)), ["0-1,3", "0-1"]);
    }

    /// irqbalance would move them to CPUs where they may not be, even though all are elsewhere now.
    #[test]
    fn refused_beside_irqbalance() {
        let tree = Tree::with_this_process();
        for irq in 37..=41 {
            tree.allow(irq, "0-1");
        }
        tree.irqbalance(42);
        let mut keeper = Keeper::new(tree.host());
        let e = keeper.set(&[off("3")], Absent::Refuse).unwrap_err();
        assert!(e.what.starts_with("irqbalance is running (PID 42) and "), "{e}");
        keeper.set(&[off("")], Absent::Refuse).unwrap();
    }

    #[test]
    fn cpus_that_irqbalance_may_not_use_stay_free() {
        let tree = Tree::with_this_process();
        tree.allow(41, "3");
        let ban = |mask: &str| {
            let text = format!("IRQBALANCE_BANNED_CPUS={mask}\n");
            tree.write("etc/sysconfig/irqbalance", &text);
        };
        // CPU 0 was banned before, and the IRQs could go there.
        ban("1");
        let mut keeper = Keeper::new(tree.host());
        avoid(&mut keeper, "3");
        assert_eq!(affinities(&tree), ["0-2", "0-2", "0-2", "0-2", "1-2"]);
        // As CRI-O does while a container on CPU 2 runs.
        ban("5");
        avoid(&mut keeper, "3");
        assert_eq!(affinities(&tree), ["0-1", "0-1", "0-1", "0-1", "1"]);
        keeper.end();
        assert_eq!(affinities(&tree), ["0-1,3", "0-1,3", "0-1,3", "0-1,3", "3"]);

        pin(&tree, "eth0", "1");
        ban("7");
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(affinities(&tree), ["0,3", "0,3", "0,3", "0,3", "3"]);
    }
}
