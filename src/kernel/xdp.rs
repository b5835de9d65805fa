//! The XDP program of a network device.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::btf::{Btf, TypeId, types::Func};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use serde::Serialize;

use crate::base::error::{Error, Result};

/// A loaded XDP program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct XdpProgram {
    pub id: u32,
    /// At most 15 characters.
    pub name: String,
    /// The name of its entry function, from its BTF; `None` without BTF.
    pub entry: Option<String>,
}

/// Who runs a device's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The device's driver, before there is an skb.
    Driver,
    /// The network stack, on the skb; slower.
    Generic,
    /// The device itself.
    Hardware,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Generic => "generic",
            Self::Hardware => "hardware",
        }
    }
}

/// The index of a network device of this network namespace; `None` if there is no such device.
pub fn device_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&index| index != 0)
}

/// The devices for which the program of `device` runs: `device` itself, and the devices whose
/// master it is. A bond and a virtual machine's NIC pass their program on to these
/// (drivers/net/bonding, drivers/net/hyperv).
pub fn devices_of(sys_root: &Path, device: &str) -> Vec<String> {
    let net = sys_root.join("class/net");
    let links = fs::read_dir(net.join(device)).into_iter().flatten().flatten();
    let names = links.filter_map(|link| link.file_name().into_string().ok());
    let lower = names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned));
    let is_master = |lower: &String| {
        let master = fs::read_link(net.join(lower).join("master"));
        master.is_ok_and(|master| master.file_name().is_some_and(|name| name == device))
    };
    let mut devices = vec![device.to_owned()];
    devices.extend(lower.filter(is_master));
    devices
}

/// The id of the program that runs first for packets from the device with this index, and who runs
/// it. `None` if there is no program, or if the device is gone.
pub fn program_at(device: u32) -> io::Result<Option<(u32, Mode)>> {
    let mut found = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: complete options.
    let result = unsafe { sys::bpf_xdp_query(device as i32, 0, &raw mut found) };
    if result == -libc::ENODEV {
        return Ok(None);
    }
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let programs = [
        (found.hw_prog_id, Mode::Hardware),
        (found.drv_prog_id, Mode::Driver),
        (found.skb_prog_id, Mode::Generic),
    ];
    Ok(programs.into_iter().find(|&(id, _)| id != 0))
}

/// Describes the program `id`, which stays loaded while `_open` is held. Needs CAP_SYS_ADMIN.
pub fn program(id: u32, _open: &OwnedFd) -> Result<XdpProgram> {
    let failed = |why: String| Error::failure(format!("the BPF program with id {id}: {why}"));
    let options = ProgInfoQueryOptions::default().include_func_info(true);
    let info = ProgInfoIter::with_query_opts(options).find(|info| info.id == id);
    let info = info.ok_or_else(|| failed("the kernel does not describe it".into()))?;
    // The program begins in its first function.
    let entry = match info.func_info.first() {
        None => None,
        Some(first) => {
            let btf = Btf::from_prog_id(id).map_err(|e| failed(e.to_string()))?;
            let function: Option<Func<'_>> = btf.type_by_id(TypeId::from(first.type_id));
            function.and_then(|function| Some(function.name()?.to_str()?.to_owned()))
        }
    };
    Ok(XdpProgram { id, name: info.name.to_string_lossy().into_owned(), entry })
}

/// A descriptor of the program `id`; `None` if the program is gone. Needs CAP_SYS_ADMIN.
pub fn open(id: u32) -> Result<Option<OwnedFd>> {
    const GONE: i32 = -libc::ENOENT;
    // SAFETY: takes only a number.
    match unsafe { sys::bpf_prog_get_fd_by_id(id) } {
        GONE => Ok(None),
        error @ ..0 => {
            let error = io::Error::from_raw_os_error(-error);
            Err(Error::because_of(format!("the BPF program with id {id}"), error))
        }
        // SAFETY: the descriptor has just been made for us.
        fd => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_bond_runs_its_program_for_its_slaves() {
        let sys_root = tempfile::tempdir().unwrap();
        let net = sys_root.path().join("class/net");
        for (upper, lower, is_master) in
            [("bond0", "eth0", true), ("bond0", "eth1", true), ("eth0.7", "eth0", false)]
        {
            for name in [upper, lower] {
                fs::create_dir_all(net.join(name)).unwrap();
            }
            symlink(net.join(lower), net.join(upper).join(format!("lower_{lower}"))).unwrap();
            if is_master {
                symlink(net.join(upper), net.join(lower).join("master")).unwrap();
            }
        }
        let of = |device: &str| {
            let mut devices = devices_of(sys_root.path(), device);
            devices[1..].sort();
            devices
        };
        assert_eq!(of("bond0"), ["bond0", "eth0", "eth1"]);
        assert_eq!(of("eth0.7"), ["eth0.7"]);
        assert_eq!(of("eth0"), ["eth0"]);
    }

    #[test]
    fn the_loopback_has_no_program() {
        let index = device_index("lo").unwrap();
        assert_eq!(program_at(index).unwrap(), None);
        assert_eq!(device_index("no-such-device"), None);
        assert_eq!(program_at(i32::MAX as u32).unwrap(), None, "a device that has gone");
        assert_eq!(device_index("a\0b"), None);
    }
}
