//! Task changes that the kernel sent no event for.

use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::policy::compile::Compiled;
use crate::sched::Scheduler;

/// Delay from a first task change to the check whether the kernel has missed one.
const MISSED_CHECK: Duration = Duration::from_millis(100);

/// Makes up for task changes that the kernel has missed.
#[derive(Default)]
pub struct Missed {
    /// Whether there were rules at the last call.
    follows: bool,
    /// When the next check is due.
    due: Option<Instant>,
    /// Match tasks once more: the missed change may have been a new name that was not stored yet.
    again: bool,
}

impl Missed {
    /// Returns when the next check is due; `None`: not before tasks change.
    pub fn make_up_for(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        policy: &Compiled,
    ) -> Result<Option<Duration>> {
        let changes = scheduler.take_changes();
        if policy.rules.is_empty() {
            *self = Self::default();
            return Ok(None);
        }
        if (changes || !self.follows) && self.due.is_none() {
            self.due = Some(Instant::now() + MISSED_CHECK);
        }
        self.follows = true;
        let Some(due) = self.due else { return Ok(None) };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let missed = scheduler.has_missed_changes()?;
        if missed || self.again {
            // Set first, so that a failure here is retried.
            self.again = true;
            scheduler.rematch()?;
        }
        self.again = missed;
        self.due = missed.then(|| Instant::now() + MISSED_CHECK);
        Ok(missed.then_some(MISSED_CHECK))
    }
}
