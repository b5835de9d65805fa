//! Whether a machine can be used while its priority tasks spin.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::scheduler::Engaged;

use super::crowd::Crowd;
use super::record::Part;

/// How long each of the two measurements takes.
const TIME: Duration = Duration::from_secs(1);

/// How long the spinning tasks get to spread over the CPUs.
const SPREAD: Duration = Duration::from_millis(200);

/// Lets as many priority tasks spin as there are CPUs. Measures what share of the CPUs as many
/// spinning normal tasks get, and how many programs a normal task starts one after another.
pub fn measure(engaged: &Engaged) -> Result<Vec<Part>> {
    let cpus = thread::available_parallelism()?.get();
    let mut spinners = Crowd::gather("priority-spin", cpus, Some(engaged))?;
    spinners.begin();
    thread::sleep(SPREAD);
    let share = {
        let mut normal = Crowd::gather("crowd", cpus, None)?;
        normal.begin();
        thread::sleep(SPREAD);
        let (before, start) = (normal.cpu_time()?, Instant::now());
        thread::sleep(TIME);
        (normal.cpu_time()? - before).as_secs_f64() / start.elapsed().as_secs_f64() / cpus as f64
    };
    let start = Instant::now();
    let mut commands = 0;
    while start.elapsed() < TIME {
        let status = Command::new("busybox").arg("true").stdin(Stdio::null()).status()?;
        ensure!(status.success(), "busybox: {status}");
        commands += 1;
    }
    let rate = f64::from(commands) / start.elapsed().as_secs_f64();
    Ok(vec![Part::of([("share of normal tasks, %", share * 100.0), ("commands/s", rate)])])
}
