//! irqbalance, the daemon that moves interrupts by load: whether it is running, which IRQs it
//! leaves alone, and how to tell it to.
//!
//! irqbalance(1), section API, describes its interface. Each connection to its socket carries
//! one request, with the sender's credentials. The answer ends with the connection.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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

use super::host::Host;
use crate::base::error::{Error, Result};
use crate::base::ownership;
use crate::kernel::procfs;

/// A second; less in the tests.
const SECOND: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });
/// How long gthctl waits for an answer that is not important.
const BRIEF: Duration = SECOND;
/// The default of irqbalance's interval, in seconds (irqbalance(1), --interval).
const INTERVAL: u32 = 10;
/// How much longer than an interval gthctl waits for an answer, in seconds. Up to version
/// 1.9.3, irqbalance scans all IRQs after a change of the bans, for example. It sleeps for an
/// interval then and answers nothing (scan(), irqbalance.c).
const MARGIN: u32 = 5;
/// The longest that gthctl waits for an answer, in seconds.
const LONGEST: u32 = 30;
/// The name of the program and its process.
const NAME: &str = "irqbalance";
/// The most bytes that gthctl reads of an answer. No answer has as many.
const MOST: usize = 1 << 20;
/// How many bytes of a request versions 1.4 to 1.9.4 read. They take a number that is cut off
/// there for an IRQ (sock_handle(), irqbalance.c).
const REQUEST: usize = 500;

/// What talking to irqbalance yields.
type Answer<T> = std::result::Result<T, Fault>;

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    pub pid: u32,
    /// The IRQs that it leaves alone, by its answer or, if `silent`, by its command line.
    pub banned: BTreeSet<u32>,
    /// Why it gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// It gave no answer because it has no socket, so `banned` is complete. Otherwise it may
    /// be busy.
    #[serde(skip)]
    pub no_socket: bool,
    /// gthctl has sent it a list. It may follow that without having answered.
    #[serde(skip)]
    pub told: bool,
    /// How long its next answer may take.
    #[serde(skip)]
    patience: Duration,
}

/// When to stop waiting for the other end, however often it sends a little.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    end: Instant,
    /// The whole time to wait.
    patience: Duration,
}

impl Deadline {
    fn after(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, patience }
    }

    /// The time left, never zero. Fails when no time is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// What went wrong in talking to irqbalance.
#[derive(Debug)]
pub enum Fault {
    /// It gave no answer before, for this reason.
    Silent(String),
    /// It does not read this many IRQs.
    TooMany(usize),
    NoSocket {
        path: PathBuf,
        error: io::Error,
    },
    /// The socket belongs to the process with this id.
    OfAnother {
        path: PathBuf,
        pid: u32,
    },
    NoAnswer {
        what: String,
        patience: Duration,
    },
    Failed {
        what: String,
        error: io::Error,
    },
    OtherAnswer,
    NotTaken,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => f.write_str(why),
            Self::TooMany(irqs) => write!(f, "{irqs} IRQs are more than it reads from its socket"),
            Self::NoSocket { path, error } => write!(f, "{}: {error}", path.display()),
            Self::OfAnother { path, pid } => {
                write!(f, "{} is the socket of PID {pid}", path.display())
            }
            Self::NoAnswer { what, patience } => {
                write!(f, "{what}: no answer in {} s", patience.as_secs_f64())
            }
            Self::Failed { what, error } => write!(f, "{what}: {error}"),
            Self::OtherAnswer => {
                f.write_str("its socket gives an unexpected answer, or answers only root")
            }
            Self::NotTaken => f.write_str("it did not adopt the list"),
        }
    }
}

impl std::error::Error for Fault {}

/// What an answer to `setup` says.
#[derive(Debug, PartialEq, Eq)]
struct Setup {
    /// In seconds.
    interval: u32,
    banned: BTreeSet<u32>,
}

impl Irqbalance {
    /// The instances on this machine, normally at most one. Takes at most a second in all: it
    /// does not wait for a busy one.
    pub fn running(host: &Host) -> Result<Vec<Self>> {
        Self::all(host, BRIEF)
    }

