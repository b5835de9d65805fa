//! The client's end: asks the running gthctl.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{MAX_BYTES, Reply, Request};
use crate::base::error::{Error, ExitCode, Result};

/// How long the answer may take, on a loaded machine with a large policy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks at `path` and returns the answer; a failure at the other end is an error here.
///
/// Fails with [`ExitCode::NotRunning`] if no gthctl listens, and with
/// [`ExitCode::Permission`] when the caller may not ask.
pub fn ask(path: &Path, request: &Request) -> Result<Reply> {
    let mut stream = UnixStream::connect(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Error::new(ExitCode::NotRunning, "no gthctl run is active")
                .help("start one with: sudo gthctl run")
        }
        ErrorKind::PermissionDenied => {
            let what = format!("{}: only root may ask the running gthctl", path.display());
            Error::new(ExitCode::Permission, what).help("run it as root, with sudo")
        }
        _ => Error::failure(format!("{}: {e}", path.display())),
    })?;
    match converse(&mut stream, request) {
        Ok(Reply::Failed(failure)) => Err(failure.into()),
        Ok(reply) => Ok(reply),
        Err(e) => Err(Error::failure(format!("the running gthctl did not answer: {e}"))),
    }
}

fn converse(stream: &mut UnixStream, request: &Request) -> std::io::Result<Reply> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(request)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
