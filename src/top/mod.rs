//! `gthctl top`: what the scheduler does, on a full screen, as text, in JSON.
//!
//! Everything comes through the running gthctl's socket and from /proc, at the user's interval.
//! Shares and rates are differences between two samples: the scheduler counts nothing extra for
//! them.

pub mod drawing;
pub mod full_screen;
pub mod keys;
pub mod proc;
pub mod sample;
pub mod tables;
#[cfg(test)]
mod test_samples;
pub mod trends;

use std::thread;
use std::time::Duration;

use sample::{Sample, Source};
use trends::Report;

use crate::base::error::Result;

/// What happens in the next `interval`. Fails without a running gthctl.
pub fn once(source: &Source, interval: Duration) -> Result<Report> {
    let before = known(source)?;
    thread::sleep(interval);
    let after = known(source)?;
    Ok(Report::between(Some(&before), &after))
}

fn known(source: &Source) -> Result<Sample> {
    let sample = source.sample()?;
    match &sample.gthctl {
        Ok(_) => Ok(sample),
        Err(e) => Err(e.clone()),
    }
}
