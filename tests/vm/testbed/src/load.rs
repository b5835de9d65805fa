//! CPU load: stress-ng.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// stress-ng with `workers` spinners, until dropped.
pub struct Load(Child);

impl Load {
    pub fn start(workers: usize) -> Result<Self> {
        let mut child = Command::new("stress-ng")
            .args(["--quiet", "--cpu", &workers.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start stress-ng")?;
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
