//! The network devices of a network namespace and what is under each, by rtnetlink(7).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};

use crate::base::error::{Error, Result};

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `macvlan`, `vlan`, `veth` and the like; `None` for most NICs.
    pub kind: Option<String>,
    /// The device under it, or the other end of a pair.
    pub lower: Option<Lower>,
    /// The index of the bond or bridge that it is a port of.
    pub master: Option<u32>,
    /// The bus of the device that it belongs to and the name there, such as `pci` and
    /// `0000:07:00.0`.
    pub parent: Option<(String, String)>,
}

/// A device by its index, and by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// In the same network namespace.
    Beside(u32),
    /// In gthctl's network namespace.
    Here(u32),
    /// In a third network namespace.
    Elsewhere,
}

/// The devices of the network namespace in the file `netns`, such as /proc/PID/ns/net.
///
/// Fails without CAP_SYS_ADMIN, unless the namespace is gthctl's own.
pub fn links(netns: &Path) -> Result<Vec<Link>> {
    let failed = |e: io::Error| Error::because_of(netns.display(), e);
    let theirs = File::open(netns).map_err(failed)?;
    // setns(2) moves only the calling thread, which ends here.
    let read = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || read(&theirs))?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
    });
    read.map_err(failed)
}

fn read(theirs: &File) -> io::Result<Vec<Link>> {
    let ours = File::open("/proc/thread-self/ns/net")?;
    let id = |file: &File| file.metadata().map(|data| (data.dev(), data.ino()));
    let is_ours = id(theirs)? == id(&ours)?;
    if !is_ours {
        setns(theirs, CloneFlags::CLONE_NEWNET)?;
    }
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    // From now on only the kernel can send to the socket (netlink_getsockbyportid(),
    // net/netlink/af_netlink.c).
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let links = ask(&socket, &Message::all_links())?;
    // This request comes last, because the kernel numbers a namespace when it first reports a
    // device there.
    let ours = match is_ours {
        true => None,
        false => number_of(&ask(&socket, &Message::number_of(&ours))?),
    };
    Ok(links.iter().filter_map(|message| link(message, ours)).collect())
}

/// linux/rtnetlink.h, linux/if_link.h, linux/net_namespace.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWNSID: u16 = 88;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_KIND: u16 = 1;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// The type of an attribute, without the flags in the same field (linux/netlink.h).
const TYPE: u16 = 0x3fff;
const HEADER: usize = size_of::<libc::nlmsghdr>();
/// `struct rtgenmsg`, padded.
const GENERAL: usize = 4;

