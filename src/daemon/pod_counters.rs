//! Counts what the tasks of each pod do: maps pods to the scheduler's counters.
//!
//! A pod's tasks count from the first look after its cgroup was created. A new cgroup inside it
//! counts from its first task on.

use std::collections::{BTreeMap, BTreeSet};

use super::reports::PodCounters;
use crate::base::error::Result;
use crate::pods::Pod;
use crate::policy::cgroups::{self, Home};
use crate::policy::patterns::{self, Budget, Dfa};
use crate::sched::Scheduler;
use crate::sched::counter_rows::{NONE, Rows};
use crate::sched::layout::Limits;
use crate::sched::verdict::Verdict;

/// Which pods the counters of the loaded scheduler belong to.
pub struct CountedPods {
    /// Finds the cgroups that the kubelet made for pods.
    pattern: Vec<Dfa>,
    rows: Rows,
    /// The row of each cgroup, by the scheduler's number of the cgroup.
    set: BTreeMap<u32, u16>,
}

impl CountedPods {
    /// `kubelets` are globs on directories with their own kubepods cgroup.
    pub fn new(kubelets: &[String]) -> Self {
        let pattern =
            patterns::compile(&[(0, &cgroups::any_pod(kubelets))], &mut Budget::default());
        Self {
            pattern: pattern.unwrap_or_default(),
            rows: Rows::new(Limits::POD_ROWS),
            set: BTreeMap::new(),
        }
    }

    /// Gives each of these pods its counters.
    pub fn follow(&mut self, scheduler: &mut Scheduler<'_>, pods: &[Pod]) -> Result<()> {
        let rows = self.rows.next(pods.iter().map(|pod| pod.uid.as_str()));
        for &row in rows.added() {
            scheduler.clear_pod(row)?;
        }
        self.rows = rows;
        let paths = scheduler.cgroups()?;
        let of_pods: BTreeMap<&str, u16> =
            paths.values().filter_map(|path| Some((path.as_str(), self.row_of(path)?))).collect();
        self.set = paths.iter().map(|(&index, path)| (index, row_at(path, &of_pods))).collect();
        // Pods' cgroups come before the cgroups inside them: a new cgroup takes over its parent's
        // row.
        let mut in_order: Vec<_> = paths.iter().collect();
        in_order.sort_by_key(|(_, path)| path.len());
        for (index, _) in in_order {
            scheduler.set_pod_row(*index, self.set[index]);
        }
        Ok(())
    }

    /// The row of the pod whose cgroup this is.
    fn row_of(&self, path: &str) -> Option<u16> {
        let uid = Home::of(path).pod?;
        let is_kubelets = self.pattern.iter().any(|dfa| dfa.find(path.as_bytes()) != 0);
        let row = self.rows.of(&uid);
        (is_kubelets && row != NONE).then_some(row)
    }

    /// What the tasks of each pod did, and how many there are now.
    pub fn counters(
        &self,
        scheduler: &Scheduler<'_>,
        pods: &[Pod],
        verdicts: &[Verdict],
    ) -> Result<Vec<PodCounters>> {
        let mut tasks = BTreeMap::new();
        for row in verdicts.iter().filter_map(|verdict| self.set.get(&verdict.group)) {
            *tasks.entry(*row).or_insert(0) += 1;
        }
        // A pod has no row if there are more pods than the scheduler has counters for.
        let seen: BTreeSet<u16> = self.set.values().copied().filter(|&row| row != NONE).collect();
        let has_cgroup = |pod: &&Pod| seen.contains(&self.rows.of(&pod.uid));
        let counters = |pod: &Pod| {
            let row = self.rows.of(&pod.uid);
            Ok(PodCounters {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                uid: pod.uid.clone(),
                tasks: tasks.get(&row).copied().unwrap_or(0),
                did: scheduler.pod_activity(row)?,
            })
        };
        pods.iter().filter(has_cgroup).map(counters).collect()
    }
}

/// The row of the nearest cgroup of a pod, from this path upwards.
fn row_at(path: &str, of_pods: &BTreeMap<&str, u16>) -> u16 {
    let mut at = Some(path);
    while let Some(path) = at {
        if let Some(&row) = of_pods.get(path) {
            return row;
        }
        at = path.rsplit_once('/').map(|(above, _)| above);
    }
    NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6a7c2f0e-0000-4000-8000-0123456789ab";

    #[test]
    fn a_cgroup_has_the_row_of_the_pod_that_it_is_in() {
        let of_pods = BTreeMap::from([("/kubepods/pod1", 3)]);
        let row = |path: &str| row_at(path, &of_pods);
        assert_eq!((row("/kubepods/pod1"), row("/kubepods/pod1/a/b")), (3, 3));
        assert_eq!((row("/kubepods"), row("/kubepods/pod10"), row("")), (NONE, NONE, NONE));
    }

    #[test]
    fn only_the_kubelets_cgroups_are_a_pods() {
        let mut counted = CountedPods::new(&[]);
        counted.rows = counted.rows.next([UID].into_iter());
        let row = Some(counted.rows.of(UID));
        assert_eq!(counted.row_of(&format!("/kubepods/burstable/pod{UID}")), row);
        let slice = format!("/kubepods.slice/kubepods-pod{}.slice", UID.replace('-', "_"));
        assert_eq!(counted.row_of(&slice), row);
        let forged = format!("/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}");
        assert_eq!(counted.row_of(&forged), None);
        let other = UID.replace('a', "b");
        assert_eq!(counted.row_of(&format!("/kubepods/pod{other}")), None);
    }
}
