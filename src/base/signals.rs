//! The signals that end a command in the foreground, and threads that take none.

use std::io::{self, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::error::{Error, Result};
use super::time::rounded_up;

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

/// Waits at most `timeout`, or until `other` is readable; returns true if one of the caught signals
/// arrived.
pub fn sleep(signals: &SignalFd, other: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<bool> {
    let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    fds.extend(other.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    match poll(&mut fds, rounded_up(Some(timeout))) {
        Ok(_) => Ok(fds[0].any().unwrap_or(false)),
        Err(Errno::EINTR) => Ok(false),
        Err(e) => Err(Error::failure(format!("poll: {e}"))),
    }
}

/// Waits until `out` is writable. Returns false if one of the caught signals arrives first, or if
/// `until` passes.
pub fn may_write(signals: &SignalFd, out: BorrowedFd<'_>, until: Option<Instant>) -> Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut fds =
            [PollFd::new(out, PollFlags::POLLOUT), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, rounded_up(left)) {
            // Also true if writing would fail: the write then says why.
            Ok(_) => return Ok(fds[0].any().unwrap_or(true)),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(Error::failure(format!("poll: {e}"))),
        }
    }
}

/// Starts a thread that takes no signals: they go to the thread that waits for them.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let spawned = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    spawned
}

/// Whether standard input, output or error is a terminal that has hung up.
pub fn terminal_has_hung_up() -> bool {
    let (stdin, stdout, stderr) = (stdin(), stdout(), stderr());
    [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].into_iter().any(|fd| {
        // A pipe whose other end is closed would look the same.
        let is_device = nix::sys::stat::fstat(fd)
            .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFCHR);
        let mut fds = [PollFd::new(fd, PollFlags::empty())];
        let polled = is_device && poll(&mut fds, PollTimeout::ZERO).is_ok();
        polled && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    })
}