/// A message of netlink(7) without its header.
#[derive(Debug)]
struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    fn all_links() -> Self {
        let body = vec![0; size_of::<libc::ifinfomsg>()];
        Self { kind: libc::RTM_GETLINK, flags: libc::NLM_F_DUMP as u16, body }
    }

    /// Asks for the number of `netns`.
    fn number_of(netns: &File) -> Self {
        let mut body = vec![0; GENERAL];
        body.extend(8_u16.to_ne_bytes());
        body.extend(NETNSA_FD.to_ne_bytes());
        body.extend(netns.as_raw_fd().to_ne_bytes());
        Self { kind: libc::RTM_GETNSID, flags: 0, body }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = ((HEADER + self.body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((self.flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        // The sequence and the port: 0, as a socket has only one request at a time.
        bytes.extend([0; 8]);
        bytes.extend(&self.body);
        bytes
    }
}

/// The answer to a request.
fn ask(socket: &OwnedFd, request: &Message) -> io::Result<Vec<Message>> {
    send(socket.as_raw_fd(), &request.bytes(), MsgFlags::empty())?;
    let is_dump = request.flags != 0;
    let mut all = Vec::new();
    // No part of a dump is longer (netlink_dump(), net/netlink/af_netlink.c).
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        for message in messages(&buffer[..length]) {
            match i32::from(message.kind) {
                libc::NLMSG_DONE => return Ok(all),
                libc::NLMSG_ERROR => {
                    let code = message.body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => all.push(message),
            }
        }
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if !is_dump {
            return Ok(all);
        }
    }
}

/// The messages in the bytes received from a socket.
fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some(length) = number(bytes).filter(|&length| length as usize >= HEADER) {
        let Some(message) = bytes.get(..length as usize) else { break };
        let half = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
        let body = message[HEADER..].to_vec();
        all.push(Message { kind: half(4), flags: half(6), body });
        bytes = bytes.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// The attributes in `bytes`, each with its type.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = bytes.get(4..length) else { break };
        all.push((kind & TYPE, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn find<'a>(all: &[(u16, &'a [u8])], kind: u16) -> Option<&'a [u8]> {
    all.iter().find(|(its, _)| *its == kind).map(|(_, value)| *value)
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

/// The device that a message describes; `ours` is the number of gthctl's network namespace.
fn link(message: &Message, ours: Option<u32>) -> Option<Link> {
    let body = &message.body;
    let (fixed, rest) = body.split_at_checked(size_of::<libc::ifinfomsg>())?;
    if message.kind != RTM_NEWLINK {
        return None;
    }
    let all = attributes(rest);
    let of = |kind| find(&all, kind).and_then(number);
    let of_text = |kind| find(&all, kind).map(text);
    let lower = of(IFLA_LINK).filter(|&index| index != 0).map(|index| {
        match find(&all, IFLA_LINK_NETNSID).map(number) {
            None => Lower::Beside(index),
            Some(its) if its.is_some() && its == ours => Lower::Here(index),
            Some(_) => Lower::Elsewhere,
        }
    });
    let info = find(&all, IFLA_LINKINFO).map(attributes).unwrap_or_default();
    Some(Link {
        // After the family, padding and type.
        index: number(&fixed[4..])?,
        name: of_text(IFLA_IFNAME)?,
        kind: find(&info, IFLA_INFO_KIND).map(text),
        lower,
        master: of(IFLA_MASTER),
        parent: of_text(IFLA_PARENT_DEV_BUS_NAME).zip(of_text(IFLA_PARENT_DEV_NAME)),
    })
}

/// The number in the answer to [`Message::number_of`]; `None` if there is none.
fn number_of(answer: &[Message]) -> Option<u32> {
    let message = answer.iter().find(|message| message.kind == RTM_NEWNSID)?;
    let all = attributes(message.body.get(GENERAL..)?);
    find(&all, NETNSA_NSID).and_then(number).filter(|&id| id as i32 >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute with its padding.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(index: u32, attributes: &[Vec<u8>]) -> Message {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        body.extend(attributes.concat());
        Message { kind: RTM_NEWLINK, flags: 0, body }
    }

    fn macvlan(netnsid: i32) -> Message {
        let info = [attribute(IFLA_INFO_KIND, b"macvlan\0"), attribute(2, &[0; 6])].concat();
        message(
            3,
            &[
                attribute(IFLA_IFNAME, b"n3\0"),
                attribute(IFLA_LINK, &2_u32.to_ne_bytes()),
                // With the flag of nested attributes.
                attribute(IFLA_LINKINFO | 0x8000, &info),
                attribute(IFLA_LINK_NETNSID, &netnsid.to_ne_bytes()),
            ],
        )
    }

    #[test]
    fn what_is_under_a_device_and_where() {
        let lower = |netnsid, ours| link(&macvlan(netnsid), ours).unwrap().lower.unwrap();
        let found = link(&macvlan(0), Some(0)).unwrap();
        assert_eq!(
            (found.index, found.name.as_str(), found.kind.as_deref()),
            (3, "n3", Some("macvlan"))
        );
        assert_eq!(lower(0, Some(0)), Lower::Here(2));
        assert_eq!(lower(1, Some(0)), Lower::Elsewhere);
        assert_eq!((lower(0, None), lower(-1, None)), (Lower::Elsewhere, Lower::Elsewhere));
        let on_vf = [attribute(IFLA_IFNAME, b"v\0"), attribute(IFLA_LINK, &5_u32.to_ne_bytes())];
        assert_eq!(link(&message(4, &on_vf), Some(0)).unwrap().lower, Some(Lower::Beside(5)));
        let vf = [
            attribute(IFLA_IFNAME, b"net1\0"),
            attribute(IFLA_PARENT_DEV_NAME, b"0000:03:02.1\0"),
            attribute(IFLA_PARENT_DEV_BUS_NAME, b"pci\0"),
            attribute(IFLA_MASTER, &9_u32.to_ne_bytes()),
        ];
        let vf = link(&message(5, &vf), None).unwrap();
        assert_eq!(vf.parent, Some(("pci".into(), "0000:03:02.1".into())));
        assert_eq!((vf.lower, vf.master), (None, Some(9)));
    }

    #[test]
    fn what_is_cut_short_is_left_out() {
        let two = [macvlan(0).bytes(), macvlan(0).bytes()].concat();
        assert_eq!(messages(&two).len(), 2);
        for length in 0..two.len() {
            let whole = messages(&two[..length]);
            assert_eq!(whole.len(), length / (two.len() / 2), "{length}");
        }
        for length in 0..two.len() / 2 - HEADER {
            let mut one = macvlan(0);
            one.body.truncate(length);
            let _ = link(&one, Some(0));
        }
        assert!(attributes(&[2, 0, 1, 0, 9, 9]).is_empty(), "shorter than its own header");
    }

    #[test]
    fn of_this_namespace() {
        let all = links(Path::new("/proc/self/ns/net")).unwrap();
        let mut names: Vec<String> = all.into_iter().map(|link| link.name).collect();
        let mut shown: Vec<String> = std::fs::read_dir("/sys/class/net")
            .map(|dir| dir.map(|one| one.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        shown.retain(|name| name != "bonding_masters");
        names.sort();
        shown.sort();
        assert!(names.contains(&"lo".to_owned()));
        assert_eq!(names, shown);
        assert!(links(Path::new("/proc/4194304/ns/net")).is_err());
    }
}
