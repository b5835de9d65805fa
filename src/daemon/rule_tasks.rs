//! The tasks under the rules in force: the kernel's own records of them, and their pods.

use std::path::Path;

use super::live::{LivePolicy, PolicyContext};
use super::reports::{RuleTask, RuleTasks};
use crate::base::error::Result;
use crate::kernel::procfs;
use crate::pods::Pod;
use crate::policy::cgroups::Home;
use crate::sched::Scheduler;
use crate::sched::verdict::Verdict;

/// Lists every thread under a rule.
pub fn list(
    policy: &LivePolicy,
    scheduler: &mut Scheduler<'_>,
    context: &PolicyContext<'_>,
) -> Result<RuleTasks> {
    let mut verdicts = scheduler.verdicts(None)?;
    // Threads without a rule come first, and are dropped below.
    verdicts.sort_by_key(|verdict| (verdict.rule, verdict.tgid, verdict.tid));
    let generation = scheduler.generation();
    let pods = context.pods.unwrap_or_default();
    let task = |verdict: Verdict| {
        let rule = policy.rules().get(verdict.rule?)?;
        Some(RuleTask {
            tid: verdict.tid,
            pid: verdict.tgid,
            pod: procfs::cgroup(Path::new("/proc"), verdict.tid).and_then(|at| pod(&at, pods)),
            rule: rule.name.clone(),
            generation: verdict.generation,
            in_force: verdict.generation == generation && verdict.in_force == verdict.rule,
            comm: verdict.comm,
        })
    };
    Ok(RuleTasks { generation, tasks: verdicts.into_iter().filter_map(task).collect() })
}

/// The pod of the cgroup at this path: `namespace/name`, or the uid if the pod is unknown.
fn pod(cgroup: &str, pods: &[Pod]) -> Option<String> {
    let uid = Home::of(cgroup).pod?;
    let known = pods.iter().find(|pod| pod.uid == uid);
    Some(known.map_or(uid, |pod| format!("{}/{}", pod.namespace, pod.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_its_name_if_that_is_known() {
        let uid = "0f0f0f0f-1111-2222-3333-444444444444";
        let cgroup = format!("/kubepods/burstable/pod{uid}/x");
        assert_eq!(pod(&cgroup, &[]).as_deref(), Some(uid));
        let named = |uid: &str| Pod {
            uid: uid.into(),
            namespace: "core".into(),
            name: "upf-0".into(),
            labels: Default::default(),
            networks: None,
        };
        assert_eq!(pod(&cgroup, &[named("other")]).as_deref(), Some(uid));
        assert_eq!(pod(&cgroup, &[named(uid)]).as_deref(), Some("core/upf-0"));
        assert_eq!(pod("/system.slice/upf.service", &[named(uid)]), None);
    }
}
