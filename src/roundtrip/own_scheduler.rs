//! gthctl's scheduler, loaded for a measurement.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use crate::base::error::{Error, ExitCode, Result};
use crate::base::signals::sleep;
use crate::daemon::control::{Reply, Request, SOCKET, client};

/// How long the kernel may take to load it.
const LOADED: Duration = Duration::from_secs(120);
/// How often to ask whether it is loaded.
const EVERY: Duration = Duration::from_millis(50);

/// A `gthctl run` that this process started. Dropping this ends it.
pub struct OwnScheduler(Child);

impl OwnScheduler {
    /// Fails if another gthctl runs.
    pub fn may_start() -> Result<()> {
        if !is_ready(Duration::from_secs(3)) {
            return Ok(());
        }
        let what = "a gthctl run is active already";
        Err(Error::new(ExitCode::AlreadyRunning, what)
            .help("stop it, or measure what it has in force, without --policy"))
    }

    /// Starts it with a policy and waits until the kernel schedules by that policy. `None` if a
    /// signal comes first.
    ///
    /// Fails if it ends, with its exit code.
    pub fn start(policy: &Path, signals: &SignalFd) -> Result<Option<Self>> {
        let failed = |e| Error::because_of("gthctl run", e);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["run", "--policy"]).arg(policy).stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: prctl(2) may be called between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?)) };
        let mut own = Self(command.spawn().map_err(failed)?);
        let end = Instant::now() + LOADED;
        while !is_ready(EVERY) {
            if let Some(status) = own.0.try_wait().map_err(failed)? {
                return Err(ended(status));
            }
            if Instant::now() > end {
                return Err(Error::failure(format!("gthctl run was not ready within {LOADED:?}")));
            }
            if sleep(signals, None, EVERY)? {
                return Ok(None);
            }
        }
        Ok(Some(own))
    }

    /// Ends it. Fails if the kernel had ended it before.
    pub fn stop(mut self) -> Result<()> {
        match self.end() {
            Some(status) if !status.success() => Err(ended(status)),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        // The child is not reaped yet, so the PID is still its own.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        self.0.wait().ok()
    }
}

impl Drop for OwnScheduler {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.end();
        }
    }
}

/// Whether some gthctl schedules.
fn is_ready(patience: Duration) -> bool {
    let reply = client::ask_within(Path::new(SOCKET), &Request::Health, patience);
    matches!(reply, Ok(Reply::Health(health)) if health.kernel_in_step)
}

/// The child has said why on standard error.
fn ended(status: ExitStatus) -> Error {
    let code = status.code().map_or(ExitCode::Failure, ExitCode::from);
    Error::new(code, format!("gthctl run ended ({status})"))
}
