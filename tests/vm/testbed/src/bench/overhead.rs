//! What a scheduler costs work without priority, on a machine without other load.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::record::Part;

/// Two tasks that wake each other.
pub fn pipe() -> Result<Vec<Part>> {
    timed("perf", &["bench", "sched", "pipe", "--loop", "15000"])
}

/// 80 senders and receivers.
pub fn hackbench() -> Result<Vec<Part>> {
    timed("hackbench", &["--groups", "2", "--loops", "60"])
}

/// 40 short programs, as many at once as `make -j` with twice the CPUs.
pub fn build() -> Result<Vec<Part>> {
    let jobs = 2 * std::thread::available_parallelism()?.get();
    let one = "head -c 200000 /bin/busybox | sha256sum >/dev/null";
    timed("sh", &["-c", &format!("seq 40 | xargs -P {jobs} -I{{}} busybox sh -c '{one}'")])
}

fn timed(program: &str, arguments: &[&str]) -> Result<Vec<Part>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let start = Instant::now();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} ended with {}: {stderr}", output.status);
    Ok(vec![Part::of([("s", seconds)])])
}
