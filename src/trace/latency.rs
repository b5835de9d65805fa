//! How long packets take from their arrival at this host to the end of the data plane's entry
//! function (bpf/trace/latency.bpf.h).

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::attach::Tracer;
use super::histogram::{Bar, Histogram, bound};
use super::screen;
use super::sections::{Section, json_line};
use crate::base::error::{Error, Result};
use crate::gtp::{Direction, Function, Stage};
use crate::kernel::skeletons::tracer::types::gth_latency;

/// The packets of one entry function.
#[derive(Clone, Debug, Serialize)]
struct Latency {
    direction: Direction,
    /// The entry function.
    function: String,
    /// Packets whose arrival is known, in this interval.
    packets: u64,
    /// Packets that originated on this host, or whose arrival was not kept.
    without_arrival: u64,
    /// Upper bounds, at most 50% too high.
    #[serde(serialize_with = "bound")]
    p50_ns: Option<u64>,
    #[serde(serialize_with = "bound")]
    p99_ns: Option<u64>,
    /// Exact if it is the longest of the whole trace; else an upper bound, too.
    #[serde(serialize_with = "bound")]
    max_ns: Option<u64>,
    buckets: Vec<Bar>,
    #[serde(skip)]
    histogram: Histogram,
}

/// What was counted for an entry function since the trace began.
#[derive(Clone, Debug, Default)]
struct Count {
    without_arrival: u64,
    max_ns: u64,
    times: Histogram,
}

/// Latencies are counted as long as this exists.
pub struct Latencies {
    /// By the function's number.
    before: Vec<Count>,
    /// As long as it is open, the kernel notes each packet's time of arrival.
    _timestamps: OwnedFd,
}

impl Latencies {
    pub fn new(tracer: &Tracer) -> Result<Self> {
        follow_wall_clock(tracer)?;
        Ok(Self { before: Vec::new(), _timestamps: timestamps()? })
    }

    /// The packets since the last call, on the CPUs for which `is_wanted` is true.
    pub fn section(
        &mut self,
        tracer: &Tracer,
        functions: &[Function],
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Section> {
        follow_wall_clock(tracer)?;
        self.before.resize_with(functions.len(), Count::default);
        let mut found = Vec::new();
        for (index, function) in functions.iter().enumerate() {
            if function.stage != Stage::Entry {
                continue;
            }
            let now = read(tracer, index, is_wanted)?;
            found.extend(latency(function, &now, &self.before[index]));
            self.before[index] = now;
        }
        let mut section = Section::default();
        for latency in &found {
            section.table.extend(text(latency));
            section.lines.push(line(latency));
            section.json.push(json_line("latency", latency)?);
        }
        if found.is_empty() {
            section.table.push("latency: no packets in this interval".into());
        }
        Ok(section)
    }
}

fn latency(function: &Function, now: &Count, before: &Count) -> Option<Latency> {
    let histogram = now.times.since(&before.times);
    let without_arrival = now.without_arrival - before.without_arrival;
    let packets = histogram.packets();
    let percentile = |share| histogram.percentile(share).map(|bound| bound.min(now.max_ns));
    let [p50_ns, p99_ns, max_ns] = [0.5, 0.99, 1.0].map(percentile);
    let max_ns = max_ns.map(|bound| if now.max_ns > before.max_ns { now.max_ns } else { bound });
    (packets + without_arrival > 0).then(|| Latency {
        direction: function.direction,
        function: function.symbol.clone(),
        packets,
        without_arrival,
        p50_ns,
        p99_ns,
        max_ns,
        buckets: histogram.bars(),
        histogram,
    })
}

fn read(tracer: &Tracer, index: usize, is_wanted: &dyn Fn(usize) -> bool) -> Result<Count> {
    let failed = |e| Error::failure(format!("reading the latencies: {e}"));
    let key = (index as u32).to_ne_bytes();
    let values = tracer.latencies.lookup_percpu(&key, MapFlags::ANY).map_err(failed)?;
    let mut count = Count::default();
    for (cpu, value) in values.into_iter().flatten().enumerate() {
        if is_wanted(cpu) {
            // SAFETY: the map's values are of this type, all integers.
            let value = unsafe { value.as_ptr().cast::<gth_latency>().read_unaligned() };
            count.without_arrival += value.without_arrival;
            count.max_ns = count.max_ns.max(value.max_ns);
            count.times.add(&value.buckets.into());
        }
    }
    Ok(count)
}

/// A socket that asks when its packets arrived: the kernel then notes this for all packets
/// (socket(7), SO_TIMESTAMPNS).
fn timestamps() -> Result<OwnedFd> {
    let failed = |e| Error::failure(format!("a socket with timestamps: {e}"));
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None).map_err(failed)?;
    setsockopt(&fd.as_fd(), ReceiveTimestampns, &true).map_err(failed)?;
    Ok(fd)
}