    /// As [`Irqbalance::running`], but waits for busy ones, up to 15 s in all.
    pub fn awaited(host: &Host) -> Result<Vec<Self>> {
        Self::all(host, patience(INTERVAL))
    }

    /// The PIDs of the instances on this machine. It asks none of them anything.
    pub fn pids(host: &Host) -> Result<Vec<u32>> {
        let mut pids = procfs::processes(&host.proc())?;
        pids.retain(|&pid| is_irqbalance(host, pid));
        Ok(pids)
    }

    fn all(host: &Host, patience: Duration) -> Result<Vec<Self>> {
        let pids = Self::pids(host)?;
        let deadline = Deadline::after(patience);
        Ok(pids.into_iter().map(|pid| Self::of(host, pid, deadline)).collect())
    }

    /// The instance with that id, if it is still running. Waits as [`Irqbalance::awaited`].
    pub fn with_pid(host: &Host, pid: u32) -> Option<Self> {
        let patience = if host.hurry.is_on() { BRIEF } else { patience(INTERVAL) };
        is_irqbalance(host, pid).then(|| Self::of(host, pid, Deadline::after(patience)))
    }

    fn of(host: &Host, pid: u32, deadline: Deadline) -> Self {
        let why = match setup(host, pid, deadline) {
            Ok(Setup { interval, banned }) => {
                let patience = patience(interval);
                return Self { pid, banned, silent: None, no_socket: false, told: false, patience };
            }
            Err(why) => why,
        };
        let no_socket = matches!(why, Fault::NoSocket { .. } | Fault::OfAnother { .. });
        let line = fs::read(host.proc().join(format!("{pid}/cmdline"))).unwrap_or_default();
        let banned = banned_by(String::from_utf8_lossy(&line).split('\0'));
        Self { pid, banned, silent: Some(why.to_string()), no_socket, told: false, patience: BRIEF }
    }

    /// Why it gave no answer although it has a socket: it may be busy.
    pub fn busy(&self) -> Option<&String> {
        self.silent.as_ref().filter(|_| !self.no_socket)
    }

    /// True when it leaves all of `irqs` alone.
    pub fn spares(&self, irqs: &BTreeSet<u32>) -> bool {
        irqs.is_subset(&self.banned)
    }

    /// Tells it to leave exactly these IRQs alone, and asks whether it does.
    ///
    /// Fails when it does not [take](Irqbalance::takes) them, does not answer, or does not adopt
    /// them. `told` says whether it got the list.
    pub fn ban(&mut self, host: &Host, irqs: &BTreeSet<u32>) -> Result<()> {
        let pid = self.pid;
        let told = self.tell(host, irqs);
        told.map_err(|why| {
            Error::because_of(
                format_args!("irqbalance (PID {pid}) cannot be told which IRQs to leave alone"),
                why,
            )
        })
    }

    fn tell(&mut self, host: &Host, irqs: &BTreeSet<u32>) -> Answer<()> {
        self.takes(irqs)?;
        let patience = self.patience;
        // If there is no answer now, the next one is not worth such a wait.
        self.patience = BRIEF;
        let deadline = Deadline::after(patience);
        let mut stream = connect_to(host, self.pid, deadline)?;
        send(&stream, &request(irqs), deadline)?;
        self.told = true;
        answer(&mut stream, deadline)?;
        // It may have begun to scan all IRQs, so it gets the same time again.
        let setup = setup(host, self.pid, Deadline::after(patience))?;
        (self.banned, self.patience) = (setup.banned, patience);
        match self.banned == *irqs {
            true => Ok(()),
            false => Err(Fault::NotTaken),
        }
    }

    /// Fails when it cannot be told these by its socket: it gave no answer before, or there are
    /// too many of them. Every version reads a request of less than 500 bytes.
    pub fn takes(&self, irqs: &BTreeSet<u32>) -> Answer<()> {
        match &self.silent {
            Some(why) => Err(Fault::Silent(why.clone())),
            None if request(irqs).len() >= REQUEST => Err(Fault::TooMany(irqs.len())),
            None => Ok(()),
        }
    }
}

