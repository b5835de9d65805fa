//! An XDP program's runs on each CPU, and the interrupts behind them.

use std::time::Duration;

use serde::Serialize;

use super::feed::Feed;
use crate::kernel::skeletons::xdp_tracer::types::gth_xdp_verdict;

/// The verdicts by their numbers (enum gth_xdp_verdict).
pub const VERDICTS: [&str; gth_xdp_verdict::GTH_XDP_NR_VERDICTS.0 as usize] =
    ["aborted", "drop", "pass", "tx", "redirect"];

/// What BPF has counted on a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub time_ns: u64,
    pub longest_ns: u64,
    pub verdicts: [u64; VERDICTS.len()],
}

impl Counts {
    fn runs(&self) -> u64 {
        self.verdicts.iter().sum()
    }
}

/// A CPU's runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runs {
    pub cpu: usize,
    /// Since the trace of the program began.
    pub runs: u64,
    pub runs_per_second: f64,
    /// The mean time of a run in this interval, ns; `None` without any.
    pub mean_ns: Option<u64>,
    /// The longest run so far, ns.
    pub longest_ns: u64,
    /// The part of the CPU's time that the runs took in this interval, 0 to 1.
    pub share: f64,
    pub verdicts: Verdicts,
    /// The NIC interrupts that the CPU takes: the traced devices' own first, then by frequency.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<Feed>,
}

/// How many runs ended with each verdict; `aborted` includes values that are no verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    pub aborted: u64,
    pub drop: u64,
    pub pass: u64,
    pub tx: u64,
    pub redirect: u64,
}

impl Verdicts {
    /// In the order of [`VERDICTS`].
    pub fn all(&self) -> [u64; VERDICTS.len()] {
        [self.aborted, self.drop, self.pass, self.tx, self.redirect]
    }
}

/// The CPUs with runs for `devices`. `counts` are by CPU. `before` are the counts `since` ago, or
/// empty if there are none. `feeds` are in order, the most frequent first.
pub fn rows(
    counts: &[Counts],
    before: &[Counts],
    since: Duration,
    feeds: &[Feed],
    devices: &[String],
) -> Vec<Runs> {
    let seconds = since.as_secs_f64().max(1e-9);
    let row = |(cpu, counts): (usize, &Counts)| {
        let old = before.get(cpu).copied().unwrap_or_default();
        let new = counts.runs() - old.runs();
        let new_ns = counts.time_ns - old.time_ns;
        let [aborted, drop, pass, tx, redirect] = counts.verdicts;
        let mut irqs: Vec<Feed> = feeds.iter().filter(|feed| feed.cpu == cpu).cloned().collect();
        irqs.sort_by_key(|feed| !devices.contains(&feed.nic));
        Runs {
            cpu,
            runs: counts.runs(),
            runs_per_second: new as f64 / seconds,
            mean_ns: new_ns.checked_div(new),
            longest_ns: counts.longest_ns,
            share: new_ns as f64 / 1e9 / seconds,
            verdicts: Verdicts { aborted, drop, pass, tx, redirect },
            irqs,
        }
    };
    counts.iter().enumerate().filter(|(_, counts)| counts.runs() > 0).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_its_own_rates() {
        let counts =
            |time_ns, pass| Counts { time_ns, longest_ns: 900, verdicts: [0, 0, pass, 1, 0] };
        let before = [Counts::default(), counts(1_000, 9)];
        let now = [Counts::default(), counts(3_000, 19)];
        let feed = |cpu, nic: &str, per_second| {
            let (nic, name) = (nic.to_owned(), format!("{nic}-rx-0"));
            Feed { cpu, nic, irq: 34, name, per_second }
        };
        let feeds = [feed(1, "eth1", 90.0), feed(1, "eth0", 7.0), feed(0, "eth0", 5.0)];
        let devices = ["eth0".to_owned()];
        let all = rows(&now, &before, Duration::from_secs(2), &feeds, &devices);
        let [runs] = &all[..] else { panic!("{all:?}") };
        assert_eq!((runs.cpu, runs.runs, runs.runs_per_second), (1, 20, 5.0));
        assert_eq!((runs.mean_ns, runs.longest_ns, runs.share), (Some(200), 900, 1e-6));
        assert_eq!(runs.verdicts.all(), [0, 0, 19, 1, 0]);
        assert_eq!(runs.irqs, [feeds[1].clone(), feeds[0].clone()], "its own first");
        let idle = rows(&now, &now, Duration::from_secs(2), &[], &devices);
        assert_eq!((idle[0].mean_ns, idle[0].runs_per_second), (None, 0.0));
    }
}
