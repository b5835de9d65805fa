//! The running gthctl's end of the socket.
//!
//! Each client has its own thread, so that none waits for a slow or silent one. Requests
//! wait for [`Server::take`]; the answer may come at any time.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{self, getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use super::{MAX_BYTES, Reply, Request};
use crate::base::error::{Error, Result};
use crate::base::lock::make_private_dir;
use crate::base::signals;

/// How long a client may take to send its whole request, and to read its whole reply.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// Bytes read or written at a time.
const PART: usize = 64 << 10;
/// How many clients are served at a time; others wait.
const CLIENTS: usize = 16;
/// How long to wait when the machine has no descriptors, memory or threads left for a client.
const RETRY: Duration = Duration::from_millis(100);

/// Listens; the descriptor is readable when [`Server::take`] has something.
pub struct Server {
    listener: Arc<UnixListener>,
    path: PathBuf,
    asked: Receiver<Asked>,
    wake: Arc<EventFd>,
    acceptor: Option<JoinHandle<()>>,
}

/// A request whose client waits for the answer.
pub struct Asked {
    pub request: Request,
    pub reply: ReplyTo,
}

/// Where the answer goes.
#[derive(Debug)]
pub struct ReplyTo(SyncSender<Reply>);

/// The part of the server that its threads use.
#[derive(Clone)]
struct Desk {
    asked: Sender<Asked>,
    wake: Arc<EventFd>,
}

/// The right to be served; when dropped, it passes to the next client.
struct Seat(SyncSender<()>);

impl Server {
    /// Listens at `path`, in a directory that only this user may enter. Makes the
    /// directory if it is missing. Removes a socket that a killed process left there.
    pub fn listen(path: &Path) -> Result<Self> {
        let failed = |e: io::Error| Error::because_of(path.display(), e);
        let dir = path.parent().unwrap_or(Path::new("/"));
        make_private_dir(dir).map_err(failed)?;
        let _ = fs::remove_file(path);
        let listener = Arc::new(UnixListener::bind(path).map_err(failed)?);
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags).map_err(|e| failed(e.into()))?);
        let (sender, asked) = channel();
        let desk = Desk { asked: sender, wake: Arc::clone(&wake) };
        let from = Arc::clone(&listener);
        let acceptor =
            signals::spawn("gthctl-accept", move || accept(&from, &desk)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), asked, wake, acceptor: Some(acceptor) })
    }

    /// The requests to answer. If a [`ReplyTo`] is dropped, its client gets an error instead
    /// of a reply.
    pub fn take(&mut self) -> Vec<Asked> {
        let _ = self.wake.read();
        self.asked.try_iter().collect()
    }
}

impl ReplyTo {
    pub fn send(self, reply: Reply) {
        // A client that has gone needs no reply.
        let _ = self.0.send(reply);
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Ends accept(2).
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        drop(self.acceptor.take());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

/// Gives each client a thread, until the socket is shut down.
fn accept(listener: &UnixListener, desk: &Desk) {
    let (free, seats) = sync_channel(CLIENTS);
    for _ in 0..CLIENTS {
        let _ = free.try_send(());
    }
    while seats.recv().is_ok() {
        let seat = Seat(free.clone());
        match listener.accept() {
            Ok((stream, _)) => {
                let desk = desk.clone();
                let serve = move || {
                    let _seat = seat;
                    let _ = converse(stream, &desk);
                };
                if signals::spawn("gthctl-client", serve).is_err() {
                    thread::sleep(RETRY);
                }
            }
            // The socket has been shut down.
            Err(e) if e.kind() == ErrorKind::InvalidInput => return,
            Err(_) => thread::sleep(RETRY),
        }
    }
}

/// Serves one client; drops one that breaks the rules.
fn converse(mut stream: UnixStream, desk: &Desk) -> io::Result<()> {
    // The directory keeps other users out, and a descriptor passed to them must not let them in.
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != 0 && peer.uid() != geteuid().as_raw() {
        return Ok(());
    }
    let text = read(&mut stream, Instant::now() + PATIENCE)?;
    let reply = match serde_json::from_slice(&text) {
        Ok(request) => desk.ask(request),
        Err(e) => Reply::Failed(
            Error::failure(format!("not a request: {e}"))
                .help("gthctl and the running one may be of different versions")
                .into(),
        ),
    };
    write(&mut stream, &serde_json::to_vec(&reply)?, Instant::now() + PATIENCE)?;
    stream.shutdown(Shutdown::Both)
}

impl Desk {
    /// Hands the request to the caller of [`Server::take`] and waits for the answer.
    fn ask(&self, request: Request) -> Reply {
        let (reply, answer) = sync_channel(1);
        let sent = self.asked.send(Asked { request, reply: ReplyTo(reply) });
        let _ = self.wake.write(1);
        let answer = sent.ok().and_then(|()| answer.recv().ok());
        let ends = || Error::failure("the running gthctl has ended or restarted without an answer");
        answer.unwrap_or_else(|| Reply::Failed(ends().into()))
    }
}

/// The time until `end`, for a socket timeout, which must not be 0.
fn left(end: Instant) -> io::Result<Option<Duration>> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(Some(left)),
    }
}

/// Reads all that the client sends.
fn read(stream: &mut UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let (mut text, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        stream.set_read_timeout(left(end)?)?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(len) if text.len() + len > MAX_BYTES as usize => {
                return Err(ErrorKind::InvalidData.into());
            }
            Ok(len) => text.extend_from_slice(&part[..len]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn write(stream: &mut UnixStream, mut text: &[u8], end: Instant) -> io::Result<()> {
    while !text.is_empty() {
        stream.set_write_timeout(left(end)?)?;
        match stream.write(&text[..text.len().min(PART)]) {
            Ok(len) => text = &text[len..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
