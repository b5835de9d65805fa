//! The clock of BPF's timestamps, CPU time, dates, and how long poll(2) waits.

use std::time::{Duration, SystemTime};

use nix::poll::PollTimeout;
use nix::time::{ClockId, clock_gettime};

use super::error::{Error, Result};

/// CLOCK_MONOTONIC in ns, the clock of BPF's timestamps.
pub fn monotonic() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let now = now.map_err(|e| Error::failure(format!("the clock: {e}")))?;
    Ok(Duration::from(now).as_nanos() as u64)
}

/// The CPU time of the calling thread.
pub fn of_thread() -> Result<Duration> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    used.map(Duration::from).map_err(|e| Error::failure(format!("the clock: {e}")))
}

/// A timeout for poll(2), in milliseconds, rounded up so that it does not end early.
pub fn rounded_up(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else { return PollTimeout::NONE };
    PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX)
}

/// A date in RFC 3339, UTC, to the second.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
