//! The clock that BPF's times are of.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::error::{Error, Result};

/// CLOCK_MONOTONIC in ns, which BPF's times are of.
pub fn monotonic() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let now = now.map_err(|e| Error::failure(format!("the clock: {e}")))?;
    Ok(Duration::from(now).as_nanos() as u64)
}
