//! How long the kernel lets a task wait before it ends the scheduler.

use std::time::Duration;

/// The kernel's maximum (SCX_WATCHDOG_MAX_TIMEOUT, kernel/sched/ext).
pub const LONGEST: Duration = Duration::from_secs(30);

/// The environment variable that sets another time in ms, for tests that provoke a stall.
pub const VARIABLE: &str = "GTHCTL_WATCHDOG_MS";

/// What `ops.timeout_ms` is set to: [`LONGEST`], or less if [`VARIABLE`] says so.
pub fn time() -> Duration {
    let told = std::env::var(VARIABLE).ok().and_then(|ms| ms.parse().ok());
    told.map_or(LONGEST, |ms| LONGEST.min(Duration::from_millis(ms)))
}
