//! Finds the CPUs that are exclusive to each rule.

use std::collections::BTreeMap;

use super::allocated::Allocation;
use super::compile::{Machine, bad};
use super::{Cpus, Policy, Rule};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::base::mistakes::Mistakes;
use crate::kernel::topology::Topology;
use crate::sched::layout::Limits;

/// The exclusive CPUs of a policy.
pub(super) struct Reserved {
    /// Sets of CPUs whose tasks wait in one queue; no CPU is in two of them.
    pub pools: Vec<CpuList>,
    /// The pool of each CPU. Numbers below the number of LLCs are LLCs' pools, the others are
    /// `pools`.
    pub cpu_pool: Vec<u16>,
    /// The exclusive CPUs of each rule that has some, by the rule's index.
    pub exclusive: BTreeMap<usize, CpuList>,
}

/// Makes a pool for each distinct `cpus` and for each cpuset that is allocated to a rule's tasks.
///
/// A cpuset changes while gthctl runs, so a clash is not a mistake in the policy: the cpuset's CPUs
/// are not exclusive, and a note says why.
pub(super) fn reserve(
    policy: &Policy,
    machine: &Machine<'_>,
    notes: &mut Vec<String>,
    mistakes: &mut Mistakes,
) -> Reserved {
    let mut taken = Taken::new(machine.topology);
    let mut exclusive = BTreeMap::new();
    for (index, rule) in policy.rules.iter().enumerate().filter(|(_, rule)| rule.effects.exclusive)
    {
        if let Some(cpus) = rule.effects.cpus.as_ref().and_then(Cpus::list)
            && mistakes.take(taken.take_list(rule, cpus)).is_some()
        {
            exclusive.insert(index, cpus.clone());
        }
    }
    // The largest come first, because a cpuset may be within another.
    let mut allocated: Vec<(usize, &Allocation)> = machine
        .allocated
        .iter()
        .filter(|(index, _)| policy.rules.get(*index).is_some_and(|rule| rule.effects.allocated()))
        .flat_map(|(index, all)| all.iter().map(|one| (*index, one)))
        .filter(|(_, one)| one.shared.is_none())
        .collect();
    allocated.sort_by_key(|(_, one)| usize::MAX - one.cpus.len());
    for (index, Allocation { cgroup, cpus, .. }) in allocated {
        let rule = &policy.rules[index];
        match taken.take_cpuset(rule, cpus) {
            Ok(()) => {
                let all: &mut CpuList = exclusive.entry(index).or_default();
                *all = all.iter().chain(cpus.iter()).collect();
            }
            Err(why) => notes.push(format!(
                "{}: {}: CPUs {cpus} of {cgroup} are not exclusive: {why}",
                rule.location, rule.name
            )),
        }
    }
    let Taken { pools, cpu_pool, .. } = taken;
    Reserved { pools, cpu_pool, exclusive }
}

/// Why the CPUs of a cpuset are not exclusive.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error("CPU {cpu} is exclusive to `{rule}`")]
    Exclusive { cpu: u32, rule: String },
    #[error("CPU {cpu} is offline")]
    Offline { cpu: u32 },
    #[error("{NONE_LEFT}")]
    NoneLeft,
    #[error("there are already {} sets of exclusive CPUs", Limits::RESERVED)]
    TooMany,
}

/// The exclusive CPUs so far.
struct Taken<'a> {
    topology: &'a Topology,
    pools: Vec<CpuList>,
    cpu_pool: Vec<u16>,
    owner: BTreeMap<u32, &'a Rule>,
}

impl<'a> Taken<'a> {
    fn new(topology: &'a Topology) -> Self {
        let cpu_pool = topology.llc.clone();
        Self { topology, pools: Vec::new(), cpu_pool, owner: BTreeMap::new() }
    }

    fn take_list(&mut self, rule: &'a Rule, cpus: &CpuList) -> Result<()> {
        if self.pools.contains(cpus) {
            return Ok(());
        }
        let online = &self.topology.online;
        if let Some(cpu) = cpus.iter().find(|&cpu| !online.contains(cpu)) {
            return Err(not_here(rule, cpu, self.topology));
        }
        for cpu in cpus.iter() {
            if let Some(other) = self.owner.get(&cpu) {
                let what = format!("cpus: CPU {cpu} is exclusive to `{}` already", other.name);
                return Err(bad(rule, what).help("give both the same cpus, or none in common"));
            }
        }
        if !self.leaves_one(cpus) {
            return Err(bad(rule, format!("cpus: {NONE_LEFT}"))
                .help(format!("this machine has {online}; leave at least one")));
        }
        self.add(rule, cpus);
        Ok(())
    }

