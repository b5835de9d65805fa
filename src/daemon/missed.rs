//! Changes of tasks that the kernel has not told of.

use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::policy::compile::Compiled;
use crate::sched::Scheduler;

/// How long after tasks began to change it is looked whether the kernel has missed a change.
const MISSED_CHECK: Duration = Duration::from_millis(100);

/// Makes up for changes of tasks that the kernel has missed.
#[derive(Default)]
pub struct Missed {
    /// There were rules the last time.
    follows: bool,
    /// When it is looked next.
    due: Option<Instant>,
    /// Tasks are to be matched once more: what was missed may have been a name that
    /// was about to be stored.
    again: bool,
}

impl Missed {
    /// Returns when the next look is due; `None`: not before tasks change.
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
            // Also if it fails now.
            self.again = true;
            scheduler.rematch()?;
        }
        self.again = missed;
        self.due = missed.then(|| Instant::now() + MISSED_CHECK);
        Ok(missed.then_some(MISSED_CHECK))
    }
}
