//! How much the limits of cgroups (cpu.max) have throttled them, as counted by the scheduler.

use libbpf_rs::{MapCore, MapFlags, MapImpl};

use crate::base::error::{Error, Result};
use crate::kernel::skeletons::scheduler::types::group;

/// A cgroup with a limit. The counts have the meaning of those in cpu.stat
/// (Documentation/admin-guide/cgroup-v2.rst), since the scheduler was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The cgroup's inode number.
    pub id: u64,
    /// CPU time in each period, in nanoseconds.
    pub quota_ns: u64,
    pub period_ns: u64,
    /// Ended periods in which it ran.
    pub nr_periods: u64,
    /// Those of them in which it used up its quota.
    pub nr_throttled: u64,
    /// How long it had no quota left, in nanoseconds, up to the end of its last period. The
    /// kernel's count grows only when the cgroup may run again.
    pub throttled_ns: u64,
    /// It has no quota left now.
    pub throttled: bool,
}

/// Reads the records of `groups` at these indices. Index 0, the root's, stands for none.
pub(super) fn read(groups: &MapImpl<'_>, indices: &[u32]) -> Result<Vec<Limited>> {
    let mut limited = Vec::new();
    for index in indices.iter().filter(|&&index| index != 0) {
        let bytes = groups
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| Error::failure(format!("reading the limits of cgroups: {e}")))?;
        limited.extend(bytes.as_deref().and_then(record));
    }
    Ok(limited)
}

fn record(bytes: &[u8]) -> Option<Limited> {
    /// RUNTIME_INF (kernel/sched/sched.h): no limit.
    const NO_QUOTA: u64 = u64::MAX;
    if bytes.len() < size_of::<group>() {
        return None;
    }
    // SAFETY: the map's value is a group, integers and a flag that may hold anything; a map
    // value need not be aligned.
    let group = unsafe { bytes.as_ptr().cast::<group>().read_unaligned() };
    let limit = group.limit;
    (limit.quota != NO_QUOTA).then_some(Limited {
        id: group.id,
        quota_ns: limit.quota,
        period_ns: limit.period,
        nr_periods: limit.nr_periods,
        nr_throttled: limit.nr_throttled,
        throttled_ns: limit.throttled_ns,
        throttled: limit.throttled != 0,
    })
}
