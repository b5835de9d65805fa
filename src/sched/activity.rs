//! What tasks did, as counted by the scheduler.

use std::ops::Add;

use libbpf_rs::{MapCore, MapFlags, MapImpl};
use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::kernel::skeletons::scheduler::types::{gth_activity, gth_migration, gth_turn_end};

/// What the tasks of a rule or a pod did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub run_ns: u64,
    /// Time runnable but not running; 0 if the kernel does not count it (CONFIG_SCHED_INFO).
    pub wait_ns: u64,
    /// Turns on a CPU that ended because the task slept.
    pub slept: u64,
    /// Turns that ended because the slice ended, or because the task yielded.
    pub expired: u64,
    /// Turns that another task ended earlier.
    pub preempted: u64,
    /// How often a task came onto a CPU other than its last one.
    pub migrations: u64,
    /// Migrations to another core, to another last-level cache, to another NUMA node.
    pub core_migrations: u64,
    pub llc_migrations: u64,
    pub node_migrations: u64,
}

impl Activity {
    pub(super) fn of(one: &gth_activity) -> Self {
        let turns = |end: gth_turn_end| one.turns[end.0 as usize];
        let migrations = |scope: gth_migration| one.migrations[scope.0 as usize];
        Self {
            run_ns: one.run_ns,
            wait_ns: one.wait_ns,
            slept: turns(gth_turn_end::GTH_TURN_SLEPT),
            expired: turns(gth_turn_end::GTH_TURN_EXPIRED),
            preempted: turns(gth_turn_end::GTH_TURN_PREEMPTED),
            migrations: migrations(gth_migration::GTH_MIGRATION_CPU),
            core_migrations: migrations(gth_migration::GTH_MIGRATION_CORE),
            llc_migrations: migrations(gth_migration::GTH_MIGRATION_LLC),
            node_migrations: migrations(gth_migration::GTH_MIGRATION_NODE),
        }
    }

    /// Turns that ended against the task's will.
    pub fn involuntary(&self) -> u64 {
        self.expired + self.preempted
    }
}

impl Add for Activity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            run_ns: self.run_ns + other.run_ns,
            wait_ns: self.wait_ns + other.wait_ns,
            slept: self.slept + other.slept,
            expired: self.expired + other.expired,
            preempted: self.preempted + other.preempted,
            migrations: self.migrations + other.migrations,
            core_migrations: self.core_migrations + other.core_migrations,
            llc_migrations: self.llc_migrations + other.llc_migrations,
            node_migrations: self.node_migrations + other.node_migrations,
        }
    }
}

/// Reads a row of a per-CPU array of counters. Returns the value of each CPU.
///
/// # Safety
///
/// `T` has to be the type of the map's values, and any bytes have to be a `T`.
pub(super) unsafe fn read_row<T>(map: &MapImpl<'_>, row: u16) -> Result<Vec<T>> {
    let values = map
        .lookup_percpu(&u32::from(row).to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::failure(format!("reading the counters of tasks: {e}")))?;
    let whole = values.iter().flatten().filter(|bytes| bytes.len() >= size_of::<T>());
    // SAFETY: the caller guarantees the type; a map value need not be aligned.
    Ok(whole.map(|bytes| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }).collect())
}

/// Sets a row of a per-CPU array of `T` to zero.
pub(super) fn clear_row<T>(map: &MapImpl<'_>, row: u16) -> Result<()> {
    let failed = |e| Error::failure(format!("clearing the counters of tasks: {e}"));
    let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
    let zeroes = vec![vec![0; size_of::<T>()]; cpus];
    map.update_percpu(&u32::from(row).to_ne_bytes(), &zeroes, MapFlags::ANY).map_err(failed)
}
