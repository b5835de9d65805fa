//! Which cpusets `cpus: allocated` stands for now, and which tasks cannot run on their rule's CPUs.

use std::path::Path;

use super::{LivePolicy, Loaded, PolicyContext, load};
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::base::root::Root;
use crate::daemon::reports::Allocated;
use crate::kernel::cpusets::Cpusets;
use crate::kernel::procfs;
use crate::policy::allocated::{self, Allocation};
use crate::policy::{Cpus, Policy, Rule};
use crate::sched::verdict::Verdict;
use crate::sched::{Rules, Scheduler};

/// The cpusets that tasks of each rule are in, with the rule's index.
pub(super) type Allocations = Vec<(usize, Vec<Allocation>)>;

fn follows_cpusets(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| rule.effects.allocated())
}

/// The cpusets of the tasks that fall under rules with allocated CPUs.
fn find(policy: &Policy, verdicts: &[Verdict]) -> Result<Allocations> {
    let root = Root::default();
    let cpusets = Cpusets::read(&root)?;
    let rules = policy.rules.iter().enumerate().filter(|(_, rule)| rule.effects.allocated());
    let of = |index: usize| {
        let tasks = verdicts.iter().filter(move |verdict| verdict.rule == Some(index));
        let cgroups: Vec<String> =
            tasks.filter_map(|task| cpusets.cgroup(&root, task.tid)).collect();
        allocated::of(&cpusets, cgroups.iter().map(String::as_str))
    };
    Ok(rules.map(|(index, _)| (index, of(index))).collect())
}

/// As [`load`], with the cpusets of the tasks that would fall under each rule.
pub(super) fn load_here(
    text: String,
    path: Option<&Path>,
    context: &PolicyContext<'_>,
    scheduler: &mut Scheduler<'_>,
    rules: Rules,
) -> Result<Loaded> {
    let loaded = load(text, path, context, Vec::new())?;
    if !follows_cpusets(&loaded.policy) {
        return Ok(loaded);
    }
    let found = find(&loaded.policy, &scheduler.try_policy(&loaded.compiled, rules)?)?;
    load(loaded.text, path, context, found)
}

impl LivePolicy {
    /// Whether any rule takes its CPUs from its tasks' cpusets.
    pub fn follows_cpusets(&self) -> bool {
        follows_cpusets(&self.now.policy)
    }

    /// Brings changes in the cpusets of the rules' tasks into force.
    pub fn follow_cpusets(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
    ) -> Result<()> {
        let found = find(&self.now.policy, &scheduler.verdicts(None)?)?;
        match found == self.now.allocated {
            true => Ok(()),
            false => self.refresh(scheduler, context),
        }
    }

    /// Why the thread runs on none of its rule's CPUs, or why those of its cpuset are not exclusive.
    pub fn why_not_its_cpus(&self, task: &Verdict) -> Option<String> {
        let index = task.rule?;
        let rule = self.now.policy.rules.get(index)?;
        let (root, tid) = (Root::default(), task.tid);
        if let Some(list) = rule.effects.cpus.as_ref().and_then(Cpus::list) {
            let allowed = procfs::cpus_allowed(&root.proc(), tid)?;
            let elsewhere = !list.meets(&allowed);
            return elsewhere.then(|| {
                let name = &rule.name;
                format!("{name}: cpus: its affinity and cpuset allow none of {list}; it runs on {allowed}")
            });
        }
        if !rule.effects.allocated() {
            return None;
        }
        let cpusets = Cpusets::read(&root).ok()?;
        let cgroup = cpusets.cgroup(&root, tid)?;
        let Some(one) = allocated::of(&cpusets, [cgroup.as_str()]).into_iter().next() else {
            return Some(format!("{}: cpus: {cgroup} has no cpuset of its own", rule.name));
        };
        let Allocation { cgroup, cpus, shared } = one;
        let why = shared?;
        Some(format!("{}: cpus: CPUs {cpus} of {cgroup} are not exclusive: {why}", rule.name))
    }

    /// A note for each rule with tasks that may run on none of its `cpus`.
    pub(super) fn elsewhere(&self, verdicts: &[Verdict]) -> Vec<String> {
        let rules = self.now.policy.rules.iter().enumerate();
        let lists = rules.filter_map(|(index, rule)| {
            Some((index, rule, rule.effects.cpus.as_ref().and_then(Cpus::list)?))
        });
        let note = |(index, rule, list): (usize, &Rule, &CpuList)| {
            let proc = Root::default().proc();
            let tasks = verdicts.iter().filter(|verdict| verdict.rule == Some(index));
            let allowed = tasks.filter_map(|task| procfs::cpus_allowed(&proc, task.tid));
            let elsewhere: Vec<CpuList> = allowed.filter(|allowed| !list.meets(allowed)).collect();
            let cpus: CpuList = elsewhere.iter().flat_map(CpuList::iter).collect();
            (!elsewhere.is_empty()).then(|| {
                format!(
                    "{}: {}: cpus: {} of its tasks may run on none of {list}, by affinity or cpuset; \
                     they run on {cpus}",
                    rule.location,
                    rule.name,
                    elsewhere.len()
                )
            })
        };
        lists.filter_map(note).collect()
    }

    /// The cpusets of the rules' tasks, for the status.
    pub(super) fn allocated(&self) -> Vec<Allocated> {
        let report = |index: usize, one: &Allocation| Allocated {
            rule: self.now.policy.rules[index].name.clone(),
            cgroup: one.cgroup.clone(),
            cpus: one.cpus.to_string(),
            exclusive: one.cpus.iter().all(|cpu| self.now.compiled.reserved.contains(cpu))
                && one.shared.is_none(),
            shared: one.shared.clone(),
        };
        let all = self.now.allocated.iter();
        all.flat_map(|(index, all)| all.iter().map(|one| report(*index, one))).collect()
    }
}
