//! The counters of each rule's tasks.

use std::array;

use libbpf_rs::{MapCore, MapFlags, MapImpl};
use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::kernel::skeletons::scheduler::types::{gth_migration, gth_rule_stats, gth_turn_end};

/// What the tasks of a rule did since the scheduler was loaded, or since the rule came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    pub run_ns: u64,
    /// Runnable without running; 0 if the kernel does not count it (CONFIG_SCHED_INFO).
    pub wait_ns: u64,
    /// Turns on a CPU that ended because the task slept.
    pub slept: u64,
    /// Those that ended because the slice did, or because the task yielded.
    pub expired: u64,
    /// Those that another task ended before that.
    pub preempted: u64,
    /// How often a task came onto another CPU than its last one.
    pub migrations: u64,
    /// Those of them that crossed from one last-level cache to another, and from one NUMA node.
    pub llc_migrations: u64,
    pub node_migrations: u64,
    /// Bucket `b` counts wake-ups that took `2^b` to `2^(b+1)` ns until the task ran.
    pub wakeups: [u64; 32],
    /// The sum of these times.
    pub wakeup_sum_ns: u64,
}

impl RuleStats {
    fn of(one: &gth_rule_stats) -> Self {
        let turns = |end: gth_turn_end| one.turns[end.0 as usize];
        let migrations = |scope: gth_migration| one.migrations[scope.0 as usize];
        Self {
            run_ns: one.run_ns,
            wait_ns: one.wait_ns,
            slept: turns(gth_turn_end::GTH_TURN_SLEPT),
            expired: turns(gth_turn_end::GTH_TURN_EXPIRED),
            preempted: turns(gth_turn_end::GTH_TURN_PREEMPTED),
            migrations: migrations(gth_migration::GTH_MIGRATION_CPU),
            llc_migrations: migrations(gth_migration::GTH_MIGRATION_LLC),
            node_migrations: migrations(gth_migration::GTH_MIGRATION_NODE),
            wakeups: one.wakeup_ns,
            wakeup_sum_ns: one.wakeup_sum_ns,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            run_ns: self.run_ns + other.run_ns,
            wait_ns: self.wait_ns + other.wait_ns,
            slept: self.slept + other.slept,
            expired: self.expired + other.expired,
            preempted: self.preempted + other.preempted,
            migrations: self.migrations + other.migrations,
            llc_migrations: self.llc_migrations + other.llc_migrations,
            node_migrations: self.node_migrations + other.node_migrations,
            wakeups: array::from_fn(|bucket| self.wakeups[bucket] + other.wakeups[bucket]),
            wakeup_sum_ns: self.wakeup_sum_ns + other.wakeup_sum_ns,
        }
    }

    /// Sums a row's values of all CPUs.
    fn sum(cpus: &[Vec<u8>]) -> Self {
        let cpus = cpus.iter().filter(|bytes| bytes.len() >= size_of::<gth_rule_stats>());
        // SAFETY: the map's value is a gth_rule_stats, all integers; a map value need not be aligned.
        let one =
            |bytes: &Vec<u8>| unsafe { bytes.as_ptr().cast::<gth_rule_stats>().read_unaligned() };
        cpus.map(|bytes| Self::of(&one(bytes))).fold(Self::default(), Self::plus)
    }
}

/// Reads a row of the `rule_stats` map.
pub(super) fn read(map: &MapImpl<'_>, row: u16) -> Result<RuleStats> {
    let values = map
        .lookup_percpu(&u32::from(row).to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::failure(format!("reading the counters of rules: {e}")))?;
    Ok(RuleStats::sum(&values.unwrap_or_default()))
}

/// Sets a row to zero.
pub(super) fn clear(map: &MapImpl<'_>, row: u16) -> Result<()> {
    let failed = |e| Error::failure(format!("clearing the counters of a rule: {e}"));
    let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
    let zeroes = vec![vec![0; size_of::<gth_rule_stats>()]; cpus];
    map.update_percpu(&u32::from(row).to_ne_bytes(), &zeroes, MapFlags::ANY).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_values_are_summed_over_the_cpus() {
        let words = size_of::<gth_rule_stats>() / 8;
        // Every counter of a CPU is its place, times the CPU's number.
        let cpu = |times: u64| {
            (0..words as u64).flat_map(|at| (times * at).to_ne_bytes()).collect::<Vec<u8>>()
        };
        let sum = RuleStats::sum(&[cpu(1), cpu(10)]);
        let expected = RuleStats {
            run_ns: 0,
            wait_ns: 11,
            slept: 33,
            expired: 44,
            preempted: 55,
            migrations: 66,
            llc_migrations: 77,
            node_migrations: 88,
            wakeup_sum_ns: 99,
            wakeups: array::from_fn(|bucket| 110 + 11 * bucket as u64),
        };
        assert_eq!(sum, expected);
    }
}
