//! irqbalance, the daemon that moves interrupts by load: whether it runs, which IRQs it
//! leaves alone, and telling it to.
//!
//! Its interface is in irqbalance(1), section API: one request a connection to its
//! socket, with the sender's credentials; the answer ends with the connection.

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
use crate::kernel::sysfs::entries;

/// A second, which is shorter in the tests.
const SECOND: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });
/// How long an answer may take of which little depends.
const BRIEF: Duration = SECOND;
/// How often it balances, in seconds, unless it says so (irqbalance(1), --interval).
const INTERVAL: u32 = 10;
/// Up to version 1.9.3 it looks at all IRQs anew, after a change of the bans for one, by
/// sleeping for an interval, in which it hears nothing (scan(), irqbalance.c). So much
/// longer than that it is waited for.
const MARGIN: u32 = 5;
/// But no longer than this, in seconds.
const LONGEST: u32 = 30;
/// What the program and its process are called.
const NAME: &str = "irqbalance";
/// More than an answer ever has.
const MOST: usize = 1 << 20;
/// Versions 1.4 to 1.9.4 read so much of a request, and take the number that is cut there
/// for an IRQ (sock_handle(), irqbalance.c).
const REQUEST: usize = 500;

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    pub pid: u32,
    /// The IRQs that it leaves alone, as far as it says so.
    pub banned: BTreeSet<u32>,
    /// Why it could not be asked; then `banned` has those of its command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// That is because it has no socket, so that `banned` is all; otherwise it may be busy.
    #[serde(skip)]
    pub no_socket: bool,
    /// A list was sent to it, which it may follow also when it has not answered.
    #[serde(skip)]
    pub told: bool,
    /// How long its next answer may take.
    #[serde(skip)]
    patience: Duration,
}

/// When the other end is waited for no longer, however often it sends a little meanwhile.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    end: Instant,
    /// How long that was at first.
    patience: Duration,
}

impl Deadline {
    fn after(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, patience }
    }

    /// How long is left, never zero. Fails once nothing is.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Unasked {
    NoSocket(Fault),
    NoAnswer(Fault),
}

/// What went wrong in talking to it.
#[derive(Debug)]
enum Fault {
    /// It could not be asked before, for this reason.
    Silent(String),
    /// So many IRQs are more than it reads.
    TooMany(usize),
    /// Neither `what` nor anybody behind it has answered in time.
    NoAnswer {
        what: String,
        patience: Duration,
    },
    Failed {
        what: String,
        error: io::Error,
    },
    /// The socket is of the process with this id.
    OfAnother {
        path: PathBuf,
        pid: u32,
    },
    OtherAnswer,
    NotTaken,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => f.write_str(why),
            Self::TooMany(irqs) => write!(f, "{irqs} IRQs are more than it reads"),
            Self::NoAnswer { what, patience } => {
                write!(f, "{what}: no answer in {} s", patience.as_secs_f64())
            }
            Self::Failed { what, error } => write!(f, "{what}: {error}"),
            Self::OfAnother { path, pid } => {
                write!(f, "{} is the socket of PID {pid}", path.display())
            }
            Self::OtherAnswer => f.write_str("its socket answers something else, or only root"),
            Self::NotTaken => f.write_str("it did not take the list over"),
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
    /// Those of this machine: one, if any, unless the administrator has odd plans. One that
    /// is busy is not waited for. It takes at most a second, however many there are.
    pub fn running(host: &Host) -> Result<Vec<Self>> {
        Self::all(host, BRIEF)
    }

    /// As [`Irqbalance::running`]; those that are busy are waited for, up to 15 s in all.
    pub fn awaited(host: &Host) -> Result<Vec<Self>> {
        Self::all(host, patience(INTERVAL))
    }

    fn all(host: &Host, patience: Duration) -> Result<Vec<Self>> {
        let mut pids: Vec<u32> = entries(&host.proc())?
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter(|&pid| is_irqbalance(host, pid))
            .collect();
        pids.sort_unstable();
        let deadline = Deadline::after(patience);
        Ok(pids.into_iter().map(|pid| Self::of(host, pid, deadline)).collect())
    }

    /// The one with that id, if it still is one; waited for as [`Irqbalance::awaited`].
    pub fn with_pid(host: &Host, pid: u32) -> Option<Self> {
        let patience = if host.hurry.is_on() { BRIEF } else { patience(INTERVAL) };
        is_irqbalance(host, pid).then(|| Self::of(host, pid, Deadline::after(patience)))
    }

    fn of(host: &Host, pid: u32, deadline: Deadline) -> Self {
        let (no_socket, why) = match setup(host, pid, deadline) {
            Ok(Setup { interval, banned }) => {
                let patience = patience(interval);
                return Self { pid, banned, silent: None, no_socket: false, told: false, patience };
            }
            Err(Unasked::NoSocket(why)) => (true, why),
            Err(Unasked::NoAnswer(why)) => (false, why),
        };
        let line = fs::read(host.proc().join(format!("{pid}/cmdline"))).unwrap_or_default();
        let banned = banned_by(String::from_utf8_lossy(&line).split('\0'));
        Self { pid, banned, silent: Some(why.to_string()), no_socket, told: false, patience: BRIEF }
    }