/// True for a process with irqbalance's name that root started from a file with that name,
/// which only root can write. Any user can give a process any name.
fn is_irqbalance(host: &Host, pid: u32) -> bool {
    let dir = host.proc().join(pid.to_string());
    let comm = procfs::text(dir.join("comm"));
    let status = procfs::text(dir.join("status"));
    comm.is_ok_and(|comm| comm.trim_end() == NAME)
        && status.is_ok_and(|status| is_roots(&status))
        && is_its_file(&dir.join("exe"))
}

/// True when all user ids are 0 (proc_pid_status(5)). The real one is not 0 in a set-user-ID
/// program that a user started. The owner of /proc/PID proves nothing: it is root for every
/// process that is not dumpable (proc(5)).
fn is_roots(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| {
        ids.split_ascii_whitespace().count() == 4
            && ids.split_ascii_whitespace().all(|id| id == "0")
    })
}

/// True when `exe` leads to irqbalance's program, which may have been replaced since it was
/// started (proc_pid_exe(5)). Only root can read the link. For other users, the user ids of the
/// process have to do.
fn is_its_file(exe: &Path) -> bool {
    let file = match fs::read_link(exe) {
        Ok(file) => file,
        Err(e) => return e.kind() == ErrorKind::PermissionDenied,
    };
    let name = file.file_name().unwrap_or_default().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    name == NAME.as_bytes()
        && fs::metadata(exe).is_ok_and(|file| {
            ownership::is_trusted(file.uid()) && !ownership::is_writable_by_others(&file)
        })
}

/// How long to wait for an irqbalance that balances every `interval` seconds.
fn patience(interval: u32) -> Duration {
    SECOND * interval.saturating_add(MARGIN).min(LONGEST)
}

/// The request to leave exactly these IRQs alone.
fn request(irqs: &BTreeSet<u32>) -> String {
    // Ascending, as irqbalance takes a later 0 for the end of the list.
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let list = if numbers.is_empty() { "NONE".into() } else { numbers.join(" ") };
    // Up to version 1.8.0 irqbalance does not terminate the text itself.
    format!("settings ban irqs {list}\0")
}

/// Asks the irqbalance with that id for its settings.
fn setup(host: &Host, pid: u32, deadline: Deadline) -> Answer<Setup> {
    let mut stream = connect_to(host, pid, deadline)?;
    send(&stream, "setup", deadline)?;
    Setup::parse(&answer(&mut stream, deadline)?)
}

/// Sends a request, with the credentials that irqbalance checks.
fn send(stream: &UnixStream, text: &str, deadline: Deadline) -> Answer<()> {
    let sender = UnixCredentials::new();
    let message = [ControlMessage::ScmCredentials(&sender)];
    let text = [IoSlice::new(text.as_bytes())];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &text, &message, MsgFlags::MSG_NOSIGNAL, None);
    sent.map(drop).map_err(|e| failed(&"its socket", e.into(), deadline))
}

/// Everything that irqbalance sends until it closes the connection.
fn answer(stream: &mut UnixStream, deadline: Deadline) -> Answer<String> {
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
    let answer = read().map_err(|e| failed(&"its socket", e, deadline))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn failed(what: &dyn Display, error: io::Error, deadline: Deadline) -> Fault {
    let what = what.to_string();
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Fault::NoAnswer { what, patience: deadline.patience }
        }
        _ => Fault::Failed { what, error },
    }
}

/// Connects to the irqbalance with that id.
///
/// Its socket is a file or has an abstract name (unix(7)). Versions before 1.5 use only an
/// abstract name; later ones do when they cannot create the file. The name consists of zeros,
/// or is the file's.
fn connect_to(host: &Host, pid: u32, deadline: Deadline) -> Answer<UnixStream> {
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
                // irqbalance does not handle a connection without a request.
                let _ = send(&stream, "none", deadline);
                return Err(failed(&"its socket", ErrorKind::TimedOut.into(), deadline));
            }
            // Another process has a socket with this name.
            Ok((_, peer)) => Fault::OfAnother { path: path.clone(), pid: peer },
            Err(e @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ECONNREFUSED)) => {
                Fault::NoSocket { path: path.clone(), error: e.into() }
            }
            Err(e) => return Err(failed(&path.display(), e.into(), deadline)),
        };
        first.get_or_insert(why);
    }
    Err(first.unwrap_or(Fault::NoSocket { path, error: ErrorKind::NotFound.into() }))
}

