//! Runs the built gthctl, and asks the kernel which scheduler is loaded.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::time::Instant;
use std::{io, thread};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LOG_FILE: &str = "/tmp/testbed-gthctl.log";
const STATE: &str = "/sys/kernel/sched_ext/state";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// Under emulation, and once more when the machine is under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `gthctl run`; killed when dropped.
pub struct Gthctl(Child);

impl Gthctl {
    /// Starts it and waits until the kernel says that it schedules.
    pub fn start(binary: &Path, config: &Path) -> Result<Self> {
        let log = File::create(LOG_FILE)?;
        let child = Command::new(binary)
            .args(["run", "-c"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut gthctl = Self(child);
        let start = Instant::now();
        while check_enabled().is_err() {
            if let Some(status) = gthctl.0.try_wait()? {
                bail!("gthctl ended ({status}): {}", log_tail());
            }
            if start.elapsed() > PATIENCE {
                check_enabled().with_context(|| format!("gthctl printed: {}", log_tail()))?;
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(gthctl)
    }

    /// An error unless the kernel still runs it and it ends well on SIGINT.
    pub fn stop(mut self) -> Result<()> {
        check_enabled().with_context(|| format!("gthctl printed: {}", log_tail()))?;
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT)?;
        let start = Instant::now();
        let status = loop {
            match self.0.try_wait()? {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => bail!("gthctl ignores SIGINT"),
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        ensure!(status.success(), "gthctl ended with {status}: {}", log_tail());
        check_disabled()
    }
}

impl Drop for Gthctl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check_enabled() -> Result<()> {
    let (state, ops) = (read(STATE)?, read(OPS)?);
    ensure!(state == "enabled" && ops == "gthctl", "sched_ext is {state}, scheduler '{ops}'");
    Ok(())
}

/// An error when a sched_ext scheduler is loaded.
pub fn check_disabled() -> Result<()> {
    let state = read(STATE)?;
    ensure!(state == "disabled" || state.is_empty(), "sched_ext is {state}");
    Ok(())
}

/// A file's text, empty when there is no such file.
fn read(path: &str) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(e).with_context(|| format!("cannot read {path}")),
    }
}

/// The last lines gthctl printed, as one.
fn log_tail() -> String {
    let log = fs::read_to_string(LOG_FILE).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
