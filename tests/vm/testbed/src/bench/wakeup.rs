//! How late tasks wake up.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process;
use crate::scheduler::Engaged;

use super::crowd::Crowd;
use super::cyclictest::{Cyclictest, Run};
use super::record::Part;

const INTERVAL: Duration = Duration::from_millis(1);
/// The interval of many tasks, long enough that all of them together leave CPU time.
const LONG_INTERVAL: Duration = Duration::from_millis(10);
/// The time for cyclictest to begin, and then for the crowd.
const START: Duration = Duration::from_millis(400);

/// A priority task and a normal one at once, and what the scheduler's process costs.
pub fn of_both(engaged: &Engaged, duration: Duration) -> Result<Vec<Part>> {
    let run = |priority| Run { priority, tasks: 1, interval: INTERVAL, duration };
    let cpu_time = || engaged.scx().map(|scx| process::cpu_time(scx.id())).transpose();
    let (before, start) = (cpu_time()?, Instant::now());
    let (priority, normal) =
        (Cyclictest::start(run(true), engaged)?, Cyclictest::start(run(false), engaged)?);
    let priority = priority.latencies(0)?;
    let normal = normal.latencies(0)?;
    let elapsed = start.elapsed();
    let part = |name: &str, samples| Part { part: name.into(), samples, ..Part::default() };
    let mut parts = vec![part("priority", priority), part("normal", normal)];
    if let (Some(scx), Some(before), Some(after)) = (engaged.scx(), before, cpu_time()?) {
        let used = (after - before).as_secs_f64() / elapsed.as_secs_f64();
        let mut footprint = Part::of([
            ("CPU ms/s", used * 1e3),
            ("resident MiB", process::resident_kib(scx.id())? as f64 / 1024.0),
            ("loading ms", scx.loading().as_secs_f64() * 1e3),
            ("binary MiB", fs::metadata(scx.binary())?.len() as f64 / f64::from(1 << 20)),
        ]);
        footprint.part = "process".into();
        parts.push(footprint);
    }
    Ok(parts)
}

/// A priority task among `tasks` normal ones that are runnable all the time.
pub fn in_crowd(engaged: &Engaged, tasks: usize, duration: Duration) -> Result<Vec<Part>> {
    let mut crowd = Crowd::gather("crowd", tasks, None)?;
    // cyclictest begins first: a task that starts in the crowd starts late if it has no priority
    // before its execve(2).
    let whole = START + duration;
    let run = Run { priority: true, tasks: 1, interval: INTERVAL, duration: whole };
    let cyclictest = Cyclictest::start(run, engaged)?;
    thread::sleep(START / 2);
    crowd.begin();
    let skipped = START.as_millis() / INTERVAL.as_millis();
    let samples = cyclictest.latencies(skipped as usize).context("in the crowd")?;
    Ok(vec![Part { samples, ..Part::default() }])
}

/// Many priority tasks at once.
pub fn of_many(engaged: &Engaged, tasks: usize, duration: Duration) -> Result<Vec<Part>> {
    let run = Run { priority: true, tasks, interval: LONG_INTERVAL, duration };
    let samples = Cyclictest::start(run, engaged)?.latencies(0)?;
    Ok(vec![Part { samples, ..Part::default() }])
}
