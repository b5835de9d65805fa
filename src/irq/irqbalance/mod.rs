//! irqbalance, the daemon that moves interrupts by load: whether it is running, which IRQs it
//! leaves alone, and how to tell it to.

mod socket;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::host::Host;
use crate::base::error::{Error, Result};
use crate::base::ownership;
use crate::kernel::procfs;
use socket::{Answer, Deadline, Fault, REQUEST, Setup, answer, connect_to, request, send, setup};

/// A second; less in the tests.
const SECOND: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });
/// How long gthctl waits for an answer that is not important.
const BRIEF: Duration = SECOND;
/// The default of irqbalance's interval, in seconds (irqbalance(1), --interval).
const INTERVAL: u32 = 10;
/// How much longer than an interval gthctl waits for an answer, in seconds. Up to version 1.9.3,
/// irqbalance sometimes scans all IRQs, for example after a change of the bans. It then sleeps for
/// an interval and answers nothing (scan(), irqbalance.c).
const MARGIN: u32 = 5;
/// The longest time that gthctl waits for an answer, in seconds.
const LONGEST: u32 = 30;
/// The name of the program and of its process.
const NAME: &str = "irqbalance";

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irqbalance {
    pub pid: u32,
    /// The IRQs that it leaves alone, according to its answer or, if `silent`, to its command line.
    pub banned: BTreeSet<u32>,
    /// Why it gave no answer. If it has no socket, `banned` is complete. Otherwise it may be busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<Fault>,
    /// gthctl has sent it a list. It may follow the list even if it has not answered.
    #[serde(skip)]
    pub told: bool,
    /// How long its next answer may take.
    #[serde(skip)]
    patience: Duration,
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

    /// The PIDs of the instances on this machine. Sends no request to any of them.
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

    /// The instance with that PID, if it is still running. Waits as [`Irqbalance::awaited`] does.
    pub fn with_pid(host: &Host, pid: u32) -> Option<Self> {
        let patience = if host.hurry.is_on() { BRIEF } else { patience(INTERVAL) };
        is_irqbalance(host, pid).then(|| Self::of(host, pid, Deadline::after(patience)))
    }

    fn of(host: &Host, pid: u32, deadline: Deadline) -> Self {
        let (banned, silent, patience) = match setup(host, pid, deadline) {
            Ok(Setup { interval, banned }) => (banned, None, patience(interval)),
            Err(why) => {
                let line = fs::read(host.proc().join(format!("{pid}/cmdline"))).unwrap_or_default();
                (banned_by(String::from_utf8_lossy(&line).split('\0')), Some(why), BRIEF)
            }
        };
        Self { pid, banned, silent, told: false, patience }
    }

    /// Why it gave no answer although it has a socket: it may be busy.
    pub fn busy(&self) -> Option<&Fault> {
        self.silent.as_ref().filter(|why| !why.no_socket)
    }

    /// Names the IRQs that it leaves alone, such as ` except IRQ 38, 39`.
    pub fn except(&self) -> String {
        match self.banned.is_empty() {
            true => String::new(),
            false => format!(" except {}", listed(&self.banned)),
        }
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
        // If it does not answer now, the next answer is not worth such a wait.
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
            false => Err(Fault::new("it did not adopt the list")),
        }
    }

    /// Fails when it cannot be told these IRQs through its socket: it gave no answer before, or
    /// there are too many of them. Every version reads a request of less than 500 bytes.
    pub fn takes(&self, irqs: &BTreeSet<u32>) -> Answer<()> {
        match &self.silent {
            Some(why) => Err(why.clone()),
            None if request(irqs).len() >= REQUEST => {
                let irqs = irqs.len();
                Err(Fault::new(format!("{irqs} IRQs are more than it reads from its socket")))
            }
            None => Ok(()),
        }
    }
}

/// How long to wait for an irqbalance that balances every `interval` seconds.
fn patience(interval: u32) -> Duration {
    SECOND * interval.saturating_add(MARGIN).min(LONGEST)
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

/// True when all user ids are 0 (proc_pid_status(5)). The real user id is not 0 in a set-user-ID
/// program that a user started. The owner of /proc/PID proves nothing: it is root for every process
/// that is not dumpable (proc(5)).
fn is_roots(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| {
        ids.split_ascii_whitespace().count() == 4
            && ids.split_ascii_whitespace().all(|id| id == "0")
    })
}

/// True when `exe` leads to irqbalance's program, which may have been replaced since it was started
/// (proc_pid_exe(5)). Only root can read the link. For other users, the user ids of the process
/// have to suffice.
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::irq::tree::{Daemon, Tree};

    #[test]
    fn its_command_line() {
        let line = "/usr/sbin/irqbalance --foreground --banirq=4 -i 5 -i6 --banirq 7 -p 9";
        assert_eq!(banned_by(line.split(' ')), [4, 5, 6, 7].into());
    }

    #[test]
    fn it_is_asked_and_told() {
        let tree = Tree::new();
        let daemon = Daemon::new(&tree, &[0; 5]);
        let host = tree.host();
        let mut running = Irqbalance::awaited(&host).unwrap();
        let one = &mut running[0];
        let found = (one.pid, &one.banned, &one.silent, one.told);
        assert_eq!(found, (std::process::id(), &[7].into(), &None, false));
        one.ban(&host, &[7, 38, 0].into()).unwrap();
        assert_eq!((&one.banned, one.told), (&[0, 7, 38].into(), true));
        one.ban(&host, &[].into()).unwrap();
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
        let Fault { why, no_socket } = one.silent.unwrap();
        assert!(why.ends_with("its socket: no answer in 0.1 s") && !no_socket, "{why}");
        assert_eq!(Irqbalance::awaited(&host).unwrap()[0].silent, None);
        daemon.asked();
    }

    #[test]
    fn a_list_that_it_would_cut_off_is_not_sent() {
        let tree = Tree::new();
        let daemon = Daemon::new(&tree, &[0]);
        let mut one = Irqbalance::awaited(&tree.host()).unwrap().remove(0);
        // 18 bytes, then 120 numbers of 4 bytes, each with the space or zero after it.
        let most: BTreeSet<u32> = (100..220).collect();
        assert_eq!(request(&most).len(), 498);
        assert!(one.takes(&most).is_ok());
        let more = &most | &[7].into();
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
    fn one_without_a_socket_is_known_by_its_command_line() {
        let tree = Tree::new();
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0--banirq=9\0");
        let mut running = Irqbalance::running(&tree.host()).unwrap();
        assert_eq!((running[0].pid, &running[0].banned), (42, &[9].into()));
        let Fault { why, no_socket } = running[0].silent.as_ref().unwrap();
        assert!(why.contains("irqbalance42.sock: No such file") && *no_socket, "{why}");
        let json = serde_json::to_value(&running[0]).unwrap();
        assert_eq!(json["silent"], why.as_str());
        assert!(running[0].ban(&tree.host(), &[].into()).is_err());
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
        // Replaced by a newer package; another program; none, as for a zombie.
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
}