    /// Why it could not be asked, unless it has no socket: it may be busy.
    pub fn busy(&self) -> Option<&String> {
        self.silent.as_ref().filter(|_| !self.no_socket)
    }

    /// True when it says that it leaves all of `irqs` alone.
    pub fn spares(&self, irqs: &BTreeSet<u32>) -> bool {
        irqs.is_subset(&self.banned)
    }

    /// Has it leave alone these IRQs and no others, and asks whether it does.
    ///
    /// Fails when it did not answer before, does not now or does not take them over, or
    /// they are more than it [reads](Irqbalance::reads). `told` says whether they were sent.
    pub fn ban(&mut self, host: &Host, irqs: &BTreeSet<u32>) -> Result<()> {
        let pid = self.pid;
        let told = self.tell(host, irqs);
        told.map_err(|why| {
            Error::because_of(format_args!("irqbalance (PID {pid}) cannot be told"), why)
        })
    }

    fn tell(&mut self, host: &Host, irqs: &BTreeSet<u32>) -> std::result::Result<(), Fault> {
        if let Some(why) = &self.silent {
            return Err(Fault::Silent(why.clone()));
        }
        if !Self::reads(irqs) {
            return Err(Fault::TooMany(irqs.len()));
        }
        let patience = self.patience;
        // If there is no answer now, the next one is not worth such a wait.
        self.patience = BRIEF;
        let deadline = Deadline::after(patience);
        let mut stream = connect_to(host, self.pid, deadline).map_err(Unasked::why)?;
        send(&stream, &request(irqs), deadline)?;
        self.told = true;
        answer(&mut stream, deadline)?;
        // It may have begun to look at all IRQs anew.
        let setup = setup(host, self.pid, Deadline::after(patience)).map_err(Unasked::why)?;
        (self.banned, self.patience) = (setup.banned, patience);
        match self.banned == *irqs {
            true => Ok(()),
            false => Err(Fault::NotTaken),
        }
    }

    /// True when it can be told these by its socket: every version reads a request that
    /// is shorter than 500 bytes.
    pub fn reads(irqs: &BTreeSet<u32>) -> bool {
        request(irqs).len() < REQUEST
    }
}

impl Unasked {
    fn why(self) -> Fault {
        let (Self::NoSocket(why) | Self::NoAnswer(why)) = self;
        why
    }
}

/// True for a process of that name which root has started from a file of that name, and
/// which nobody else can have written: any user can give a process of his a name.
fn is_irqbalance(host: &Host, pid: u32) -> bool {
    let dir = host.proc().join(pid.to_string());
    let comm = fs::read_to_string(dir.join("comm"));
    let status = fs::read_to_string(dir.join("status"));
    comm.is_ok_and(|comm| comm.trim_end() == NAME)
        && status.is_ok_and(|status| is_roots(&status))
        && is_its_file(&dir.join("exe"))
}

/// True when all user ids are 0 (proc_pid_status(5)); in a set-user-ID program that
/// somebody else has started, the real one is not. The owner of /proc/PID does not tell:
/// that is root where a process is not dumpable (proc(5)).
fn is_roots(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| {
        ids.split_ascii_whitespace().count() == 4
            && ids.split_ascii_whitespace().all(|id| id == "0")
    })
}

/// True when `exe` leads to the program, which may have been replaced since it was started
/// (proc_pid_exe(5)). Only root may look where it leads: to anybody else, the user ids of
/// the process have to do.
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

/// For one that balances every `interval` seconds.
fn patience(interval: u32) -> Duration {
    SECOND * interval.saturating_add(MARGIN).min(LONGEST)
}

/// The request that has it leave alone these IRQs and no others.
fn request(irqs: &BTreeSet<u32>) -> String {
    // It takes 0 for the end of the list.
    let (zero, others): (Vec<u32>, Vec<u32>) = irqs.iter().partition(|&&irq| irq == 0);
    let numbers: Vec<String> = zero.iter().chain(&others).map(u32::to_string).collect();
    let list = if numbers.is_empty() { "NONE".into() } else { numbers.join(" ") };
    // Up to version 1.8.0 it looks for the end of the text without having put one there.
    format!("settings ban irqs {list}\0")
}

/// Asks the irqbalance with that id for its settings.
fn setup(host: &Host, pid: u32, deadline: Deadline) -> std::result::Result<Setup, Unasked> {
    let mut stream = connect_to(host, pid, deadline)?;
    let answer = send(&stream, "setup", deadline).and_then(|()| answer(&mut stream, deadline));
    answer.and_then(|answer| Setup::parse(&answer)).map_err(Unasked::NoAnswer)
}

/// Sends a request, with the credentials that it looks at.
fn send(stream: &UnixStream, text: &str, deadline: Deadline) -> std::result::Result<(), Fault> {
    let sender = UnixCredentials::new();
    let message = [ControlMessage::ScmCredentials(&sender)];
    let text = [IoSlice::new(text.as_bytes())];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &text, &message, MsgFlags::MSG_NOSIGNAL, None);
    sent.map(drop).map_err(|e| failed(&"its socket", e.into(), deadline))
}

