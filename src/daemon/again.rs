//! Retries steps that failed, for example because the machine ran out of descriptors or
//! memory. A brief shortage does not end a running service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::base::error::{Error, Result};
use crate::base::log;

/// Delay from a failure to the retry.
const RETRY: Duration = Duration::from_secs(1);

/// A step that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Reading the config file.
    Config,
    /// Reading the policy file.
    Policy,
    /// Following the strategies of the API.
    Strategies,
    /// Following the files the policy refers to.
    Refresh,
    /// Watching the files the policy refers to.
    References,
    /// Looking for packets.
    Marks,
    /// Making up for changes the kernel has missed.
    Missed,
    /// Looking up the cpusets of rules' tasks.
    Cpusets,
    /// Starting the kernel's ext servers.
    ExtServers,
    /// Reading the counters.
    Stats,
    /// Giving pods their counters.
    PodCounters,
    /// Waiting for something to do.
    Wait,
}

/// The failed steps, each with its reason.
#[derive(Debug, Default)]
pub struct Again {
    /// The failed steps with their errors; `None` if the error was reported elsewhere.
    failed: BTreeMap<Step, Option<Error>>,
    /// When to retry them.
    at: Option<Instant>,
    /// The last error that was reported, and when.
    last: Option<(Error, SystemTime)>,
}

impl Again {
    /// Records a step's result. Reports the same error only once; a mistake in a file is
    /// not retried.
    pub fn note(&mut self, step: Step, done: Result<()>) {
        let Err(e) = done else {
            self.failed.remove(&step);
            return;
        };
        if is_mistake(&e) {
            self.failed.remove(&step);
            log::error(format_args!("{e}; the previous settings stay in force"));
            self.last = Some((e, SystemTime::now()));
            return;
        }
        if self.failed.get(&step).is_none_or(|told| told.as_ref() != Some(&e)) {
            let stays = "the previous settings stay in force; gthctl will retry";
            log::error(format_args!("{e}; {stays}"));
            self.last = Some((e.clone(), SystemTime::now()));
            self.failed.insert(step, Some(e));
        }
        self.at.get_or_insert(Instant::now() + RETRY);
    }

    /// As [`Again::note`], for a step that returns when it is next due.
    pub fn note_due(&mut self, step: Step, done: Result<Option<Duration>>) -> Option<Duration> {
        match done {
            Ok(due) => {
                self.note(step, Ok(()));
                due
            }
            Err(e) => {
                self.note(step, Err(e));
                None
            }
        }
    }

    /// Retries a failed step whose error was already reported.
    pub fn add(&mut self, step: Step) {
        self.failed.entry(step).or_default();
        self.at.get_or_insert(Instant::now() + RETRY);
    }

    /// The steps to retry now.
    pub fn due(&mut self) -> Vec<Step> {
        if self.at.is_none_or(|at| at > Instant::now()) {
            return Vec::new();
        }
        self.at = None;
        self.failed.keys().copied().collect()
    }

    /// The last error that was reported, and when.
    pub fn last_error(&self) -> Option<&(Error, SystemTime)> {
        self.last.as_ref()
    }

    /// The time until [`Again::due`] returns something; `None` while nothing fails.
    pub fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// `e` with the time of its first occurrence: the time in `before` if that is the same error,
/// else now.
pub fn since_when(before: Option<(Error, SystemTime)>, e: &Error) -> (Error, SystemTime) {
    before.filter(|(same, _)| same == e).unwrap_or_else(|| (e.clone(), SystemTime::now()))
}

/// Whether only a changed file can fix the error.
fn is_mistake(e: &Error) -> bool {
    e.at.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Location;

    #[test]
    fn the_same_error_is_as_old_as_at_first() {
        let [one, other] = ["one", "other"].map(Error::failure);
        let first = (one.clone(), SystemTime::UNIX_EPOCH);
        assert_eq!(since_when(Some(first.clone()), &one), first);
        assert!(since_when(Some(first), &other).1 > SystemTime::UNIX_EPOCH);
        assert_eq!(since_when(None, &one).0, one);
    }

    #[test]
    fn tried_again_until_it_is_done() {
        let mut again = Again::default();
        assert_eq!((again.left(), again.due()), (None, vec![]));
        assert!(again.last_error().is_none());
        again.note(Step::Policy, Err(Error::failure("Too many open files")));
        assert!(again.left().is_some_and(|left| left <= RETRY));
        assert_eq!(again.due(), []);
        again.at = Some(Instant::now());
        assert_eq!(again.due(), [Step::Policy]);
        again.note(Step::Policy, Err(Error::failure("Too many open files")));
        assert!(again.left().is_some());
        again.note(Step::Policy, Ok(()));
        again.at = Some(Instant::now());
        assert_eq!((again.due(), again.left()), (vec![], None));
        assert_eq!(again.last_error().unwrap().0.what, "Too many open files");
    }

    #[test]
    fn a_mistake_is_not() {
        let mut again = Again::default();
        let at = Location { file: "p.yaml".into(), line: 1, column: 1 };
        again.note(Step::Policy, Err(Error::failure("no such key").at(at)));
        assert_eq!(again.left(), None);
        assert_eq!(again.last_error().unwrap().0.what, "no such key");
    }
}
