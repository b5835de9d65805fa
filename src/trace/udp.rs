//! Data planes in user space: the functions of UDP sockets, and the datagrams that wait in the
//! sockets of a port or did not fit.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::functions::Target;
use crate::base::error::Result;
use crate::base::escape;
use crate::gtp::{Direction, Function, Stage};
use crate::kernel::procfs;
use crate::kernel::udp_sockets::{self, Namespaces, UdpSocket};

/// The functions by which user space receives and sends datagrams, with their address family
/// (net/ipv4/udp.c, net/ipv6/udp.c). recvmmsg(2), io_uring(7) and the like call them, too.
const FUNCTIONS: [(&str, Direction, i32, &str); 4] = [
    ("udp_recvmsg", Direction::Received, libc::AF_INET, "a datagram is received"),
    ("udpv6_recvmsg", Direction::Received, libc::AF_INET6, "a datagram is received by IPv6"),
    ("udp_sendmsg", Direction::Sent, libc::AF_INET, "a datagram is sent"),
    ("udpv6_sendmsg", Direction::Sent, libc::AF_INET6, "a datagram is sent by IPv6"),
];

/// The functions of sockets.
pub fn target() -> Target {
    let function = |&(symbol, direction, _, does): &(&str, Direction, i32, &'static str)| {
        Function { symbol: symbol.to_owned(), direction, stage: Stage::Entry, packet: None, does }
    };
    Target { module: None, functions: FUNCTIONS.iter().map(function).collect() }
}

/// The family of the sockets that a function of [`target`] counts for.
pub(super) fn family(function: &Function) -> u8 {
    let known = FUNCTIONS.iter().find(|(symbol, ..)| *symbol == function.symbol);
    known.map_or(0, |(_, _, family, _)| *family as u8)
}

/// How often to look for processes in new network namespaces.
const RESCAN: Duration = Duration::from_secs(1);

/// How often to look for other owners of known sockets: this walks all open files.
const OWNERS: Duration = Duration::from_secs(10);

/// A socket with the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// Its local address and port.
    pub address: String,
    pub inode: u64,
    /// Empty: the socket is the kernel's own, unless its owner may be hidden.
    pub processes: Vec<Process>,
    #[serde(skip)]
    owner_may_be_hidden: bool,
    /// The kernel memory of the datagrams that wait to be received, in bytes.
    pub queued_bytes: u64,
    /// Datagrams dropped since the socket was opened, mostly because the queue was full.
    pub drops: u64,
    /// Since the last look.
    pub new_drops: u64,
}

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
}

/// The sockets with a port, in every network namespace.
pub struct Sockets {
    proc_root: PathBuf,
    port: u16,
    namespaces: Namespaces,
    scanned: Option<Instant>,
    /// When the owners of all sockets were last looked up.
    owners_at: Option<Instant>,
    /// What was known at the last look, by inode.
    before: HashMap<u64, Socket>,
}

impl Sockets {
    pub fn new(proc_root: &Path, port: u16) -> Self {
        let (namespaces, scanned, owners_at, before) = Default::default();
        Self { proc_root: proc_root.into(), port, namespaces, scanned, owners_at, before }
    }

    /// The sockets as they are now, in the order of their addresses.
    pub fn look(&mut self) -> Result<Vec<Socket>> {
        if self.scanned.is_none_or(|at| at.elapsed() >= RESCAN) {
            self.namespaces = udp_sockets::namespaces(&self.proc_root)?;
            self.scanned = Some(Instant::now());
        }
        let found = self.namespaces.processes.iter();
        let found = found.flat_map(|dir| udp_sockets::with_port(dir, self.port));
        let found: Vec<UdpSocket> = found.collect();
        let owners = self.owners(&found)?;
        let mut sockets: Vec<Socket> = found
            .into_iter()
            .map(|UdpSocket { local, queued, drops, inode }| {
                let before = self.before.get(&inode);
                Socket {
                    address: local.to_string(),
                    inode,
                    processes: owners.get(&inode).cloned().unwrap_or_default(),
                    owner_may_be_hidden: self.namespaces.are_hidden,
                    queued_bytes: queued,
                    drops,
                    new_drops: before.map_or(0, |before| drops.saturating_sub(before.drops)),
                }
            })
            .collect();
        sockets.sort_by(|a, b| (&a.address, a.inode).cmp(&(&b.address, b.inode)));
        self.before = sockets.iter().map(|socket| (socket.inode, socket.clone())).collect();
        Ok(sockets)
    }

    /// The message if there are none.
    pub fn none(&self) -> String {
        let port = self.port;
        format!("no socket has UDP port {port} in any process's network namespace; waiting for one")
    }

