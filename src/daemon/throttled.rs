//! The cgroups that their CPU limit has throttled.

use super::reports::ThrottledCgroup;
use crate::base::error::Result;
use crate::kernel::cgroupfs;
use crate::sched::Scheduler;

/// The cgroups that have used up their quota since the scheduler was loaded, sorted by path.
pub fn cgroups(scheduler: &Scheduler<'_>) -> Result<Vec<ThrottledCgroup>> {
    let mut limited = scheduler.limited_cgroups()?;
    limited.retain(|limit| limit.throttled || limit.nr_throttled > 0);
    let paths = cgroupfs::paths(limited.iter().map(|limit| limit.id));
    let mut throttled: Vec<_> = limited
        .iter()
        .map(|limit| ThrottledCgroup {
            cgroup: paths.get(&limit.id).cloned().unwrap_or(format!("inode {}", limit.id)),
            limit_cpus: limit.quota_ns as f64 / limit.period_ns as f64,
            nr_periods: limit.nr_periods,
            nr_throttled: limit.nr_throttled,
            throttled_usec: limit.throttled_ns / 1000,
            throttled: limit.throttled,
        })
        .collect();
    throttled.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
    Ok(throttled)
}
