//! CPU load: stress-ng.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Tasks that never sleep.
    pub spinners: usize,
    /// Pairs of tasks that wake each other through a pipe, all the time: a
    /// loaded machine's tasks don't all spin, and those that sleep compete for
    /// what a scheduler gives to sleepers.
    pub pipes: usize,
}

/// A running stress-ng; ended when dropped.
pub struct Load(Child);

impl Load {
    pub fn start(amount: Amount) -> Result<Self> {
        let mut command = Command::new("stress-ng");
        command.arg("--quiet");
        // 0 would mean one for each CPU.
        for (stressor, workers) in [("--cpu", amount.spinners), ("--pipe", amount.pipes)] {
            if workers > 0 {
                command.args([stressor, &workers.to_string()]);
            }
        }
        let mut child = command.stdin(Stdio::null()).spawn().context("cannot start stress-ng")?;
        // Time for the spinners to start and spread.
        thread::sleep(Duration::from_millis(1500));
        ensure!(child.try_wait()?.is_none(), "stress-ng ended at once");
        Ok(Self(child))
    }

    /// An error when the load ended before it was told to.
    pub fn stop(mut self) -> Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "stress-ng ended while the row was measured");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // stress-ng ends its workers itself.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
