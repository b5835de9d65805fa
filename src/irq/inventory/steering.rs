//! RPS and XPS: the CPUs that process a NIC's queues in software.
//!
//! Source: `Documentation/networking/scaling.rst`, `Documentation/ABI/testing/
//! sysfs-class-net-queues`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mask;
use super::queue::{Direction, Queue};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::kernel::sysfs::{class_dir, entries, failed, is_pci_address};

/// A kind of mask that queues have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steering {
    /// The CPUs that process the packets of a receive queue. If the mask is empty, the CPU that
    /// took the interrupt does.
    Rps,
    /// The CPUs that send through a transmit queue.
    Xps,
}

impl Steering {
    /// The file of queue `queue` of `nic`.
    pub fn path(self, sys_root: &Path, nic: &str, queue: u32) -> PathBuf {
        let (prefix, file) = self.names();
        sys_root.join("class/net").join(nic).join(format!("queues/{prefix}{queue}/{file}"))
    }

    /// The queues of `nic` that have this mask, ascending. For a NIC that is given by its PCI
    /// address, none are visible.
    ///
    /// Fails when there is no such NIC in this network namespace.
    pub fn queues(self, sys_root: &Path, nic: &str) -> Result<Vec<u32>> {
        if is_pci_address(nic) {
            return Ok(Vec::new());
        }
        let names = entries(&class_dir(sys_root, nic)?.join("queues"))?;
        let number = |name: &String| name.strip_prefix(self.names().0)?.parse().ok();
        let mut queues: Vec<u32> = names.iter().filter_map(number).collect();
        queues.sort_unstable();
        Ok(queues)
    }

    /// The mask of a queue. `None` where there is none: the queue does not exist (any more),
    /// the NIC has only one transmit queue, or the kernel has no RPS or XPS.
    pub fn read(self, sys_root: &Path, nic: &str, queue: u32) -> Result<Option<CpuList>> {
        let path = self.path(sys_root, nic, queue);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if says_none(&e) => return Ok(None),
            Err(e) => return Err(failed(&path, e)),
        };
        let no_mask = || Error::failure(format!("{}: not a mask of CPUs", path.display()));
        mask::parse(&text).map(Some).ok_or_else(no_mask)
    }

    /// True when `queue` has this kind of mask.
    pub fn steers(self, queue: &Queue) -> bool {
        match self {
            Self::Rps => queue.direction != Direction::Tx,
            Self::Xps => queue.direction != Direction::Rx,
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Rps => ("rx-", "rps_cpus"),
            Self::Xps => ("tx-", "xps_cpus"),
        }
    }
}

/// True for the errors of a queue that has no mask or has gone.
fn says_none(e: &std::io::Error) -> bool {
    match e.raw_os_error() {
        // The file was removed after it was opened (fs/kernfs/file.c).
        Some(libc::ENODEV) => true,
        // xps_cpus_show() (net/core/net-sysfs.c), for devices without such a mask.
        Some(libc::EOPNOTSUPP | libc::EINVAL) => true,
        _ => e.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn of_each_queue() {
        let tree = Tree::new();
        tree.on_top("eth0", &[]);
        for (file, text) in [
            ("rx-0/rps_cpus", "00000000,00000000"),
            ("rx-10/rps_cpus", "00000001,0000000c"),
            ("rx-2/rps_cpus", "x"),
            ("tx-0/xps_cpus", "f"),
        ] {
            tree.write(&format!("sys/class/net/eth0/queues/{file}"), &format!("{text}\n"));
        }
        let sys = tree.sys();
        assert_eq!(Steering::Rps.queues(&sys, "eth0").unwrap(), [0, 2, 10]);
        assert_eq!(Steering::Xps.queues(&sys, "eth0").unwrap(), [0]);
        let rps = |queue| {
            let mask = Steering::Rps.read(&sys, "eth0", queue);
            mask.map(|mask| mask.map(|cpus| cpus.to_string())).map_err(|e| e.what)
        };
        assert_eq!(rps(0), Ok(Some("".into())));
        assert_eq!(rps(10), Ok(Some("2-3,32".into())));
        assert_eq!(rps(1), Ok(None));
        assert!(rps(2).unwrap_err().ends_with("rx-2/rps_cpus: not a mask of CPUs"));
        let xps = Steering::Xps.read(&sys, "eth0", 0).unwrap().unwrap();
        assert_eq!(xps.to_string(), "0-3");
        assert!(Steering::Rps.queues(&sys, "eth1").is_err());
    }

    #[test]
    fn a_queue_that_goes_has_no_mask() {
        for (code, expected) in [
            (libc::ENOENT, true),
            (libc::ENODEV, true),
            (libc::EINVAL, true),
            (libc::EOPNOTSUPP, true),
            (libc::EACCES, false),
            (libc::EIO, false),
        ] {
            assert_eq!(says_none(&std::io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }
}
