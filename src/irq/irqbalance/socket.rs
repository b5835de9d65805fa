//! A request to irqbalance's socket.
//!
//! irqbalance(1), section API, describes its interface. Each connection carries one request, with
//! the sender's credentials. The answer ends when the connection does.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials,
    connect, getsockopt, sendmsg, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::Serialize;

use super::{BRIEF, SECOND};
use crate::irq::host::Host;

/// The most bytes that gthctl reads of an answer. No answer is that long.
const MOST: usize = 1 << 20;
/// How many bytes of a request versions 1.4 to 1.9.4 read. If a number is cut off there, they take
/// the part that is left as an IRQ (sock_handle(), irqbalance.c).
pub(super) const REQUEST: usize = 500;

/// What talking to irqbalance yields.
pub(super) type Answer<T> = std::result::Result<T, Fault>;

/// When to stop waiting for the other end, even if it keeps sending a little.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Instant,
    /// The whole time to wait.
    patience: Duration,
}

impl Deadline {
    pub(super) fn after(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, patience }
    }

    /// The time left, never zero. Fails when no time is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Why talking to irqbalance failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
#[error("{why}")]
pub struct Fault {
    pub why: String,
    /// It has no socket.
    #[serde(skip)]
    pub no_socket: bool,
}

impl Fault {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), no_socket: false }
    }

    /// The error of an operation on `what` that had until `deadline`.
    fn of(what: impl Display, error: io::Error, deadline: Deadline) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let patience = deadline.patience.as_secs_f64();
                Self::new(format!("{what}: no answer in {patience} s"))
            }
            _ => Self::new(format!("{what}: {error}")),
        }
    }
}

/// What an answer to `setup` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// In seconds.
    pub interval: u32,
    pub banned: BTreeSet<u32>,
}

/// The request to leave exactly these IRQs alone.
pub(super) fn request(irqs: &BTreeSet<u32>) -> String {
    // Ascending, because irqbalance takes a later 0 as the end of the list.
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let list = if numbers.is_empty() { "NONE".into() } else { numbers.join(" ") };
    // Up to version 1.8.0 irqbalance does not terminate the text itself.
    format!("settings ban irqs {list}\0")
}

/// Asks the irqbalance with that PID for its settings.
pub(super) fn setup(host: &Host, pid: u32, deadline: Deadline) -> Answer<Setup> {
    let mut stream = connect_to(host, pid, deadline)?;
    send(&stream, "setup", deadline)?;
    Setup::parse(&answer(&mut stream, deadline)?)
}

/// Sends a request, with the credentials that irqbalance checks.
pub(super) fn send(stream: &UnixStream, text: &str, deadline: Deadline) -> Answer<()> {
    let sender = UnixCredentials::new();
    let message = [ControlMessage::ScmCredentials(&sender)];
    let text = [IoSlice::new(text.as_bytes())];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &text, &message, MsgFlags::MSG_NOSIGNAL, None);
    sent.map(drop).map_err(|e| Fault::of("its socket", e.into(), deadline))
}

/// Everything that irqbalance sends until it closes the connection.
pub(super) fn answer(stream: &mut UnixStream, deadline: Deadline) -> Answer<String> {
    let mut read = || {
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while answer.len() < MOST {
            stream.set_read_timeout(Some(deadline.left()?))?;
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(n) => answer.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(answer)
    };
    let answer = read().map_err(|e| Fault::of("its socket", e, deadline))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Connects to the irqbalance with that PID.
///
/// Its socket is a file or has an abstract name (unix(7)). Versions before 1.5 use only an abstract
/// name; later ones do when they cannot create the file. The abstract name consists of zeros, or is
/// that of the file.
pub(super) fn connect_to(host: &Host, pid: u32, deadline: Deadline) -> Answer<UnixStream> {
    let name = format!("irqbalance{pid}.sock");
    let path = host.run().join("irqbalance").join(&name);
    let addresses = [
        UnixAddr::new(&path),
        UnixAddr::new_abstract(&[0; 107]),
        UnixAddr::new_abstract(name.as_bytes()),
    ];
    let mut first = None;
    for address in addresses {
        let why = match address.and_then(|address| connected(&address, deadline)) {
            Ok((stream, peer)) if peer == pid => {
                if is_taken(host, &name, deadline) {
                    return Ok(stream);
                }
                // Sends a dummy request: irqbalance does not handle a connection without one.
                let _ = send(&stream, "none", deadline);
                return Err(Fault::of("its socket", ErrorKind::TimedOut.into(), deadline));
            }
            // Another process has a socket with this name.
            Ok((_, peer)) => format!("{} is the socket of PID {peer}", path.display()),
            Err(e @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ECONNREFUSED)) => {
                format!("{}: {}", path.display(), io::Error::from(e))
            }
            Err(e) => return Err(Fault::of(path.display(), e.into(), deadline)),
        };
        first.get_or_insert(why);
    }
    Err(Fault { no_socket: true, ..Fault::new(first.unwrap_or_default()) })
}

/// Waits until irqbalance has accepted the connections to its socket. gthctl sends no request
/// before that: irqbalance might answer it after gthctl has gone, and die of SIGPIPE (unless
/// systemd started it).
fn is_taken(host: &Host, name: &str, deadline: Deadline) -> bool {
    // Until then, each of them is listed with the socket's name, with zeros shown as @, and with
    // the state SS_CONNECTING (unix_seq_show(), net/unix/af_unix.c).
    let waits = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(5);
        let (state, path) = (words.next(), words.nth(1));
        let is_its = |path: &str| path.ends_with(name) || path.chars().all(|c| c == '@');
        state == Some("02") && path.is_some_and(is_its)
    };
    let begin = Instant::now();
    loop {
        let table = fs::read(host.proc().join("net/unix")).unwrap_or_default();
        if !String::from_utf8_lossy(&table).lines().any(waits) {
            return true;
        }
        let hurried = host.hurry.is_on() && begin.elapsed() >= BRIEF;
        if hurried || deadline.left().is_err() {
            return false;
        }
        sleep(SECOND / 100);
    }
}

