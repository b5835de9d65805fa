//! The running gthctl's end of the socket.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use super::{MAX_BYTES, Reply, Request};
use crate::error::{Error, Result};
use crate::lock::make_private_dir;

/// How long a client may take to send its request, and to take its reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens; the descriptor is readable when [`Server::serve`] has something to do.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens at `path`, in a directory that only this user may enter, which is
    /// made if it is missing. A socket that a killed process left there goes.
    pub fn listen(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::failure(format!("{}: {e}", path.display()));
        let dir = path.parent().unwrap_or(Path::new("/"));
        make_private_dir(dir).map_err(failed)?;
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers everybody who waits; one who does not keep to the rules is let go.
    pub fn serve(&mut self, mut answer: impl FnMut(Request) -> Reply) {
        while let Ok((stream, _)) = self.listener.accept() {
            let _ = converse(stream, &mut answer);
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn converse(
    mut stream: UnixStream,
    answer: &mut impl FnMut(Request) -> Reply,
) -> std::io::Result<()> {
    // The directory keeps others out; a descriptor that was handed on must not let them in.
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != 0 && peer.uid() != geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    (&mut stream).take(MAX_BYTES).read_to_end(&mut text)?;
    let reply = match serde_json::from_slice(&text) {
        Ok(request) => answer(request),
        Err(e) => Reply::Failed(Error::failure(format!("not a request: {e}")).into()),
    };
    stream.write_all(&serde_json::to_vec(&reply)?)
}