/// All that it sends until it closes the connection.
fn answer(stream: &mut UnixStream, deadline: Deadline) -> std::result::Result<String, Fault> {
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

/// Its socket is a file or, where it could not make that (from version 1.5 on) or never
/// does (before), has an abstract name (unix(7)): one of zeros, or the file's.
fn connect_to(
    host: &Host,
    pid: u32,
    deadline: Deadline,
) -> std::result::Result<UnixStream, Unasked> {
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
                return match is_taken(host, &name, deadline) {
                    true => Ok(stream),
                    false => {
                        // No request is not taken for none.
                        let _ = send(&stream, "none", deadline);
                        let e = ErrorKind::TimedOut.into();
                        Err(Unasked::NoAnswer(failed(&"its socket", e, deadline)))
                    }
                };
            }
            // Another's socket of that name would be told nothing.
            Ok((_, peer)) => Fault::OfAnother { path: path.clone(), pid: peer },
            Err(e @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ECONNREFUSED)) => {
                failed(&path.display(), e.into(), deadline)
            }
            Err(e) => return Err(Unasked::NoAnswer(failed(&path.display(), e.into(), deadline))),
        };
        first.get_or_insert(why);
    }
    Err(Unasked::NoSocket(first.unwrap_or(Fault::OtherAnswer)))
}

/// Waits until it has taken the connections to its socket. Before that, it is asked nothing:
/// it would answer when nobody waits any more, and that ends it (SIGPIPE, unless it was
/// started by systemd).
fn is_taken(host: &Host, name: &str, deadline: Deadline) -> bool {
    // Until then they have the socket's name, zeros being shown as @, and the state
    // SS_CONNECTING (unix_seq_show(), net/unix/af_unix.c).
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
    // That counts for connecting too, when too many others wait; 0 would be for ever.
    let left = deadline.left().map_err(|_| Errno::EAGAIN)?.as_millis().max(1);
    setsockopt(&fd, SendTimeout, &TimeVal::milliseconds(left as i64))?;
    connect(fd.as_raw_fd(), address)?;
    let peer = getsockopt(&fd, PeerCredentials)?.pid() as u32;
    Ok((fd.into(), peer))
}

impl Setup {
    /// An answer: `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 BANNED 0`.
    fn parse(answer: &str) -> std::result::Result<Self, Fault> {
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

/// The IRQs that arguments ban: `--banirq=N`, `-i N`.
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
    fn what_it_says() {
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
        assert!(one.spares(&set(&[7])) && !one.spares(&set(&[7, 38])));
        one.ban(&host, &set(&[7, 38, 0])).unwrap();
        assert_eq!((&one.banned, one.told), (&set(&[0, 7, 38]), true));
        one.ban(&host, &set(&[])).unwrap();
        assert_eq!(running.len(), 1);
        let asked = daemon.asked();
        assert_eq!(asked[1], "settings ban irqs 0 7 38\0");
        assert_eq!(asked[3], "settings ban irqs NONE\0");
    }

    #[test]
    fn one_that_is_busy_is_waited_for_if_much_depends_on_it() {
        let tree = Tree::new();
        let host = tree.host();
        // The first request waits there until it is heard.
        let daemon = Daemon::new(&tree, &[600, 0]);
        let one = Irqbalance::running(&host).unwrap().remove(0);
        assert!(one.silent.unwrap().ends_with("its socket: no answer in 0.1 s"));
        assert!(!one.no_socket);
        assert_eq!(Irqbalance::awaited(&host).unwrap()[0].silent, None);
        daemon.asked();
    }

    #[test]
    fn one_that_does_not_take_the_connection_is_asked_nothing() {
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
    fn a_list_that_it_would_cut_is_not_sent() {
        let tree = Tree::new();
        let daemon = Daemon::new(&tree, &[0]);
        let mut one = Irqbalance::awaited(&tree.host()).unwrap().remove(0);
        // 18 bytes, 120 times 4 and the last one's end, which is a zero.
        let most: BTreeSet<u32> = (100..220).collect();
        assert_eq!(request(&most).len(), 498);
        assert!(Irqbalance::reads(&most));
        let more = &most | &set(&[7]);
        assert_eq!(request(&more).len(), 500);
        let e = one.ban(&tree.host(), &more).unwrap_err();
        assert!(e.what.ends_with("cannot be told: 121 IRQs are more than it reads"), "{e}");
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
        // Started by root under a name of his own; by a user; a set-user-ID program of root's.
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
        // Whoever can write to the program makes it what he likes.
        fs::set_permissions(&program, Permissions::from_mode(0o757)).unwrap();
        assert!(!is_one());
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        assert!(is_one());
        // Replaced by a newer package; another program; none, as a zombie has none.
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
    fn one_that_sends_a_little_now_and_then_is_not_waited_for_longer() {
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
