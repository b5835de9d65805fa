//! What a trace shows: an interval's counts by task, CPU and function.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;

use super::counts::{Context, Count, Key};
use super::feed::Feed;
use super::histogram::{Histogram, bound};
use super::rates::rate;
use crate::gtp::{Direction, Function, Stage};
use crate::policy::cgroups::Home;

/// One task's calls of one function on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub comm: String,
    pub tid: u32,
    pub tgid: u32,
    /// The same in the task's own PID namespace.
    pub tid_inside: u32,
    pub tgid_inside: u32,
    pub cpu: usize,
    pub context: Context,
    pub function: String,
    pub direction: Direction,
    pub stage: Stage,
    /// Since the trace began.
    pub packets: u64,
    pub bytes: u64,
    /// In this interval.
    pub packets_per_second: f64,
    pub bytes_per_second: f64,
    /// Time spent in the function by the calls that ended in this interval, ns; if there are none,
    /// by those of the whole trace.
    #[serde(serialize_with = "bound")]
    pub p50_ns: Option<u64>,
    #[serde(serialize_with = "bound")]
    pub p99_ns: Option<u64>,
    /// The times of the calls that ended in this interval.
    #[serde(skip)]
    pub times: Histogram,
    /// How long ago the last packet was.
    pub last_seen_ms: u64,
    #[serde(flatten)]
    pub home: Home,
}

impl Row {
    /// Whether a call began or ended in this interval. The last call of a task may end in an interval
    /// in which none begins.
    pub fn is_active(&self) -> bool {
        self.packets_per_second > 0.0 || self.times.packets() > 0
    }
}

#[cfg(test)]
impl Row {
    /// A row for tests: `packets` that entered the data plane.
    pub fn of_packets(comm: &str, cpu: usize, context: Context, packets: u64) -> Self {
        Self {
            comm: comm.into(),
            tid: 7,
            tgid: 5,
            tid_inside: 7,
            tgid_inside: 5,
            cpu,
            context,
            function: "gtp_dev_xmit".into(),
            direction: Direction::Downlink,
            stage: Stage::Entry,
            packets,
            bytes: 0,
            packets_per_second: 0.0,
            bytes_per_second: 0.0,
            p50_ns: None,
            p99_ns: None,
            times: Histogram::default(),
            last_seen_ms: 0,
            home: Home::default(),
        }
    }
}

/// What was counted when the last rows were made.
struct Before {
    count: Count,
    /// The times of the whole trace. The kernel counts these in 32 bits.
    times: Histogram,
}

/// Turns counts into rows, each time for the interval since the last time.
pub struct Reporter<'a> {
    functions: &'a [Function],
    before: HashMap<Key, Before>,
    /// By thread and its start time.
    homes: HashMap<(u32, u64), Home>,
    home_of: fn(u32) -> Home,
}

impl<'a> Reporter<'a> {
    /// Reports the time after `counts` were read. `home_of` tells where a thread is; it is called
    /// once per thread, as long as the thread is counted.
    pub fn new(functions: &'a [Function], home_of: fn(u32) -> Home, counts: Vec<Count>) -> Self {
        // The plots show every call.
        let count = |count: Count| Count { times: Histogram::default(), ..count };
        let before = |counted| Before { count: count(counted), times: Histogram::default() };
        let before = counts.into_iter().map(|count| (count.key, before(count))).collect();
        Self { functions, before, homes: HashMap::new(), home_of }
    }

    /// Looks up where the threads of `counts` are, because they may end before the next rows.
    pub fn meet(&mut self, counts: &[Count]) {
        for Key { tid, started_ns, .. } in counts.iter().map(|count| count.key) {
            self.homes.entry((tid, started_ns)).or_insert_with(|| (self.home_of)(tid));
        }
    }

