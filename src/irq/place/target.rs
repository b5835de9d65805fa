//! One thing that CPUs are set for: an IRQ, or a queue's RPS or XPS mask.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::mask;
use crate::irq::inventory::steering::Steering;

/// What has a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Target {
    Irq { irq: u32 },
    Mask { mask: Steering, queue: u32 },
}

impl fmt::Display for Target {
    /// `IRQ 38`, `RPS of rx-0`, `XPS of tx-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irq { irq } => write!(f, "IRQ {irq}"),
            Self::Mask { mask: Steering::Rps, queue } => write!(f, "RPS of rx-{queue}"),
            Self::Mask { mask: Steering::Xps, queue } => write!(f, "XPS of tx-{queue}"),
        }
    }
}

impl Target {
    /// The IRQ, if it is one.
    pub fn irq(&self) -> Option<u32> {
        match self {
            Self::Irq { irq } => Some(*irq),
            Self::Mask { .. } => None,
        }
    }

    /// True when this of `nic` and `other` of `its` are one: an IRQ is, whichever NICs share it.
    pub fn is_same(&self, nic: &str, other: &Self, its: &str) -> bool {
        self == other && (self.irq().is_some() || nic == its)
    }

    /// The CPUs now; `None` when it is not there (any more).
    pub fn read(&self, host: &Host, nic: &str) -> Result<Option<Affinity>> {
        match self {
            Self::Irq { irq } => Affinity::read(&host.proc(), *irq),
            Self::Mask { mask, queue } => {
                let cpus = mask.read(&host.sys(), nic, *queue)?;
                Ok(cpus.map(|allowed| Affinity { allowed, effective: None }))
            }
        }
    }

    /// Sets the CPUs; the error says what the kernel's means.
    pub fn write(&self, host: &Host, nic: &str, cpus: &CpuList) -> Result<()> {
        let (path, text) = match self {
            Self::Irq { irq } => {
                (host.proc().join(format!("irq/{irq}/smp_affinity_list")), cpus.to_string())
            }
            Self::Mask { mask, queue } => (mask.path(&host.sys(), nic, *queue), mask::format(cpus)),
        };
        let open = OpenOptions::new().write(true).truncate(true).open(&path);
        open.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes())).map_err(|e| {
            let what = format!("{nic}: {self} to CPUs {}: ", shown(cpus));
            let failure = |why: &str| Error::failure(what.clone() + why);
            match (e.raw_os_error(), self.irq().is_some()) {
                (Some(libc::EACCES | libc::EPERM), _) => {
                    Error::new(ExitCode::Permission, what.clone() + "no right to write")
                        .help("run it as root, with sudo")
                }
                (Some(libc::EROFS), _) => failure(&format!("{} is read-only", path.display()))
                    .help("in a container, run it on the host"),
                // irq_affinity_proc_write(), kernel/irq/proc.c.
                (Some(libc::EIO), true) => failure(
                    "the kernel does not let it be moved: it manages this IRQ itself, or the \
                     interrupt controller cannot",
                ),
                (Some(libc::EINVAL), true) => failure("the kernel refuses: none of them is online"),
                // Each CPU of x86 has some 200 vectors.
                (Some(libc::ENOSPC), true) => {
                    failure("the kernel refuses: no interrupt vector is left there")
                }
                // netdev_rx_queue_set_rps_mask(), net/core/net-sysfs.c.
                (Some(libc::EINVAL), false) => {
                    failure("the kernel refuses: all of them are isolated from such work")
                }
                _ => failure(&format!("{}: {e}", path.display())),
            }
        })
    }
}

/// `0-3`, or `none`.
pub fn shown(cpus: &CpuList) -> String {
    if cpus.is_empty() { "none".into() } else { cpus.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn written_is_read_back() {
        let tree = Tree::new();
        tree.write("proc/irq/38/smp_affinity_list", "0-3\n");
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000\n");
        let host = tree.host();
        let cpus: CpuList = "2,33".parse().unwrap();
        for (target, name) in [
            (Target::Irq { irq: 38 }, "IRQ 38"),
            (Target::Mask { mask: Steering::Rps, queue: 0 }, "RPS of rx-0"),
        ] {
            target.write(&host, "eth0", &cpus).unwrap();
            assert_eq!(target.read(&host, "eth0").unwrap().unwrap().allowed, cpus);
            assert_eq!(target.to_string(), name);
        }
        let mask = fs::read_to_string(tree.path("sys/class/net/eth0/queues/rx-0/rps_cpus"));
        assert_eq!(mask.unwrap(), "2,00000004\n");
        let gone = Target::Mask { mask: Steering::Xps, queue: 7 };
        assert_eq!(gone.read(&host, "eth0").unwrap(), None);
        let what = gone.write(&host, "eth0", &cpus).unwrap_err().what;
        assert!(what.starts_with("eth0: XPS of tx-7 to CPUs 2,33: "), "{what}");
    }
}