    fn take_cpuset(&mut self, rule: &'a Rule, cpus: &CpuList) -> std::result::Result<(), NotTaken> {
        let allocated = |cpu| self.owner.get(&cpu).is_some_and(|rule| rule.effects.allocated());
        let within = |pool: &&CpuList| cpus.iter().all(|cpu| allocated(cpu) && pool.contains(cpu));
        if self.pools.iter().any(|pool| within(&pool)) {
            return Ok(());
        }
        if let Some((cpu, other)) = cpus.iter().find_map(|cpu| Some((cpu, self.owner.get(&cpu)?))) {
            return Err(NotTaken::Exclusive { cpu, rule: other.name.clone() });
        }
        if let Some(cpu) = cpus.iter().find(|&cpu| !self.topology.online.contains(cpu)) {
            return Err(NotTaken::Offline { cpu });
        }
        if !self.leaves_one(cpus) {
            return Err(NotTaken::NoneLeft);
        }
        if self.pools.len() == Limits::RESERVED {
            return Err(NotTaken::TooMany);
        }
        self.add(rule, cpus);
        Ok(())
    }

    fn leaves_one(&self, cpus: &CpuList) -> bool {
        let mut online = self.topology.online.iter();
        online.any(|cpu| !cpus.contains(cpu) && !self.owner.contains_key(&cpu))
    }

    fn add(&mut self, rule: &'a Rule, cpus: &CpuList) {
        let pool = self.topology.nr_llcs() + self.pools.len();
        for cpu in cpus.iter() {
            self.owner.insert(cpu, rule);
            self.cpu_pool[cpu as usize] = pool as u16;
        }
        self.pools.push(cpus.clone());
    }
}

const NONE_LEFT: &str = "no CPU would be left for other tasks";

/// Adds a note if other tasks can run on a core's other CPU, which slows the exclusive one down.
pub(super) fn note_siblings(
    rule: &Rule,
    cpus: &CpuList,
    topology: &Topology,
    notes: &mut Vec<String>,
) {
    let siblings = cpus.iter().flat_map(|cpu| topology.siblings(cpu));
    let left: CpuList = siblings.filter(|&cpu| !cpus.contains(cpu)).collect();
    if !left.is_empty() {
        notes.push(format!(
            "{}: {}: cpus: {cpus} share cores with {left}; other tasks run there and slow them down",
            rule.location, rule.name
        ));
    }
}

fn not_here(rule: &Rule, cpu: u32, topology: &Topology) -> Error {
    let what = if topology.possible.contains(cpu) { "is offline" } else { "does not exist here" };
    bad(rule, format!("cpus: CPU {cpu} {what}")).help(format!("online are {}", topology.online))
}

