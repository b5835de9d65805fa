//! irqbalance, the daemon that moves interrupts by load: whether it runs, which IRQs it
//! leaves alone, and telling it to.
//!
//! Its interface is in irqbalance(1), section API: one request a connection to its
//! socket, with the sender's credentials; the answer ends with the connection.

use std::collections::BTreeSet;
use std::fs;
use std::io::{IoSlice, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixCredentials, getsockopt, sendmsg};
use serde::Serialize;

use super::nic::entries;
use super::roots::Roots;
use crate::error::{Error, Result};

/// How long it may take to answer. It does so between two rounds of balancing.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than an answer ever has.
const MOST: u64 = 1 << 20;

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    pub pid: u32,
    /// The IRQs that it leaves alone, as far as it says so.
    pub banned: BTreeSet<u32>,
    /// Why it could not be asked; then `banned` has those of its command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}

impl Irqbalance {
    /// Those of this machine: one, if any, unless the administrator has odd plans.
    pub fn running(roots: &Roots) -> Result<Vec<Self>> {
        let mut pids: Vec<u32> = entries(&roots.proc)?
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter(|&pid| is_irqbalance(roots, pid))
            .collect();
        pids.sort_unstable();
        Ok(pids.into_iter().map(|pid| Self::of(roots, pid)).collect())
    }

    /// The one with that id, if it still is one.
    pub fn with_pid(roots: &Roots, pid: u32) -> Option<Self> {
        is_irqbalance(roots, pid).then(|| Self::of(roots, pid))
    }

    fn of(roots: &Roots, pid: u32) -> Self {
        match ask(roots, pid, "setup").and_then(|answer| banned_in(&answer)) {
            Ok(banned) => Self { pid, banned, silent: None },
            Err(why) => {
                let line = fs::read(roots.proc.join(format!("{pid}/cmdline")));
                Self { pid, banned: banned_by(&line.unwrap_or_default()), silent: Some(why) }
            }
        }
    }

    /// True when it says that it leaves all of `irqs` alone.
    pub fn spares(&self, irqs: &BTreeSet<u32>) -> bool {
        irqs.is_subset(&self.banned)
    }

    /// Has it leave alone these IRQs and no others, and asks whether it does.
    pub fn ban(&mut self, roots: &Roots, irqs: &BTreeSet<u32>) -> Result<()> {
        let failed = |why: String| {
            Error::failure(format!("irqbalance (PID {}) cannot be told: {why}", self.pid))
        };
        // It takes 0 for the end of the list.
        let (zero, others): (Vec<u32>, Vec<u32>) = irqs.iter().partition(|&&irq| irq == 0);
        let numbers: Vec<String> = zero.iter().chain(&others).map(u32::to_string).collect();
        let list = if numbers.is_empty() { "NONE".into() } else { numbers.join(" ") };
        ask(roots, self.pid, &format!("settings ban irqs {list}")).map_err(failed)?;
        let answer = ask(roots, self.pid, "setup").map_err(failed)?;
        self.banned = banned_in(&answer).map_err(failed)?;
        match self.banned == *irqs {
            true => Ok(()),
            false => Err(failed("it did not take the list over".into())),
        }
    }
}

fn is_irqbalance(roots: &Roots, pid: u32) -> bool {
    let comm = fs::read_to_string(roots.proc.join(format!("{pid}/comm")));
    comm.is_ok_and(|comm| comm.trim_end() == "irqbalance")
}

/// Sends a request to the irqbalance with that id.
fn ask(roots: &Roots, pid: u32, request: &str) -> std::result::Result<String, String> {
    let mut stream = connect(roots, pid)?;
    let failed = |e: &dyn std::fmt::Display| format!("its socket: {e}");
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed(&e))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|e| failed(&e))?;
    let sender = UnixCredentials::new();
    let message = [ControlMessage::ScmCredentials(&sender)];
    let text = [IoSlice::new(request.as_bytes())];
    let fd = stream.as_raw_fd();
    sendmsg::<()>(fd, &text, &message, MsgFlags::MSG_NOSIGNAL, None).map_err(|e| failed(&e))?;
    let mut answer = Vec::new();
    stream.by_ref().take(MOST).read_to_end(&mut answer).map_err(|e| failed(&e))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Its socket is a file, or has an abstract name (older versions).
