//! Follows the cpusets of `cpus: allocated`: which ones the rules' tasks are in, and their CPUs.
//!
//! The kernel keeps each task within its cpuset. The policy's next generation only says which of
//! these CPUs other tasks have to leave, so no task waits for this module.
//!
//! The scheduler reports when any task's affinity changes, as it does when its cpuset changes;
//! when a task comes under such a rule, leaves it or ends; and when a cgroup is removed.

use std::time::{Duration, Instant};

use super::live::{LivePolicy, PolicyContext};
use crate::base::error::{Error, Result};
use crate::base::time;
use crate::sched::Scheduler;

/// Delay from a first change to the look, so that several changes cause one look, as when a pod
/// starts.
const SETTLE: Duration = Duration::from_millis(50);

/// Looks use at most 1/`PART` of a CPU's time.
const PART: u32 = 10;

/// How often to look without a reported change. The last task of a cgroup outside all rules may
/// have ended, and another cgroup may now have the CPUs that it shared to itself.
const LOOK: Duration = Duration::from_secs(30);

/// Delay from a failure to the next look.
const RETRY: Duration = Duration::from_secs(1);

/// When to look at the cpusets.
#[derive(Default)]
pub struct Allocations {
    /// The next look; `None`: now.
    due: Option<Instant>,
    /// Why the last look failed.
    failed: Option<Error>,
    /// Changes cause no look before this time, however many there are.
    rests_until: Option<Instant>,
}

impl Allocations {
    /// Looks, when it is time to. Returns the time until the next look; `None` if no rule needs one.
    pub fn follow(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        policy: &mut LivePolicy,
        context: &PolicyContext<'_>,
    ) -> Result<Option<Duration>> {
        if !policy.follows_cpusets() {
            *self = Self::default();
            return Ok(None);
        }
        let begin = Instant::now();
        if scheduler.cpusets_changed() {
            let soon = self.rests_until.unwrap_or(begin).max(begin + SETTLE);
            self.due = self.due.map(|due| due.min(soon));
        }
        if let Some(due) = self.due.filter(|&due| due > begin) {
            return self.failed.clone().map_or(Ok(Some(due - begin)), Err);
        }
        let used = time::of_thread()?;
        scheduler.forget_cpuset_changes();
        let done = policy.follow_cpusets(scheduler, context);
        let end = Instant::now();
        self.rests_until = Some(end + PART * (time::of_thread()? - used));
        self.due = Some(end + if done.is_ok() { LOOK } else { RETRY });
        self.failed = done.as_ref().err().cloned();
        done.map(|()| Some(LOOK))
    }
}
