//! The scheduler's counters, and how they are shown.

use std::fmt;
use std::time::Duration;

use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

use crate::base::plot;
use crate::base::units::Nanoseconds;
use crate::kernel::skeletons::scheduler::types::{gth_counter, gth_path, gth_stats};

/// For each path to a CPU: its name in tables, and its label in metrics.
const PATHS: [(gth_path, &str, &str); gth_path::GTH_NR_PATHS.0 as usize] = [
    (gth_path::GTH_PATH_IDLE, "idle CPU", "idle"),
    (gth_path::GTH_PATH_HANDED_OVER, "handed over", "handed_over"),
    (gth_path::GTH_PATH_PREEMPT, "priority, preempting", "priority_preempting"),
    (gth_path::GTH_PATH_PRIORITY, "priority, queued", "priority_queued"),
    (gth_path::GTH_PATH_SHARED, "fair", "fair"),
    (gth_path::GTH_PATH_PINNED, "fair, one CPU only", "fair_pinned"),
    (gth_path::GTH_PATH_STOLEN, "fair, from another LLC", "fair_other_llc"),
    (gth_path::GTH_PATH_OVERTAKEN, "fair, preempting", "fair_preempting"),
    (gth_path::GTH_PATH_KTHREAD, "per-CPU kthread", "kthread"),
    (gth_path::GTH_PATH_KEPT, "kept its CPU", "kept"),
];

/// For each counter: its name in tables, and its name in metrics.
const COUNTERS: [(gth_counter, &str, &str); gth_counter::GTH_NR_COUNTERS.0 as usize] = [
    (gth_counter::GTH_COUNT_PRIO_WAKEUPS, "priority wake-ups", "priority_wakeups"),
    (gth_counter::GTH_COUNT_PREEMPTIONS, "preemptions", "preemptions"),
    (gth_counter::GTH_COUNT_LOOKS, "CPUs looked at to preempt", "preemption_looks"),
    (gth_counter::GTH_COUNT_DEMOTIONS, "demotions to fair sharing", "demotions"),
    (gth_counter::GTH_COUNT_GUARDED, "turns guarded for normal tasks", "guarded_turns"),
    (gth_counter::GTH_COUNT_MATCHED, "tasks matched", "matches"),
    (gth_counter::GTH_COUNT_RESERVED_AVOIDED, "exclusive CPU: kept off", "exclusive_kept_off"),
    (
        gth_counter::GTH_COUNT_RESERVED_KTHREAD,
        "exclusive CPU: kthread let in",
        "exclusive_kthreads",
    ),
    (
        gth_counter::GTH_COUNT_RESERVED_PINNED,
        "exclusive CPU: pinned task let in",
        "exclusive_pinned",
    ),
    (
        gth_counter::GTH_COUNT_RESERVED_MISSED,
        "exclusive CPU: outside the task's affinity",
        "exclusive_missed",
    ),
    (gth_counter::GTH_COUNT_MARKED, "traffic: tasks marked", "traffic_marks"),
    (gth_counter::GTH_COUNT_MARKS_ENDED, "traffic: marks ended", "traffic_marks_ended"),
    (
        gth_counter::GTH_COUNT_MARKS_REFUSED,
        "traffic: refused by max_tasks",
        "traffic_marks_refused",
    ),
];

/// Where the last bucket of wake-ups begins, in nanoseconds. This bucket has no end.
const LONGEST: u64 = 1 << 31;

/// Counters since the scheduler was loaded, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    paths: [u64; PATHS.len()],
    counters: [u64; COUNTERS.len()],
    /// Bucket `b` counts priority wake-ups that took `2^b` to `2^(b+1)` ns, the last one
    /// [`LONGEST`] or more.
    wakeup_ns: [u64; 32],
    /// The sum of these times.
    wakeup_sum_ns: u64,
}

impl Stats {
    /// Sums the per-CPU values of the `stats` map.
    pub(super) fn sum(cpus: &[Vec<u8>]) -> Self {
        let mut sum = Self::default();
        for bytes in cpus.iter().filter(|bytes| bytes.len() >= size_of::<gth_stats>()) {
            // SAFETY: the map's value is a gth_stats, all integers; a map value
            // need not be aligned.
            let one = unsafe { bytes.as_ptr().cast::<gth_stats>().read_unaligned() };
            add(&mut sum.paths, &one.paths);
            add(&mut sum.counters, &one.counters);
            add(&mut sum.wakeup_ns, &one.wakeup_ns);
            sum.wakeup_sum_ns += one.wakeup_sum_ns;
        }
        sum
    }

    /// The [`quantile`] of the priority wake-ups.
    pub fn wakeup_quantile(&self, part: f64) -> Option<u64> {
        quantile(&self.wakeup_ns, part)
    }

    /// How often a task got a CPU by each path, with the path's label in metrics.
    pub fn paths(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PATHS.iter().map(|(path, _, label)| (*label, self.paths[path.0 as usize]))
    }

    /// The counters, with their names in metrics.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTERS.iter().map(|(counter, _, name)| (*name, self.counters[counter.0 as usize]))
    }

    /// The priority wake-ups: how many took `2^b` to `2^(b+1)` ns, for each b from 0.
    pub fn wakeups(&self) -> &[u64] {
        &self.wakeup_ns
    }

    /// How long all priority wake-ups took together, in nanoseconds.
    pub fn wakeup_sum_ns(&self) -> u64 {
        self.wakeup_sum_ns
    }

    /// Tasks marked for their traffic, marks ended, and marks refused because of `max_tasks`.
    pub fn marks(&self) -> [u64; 3] {
        [
            gth_counter::GTH_COUNT_MARKED,
            gth_counter::GTH_COUNT_MARKS_ENDED,
            gth_counter::GTH_COUNT_MARKS_REFUSED,
        ]
        .map(|counter| self.counters[counter.0 as usize])
    }

    /// A table of the counters: totals, and rates since `earlier`, taken `interval` ago.
    pub fn report(&self, earlier: &Stats, interval: Duration) -> Report {
        Report { now: self.clone(), earlier: earlier.clone(), interval }
    }
}