fn connect(roots: &Roots, pid: u32) -> std::result::Result<UnixStream, String> {
    let name = format!("irqbalance{pid}.sock");
    let path = roots.run.join("irqbalance").join(&name);
    let by_path = UnixStream::connect(&path);
    let stream = by_path.or_else(|e| {
        // The name ends where the address does: it is filled up with zeros
        // (sun_path of unix(7) has 108 bytes, one of them for what makes it abstract).
        let mut filled = name.into_bytes();
        filled.resize(107, 0);
        let address = SocketAddr::from_abstract_name(filled)?;
        UnixStream::connect_addr(&address).map_err(|_| e)
    });
    let stream = stream.map_err(|e| format!("{}: {e}", path.display()))?;
    // Another's socket of that name would be told nothing.
    let peer = getsockopt(&stream, PeerCredentials).map_err(|e| format!("its socket: {e}"))?;
    match peer.pid() as u32 == pid {
        true => Ok(stream),
        false => Err(format!("{} is the socket of PID {}", path.display(), peer.pid())),
    }
}

/// The IRQs that an answer to `setup` names: `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 BANNED 0`.
fn banned_in(answer: &str) -> std::result::Result<BTreeSet<u32>, String> {
    if !answer.starts_with("SLEEP ") {
        return Err("its socket answers something else, or only root".into());
    }
    let words: Vec<&str> = answer.split_ascii_whitespace().collect();
    let irqs = words.windows(2).filter(|pair| pair[0] == "IRQ");
    Ok(irqs.filter_map(|pair| pair[1].parse().ok()).collect())
}

