//! The counters of each rule's tasks.

use std::array;

use libbpf_rs::MapImpl;
use serde::{Deserialize, Serialize};

use super::activity::{Activity, clear_row, read_row};
use crate::base::error::Result;
use crate::kernel::skeletons::scheduler::types::gth_rule_stats;

/// What the tasks of a rule did since the scheduler was loaded, or since the rule was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    #[serde(flatten)]
    pub did: Activity,
    /// Bucket `b` counts wake-ups that took `2^b` to `2^(b+1)` ns until the task ran.
    pub wakeups: [u64; 32],
    /// The sum of these times.
    pub wakeup_sum_ns: u64,
}

/// The counters of a rule's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleRow {
    pub stats: RuleStats,
    /// How long they ran on each possible CPU, in order, in nanoseconds.
    pub run_ns: Vec<u64>,
}

impl RuleStats {
    fn plus(self, one: &gth_rule_stats) -> Self {
        Self {
            did: self.did + Activity::of(&one.did),
            wakeups: array::from_fn(|bucket| self.wakeups[bucket] + one.wakeup_ns[bucket]),
            wakeup_sum_ns: self.wakeup_sum_ns + one.wakeup_sum_ns,
        }
    }
}

/// Reads a row of the `rule_stats` map.
pub(super) fn read(map: &MapImpl<'_>, row: u16) -> Result<RuleRow> {
    // SAFETY: the map's value is a gth_rule_stats, all integers.
    let cpus = unsafe { read_row::<gth_rule_stats>(map, row) }?;
    Ok(RuleRow {
        stats: cpus.iter().fold(RuleStats::default(), RuleStats::plus),
        run_ns: cpus.iter().map(|cpu| cpu.did.run_ns).collect(),
    })
}

/// Sets a row to zero.
pub(super) fn clear(map: &MapImpl<'_>, row: u16) -> Result<()> {
    clear_row::<gth_rule_stats>(map, row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_values_are_summed_over_the_cpus() {
        // Every counter is its index times a factor for the CPU.
        let cpu = |times: u64| {
            let mut words = [0; size_of::<gth_rule_stats>() / 8];
            words.iter_mut().zip(0..).for_each(|(word, at)| *word = times * at);
            // SAFETY: all integers, and of this size.
            unsafe { words.as_ptr().cast::<gth_rule_stats>().read() }
        };
        let sum = [cpu(1), cpu(10)].iter().fold(RuleStats::default(), RuleStats::plus);
        let expected = RuleStats {
            did: Activity {
                run_ns: 0,
                wait_ns: 11,
                slept: 33,
                expired: 44,
                preempted: 55,
                migrations: 66,
                core_migrations: 77,
                llc_migrations: 88,
                node_migrations: 99,
            },
            wakeup_sum_ns: 110,
            wakeups: array::from_fn(|bucket| 121 + 11 * bucket as u64),
        };
        assert_eq!(sum, expected);
    }
}