/// A connection, and the PID at its other end.
fn connected(address: &UnixAddr, deadline: Deadline) -> nix::Result<(UnixStream, u32)> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // This also limits how long connect() waits while the queue is full. 0 would mean no limit.
    let left = deadline.left().map_err(|_| Errno::EAGAIN)?.as_millis().max(1);
    setsockopt(&fd, SendTimeout, &TimeVal::milliseconds(left as i64))?;
    connect(fd.as_raw_fd(), address)?;
    let peer = getsockopt(&fd, PeerCredentials)?.pid() as u32;
    Ok((fd.into(), peer))
}

impl Setup {
    /// Parses an answer such as `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 BANNED 0`.
    fn parse(answer: &str) -> Answer<Self> {
        let words: Vec<&str> = answer.split_ascii_whitespace().collect();
        let after = |name| {
            let pairs = words.windows(2).filter(move |pair| pair[0] == name);
            pairs.filter_map(|pair| pair[1].parse().ok())
        };
        match after("SLEEP").next().filter(|_| words[0] == "SLEEP") {
            Some(interval) => Ok(Self { interval, banned: after("IRQ").collect() }),
            None => Err(Fault::new("its socket gives an unexpected answer, or answers only root")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;
    use crate::irq::irqbalance::Irqbalance;
    use crate::irq::tree::{Daemon, Tree};

    #[test]
    fn its_answer() {
        let answer = "SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 IRQ 40 LOAD 9 DIFF 1 CLASS 5 \
                      BANNED 00000000,00000003";
        let setup = |answer| Setup::parse(answer).map(|setup| (setup.interval, setup.banned));
        assert_eq!(setup(answer), Ok((10, [38, 40].into())));
        assert_eq!(setup("SLEEP 1 BANNED 0"), Ok((1, [].into())));
        assert!(setup("").is_err());
        assert!(setup("TYPE 0 SLEEP 1").is_err());
    }

    #[test]
    fn before_it_accepts_the_connection_it_is_asked_nothing() {
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let name = format!("/run/irqbalance//irqbalance{}.sock", std::process::id());
        let row = |state: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 00000000 0001 {state} 0 {name}\n")
        };
        for (table, asked) in [
            (row("02", &name), "none"),
            (row("01", "/x") + &row("02", &"@".repeat(108)), "none"),
            (row("01", &name) + &row("02", "/run/x.sock"), "setup"),
        ] {
            let tree = Tree::new();
            tree.write("proc/net/unix", &format!("{head}{table}"));
            let daemon = Daemon::new(&tree, &[0]);
            let one = Irqbalance::awaited(&tree.host()).unwrap().remove(0);
            assert_eq!(one.silent.is_some(), asked == "none");
            assert!(one.silent.is_none_or(|why| !why.no_socket));
            assert_eq!(daemon.asked(), [asked]);
        }
    }

    #[test]
    fn abstract_names_of_old_versions() {
        let old = format!("irqbalance{}.sock", std::process::id());
        for name in [&[0; 107], old.as_bytes()] {
            let tree = Tree::new();
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            let daemon = Daemon::at(&tree, listener, vec![9], &[0]);
            let running = Irqbalance::awaited(&tree.host()).unwrap();
            assert_eq!((&running[0].banned, &running[0].silent), (&[9].into(), &None));
            daemon.asked();
        }
    }

    #[test]
    fn a_little_now_and_then_does_not_prolong_the_wait() {
        let patience = SECOND;
        let begin = Instant::now();
        let (mut slow, fast) = UnixStream::pair().unwrap();
        let dripping = std::thread::spawn(move || {
            while begin.elapsed() < 20 * patience && slow.write_all(b"S").is_ok() {
                sleep(patience / 4);
            }
        });
        let why = answer(&mut { fast }, Deadline::after(patience)).unwrap_err();
        assert_eq!(why.to_string(), "its socket: no answer in 0.1 s");
        dripping.join().unwrap();
    }

    #[test]
    fn the_socket_of_another_is_not_used() {
        let tree = Tree::new();
        tree.irqbalance(42);
        fs::create_dir_all(tree.path("run/irqbalance")).unwrap();
        let path = tree.path("run/irqbalance/irqbalance42.sock");
        let _listener = UnixListener::bind(path).unwrap();
        let running = Irqbalance::running(&tree.host()).unwrap();
        let Fault { why, no_socket } = running[0].silent.as_ref().unwrap();
        let end = format!("is the socket of PID {}", std::process::id());
        assert!(why.ends_with(&end) && *no_socket, "{why}");
    }
}
