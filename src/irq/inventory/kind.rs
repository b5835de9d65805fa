//! The kind of a network device, by its driver.

use std::ffi::c_char;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// The name of the driver of `name`, a device of this network namespace, such as `macvlan`
/// (ETHTOOL_GDRVINFO, include/uapi/linux/ethtool.h); `None` when the device has none.
pub fn driver(name: &str) -> Option<String> {
    const ETHTOOL_GDRVINFO: u32 = 0x3;
    /// `struct ethtool_drvinfo`.
    #[repr(C)]
    struct Info {
        cmd: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    let mut info = Info { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: an all-zero request is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut info).cast();
    let socket =
        socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    // SAFETY: the request points to a structure of the size that the command fills in, and
    // both outlive the call.
    let done = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, std::ptr::from_mut(&mut request))
    };
    let driver = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
    (done == 0 && !driver.is_empty()).then(|| String::from_utf8_lossy(driver).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_not_there() {
        assert_eq!(driver("no-such-nic"), None);
        assert_eq!(driver("a-name-that-is-far-too-long"), None);
    }
}
