//! The client's end: asks the running gthctl.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, setsockopt};
use nix::sys::time::TimeVal;

use super::{MAX_BYTES, Reply, Request};
use crate::base::error::{Error, ExitCode, Result};

/// How long the answer may take, on a loaded machine with a large policy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends the request to the socket at `path` and returns the reply. A failure at the other end is
/// an error here.
///
/// Fails with [`ExitCode::NotRunning`] if no gthctl listens, and with
/// [`ExitCode::Permission`] if the caller has no permission to ask.
pub fn ask(path: &Path, request: &Request) -> Result<Reply> {
    ask_within(path, request, PATIENCE)
}

/// As [`ask`], with `patience` as the time that the connection, the request and the reply may each
/// take.
pub fn ask_within(path: &Path, request: &Request, patience: Duration) -> Result<Reply> {
    let timed_out = |e: &io::Error| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    let silent = || {
        let what = format!("the running gthctl did not answer within {patience:?}");
        Error::failure(what).help("it hangs, or is still loading its scheduler")
    };
    let mut stream = connect(path, patience).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Error::new(ExitCode::NotRunning, "no gthctl run is active")
                .help("start one with: sudo gthctl run")
        }
        ErrorKind::PermissionDenied => {
            let what = format!("{}: only root may ask the running gthctl", path.display());
            Error::new(ExitCode::Permission, what).help("run it as root, with sudo")
        }
        _ if timed_out(&e) => silent(),
        _ => Error::failure(format!("{}: {e}", path.display())),
    })?;
    match converse(&mut stream, request) {
        Ok(Reply::Failed(failure)) => Err(failure.into()),
        Ok(reply) => Ok(reply),
        Err(e) if timed_out(&e) => Err(silent()),
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            let puzzled = puzzled();
            Err(Error { what: format!("{} ({e})", puzzled.what), ..puzzled })
        }
        Err(e) => Err(Error::failure(format!("the running gthctl did not answer: {e}"))),
    }
}

/// The error for a reply that does not fit the request.
pub fn puzzled() -> Error {
    Error::failure("unexpected answer from the running gthctl; is it another version?")
}

/// Connects; every step on the connection takes at most `patience`. connect(2) also blocks if a
/// hung server has let the socket's backlog fill up (unix_stream_connect(),
/// net/unix/af_unix.c).
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let limit = TimeVal::new(patience.as_secs() as i64, i64::from(patience.subsec_micros()));
    setsockopt(&socket, SendTimeout, &limit)?;
    setsockopt(&socket, ReceiveTimeout, &limit)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket.into())
}

fn converse(stream: &mut UnixStream, request: &Request) -> io::Result<Reply> {
    stream.write_all(&serde_json::to_vec(request)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
