//! What a command in the foreground waits for: the signals that end it, and time.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::poll::PollTimeout;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{Error, Result};

/// Blocks SIGINT, SIGTERM and SIGHUP; they make the descriptor readable instead.
pub fn catch_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    let failed = |e| Error::failure(format!("signals: {e}"));
    set.thread_block().map_err(failed)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

/// A timeout for poll(2), which counts milliseconds, that does not end early.
pub fn rounded_up(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else { return PollTimeout::NONE };
    PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX)
}

/// A thread that takes no signals: they are for the one that waits for them.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let spawned = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    spawned
}