/// Checks the CPUs that a rule prefers.
pub(super) fn check_cpus(
    rule: &Rule,
    topology: &Topology,
    reserved: &CpuList,
    notes: &mut Vec<String>,
) -> Result<()> {
    let cpus = rule.effects.cpus.as_ref().and_then(Cpus::list);
    let Some(cpus) = cpus.filter(|_| !rule.effects.exclusive) else { return Ok(()) };
    if let Some(cpu) = cpus.iter().find(|&cpu| !topology.possible.contains(cpu)) {
        return Err(not_here(rule, cpu, topology));
    }
    let offline: CpuList = cpus.iter().filter(|&cpu| !topology.online.contains(cpu)).collect();
    if !offline.is_empty() {
        notes.push(format!(
            "{}: {}: cpus: {offline}: not online, so not used now",
            rule.location, rule.name
        ));
    }
    let taken = cpus.common(reserved);
    if !taken.is_empty() {
        notes.push(format!(
            "{}: {}: cpus: {taken}: exclusive to another rule, so not used here",
            rule.location, rule.name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::root::Root;
    use crate::policy::compile::{Compiled, compile};
    use crate::sched::layout::MaskIndex;

    fn set(list: &str) -> CpuList {
        list.parse().unwrap()
    }

    fn allocation(cpus: &str, shared: Option<&str>) -> Allocation {
        let (cgroup, cpus) = (format!("/pod/{cpus}"), set(cpus));
        Allocation { cgroup, cpus, shared: shared.map(Into::into) }
    }

    /// A policy of these rules on CPUs 0-5, whose rules have these allocations.
    fn compiled(rules: &str, allocated: &[(usize, Vec<Allocation>)]) -> (Compiled, Vec<String>) {
        let all: CpuList = (0..6).collect();
        let topology = &Topology {
            possible: all.clone(),
            online: all,
            llc: vec![0; 6],
            sibling: (0..6).collect(),
            node: vec![0; 6],
            tickless: CpuList::default(),
        };
        let yaml = format!("strategies:\n{rules}");
        let (policy, _) = Policy::parse(&yaml, Path::new("p.yaml")).unwrap();
        let (root, slice_ns) = (&Root::at("/nonexistent"), 2_000_000);
        let machine = Machine { topology, root, pods: &[], kubelets: &[], allocated, slice_ns };
        compile(&policy, &machine).unwrap()
    }

    const TWO: &str = "- {name: m, command_regex: a, cpus: allocated, exclusive: true}
- {name: n, command_regex: b, cpus: allocated, exclusive: true}";

    #[test]
    fn each_cpuset_is_a_pool() {
        let own = |cpus| allocation(cpus, None);
        // One within another, the same for two rules, and one that is shared.
        let (c, notes) = compiled(
            TWO,
            &[
                (0, vec![own("3"), own("2-3"), own("5")]),
                (1, vec![own("2-3"), allocation("0-1", Some("why"))]),
            ],
        );
        assert_eq!(notes, [""; 0]);
        assert_eq!(c.cpu_pool, [0, 0, 1, 1, 0, 2]);
        assert_eq!(c.pool_cpus, [3, 2, 1]);
        assert_eq!((&c.reserved, &c.masks[&MaskIndex::NORMAL]), (&set("2-3,5"), &set("0-1,4")));
        let mask = |rule| &c.masks[&MaskIndex::rule(rule)];
        assert_eq!((mask(0), mask(1)), (&set("2-3,5"), &set("2-3")));
        assert!(c.rules.iter().all(|rule| rule.exclusive && rule.allocated && rule.has_cpus));
    }

    #[test]
    fn without_an_allocation_nothing_is_exclusive() {
        for allocated in [vec![], vec![(0, vec![allocation("2-3", Some("why"))])]] {
            let (c, notes) = compiled(TWO, &allocated);
            assert_eq!((notes.len(), c.reserved.is_empty()), (0, true));
            assert!(c.rules.iter().all(|rule| rule.allocated && !rule.exclusive && !rule.has_cpus));
        }
        let preferred = "- {command_regex: a, cpus: allocated}";
        let (c, _) = compiled(preferred, &[(0, vec![allocation("2-3", None)])]);
        assert!(c.reserved.is_empty() && !c.rules[0].has_cpus && !c.rules[0].allocated);
    }

    #[test]
    fn a_cpuset_that_clashes_is_not_exclusive() {
        let fixed = "- {name: f, command_regex: f, cpus: '2', exclusive: true}\n";
        let rules = fixed.to_owned() + TWO;
        let own = |cpus| vec![allocation(cpus, None)];
        let (c, notes) = compiled(&rules, &[(1, own("2-3")), (2, own("2"))]);
        assert_eq!(c.reserved, set("2"));
        assert_eq!(
            notes,
            [
                "p.yaml:3:4: m: CPUs 2-3 of /pod/2-3 are not exclusive: CPU 2 is exclusive to `f`",
                "p.yaml:4:4: n: CPUs 2 of /pod/2 are not exclusive: CPU 2 is exclusive to `f`",
            ]
        );
        let (c, notes) = compiled(&rules, &[(1, own("0-1,3")), (2, own("4-5"))]);
        assert_eq!(c.reserved, set("0-3"));
        assert!(notes[0].ends_with("not exclusive: no CPU would be left for other tasks"));
    }
}
