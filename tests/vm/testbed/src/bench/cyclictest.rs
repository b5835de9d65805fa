//! cyclictest of rt-tests: tasks that sleep until a time and say how late they woke up.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::alias::alias;
use crate::boost::{Boost, FIFO_PRIORITY};
use crate::scheduler::Engaged;

/// What to run.
#[derive(Clone, Copy)]
pub struct Run {
    /// Priority tasks, or normal ones.
    pub priority: bool,
    pub tasks: usize,
    /// The time between wake-ups of a task.
    pub interval: Duration,
    pub duration: Duration,
}

impl Run {
    /// The option that ends it: after a time, which cyclictest takes in seconds, or after a number
    /// of wake-ups.
    fn end(&self) -> String {
        match self.duration.as_secs() {
            0 => format!("--loops={}", self.duration.as_micros() / self.interval.as_micros()),
            seconds => format!("--duration={seconds}"),
        }
    }
}

/// A running cyclictest; ended when dropped.
pub struct Cyclictest {
    child: Child,
    output: PathBuf,
}

impl Cyclictest {
    pub fn start(run: Run, engaged: &Engaged) -> Result<Self> {
        // A normal task has a name that no policy contains.
        let name = if run.priority { "cyclictest" } else { "normal" };
        let output = PathBuf::from(format!("/tmp/testbed-{name}.txt"));
        let mut command = Command::new(alias(&cyclictest()?, name)?);
        command
            .args(["--verbose", "--nsecs", "--histfile=/dev/null"])
            .arg(format!("--threads={}", run.tasks))
            .arg(format!("--interval={}", run.interval.as_micros()))
            .arg(run.end())
            .arg("--distance=0")
            .stdin(Stdio::null())
            .stdout(File::create(&output)?);
        if run.priority {
            engaged.favour(&mut command);
        }
        match engaged.boost() {
            Boost::Fifo if run.priority => {
                command.args(["--policy=fifo", &format!("--priority={FIFO_PRIORITY}")])
            }
            _ => command.arg("--policy=other"),
        };
        Ok(Self { child: command.spawn().context("cannot run cyclictest")?, output })
    }

    /// Waits for its end. Returns how late each wake-up was, in ns, without the first `skipped` of
    /// each task.
    pub fn latencies(mut self, skipped: usize) -> Result<Vec<f64>> {
        let status = self.child.wait()?;
        let text = fs::read_to_string(&self.output)?;
        ensure!(status.success(), "cyclictest ended with {status}: {text}");
        let latencies: Vec<f64> = text.lines().filter_map(|line| late(line, skipped)).collect();
        ensure!(!latencies.is_empty(), "cyclictest told nothing: {text}");
        Ok(latencies)
    }
}

impl Drop for Cyclictest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// cyclictest's path.
fn cyclictest() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|dir| dir.join("cyclictest"));
    files.find(|path| path.exists()).context("no cyclictest")
}

/// The ns in a line such as `       0:      12:   76896`: task, wake-up, ns.
fn late(line: &str, skipped: usize) -> Option<f64> {
    let mut fields = line.split(':').map(str::trim);
    let (task, wake_up, ns) = (fields.next()?, fields.next()?, fields.next()?);
    let _: usize = task.parse().ok()?;
    let wake_up: usize = wake_up.parse().ok()?;
    (wake_up >= skipped && fields.next().is_none()).then(|| ns.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_second_in_wake_ups() {
        let run = |milliseconds| Run {
            priority: true,
            tasks: 1,
            interval: Duration::from_millis(1),
            duration: Duration::from_millis(milliseconds),
        };
        assert_eq!(run(250).end(), "--loops=250");
        assert_eq!(run(4000).end(), "--duration=4");
    }

    #[test]
    fn lines_of_wake_ups_only() {
        assert_eq!(late("       3:      12:   76896", 12), Some(76896.0));
        assert_eq!(late("       3:      12:   76896", 13), None);
        assert_eq!(late("T: 0 (2343) P: 0 I:1000 C: 5 Min: 69167", 0), None);
        assert_eq!(late("Max CPUs = 2", 0), None);
    }
}