/// Waits until irqbalance has accepted the connections to its socket. gthctl sends no request
/// before that: irqbalance might answer it after gthctl has gone, and die of SIGPIPE (unless
/// systemd started it).
fn is_taken(host: &Host, name: &str, deadline: Deadline) -> bool {
    // Until then each has the socket's name, with zeros shown as @, and the state SS_CONNECTING
    // (unix_seq_show(), net/unix/af_unix.c).
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
    // This also limits connect(), when the queue is full. 0 would mean no limit.
    let left = deadline.left().map_err(|_| Errno::EAGAIN)?.as_millis().max(1);
    setsockopt(&fd, SendTimeout, &TimeVal::milliseconds(left as i64))?;
    connect(fd.as_raw_fd(), address)?;
    let peer = getsockopt(&fd, PeerCredentials)?.pid() as u32;
    Ok((fd.into(), peer))
}

impl Setup {
    /// An answer: `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 BANNED 0`.
    fn parse(answer: &str) -> Answer<Self> {
        let words: Vec<&str> = answer.split_ascii_whitespace().collect();
        let after = |name| {
            let pairs = words.windows(2).filter(move |pair| pair[0] == name);
            pairs.filter_map(|pair| pair[1].parse().ok())
        };
        match after("SLEEP").next().filter(|_| words[0] == "SLEEP") {
            Some(interval) => Ok(Self { interval, banned: after("IRQ").collect() }),
            None => Err(Fault::OtherAnswer),
        }
    }
}

