//! What the load gets done while tasks wake up beside it.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::load::{Done, Load};
use crate::scheduler::Engaged;

use super::plan::{LOAD, amount};
use super::record::Part;
use super::wakeup;

/// Starts its own load, as stress-ng counts only until its end.
pub fn measure(engaged: &Engaged, duration: Duration) -> Result<Vec<Part>> {
    let cpus = thread::available_parallelism()?.get();
    let load = Load::spread(amount(LOAD, cpus), Duration::ZERO)?;
    wakeup::of_both(engaged, duration)?;
    let Done { cpu, .. } = load.stop()?;
    Ok(vec![Part::of([("bogo ops/s", cpu)])])
}
