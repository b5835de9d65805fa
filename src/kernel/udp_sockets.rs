//! The UDP sockets of this machine, in every network namespace that has a process (proc_net(5)).

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::procfs;
use crate::base::error::Result;

/// A UDP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSocket {
    pub local: SocketAddr,
    /// The kernel memory, in bytes, of what waits to be received.
    pub queued: u64,
    /// Datagrams for this socket that were dropped, mostly because that memory had reached its
    /// limit.
    pub drops: u64,
    /// The socket's number, unique among sockets.
    pub inode: u64,
}

/// A process in each network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Their directories in /proc, ascending.
    pub processes: Vec<PathBuf>,
    /// There may be other namespaces: this process may not see the namespace of every process
    /// (namespaces(7)).
    pub are_hidden: bool,
}

/// The network namespaces of the processes in `proc_root`.
pub fn namespaces(proc_root: &Path) -> Result<Namespaces> {
    let mut found = Namespaces::default();
    let mut known = BTreeSet::new();
    for pid in procfs::processes(proc_root)? {
        let dir = proc_root.join(pid.to_string());
        let namespace = fs::read_link(dir.join("ns/net"));
        found.are_hidden |=
            namespace.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        if known.insert(namespace.ok()) {
            found.processes.push(dir);
        }
    }
    Ok(found)
}

/// The sockets with this local port in the network namespace of the process whose directory in
/// /proc is `dir`; none if it has ended.
pub fn with_port(dir: &Path, port: u16) -> Vec<UdpSocket> {
    let tables = ["net/udp", "net/udp6"].map(|table| fs::read_to_string(dir.join(table)));
    let sockets = tables.iter().flatten().flat_map(|table| table.lines().filter_map(socket));
    sockets.filter(|socket| socket.local.port() == port).collect()
}

/// Those sockets among `inodes` that a process has open; `dir` is the process's directory in /proc.
pub fn open_in<'a>(dir: &Path, inodes: &'a BTreeSet<u64>) -> impl Iterator<Item = u64> + 'a {
    let links = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
    let sockets = links.filter_map(|fd| {
        let to = fs::read_link(fd.path()).ok()?;
        to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    sockets.filter(|inode| inodes.contains(inode))
}

/// The socket of a line: sl, local address, remote address, st, tx_queue:rx_queue, tr:tm->when,
/// retrnsmt, uid, timeout, inode, ref, pointer, drops.
fn socket(line: &str) -> Option<UdpSocket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let (_, queued) = fields.get(4)?.split_once(':')?;
    Some(UdpSocket {
        local: SocketAddr::new(ip(address)?, u16::from_str_radix(port, 16).ok()?),
        queued: u64::from_str_radix(queued, 16).ok()?,
        drops: fields.get(12)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// The kernel prints each 32-bit word of an address as a number in the host's byte order.
fn ip(text: &str) -> Option<IpAddr> {
    let word = |i: usize| u32::from_str_radix(text.get(8 * i..8 * i + 8)?, 16).ok();
    let bytes: Vec<u8> = (0..text.len() / 8).filter_map(word).flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Socket;

    use super::*;

    #[test]
    fn a_line_of_proc() {
        let v4 = " 1234: 0201640A:0868 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 17 2 0000000000000000 5         ";
        let socket = super::socket(v4).unwrap();
        assert_eq!(
            (socket.local.to_string(), socket.queued, socket.drops, socket.inode),
            ("10.100.1.2:2152".into(), 768, 5, 17)
        );
        let v6 = v4.replace("0201640A", "B80D0120000000000000000001000000");
        assert_eq!(super::socket(&v6).unwrap().local.to_string(), "[2001:db8::1]:2152");
        assert_eq!(super::socket("  sl  local_address rem_address   st tx_queue rx_queue"), None);
        assert_eq!(super::socket(&v4[..60]), None);
        assert_eq!(super::socket(&v4.replace("0201640A", "xx")), None);
    }

    /// Reads the real /proc: what waits, what was dropped, and which process has the socket open.
    #[test]
    fn of_this_process() {
        let proc_root = Path::new("/proc");
        let here = proc_root.join(std::process::id().to_string());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = Socket::bind(address) else { continue };
            let local = socket.local_addr().unwrap();
            socket.send_to(&[1; 100], local).unwrap();
            let found = with_port(&here, local.port());
            let [found] = &found[..] else { panic!("{found:?}") };
            assert_eq!((found.local, found.drops), (local, 0));
            assert!(found.queued >= 100, "{found:?}");
            let inodes = [found.inode].into();
            assert_eq!(open_in(&here, &inodes).collect::<Vec<_>>(), [found.inode]);
            drop(socket);
            assert_eq!(open_in(&here, &inodes).count(), 0);
        }
        let found = namespaces(proc_root).unwrap();
        assert!(!found.processes.is_empty());
    }
}
