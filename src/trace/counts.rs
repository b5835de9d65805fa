//! The counts.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use super::attach::Tracer;
use crate::base::error::{Error, Result};
use crate::kernel::comm;
use crate::kernel::skeletons::tracer::types::{
    gth_context, gth_trace_count, gth_trace_key, gth_trace_limit, gth_trace_lost,
};

/// The context in which a function ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// The task, or a softirq that the task raised and ran itself.
    Task,
    /// A softirq at the end of an interrupt of that task, or in ksoftirqd.
    Softirq,
    /// A softirq on an idle CPU.
    Idle,
}

impl Context {
    pub(super) fn of(context: gth_context) -> Self {
        match context {
            gth_context::GTH_CONTEXT_TASK => Context::Task,
            gth_context::GTH_CONTEXT_SOFTIRQ => Context::Softirq,
            _ => Context::Idle,
        }
    }
}

/// Who ran a function, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// When the thread started, in ns since boot: the kernel reuses ids.
    pub started_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    /// Its index in the list of traced functions.
    pub function: usize,
    pub context: Context,
    pub cpu: usize,
}

/// The counts since the trace began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub key: Key,
    pub comm: String,
    /// In the task's own PID namespace.
    pub tid_inside: u32,
    pub tgid_inside: u32,
    pub packets: u64,
    /// Of the packets as the function got them, headers included.
    pub bytes: u64,
    /// CLOCK_MONOTONIC.
    pub last: Duration,
    pub times: Times,
}

/// How many calls took how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times([u32; BUCKETS]);

const BUCKETS: usize = gth_trace_limit::GTH_TRACE_BUCKETS.0 as usize;

impl Times {
    /// The time in ns that `share` of the calls, from 0 to 1, did not exceed: the upper
    /// end of its bucket, at most 50% too high. `None` without calls.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().map(|&n| u64::from(n)).sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.0.iter().position(|&n| {
            so_far += u64::from(n);
            so_far >= wanted
        })?;
        Some(upper_end(bucket))
    }

    pub fn since(&self, earlier: &Times) -> Times {
        Times(std::array::from_fn(|i| self.0[i].wrapping_sub(earlier.0[i])))
    }
}

/// The first ns above the bucket (bucket_of() in bpf/trace.bpf.c).
fn upper_end(bucket: usize) -> u64 {
    let (power, half) = (bucket / 2, bucket as u64 % 2);
    match power {
        0 => 2,
        _ => (1 << power) + (half + 1) * (1 << (power - 1)),
    }
}

/// What was not counted or not sent, for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub counts: u64,
    pub events: u64,
}

impl Tracer {
    /// All counts so far, unordered.
    pub fn counts(&self) -> Result<Vec<Count>> {
        let failed = |e| Error::failure(format!("reading the counts: {e}"));
        let mut counts = Vec::new();
        for bytes in self.counts.keys() {
            let values = self.counts.lookup_percpu(&bytes, MapFlags::ANY).map_err(failed)?;
            // SAFETY: the map's keys are of this type, all integers.
            let key = unsafe { bytes.as_ptr().cast::<gth_trace_key>().read_unaligned() };
            for (cpu, value) in values.into_iter().flatten().enumerate() {
                // SAFETY: the map's values are of this type, all integers.
                let value = unsafe { value.as_ptr().cast::<gth_trace_count>().read_unaligned() };
                if value.packets > 0 {
                    counts.push(count(&key, cpu, &value));
                }
            }
        }
        Ok(counts)
    }

    /// Drops the counts of tasks that have ended, by `is_gone`.
    pub fn forget(&self, is_gone: impl Fn(u32) -> bool) {
        let keys: Vec<_> = self.counts.keys().collect();
        for bytes in keys {
            // SAFETY: as in counts().
            let key = unsafe { bytes.as_ptr().cast::<gth_trace_key>().read_unaligned() };
            if key.tid != 0 && is_gone(key.tid) {
                // It may be gone already.
                let _ = self.counts.delete(&bytes);
            }
        }
    }

    pub fn lost(&self) -> Result<Lost> {
        let failed = |e| Error::failure(format!("reading what was lost: {e}"));
        let zero = 0u32.to_ne_bytes();
        let bytes = self.lost.lookup(&zero, MapFlags::ANY).map_err(failed)?.unwrap_or_default();
        // SAFETY: the map is that one variable; all integers.
        let lost = unsafe { bytes.as_ptr().cast::<gth_trace_lost>().read_unaligned() };
        Ok(Lost { counts: lost.counts, events: lost.events })
    }
}

fn count(key: &gth_trace_key, cpu: usize, value: &gth_trace_count) -> Count {
    let context = Context::of(key.context);
    let function = key.function as usize;
    Count {
        key: Key { started_ns: key.started, tid: key.tid, tgid: key.tgid, function, context, cpu },
        comm: comm::text(&value.comm),
        tid_inside: value.tid_inside,
        tgid_inside: value.tgid_inside,
        packets: value.packets,
        bytes: value.bytes,
        last: Duration::from_nanos(value.last_ns),
        times: Times(value.times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_upper_ends_of_buckets() {
        let mut times = Times([0; BUCKETS]);
        assert_eq!(times.percentile(0.5), None);
        // 98 calls of 64 to 95 ns, two of 1536 to 2047 ns.
        times.0[12] = 98;
        times.0[21] = 2;
        assert_eq!(times.percentile(0.0), Some(96));
        assert_eq!(times.percentile(0.5), Some(96));
        assert_eq!(times.percentile(0.98), Some(96));
        assert_eq!(times.percentile(0.99), Some(2048));
        assert_eq!(times.percentile(1.0), Some(2048));
    }
}