/// The IRQs that these arguments ban: `--banirq=N`, `-i N`.
fn banned_by<'a>(mut words: impl Iterator<Item = &'a str>) -> BTreeSet<u32> {
    let mut banned = BTreeSet::new();
    while let Some(word) = words.next() {
        let number = match word {
            "--banirq" | "-i" => words.next(),
            _ => word.strip_prefix("--banirq=").or_else(|| word.strip_prefix("-i")),
        };
        banned.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    banned
}

/// `IRQ 38, 39`.
pub fn listed(irqs: &BTreeSet<u32>) -> String {
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    format!("IRQ {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;
    use crate::irq::tree::{Daemon, Tree};

    fn set(irqs: &[u32]) -> BTreeSet<u32> {
        irqs.iter().copied().collect()
    }

    #[test]
    fn its_answer_and_its_command_line() {
        let answer = "SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 IRQ 40 LOAD 9 DIFF 1 CLASS 5 BANNED 00000000,00000003";
        let setup = |interval, irqs| Setup { interval, banned: set(irqs) };
        assert_eq!(Setup::parse(answer).unwrap(), setup(10, &[38, 40]));
        assert_eq!(Setup::parse("SLEEP 1 BANNED 0").unwrap(), setup(1, &[]));
        assert!(Setup::parse("").is_err());
        assert!(Setup::parse("TYPE 0 SLEEP 1").is_err());
        let line = "/usr/sbin/irqbalance --foreground --banirq=4 -i 5 -i6 --banirq 7 -p 9";
        assert_eq!(banned_by(line.split(' ')), set(&[4, 5, 6, 7]));
    }

    #[test]
    fn it_is_asked_and_told() {
        let tree = Tree::new();
        let daemon = Daemon::new(&tree, &[0; 5]);
        let host = tree.host();
        let mut running = Irqbalance::awaited(&host).unwrap();
        let one = &mut running[0];
        let found = (one.pid, &one.banned, &one.silent, one.told);
        assert_eq!(found, (std::process::id(), &set(&[7]), &None, false));
        one.ban(&host, &set(&[7, 38, 0])).unwrap();
        assert_eq!((&one.banned, one.told), (&set(&[0, 7, 38]), true));
        one.ban(&host, &set(&[])).unwrap();
        assert_eq!(running.len(), 1);
        let asked = daemon.asked();
        assert_eq!(asked[1], "settings ban irqs 0 7 38\0");
        assert_eq!(asked[3], "settings ban irqs NONE\0");
    }

    #[test]
    fn a_busy_one_is_waited_for_if_the_answer_matters() {
        let tree = Tree::new();
        let host = tree.host();
        // The first request waits in the socket.
        let daemon = Daemon::new(&tree, &[600, 0]);
        let one = Irqbalance::running(&host).unwrap().remove(0);
        assert!(one.silent.unwrap().ends_with("its socket: no answer in 0.1 s"));
        assert!(!one.no_socket);
        assert_eq!(Irqbalance::awaited(&host).unwrap()[0].silent, None);
        daemon.asked();
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
            assert!(!one.no_socket);
            assert_eq!(daemon.asked(), [asked]);
        }
    }

    #[test]
    fn a_list_that_it_would_cut_off_is_not_sent() {
        let tree = Tree::new();
        let daemon = Daemon::new(&tree, &[0]);
        let mut one = Irqbalance::awaited(&tree.host()).unwrap().remove(0);
        // 18 bytes, then 120 numbers of 4 with the space or zero after each.
        let most: BTreeSet<u32> = (100..220).collect();
        assert_eq!(request(&most).len(), 498);
        assert!(one.takes(&most).is_ok());
        let more = &most | &set(&[7]);
        assert_eq!(request(&more).len(), 500);
        let e = one.ban(&tree.host(), &more).unwrap_err();
        assert!(
            e.what.ends_with("cannot be told which IRQs to leave alone: 121 IRQs are more than it reads from its socket"),
            "{e}"
        );
        assert!(!one.told);
        assert_eq!(daemon.asked(), ["setup"]);
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
            assert_eq!((&running[0].banned, &running[0].silent), (&set(&[9]), &None));
            daemon.asked();
        }
    }

    #[test]
    fn one_without_a_socket_is_known_by_its_command_line() {
        let tree = Tree::new();
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0--banirq=9\0");
        let mut running = Irqbalance::running(&tree.host()).unwrap();
        assert_eq!((running[0].pid, &running[0].banned), (42, &set(&[9])));
        assert!(running[0].silent.as_ref().unwrap().contains("irqbalance42.sock: No such file"));
        assert!(running[0].no_socket);
        assert!(running[0].ban(&tree.host(), &set(&[])).is_err());
        assert!(Irqbalance::with_pid(&tree.host(), 43).is_none());
    }

    #[test]
    fn only_roots_program_is_believed() {
        let tree = Tree::new();
        let is_one = || Irqbalance::with_pid(&tree.host(), 42).is_some();
        let program = tree.path("usr/sbin/irqbalance");
        tree.irqbalance(42);
        assert!(is_one());
        // Another name; a user's process; root's set-user-ID program; no user ids.
        for (file, text) in [
            ("comm", "irq\n"),
            ("status", "Name:\tirqbalance\nUid:\t1000\t1000\t1000\t1000\n"),
            ("status", "Name:\tirqbalance\nUid:\t1000\t0\t0\t0\n"),
            ("status", "Name:\tirqbalance\n"),
        ] {
            tree.write(&format!("proc/42/{file}"), text);
            assert!(!is_one(), "{text}");
            tree.irqbalance(42);
        }
        // Others can write to the program.
        fs::set_permissions(&program, Permissions::from_mode(0o757)).unwrap();
        assert!(!is_one());
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        assert!(is_one());
        // Replaced by a newer package; another program; none, as of a zombie.
        for (file, believed) in
            [("usr/sbin/irqbalance (deleted)", true), ("usr/bin/python3", false), ("none", false)]
        {
            fs::remove_file(tree.path("proc/42/exe")).unwrap();
            if file != "none" {
                tree.write(file, "");
                fs::set_permissions(tree.path(file), Permissions::from_mode(0o755)).unwrap();
                tree.link("proc/42/exe", file);
            }
            assert_eq!(is_one(), believed, "{file}");
            tree.irqbalance(42);
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
        assert!(begin.elapsed() < 5 * patience, "{:?}", begin.elapsed());
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
        let why = running[0].silent.as_ref().unwrap();
        assert!(why.ends_with(&format!("is the socket of PID {}", std::process::id())), "{why}");
        assert!(running[0].no_socket);
    }
}