/// The upper bound, in nanoseconds, of the bucket that holds this quantile (0 to 1), where bucket
/// `b` counts what took `2^b` to `2^(b+1)` ns; `None` if the buckets are empty. [`round`] and
/// [`below`] allow for the last bucket, which has no end.
pub fn quantile(buckets: &[u64], part: f64) -> Option<u64> {
    let total: u64 = buckets.iter().sum();
    let wanted = ((total as f64 * part).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    let bucket = buckets.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    bucket.map(|bucket| 2 << bucket)
}

fn add<const N: usize>(sum: &mut [u64; N], one: &[u64; N]) {
    for (sum, one) in sum.iter_mut().zip(one) {
        *sum += one;
    }
}

/// [`Stats`] with rates; `Display` writes a table of those that are not zero.
pub struct Report {
    now: Stats,
    earlier: Stats,
    interval: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.interval.as_secs_f64().max(1e-9);
        let mut table = Builder::new();
        table.push_record(["dispatched by", "total", "per second"]);
        let mut row = |name: &str, now: u64, earlier: u64| {
            if now == 0 {
                return;
            }
            let rate = now.saturating_sub(earlier) as f64 / seconds;
            table.push_record([name.to_string(), now.to_string(), format!("{rate:.0}")]);
        };
        for (path, name, _) in PATHS {
            let i = path.0 as usize;
            row(name, self.now.paths[i], self.earlier.paths[i]);
        }
        for (counter, name, _) in COUNTERS {
            let i = counter.0 as usize;
            row(name, self.now.counters[i], self.earlier.counters[i]);
        }
        let mut table = table.build();
        table.with(Style::psql()).modify(Columns::new(1..), Alignment::right());
        writeln!(f, "{table}")?;
        write_histogram(f, &self.now)
    }
}

fn write_histogram(f: &mut fmt::Formatter<'_>, stats: &Stats) -> fmt::Result {
    let (Some(p50), Some(p99)) = (stats.wakeup_quantile(0.5), stats.wakeup_quantile(0.99)) else {
        return Ok(());
    };
    writeln!(f, "priority wake-up latency: half under {}, 99 % under {}", round(p50), round(p99))?;
    f.write_str(&latencies(&stats.wakeup_ns))
}

/// Draws these latencies, where bucket `b` counts what took `2^b` to `2^(b+1)` ns.
pub fn latencies(buckets: &[u64]) -> String {
    plot::histogram(buckets, |bucket| round(1 << bucket))
}

/// A bucket's bound, rounded to a whole unit: 2^20 ns is shown as 1ms, and the end of the last bucket
/// as `>2s`.
pub fn round(ns: u64) -> String {
    if ns > LONGEST {
        return format!(">{}", round(LONGEST));
    }
    let unit = [1_000_000_000, 1_000_000, 1_000, 1].into_iter().find(|&unit| ns >= unit);
    let unit = unit.unwrap_or(1);
    Nanoseconds(ns / unit * unit).to_string()
}

/// The text for a [`quantile`], such as `<16us`, or `>2s` in the last bucket.
pub fn below(ns: u64) -> String {
    if ns > LONGEST { round(ns) } else { format!("<{}", round(ns)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_the_enums() {
        assert!(PATHS.iter().enumerate().all(|(i, (path, ..))| path.0 as usize == i));
        assert!(COUNTERS.iter().enumerate().all(|(i, (counter, ..))| counter.0 as usize == i));
    }

    #[test]
    fn quantiles_are_upper_bounds_of_buckets() {
        let mut stats = Stats::default();
        assert_eq!(stats.wakeup_quantile(0.5), None);
        stats.wakeup_ns[10] = 98;
        stats.wakeup_ns[20] = 2;
        assert_eq!(stats.wakeup_quantile(0.5), Some(2048));
        assert_eq!(stats.wakeup_quantile(0.98), Some(2048));
        assert_eq!(stats.wakeup_quantile(0.99), Some(2 << 20));
    }

    #[test]
    fn the_last_bucket_has_no_end() {
        let mut stats = Stats::default();
        stats.wakeup_ns[30] = 1;
        let shown = |stats: &Stats| below(stats.wakeup_quantile(1.0).unwrap());
        assert_eq!(shown(&stats), "<2s");
        stats.wakeup_ns[31] = 1;
        assert_eq!(shown(&stats), ">2s");
        let report = stats.report(&stats, Duration::from_secs(1)).to_string();
        assert!(report.contains("half under 2s, 99 % under >2s\n"), "{report}");
        assert!(report.contains("      2s ..      >2s          1 #"), "{report}");
    }

    #[test]
    fn sums_cpus_and_reports_rates() {
        let mut one = vec![0u8; size_of::<gth_stats>()];
        one[0] = 100;
        let now = Stats::sum(&[one.clone(), one]);
        let report = now.report(&Stats::default(), Duration::from_secs(2)).to_string();
        let line = report.lines().find(|line| line.contains("idle CPU")).unwrap();
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells, ["idle CPU", "200", "100"]);
        assert_eq!(report.lines().count(), 3, "{report}");
    }
}
