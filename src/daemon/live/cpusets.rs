//! Which cpusets `cpus: allocated` stands for now.

use std::path::Path;

use super::{LivePolicy, Loaded, PolicyContext, load};
use crate::base::error::Result;
use crate::base::root::Root;
use crate::daemon::reports::Allocated;
use crate::kernel::cpusets::Cpusets;
use crate::policy::Policy;
use crate::policy::allocated::{self, Allocation};
use crate::sched::Scheduler;
use crate::sched::verdict::Verdict;

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
) -> Result<Loaded> {
    let loaded = load(text, path, context, Vec::new())?;
    if !follows_cpusets(&loaded.policy) {
        return Ok(loaded);
    }
    let found = find(&loaded.policy, &scheduler.try_policy(&loaded.compiled)?)?;
    load(loaded.text, path, context, found)
}

impl LivePolicy {
    /// Whether a rule's CPUs are those of its tasks' cpusets.
    pub fn follows_cpusets(&self) -> bool {
        follows_cpusets(&self.now.policy)
    }

    /// Follows the cpusets of the rules' tasks.
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
