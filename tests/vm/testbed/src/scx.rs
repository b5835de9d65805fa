//! sched_ext schedulers that run as processes, including gthctl, and what the kernel has loaded.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::time::Instant;
use std::{io, thread};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::arguments::absolute;

const LOG_FILE: &str = "/tmp/testbed-scheduler.log";
const STATE: &str = "/sys/kernel/sched_ext/state";
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// Loading is slow under emulation, and slower when the machine is under load; some schedulers are
/// large.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that loads a scheduler and ends it on SIGINT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub binary: PathBuf,
    pub args: Vec<OsString>,
}

impl Program {
    /// `gthctl run` with a config file, and a policy instead of the one that it names.
    pub fn gthctl(binary: &Path, config: &Path, policy: Option<&Path>) -> Result<Self> {
        let mut args = vec!["run".into(), "-c".into(), absolute(config)?.into()];
        if let Some(policy) = policy {
            args.extend(["-p".into(), absolute(policy)?.into()]);
        }
        Ok(Self { binary: absolute(binary)?, args })
    }
}

/// A running [`Program`]; killed when dropped.
pub struct Scx {
    child: Child,
    /// What the kernel calls its scheduler.
    ops: String,
    binary: PathBuf,
    loading: Duration,
}

impl Scx {
    /// Starts it and waits until the kernel reports its scheduler as enabled.
    pub fn start(program: &Program) -> Result<Self> {
        let log = File::create(LOG_FILE)?;
        let start = Instant::now();
        let child = Command::new(&program.binary)
            .args(&program.args)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.binary.display()))?;
        let mut scx = Self {
            child,
            ops: String::new(),
            binary: program.binary.clone(),
            loading: Duration::ZERO,
        };
        while read(STATE)? != "enabled" {
            if let Some(status) = scx.child.try_wait()? {
                bail!("it ended ({status}): {}", log_tail());
            }
            if start.elapsed() > PATIENCE {
                bail!("sched_ext is {} after {PATIENCE:?}: {}", read(STATE)?, log_tail());
            }
            thread::sleep(Duration::from_millis(1));
        }
        scx.loading = start.elapsed();
        scx.ops = read(OPS)?;
        Ok(scx)
    }

    /// The time from its exec until its scheduler schedules, to the millisecond.
    pub fn loading(&self) -> Duration {
        self.loading
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error unless the kernel still runs it.
    pub fn check(&self) -> Result<()> {
        let (state, ops) = (read(STATE)?, read(OPS)?);
        ensure!(
            state == "enabled" && ops == self.ops,
            "sched_ext is {state}, scheduler '{ops}': {}",
            log_tail()
        );
        Ok(())
    }

    /// An error unless the kernel still runs it and it ends well on SIGINT.
    pub fn stop(mut self) -> Result<()> {
        self.check()?;
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => bail!("{} ignores SIGINT", self.ops),
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        ensure!(status.success(), "{} ended with {status}: {}", self.ops, log_tail());
        check_disabled()
    }
}

impl Drop for Scx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An error if a sched_ext scheduler is loaded.
pub fn check_disabled() -> Result<()> {
    let state = read(STATE)?;
    ensure!(state == "disabled" || state.is_empty(), "sched_ext is {state}");
    Ok(())
}

/// A file's text; empty if there is no such file.
fn read(path: &str) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(e).with_context(|| format!("cannot read {path}")),
    }
}

/// The last lines the program printed, as one.
fn log_tail() -> String {
    let log = fs::read_to_string(LOG_FILE).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