    /// The rows of `counts`, read at `now` (CLOCK_MONOTONIC), `interval` after the
    /// previous ones; the busiest first.
    pub fn rows(&mut self, counts: Vec<Count>, now: Duration, interval: Duration) -> Vec<Row> {
        self.meet(&counts);
        let (mut rows, mut before) = (Vec::new(), HashMap::new());
        for count in counts {
            let (row, whole) = self.row(&count, now, interval);
            rows.push(row);
            before.insert(count.key, Before { count, times: whole });
        }
        rows.sort_by(|a: &Row, b| {
            let place = |row: &Row| (row.tid, row.cpu, row.function.clone());
            let busy = b.packets_per_second.total_cmp(&a.packets_per_second);
            busy.then(b.packets.cmp(&a.packets)).then_with(|| place(a).cmp(&place(b)))
        });
        self.before = before;
        let counted: HashSet<(u32, u64)> =
            self.before.keys().map(|key| (key.tid, key.started_ns)).collect();
        self.homes.retain(|thread, _| counted.contains(thread));
        rows
    }

    /// Also returns the times of the whole trace.
    fn row(&self, count: &Count, now: Duration, interval: Duration) -> (Row, Histogram) {
        let Key { started_ns, tid, tgid, function, context, cpu } = count.key;
        let function = &self.functions[function];
        // A forgotten task's counts begin anew.
        let before = self.before.get(&count.key);
        let before = before.filter(|before| before.count.packets <= count.packets);
        let (old_packets, old_bytes) =
            before.map_or((0, 0), |before| (before.count.packets, before.count.bytes));
        let seconds = interval.as_secs_f64();
        // A call that began in an earlier interval may end in this one even if no other call began.
        let since = |before: &Before| count.times.since_in_32_bits(&before.count.times);
        let times = before.map_or_else(|| count.times.clone(), since);
        let mut whole = before.map(|before| before.times.clone()).unwrap_or_default();
        whole.add(&times);
        let shown = if times.packets() > 0 { &times } else { &whole };
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|share| shown.percentile(share));
        let row = Row {
            comm: count.comm.clone(),
            tid,
            tgid,
            tid_inside: count.tid_inside,
            tgid_inside: count.tgid_inside,
            cpu,
            context,
            function: function.symbol.clone(),
            direction: function.direction,
            stage: function.stage,
            packets: count.packets,
            bytes: count.bytes,
            packets_per_second: rate(count.packets, old_packets, seconds),
            bytes_per_second: rate(count.bytes, old_bytes, seconds),
            p50_ns,
            p99_ns,
            times,
            last_seen_ms: now.saturating_sub(count.last).as_millis() as u64,
            home: self.homes.get(&(tid, started_ns)).cloned().unwrap_or_default(),
        };
        (row, whole)
    }
}

/// One CPU's totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuTotal {
    pub cpu: usize,
    pub packets_per_second: f64,
    /// Packets per second that were handled for no task, in softirq or idle context.
    pub in_softirq: f64,
    /// The NIC interrupts it takes, if it has softirq work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<Feed>,
}

