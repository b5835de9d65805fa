//! Follows the cpusets of `cpus: allocated`: which ones the rules' tasks are in, and their CPUs.
//!
//! The kernel keeps each task within its cpuset. The policy's next generation only says which of
//! these CPUs others have to leave, so no task waits for what happens here.
//!
//! The scheduler tells when any task's affinity changes, as it does with its cpuset, when a task
//! comes under such a rule, leaves it or ends, and when a cgroup is removed.

use std::time::{Duration, Instant};

use super::live::{LivePolicy, PolicyContext};
use crate::base::error::{Error, Result};
use crate::base::time;
use crate::sched::Scheduler;

/// Delay from a first change to the look: several count as one, as when a pod starts.
const SETTLE: Duration = Duration::from_millis(50);

/// Looks take at most one part in so many of a CPU's time.
const PART: u32 = 10;

/// How often to look without having been told: the last task of a cgroup that is no rule's may have
/// ended, and the CPUs that it shared are somebody's alone.
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
    /// However much changes, not before.
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
