//! CPU load: stress-ng.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const METRICS: &str = "/tmp/testbed-stress.yaml";

/// How much load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    /// Tasks that never sleep.
    pub spinners: usize,
    /// Pairs of tasks that keep waking each other through a pipe. Not all tasks of a loaded
    /// machine spin, and those that sleep compete for what a scheduler gives to sleepers.
    pub pipes: usize,
    /// Tasks that fork, wait for the child's end and go on.
    pub forks: usize,
}

impl Amount {
    pub fn is_none(self) -> bool {
        self.spinners + self.pipes + self.forks == 0
    }
}

/// What the load got done, in stress-ng's bogo operations per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Of the spinners.
    pub cpu: f64,
    pub pipe: f64,
    pub fork: f64,
}

impl Done {
    /// From stress-ng's YAML, where a stressor's name comes before its numbers.
    fn parse(yaml: &str) -> Self {
        let (mut done, mut stressor) = (Self::default(), "");
        for (key, value) in yaml.lines().filter_map(|line| line.trim().split_once(": ")) {
            match key {
                "- stressor" => stressor = value,
                "bogo-ops-per-second-real-time" => {
                    let of = match stressor {
                        "cpu" => &mut done.cpu,
                        "pipe" => &mut done.pipe,
                        "fork" => &mut done.fork,
                        _ => continue,
                    };
                    *of = value.trim().parse().unwrap_or(0.0);
                }
                _ => {}
            }
        }
        done
    }
}

/// A running stress-ng; ended when dropped.
pub struct Load(Child);

impl Load {
    pub fn start(amount: Amount) -> Result<Self> {
        Self::spread(amount, Duration::from_millis(1500))
    }

    /// Starts it and gives its tasks this much time to start and spread.
    pub fn spread(amount: Amount, time: Duration) -> Result<Self> {
        let mut command = Command::new("stress-ng");
        command.args(["--quiet", "--metrics", "--yaml", METRICS]);
        // One method: the methods take different times, and a short run would reach only a few of
        // them.
        command.args(["--cpu-method", "int64"]);
        // 0 would mean one for each CPU.
        let workers =
            [("--cpu", amount.spinners), ("--pipe", amount.pipes), ("--fork", amount.forks)];
        for (stressor, workers) in workers {
            if workers > 0 {
                command.args([stressor, &workers.to_string()]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start stress-ng")?;
        thread::sleep(time);
        ensure!(child.try_wait()?.is_none(), "stress-ng ended at once");
        Ok(Self(child))
    }

    /// The PID of stress-ng, whose children are the tasks.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "stress-ng ended while the row was measured");
        Ok(())
    }

    /// An error if the load ended too early.
    pub fn stop(mut self) -> Result<Done> {
        self.check()?;
        drop(self);
        Ok(Done::parse(&fs::read_to_string(METRICS).context("stress-ng wrote no metrics")?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // stress-ng ends its workers itself.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_each_stressor() {
        let yaml = "system-info:\n      cpus: 2\n\nmetrics:\n    - stressor: cpu\n      \
            bogo-ops: 1845\n      bogo-ops-per-second-real-time: 923.5\n\n    - stressor: pipe\n      \
            bogo-ops-per-second-real-time: 276602.25\n...\n";
        assert_eq!(Done::parse(yaml), Done { cpu: 923.5, pipe: 276_602.25, fork: 0.0 });
    }
}