/// The packets of each CPU, each counted once, where it enters the data plane.
pub fn by_cpu(rows: &[Row], feeds: &[Feed]) -> Vec<CpuTotal> {
    let mut totals: Vec<CpuTotal> = Vec::new();
    for row in rows.iter().filter(|row| row.stage == Stage::Entry) {
        let place = totals.iter().position(|total| total.cpu == row.cpu).unwrap_or_else(|| {
            totals.push(CpuTotal {
                cpu: row.cpu,
                packets_per_second: 0.0,
                in_softirq: 0.0,
                irqs: Vec::new(),
            });
            totals.len() - 1
        });
        totals[place].packets_per_second += row.packets_per_second;
        if row.context != Context::Task {
            totals[place].in_softirq += row.packets_per_second;
        }
    }
    for total in totals.iter_mut().filter(|total| total.in_softirq > 0.0) {
        total.irqs = feeds.iter().filter(|feed| feed.cpu == total.cpu).cloned().collect();
    }
    totals.sort_by_key(|total| total.cpu);
    totals
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::trace::functions::Target;
    use crate::trace::histogram::BUCKETS;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn counts_that_begin_anew_have_no_huge_rate() {
        let functions = Target::functions(&["entry".into()]).functions;
        let mut reporter = Reporter::new(&functions, |_| Home::default(), Vec::new());
        let mut rates = |packets| {
            let rows = reporter.rows(vec![Count::of_packets(7, packets)], SECOND, SECOND);
            (rows[0].packets_per_second, rows[0].bytes_per_second)
        };
        assert_eq!(rates(10), (10.0, 1_000.0));
        assert_eq!(rates(3), (3.0, 300.0));
        assert_eq!(rates(5), (2.0, 200.0));
    }

    #[test]
    fn times_whose_count_begins_anew() {
        let functions = Target::functions(&["entry".into()]).functions;
        let mut reporter = Reporter::new(&functions, |_| Home::default(), Vec::new());
        let mut calls = |packets, of_20: u32| {
            let mut times = [0; BUCKETS];
            times[20] = of_20.into();
            let count = Count { times: times.into(), ..Count::of_packets(7, packets) };
            reporter.rows(vec![count], SECOND, SECOND).remove(0).times.packets()
        };
        let most = u32::MAX;
        assert_eq!(calls(u64::from(most), most), u64::from(most));
        assert_eq!(calls(u64::from(most) + 9, 8), 9);
    }

    /// For example, while the trace was still attaching.
    #[test]
    fn what_was_counted_before_is_in_no_rate() {
        let functions = Target::functions(&["entry".into()]).functions;
        let mut times = [0; BUCKETS];
        times[20] = 30;
        let of = |packets| Count { times: times.into(), ..Count::of_packets(7, packets) };
        let mut reporter = Reporter::new(&functions, |_| Home::default(), vec![of(30)]);
        let row = reporter.rows(vec![of(40)], SECOND, SECOND).remove(0);
        assert_eq!((row.packets, row.packets_per_second, row.bytes_per_second), (40, 10.0, 1e3));
        assert_eq!(row.times.packets(), 30);
    }

    #[test]
    fn a_call_that_ends_in_a_later_interval_has_its_time_there() {
        let functions = Target::functions(&["entry".into()]).functions;
        let mut reporter = Reporter::new(&functions, |_| Home::default(), Vec::new());
        let mut calls = |began, ended_in: &[u64]| {
            let mut times = [0; BUCKETS];
            times[20..][..ended_in.len()].copy_from_slice(ended_in);
            let count = Count { times: times.into(), ..Count::of_packets(7, began) };
            let row = reporter.rows(vec![count], SECOND, SECOND).remove(0);
            (row.is_active(), row.times.packets(), row.p50_ns)
        };
        let long = calls(1, &[0, 1]).2;
        assert_eq!(calls(2, &[0, 1]), (true, 0, long));
        let (is_active, ended, short) = calls(2, &[1, 1]);
        assert_eq!((is_active, ended), (true, 1));
        assert!(short < long, "{short:?} {long:?}");
        assert!(!calls(2, &[1, 1]).0);
    }

    /// As in a quiet trace, which makes its rows when it ends.
    #[test]
    fn a_thread_that_has_ended_has_the_home_where_it_was_met() {
        thread_local!(static HAS_ENDED: Cell<bool> = const { Cell::new(false) });
        let home = |_| match HAS_ENDED.get() {
            true => Home::default(),
            false => Home::of("/system.slice/upf.service"),
        };
        let functions = Target::functions(&["entry".into()]).functions;
        let mut reporter = Reporter::new(&functions, home, Vec::new());
        reporter.meet(&[Count::of_packets(7, 1)]);
        HAS_ENDED.set(true);
        let rows = reporter.rows(vec![Count::of_packets(7, 2)], SECOND, SECOND);
        assert_eq!(rows[0].home, Home::of("/system.slice/upf.service"));
    }

    #[test]
    fn only_the_homes_of_counted_threads_are_kept() {
        let functions = Target::functions(&["entry".into()]).functions;
        let mut reporter = Reporter::new(&functions, |_| Home::default(), Vec::new());
        for tid in [7, 8] {
            reporter.rows(vec![Count::of_packets(tid, 1)], SECOND, SECOND);
        }
        assert_eq!(reporter.homes.into_keys().collect::<Vec<_>>(), [(8, 1)]);
    }
}
