//! What each BPF program costs while a priority task wakes up.

use std::time::Duration;

use anyhow::Result;

use crate::programs::{self, Counting};
use crate::scheduler::Engaged;

use super::cyclictest::{Cyclictest, Run};
use super::record::Part;

/// A part for each program: calls, ns of each, and the instructions that the verifier
/// followed.
pub fn measure(engaged: &Engaged, duration: Duration) -> Result<Vec<Part>> {
    let interval = Duration::from_millis(1);
    let counting = Counting::start()?;
    let run = Run { priority: true, tasks: 1, interval, duration };
    Cyclictest::start(run, engaged)?.latencies(0)?;
    let parts = programs::all().into_iter().map(|program| Part {
        part: program.name,
        ..Part::of([
            ("calls", program.runs as f64),
            ("ns", program.ns as f64 / program.runs.max(1) as f64),
            ("instructions", f64::from(program.verified)),
        ])
    });
    let parts = parts.collect();
    drop(counting);
    Ok(parts)
}
