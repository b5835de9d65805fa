//! The kernel's announcements that modules come and go (netlink(7),
//! NETLINK_KOBJECT_UEVENT; lib/kobject_uevent.c).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// The kernel's own messages; 2 would be udev's.
const KERNEL: u32 = 1;

/// A socket that receives the announcements. The kernel announces a module after it has started,
/// and before it ends.
pub struct Uevents(OwnedFd);

impl Uevents {
    pub fn open() -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL))?;
        Ok(Self(socket))
    }

    /// Readable when there is something to take.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes all messages; true if a module may have come or gone.
    pub fn take(&self) -> bool {
        let (mut modules, mut message) = (false, [0; 4096]);
        loop {
            match recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty()) {
                Ok(len) => modules |= is_of_module(&message[..len]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return modules,
                // Messages were lost (ENOBUFS).
                Err(_) => return true,
            }
        }
    }
}

/// Whether a message such as `add@/module/gtp`, NUL, `ACTION=add`, and so on, is about a module.
fn is_of_module(message: &[u8]) -> bool {
    let head = message.split(|&byte| byte == 0).next().unwrap_or_default();
    [&b"add@/module/"[..], b"remove@/module/"].iter().any(|start| head.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_only() {
        assert!(is_of_module(b"add@/module/gtp\0ACTION=add\0DEVPATH=/module/gtp\0"));
        assert!(is_of_module(b"remove@/module/gtp5g\0ACTION=remove\0"));
        assert!(!is_of_module(b"add@/devices/virtual/net/gtp0\0ACTION=add\0"));
        assert!(!is_of_module(b""));
    }

    #[test]
    fn nothing_to_take_is_told_at_once() {
        let uevents = Uevents::open().unwrap();
        uevents.take();
        assert!(!uevents.take());
    }
}