/// Times of arrival are in CLOCK_REALTIME, which may be set anew; all other times are in
/// CLOCK_MONOTONIC.
fn follow_wall_clock(tracer: &Tracer) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::failure(format!("the clock: {e}"));
    let now = |clock| clock_gettime(clock).map_err(|e| failed(&e));
    let ahead = now(ClockId::CLOCK_REALTIME)? - now(ClockId::CLOCK_MONOTONIC)?;
    let ahead: i64 = ahead.num_nanoseconds();
    let zero = 0u32.to_ne_bytes();
    let set = tracer.wall_clock.update(&zero, &ahead.to_ne_bytes(), MapFlags::ANY);
    set.map_err(|e| failed(&e))
}

fn text(latency: &Latency) -> Vec<String> {
    let Latency { function, packets, p50_ns, p99_ns, max_ns, without_arrival, .. } = latency;
    let times = [p50_ns, p99_ns, max_ns].map(|ns| screen::time(*ns));
    let [p50, p99, max] = times;
    let mut head = format!(
        "{}: {packets} packets from their arrival to the end of {function}: p50 {p50}, p99 {p99}, \
         max {max}",
        screen::direction_in_words(latency.direction),
    );
    if *without_arrival > 0 {
        head += &format!("; {without_arrival} without an arrival");
    }
    let mut lines = vec![head];
    lines.extend(latency.histogram.plot());
    lines
}

fn line(latency: &Latency) -> String {
    format!(
        "latency dir={} function={} packets={} without_arrival={} p50={} p99={} max={}",
        screen::direction(latency.direction),
        latency.function,
        latency.packets,
        latency.without_arrival,
        screen::time(latency.p50_ns),
        screen::time(latency.p99_ns),
        screen::time(latency.max_ns),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::functions::Target;
    use crate::trace::histogram::BUCKETS;

    #[test]
    fn an_interval_has_its_own_times() {
        let function = &Target::functions(&["entry".into()]).functions[0];
        let count = |short: u64, long: u64, max_ns: u64| {
            let mut times = [0; BUCKETS];
            (times[20], times[40]) = (short, long);
            Count { without_arrival: short, max_ns, times: times.into() }
        };
        let (early, late) = (count(10, 1, 1_200_000), count(30, 1, 1_200_000));
        let first = latency(function, &early, &Count::default()).unwrap();
        assert_eq!((first.packets, first.without_arrival), (11, 10));
        assert_eq!(first.max_ns, Some(1_200_000), "exact: below its bucket's end");
        let second = latency(function, &late, &early).unwrap();
        assert_eq!((second.packets, second.without_arrival), (20, 20));
        assert_eq!(second.max_ns, Some(1_536), "the bucket's end: the longest was before");
        assert!(latency(function, &late, &late).is_none());
        assert_eq!(text(&second).len(), 2, "a head and one bar");
        assert!(line(&first).ends_with("p50=1536ns p99=1200us max=1200us"), "{}", line(&first));
    }
}