    /// Why sockets may be missing, once they have been looked for.
    pub fn missing(&self) -> Option<&'static str> {
        self.namespaces.are_hidden.then_some(
            "this process lacks CAP_SYS_PTRACE: it sees neither the sockets of all network \
             namespaces nor whose each is",
        )
    }

    /// The processes that have these sockets open, by the sockets' inodes: for new sockets as they
    /// are now, for known sockets as they were when they were last looked up.
    fn owners(&mut self, found: &[UdpSocket]) -> Result<HashMap<u64, Vec<Process>>> {
        let is_due = self.owners_at.is_none_or(|at| at.elapsed() >= OWNERS);
        let is_known = |inode: &u64| !is_due && self.before.contains_key(inode);
        let inodes = found.iter().map(|socket| socket.inode);
        let (known, unknown): (BTreeSet<u64>, BTreeSet<u64>) = inodes.partition(is_known);
        let mut owners = self.processes(&unknown)?;
        let before = known.iter().filter_map(|inode| self.before.get(inode));
        owners.extend(before.map(|socket| (socket.inode, socket.processes.clone())));
        if is_due {
            self.owners_at = Some(Instant::now());
        }
        Ok(owners)
    }

    /// The processes that have these sockets open now, by the sockets' inodes.
    fn processes(&self, inodes: &BTreeSet<u64>) -> Result<HashMap<u64, Vec<Process>>> {
        let mut processes: HashMap<u64, Vec<Process>> = HashMap::new();
        if inodes.is_empty() {
            return Ok(processes);
        }
        for pid in procfs::processes(&self.proc_root)? {
            let dir = self.proc_root.join(pid.to_string());
            for inode in udp_sockets::open_in(&dir, inodes).collect::<BTreeSet<_>>() {
                let comm = procfs::text(dir.join("comm")).unwrap_or_default();
                let process = Process { pid, comm: comm.trim_end().to_owned() };
                processes.entry(inode).or_default().push(process);
            }
        }
        Ok(processes)
    }
}

/// A socket as one line.
pub fn line(socket: &Socket) -> String {
    let Socket { address, processes, owner_may_be_hidden, queued_bytes, drops, new_drops, .. } =
        socket;
    let whose: Vec<String> =
        processes.iter().map(|Process { pid, comm }| format!("{comm} (PID {pid})")).collect();
    let whose = match whose.is_empty() {
        true if *owner_may_be_hidden => "an unknown process, or the kernel".into(),
        true => "the kernel".into(),
        false => whose.join(", "),
    };
    let mut line =
        format!("socket {address} of {whose}: {queued_bytes} bytes queued, {drops} dropped");
    if *new_drops > 0 {
        line += &format!(", {new_drops} of them just now");
    }
    escape::line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::UdpSocket;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_sockets_of_a_port_and_whose_they_are() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let mut sockets = Sockets::new(Path::new("/proc"), local.port());
        let found = sockets.look().unwrap();
        let mine = found.iter().find(|found| found.address == local.to_string()).unwrap();
        assert_eq!((mine.queued_bytes, mine.drops), (0, 0));
        let me = std::process::id();
        assert!(mine.processes.iter().any(|process| process.pid == me), "{mine:?}");
        // More than any buffer holds (net.core.rmem_max is 4 MiB at most by default).
        while sockets.look().unwrap().iter().all(|socket| socket.drops == 0) {
            (0..1000).for_each(|_| drop(socket.send_to(&[0; 9000], local)));
        }
        let full = sockets.look().unwrap().remove(0);
        assert!(full.queued_bytes > 9000 && full.drops > 0 && full.new_drops == 0, "{full:?}");
        socket.send_to(&[0; 9000], local).unwrap();
        assert_eq!(sockets.look().unwrap()[0].new_drops, 1);
        assert!(line(&full).starts_with(&format!("socket {local} of ")), "{}", line(&full));
        drop(socket);
        assert_eq!(sockets.look().unwrap(), []);
    }

    #[test]
    fn the_owners_of_a_known_socket_are_looked_up_again_when_due() {
        let proc_root = tempfile::tempdir().unwrap();
        let fd = |pid: u32| proc_root.path().join(format!("{pid}/fd/3"));
        for pid in [10, 11] {
            let dir = proc_root.path().join(pid.to_string());
            for part in ["net", "ns", "fd"] {
                fs::create_dir_all(dir.join(part)).unwrap();
            }
            fs::write(dir.join("comm"), "upf\n").unwrap();
            let udp = " 1: 0A0B0C0D:0868 00000000:0000 07 0:0 00:0 00000000 0 0 55 2 0 0\n";
            fs::write(dir.join("net/udp"), udp).unwrap();
            symlink("net:[1]", dir.join("ns/net")).unwrap();
        }
        symlink("socket:[55]", fd(10)).unwrap();
        let mut sockets = Sockets::new(proc_root.path(), 2152);
        let owners = |sockets: &mut Sockets| -> Vec<u32> {
            let found = sockets.look().unwrap();
            assert_eq!((found.len(), found[0].inode), (1, 55));
            found[0].processes.iter().map(|process| process.pid).collect()
        };
        assert_eq!(owners(&mut sockets), [10]);
        fs::rename(fd(10), fd(11)).unwrap();
        assert_eq!(owners(&mut sockets), [10]);
        sockets.owners_at = None;
        assert_eq!(owners(&mut sockets), [11]);
        assert!(sockets.owners_at.is_some());
    }

    #[test]
    fn a_line_for_a_socket() {
        let mut socket = Socket {
            address: "10.100.0.2:2152".into(),
            inode: 7,
            processes: vec![Process { pid: 12, comm: "osmo-ggsn".into() }],
            owner_may_be_hidden: false,
            queued_bytes: 2304,
            drops: 12,
            new_drops: 3,
        };
        assert_eq!(
            line(&socket),
            "socket 10.100.0.2:2152 of osmo-ggsn (PID 12): 2304 bytes queued, 12 dropped, 3 of them just now"
        );
        socket.processes.clear();
        assert!(line(&socket).starts_with("socket 10.100.0.2:2152 of the kernel: "));
        socket.owner_may_be_hidden = true;
        assert!(line(&socket).contains(":2152 of an unknown process, or the kernel: "));
        socket.processes.push(Process { pid: 1, comm: escape::NASTY.into() });
        assert!(!line(&socket).contains(escape::is_unfit_in_lines));
    }
}
