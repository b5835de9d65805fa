//! The times of round trips, summed up.

use std::time::Duration;

use serde::Serialize;

/// What became of the probes. Times are absent if none was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    pub sent: usize,
    pub lost: usize,
    /// From sending a probe until its answer reached this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_ns: Option<u64>,
}

impl Times {
    /// Sums up `sent` probes. Those that were answered took the times in `answered`.
    pub fn of(sent: usize, answered: &[Duration]) -> Self {
        let mut ns: Vec<u64> = answered.iter().map(|time| time.as_nanos() as u64).collect();
        ns.sort_unstable();
        // The nearest rank: the smallest time that this percentage of the times do not exceed.
        let percentile = |percent: usize| {
            let rank = (ns.len() * percent).div_ceil(100).saturating_sub(1);
            ns.get(rank).copied()
        };
        let sum: u64 = ns.iter().sum();
        Self {
            sent,
            lost: sent - ns.len(),
            average_ns: sum.checked_div(ns.len() as u64),
            p50_ns: percentile(50),
            p99_ns: percentile(99),
            worst_ns: ns.last().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let answered: Vec<Duration> = (1..=200).rev().map(Duration::from_micros).collect();
        let times = Times::of(203, &answered);
        assert_eq!((times.sent, times.lost), (203, 3));
        assert_eq!(times.average_ns, Some(100_500));
        assert_eq!((times.p50_ns, times.p99_ns), (Some(100_000), Some(198_000)));
        assert_eq!(times.worst_ns, Some(200_000));
        assert_eq!(Times::of(5, &[]), Times { sent: 5, lost: 5, ..Times::default() });
    }
}
