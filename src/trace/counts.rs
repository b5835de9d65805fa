//! The counts.

use std::collections::HashSet;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use super::attach::Tracer;
use super::histogram::Histogram;
use crate::base::error::{Error, Result};
use crate::kernel::comm;
use crate::kernel::skeletons::tracer::types::{
    gth_context, gth_trace_count, gth_trace_key, gth_trace_lost,
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

/// Which thread ran a function, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// When the thread started, in ns since boot: the kernel reuses ids.
    pub started_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    /// The function's index in the list of traced functions.
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
    /// The size of the packets as the function got them, headers included.
    pub bytes: u64,
    /// CLOCK_MONOTONIC.
    pub last: Duration,
    pub times: Histogram,
}

#[cfg(test)]
impl Count {
    /// A count for tests: `packets` of 100 bytes by the thread `tid` on CPU 0.
    pub fn of_packets(tid: u32, packets: u64) -> Self {
        Self {
            key: Key { started_ns: 1, tid, tgid: 5, function: 0, context: Context::Task, cpu: 0 },
            comm: "nr-gnb".into(),
            tid_inside: tid,
            tgid_inside: 5,
            packets,
            bytes: 100 * packets,
            last: Duration::ZERO,
            times: Histogram::default(),
        }
    }
}

/// What was not counted or not sent because there was no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub counts: u64,
    pub events: u64,
    pub drops: u64,
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

    /// Drops the counts of these threads.
    pub fn forget(&self, tids: &HashSet<u32>) {
        let keys: Vec<_> = self.counts.keys().collect();
        for bytes in keys {
            // SAFETY: as in counts().
            let key = unsafe { bytes.as_ptr().cast::<gth_trace_key>().read_unaligned() };
            if tids.contains(&key.tid) {
                // The key may be gone already.
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
        Ok(Lost { counts: lost.counts, events: lost.events, drops: lost.drops })
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
        times: value.times.map(u64::from).into(),
    }
}
