//! Keeping interrupts away from CPUs: they stay where they were, but for these CPUs.

use super::saved::Saved;
use super::target::Target;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::irq::banned;
use crate::irq::host::Host;

/// Where interrupts go that may not come to some CPUs.
pub(super) struct Detour<'a> {
    host: &'a Host,
    saved: Option<Saved>,
    away: &'a CpuList,
    /// For interrupts whose CPUs all have to be avoided.
    others: CpuList,
}

impl<'a> Detour<'a> {
    /// Away from `away`.
    ///
    /// Fails when the saved state cannot be read.
    pub fn new(host: &'a Host, away: &'a CpuList, online: &CpuList) -> Result<Self> {
        let others: CpuList = online.iter().filter(|&cpu| !away.contains(cpu)).collect();
        let banned = banned::cpus(host);
        let wanted: CpuList = others.iter().filter(|&cpu| !banned.contains(cpu)).collect();
        let others = if wanted.is_empty() { others } else { wanted };
        Ok(Self { host, saved: Saved::load(host)?, away, others })
    }

    /// The CPUs for an IRQ that may come to `now`; `None` if it may stay where it was before gthctl
    /// moved it.
    pub fn of(&self, target: &Target, now: &CpuList) -> Option<CpuList> {
        let meets = |cpus: &CpuList| cpus.iter().any(|cpu| self.away.contains(cpu));
        let entry = self.saved.as_ref().and_then(|saved| saved.entry(target));
        let base = match entry {
            Some(entry) => entry.by_hand.clone().unwrap_or_else(|| entry.without_banned(self.host)),
            None => now.clone(),
        };
        if !meets(&base) {
            return None;
        }
        // Somebody else has moved it, to where it may be.
        let by_policy = entry.and_then(|entry| entry.by_policy.as_ref());
        if by_policy.is_some_and(|placed| placed != now) && !meets(now) {
            return Some(now.clone());
        }
        let left: CpuList = base.iter().filter(|&cpu| !self.away.contains(cpu)).collect();
        Some(if left.is_empty() { self.others.clone() } else { left })
    }
}

#[cfg(test)]
mod tests {
    use crate::base::cpulist::CpuList;
    use crate::irq::place::keep::Keeper;
    use crate::irq::place::plan::{Absent, Avoid, Placement};
    use crate::irq::place::restore::restore;
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
        tree.write("proc/irq/40/smp_affinity_list", "3\n");
        tree.write("proc/irq/41/smp_affinity_list", "0-1\n");
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
        tree.write("proc/irq/38/smp_affinity_list", "1\n");
        assert_eq!(away(&keeper), 0);
        tree.write("proc/irq/39/smp_affinity_list", "2-3\n");
        assert_eq!(away(&keeper), 1);
        avoid(&mut keeper, "3");
        assert_eq!((affinity(&tree, 38), affinity(&tree, 39)), ("1".into(), "0-2".into()));
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
    }

    #[test]
    fn cpus_that_irqbalance_may_not_use_stay_free() {
        let tree = Tree::with_this_process();
        tree.write("proc/irq/41/smp_affinity_list", "3\n");
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