/// The IRQs that a command line bans: `--banirq=N`, `-i N`.
fn banned_by(cmdline: &[u8]) -> BTreeSet<u32> {
    let text = String::from_utf8_lossy(cmdline);
    let mut words = text.split('\0');
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

/// The file with irqbalance's environment (Debian's, or Red Hat's and SUSE's), whose
/// `IRQBALANCE_ARGS` it gets when it starts; `None` when there is none.
pub fn environment(roots: &Roots) -> Option<PathBuf> {
    let files = ["default/irqbalance", "sysconfig/irqbalance"].map(|file| roots.etc.join(file));
    files.into_iter().find(|file| file.is_file())
}

/// The variable that has its arguments.
pub const ARGUMENTS: &str = "IRQBALANCE_ARGS";

/// `text`, the content of that file, with these IRQs banned as well.
pub fn with_bans(text: &str, irqs: &BTreeSet<u32>) -> String {
    let bans: String = irqs.iter().map(|irq| format!(" --banirq={irq}")).collect();
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    match lines.iter_mut().rev().find(|line| value(line).is_some()) {
        Some(line) => {
            let value = value(line).unwrap_or_default();
            *line = format!("{ARGUMENTS}=\"{}\"", format!("{value}{bans}").trim());
        }
        None => lines.push(format!("{ARGUMENTS}=\"{}\"", bans.trim())),
    }
    lines.join("\n") + "\n"
}

/// `text`, the content of that file, without the bans of these IRQs.
pub fn without_bans(text: &str, irqs: &BTreeSet<u32>) -> String {
    let ours = |word: &&str| {
        let irq = word.strip_prefix("--banirq=").and_then(|irq| irq.parse().ok());
        irq.is_some_and(|irq| irqs.contains(&irq))
    };
    let line = |line: &str| match value(line) {
        Some(value) if value.split_whitespace().any(|word| ours(&word)) => {
            let left: Vec<&str> = value.split_whitespace().filter(|word| !ours(word)).collect();
            format!("{ARGUMENTS}=\"{}\"\n", left.join(" "))
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The value of the variable, if `line` sets it.
fn value(line: &str) -> Option<&str> {
    let value = line.trim().strip_prefix(ARGUMENTS)?.strip_prefix('=')?;
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::irq::tree::Tree;

    fn set(irqs: &[u32]) -> BTreeSet<u32> {
        irqs.iter().copied().collect()
    }

    #[test]
    fn what_it_says() {
        let answer = "SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 5 IRQ 40 LOAD 9 DIFF 1 CLASS 5 BANNED 00000000,00000003";
        assert_eq!(banned_in(answer), Ok(set(&[38, 40])));
        assert_eq!(banned_in("SLEEP 10 BANNED 0"), Ok(set(&[])));
        assert!(banned_in("").is_err());
        let line = b"/usr/sbin/irqbalance\0--foreground\0--banirq=4\0-i\x005\0-i6\0--banirq\x007\0-p\x009\0";
        assert_eq!(banned_by(line), set(&[4, 5, 6, 7]));
    }

    #[test]
    fn bans_in_the_environment_file() {
        let text = "# IRQBALANCE_ARGS\n#IRQBALANCE_ARGS=\nIRQBALANCE_ONESHOT=\n";
        let banned = with_bans(text, &set(&[38, 40]));
        assert_eq!(banned, format!("{text}IRQBALANCE_ARGS=\"--banirq=38 --banirq=40\"\n"));
        assert_eq!(without_bans(&banned, &set(&[38, 40])), format!("{text}IRQBALANCE_ARGS=\"\"\n"));
        let text = "IRQBALANCE_ARGS='--interval=5 --banirq=4'\nX=1\n";
        let banned = with_bans(text, &set(&[40]));
        assert_eq!(banned, "IRQBALANCE_ARGS=\"--interval=5 --banirq=4 --banirq=40\"\nX=1\n");
        let left = without_bans(&banned, &set(&[40]));
        assert_eq!(left, "IRQBALANCE_ARGS=\"--interval=5 --banirq=4\"\nX=1\n");
        assert_eq!(without_bans(&left, &set(&[7])), left);
    }

    /// The daemon's end of the socket, for so many requests.
    fn daemon(tree: &Tree, pid: u32, requests: usize) -> std::thread::JoinHandle<Vec<String>> {
        tree.write(&format!("proc/{pid}/comm"), "irqbalance\n");
        tree.write("proc/1/comm", "init\n");
        fs::create_dir_all(tree.path("run/irqbalance")).unwrap();
        let path = tree.path(&format!("run/irqbalance/irqbalance{pid}.sock"));
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let mut banned = "IRQ 7 LOAD 0 DIFF 0 CLASS 0 ".to_owned();
            let mut asked = Vec::new();
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let n = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..n]).into_owned();
                if request == "setup" {
                    write!(stream, "SLEEP 10 {banned}BANNED 0").unwrap();
                } else if let Some(list) = request.strip_prefix("settings ban irqs ") {
                    let irqs = list.split(' ').filter(|irq| *irq != "NONE");
                    banned = irqs.map(|irq| format!("IRQ {irq} LOAD 0 ")).collect();
                }
                asked.push(request);
            }
            asked
        })
    }

    #[test]
    fn it_is_asked_and_told() {
        let tree = Tree::new();
        let pid = std::process::id();
        let daemon = daemon(&tree, pid, 5);
        let roots = tree.roots();
        let mut running = Irqbalance::running(&roots).unwrap();
        assert_eq!(running, [Irqbalance { pid, banned: set(&[7]), silent: None }]);
        assert!(running[0].spares(&set(&[7])) && !running[0].spares(&set(&[7, 38])));
        running[0].ban(&roots, &set(&[7, 38, 0])).unwrap();
        assert_eq!(running[0].banned, set(&[0, 7, 38]));
        running[0].ban(&roots, &set(&[])).unwrap();
        let asked = daemon.join().unwrap();
        assert_eq!(asked[1], "settings ban irqs 0 7 38");
        assert_eq!(asked[3], "settings ban irqs NONE");
    }

    #[test]
    fn one_that_does_not_answer_is_known_by_its_command_line() {
        let tree = Tree::new();
        tree.write("proc/42/comm", "irqbalance\n");
        tree.write("proc/42/cmdline", "irqbalance\0--banirq=9\0");
        let running = Irqbalance::running(&tree.roots()).unwrap();
        assert_eq!((running[0].pid, &running[0].banned), (42, &set(&[9])));
        assert!(running[0].silent.as_ref().unwrap().contains("irqbalance42.sock"));
        assert!(Irqbalance::with_pid(&tree.roots(), 43).is_none());
    }

    #[test]
    fn the_socket_of_another_is_not_used() {
        let tree = Tree::new();
        tree.write("proc/42/comm", "irqbalance\n");
        fs::create_dir_all(tree.path("run/irqbalance")).unwrap();
        let path = tree.path("run/irqbalance/irqbalance42.sock");
        let _listener = UnixListener::bind(path).unwrap();
        let running = Irqbalance::running(&tree.roots()).unwrap();
        let why = running[0].silent.as_ref().unwrap();
        assert!(why.ends_with(&format!("is the socket of PID {}", std::process::id())), "{why}");
    }
}
