//! The targets that CPUs are set for: an IRQ of a NIC, or the RPS or XPS mask of one of its queues.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::mask;
use crate::irq::inventory::nic::{Nic, NicIrq};
use crate::irq::inventory::steering::Steering;

/// A part of a NIC that has a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub nic: String,
    /// The IRQ's name in /proc/interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub part: Part,
}

/// An IRQ or a mask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Part {
    Irq { irq: u32 },
    Mask { mask: Steering, queue: u32 },
}

impl fmt::Display for Part {
    /// `IRQ 38`, `RPS of rx-0`, `XPS of tx-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irq { irq } => write!(f, "IRQ {irq}"),
            Self::Mask { mask: Steering::Rps, queue } => write!(f, "RPS of rx-{queue}"),
            Self::Mask { mask: Steering::Xps, queue } => write!(f, "XPS of tx-{queue}"),
        }
    }
}

impl fmt::Display for Target {
    /// `eth0: IRQ 38`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.nic, self.part)
    }
}

impl Target {
    pub fn of_irq(nic: &Nic, irq: &NicIrq) -> Self {
        let part = Part::Irq { irq: irq.irq };
        Self { nic: nic.name.clone(), name: irq.name.clone(), part }
    }

    pub fn of_mask(nic: &Nic, mask: Steering, queue: u32) -> Self {
        Self { nic: nic.name.clone(), name: None, part: Part::Mask { mask, queue } }
    }

    /// The IRQ's number; `None` for a mask.
    pub fn irq(&self) -> Option<u32> {
        match self.part {
            Part::Irq { irq } => Some(irq),
            Part::Mask { .. } => None,
        }
    }

    /// True when both are the same target. An IRQ is the same target for all NICs that share it.
    pub fn is_same(&self, other: &Self) -> bool {
        self.part == other.part && (self.irq().is_some() || self.nic == other.nic)
    }

    /// The CPUs now; `None` when the IRQ or queue is not there (any more).
    pub fn read(&self, host: &Host) -> Result<Option<Affinity>> {
        match self.part {
            Part::Irq { irq } => Affinity::read(&host.proc(), irq),
            Part::Mask { mask, queue } => {
                let cpus = mask.read(&host.sys(), &self.nic, queue)?;
                Ok(cpus.map(|allowed| Affinity { allowed, effective: None }))
            }
        }
    }

    /// True when the allowed CPUs are exactly `cpus`.
    pub fn is_on(&self, host: &Host, cpus: &CpuList) -> Result<bool> {
        Ok(self.read(host)?.is_some_and(|now| now.allowed == *cpus))
    }

    /// What the kernel keeps of `cpus`: for a mask, only the CPUs that are online
    /// (netdev_rx_queue_set_rps_mask(), net/core/net-sysfs.c).
    pub fn keeps(&self, host: &Host, cpus: &CpuList) -> Result<CpuList> {
        if self.irq().is_some() {
            return Ok(cpus.clone());
        }
        Ok(cpus.common(&host.topology()?.online))
    }

    /// Sets the CPUs. The error explains what the kernel's error means.
    pub fn write(&self, host: &Host, cpus: &CpuList) -> Result<()> {
        self.try_write(host, cpus).map_err(|e| self.refusal(host, cpus, &e))
    }

    /// As [`Target::write`]. Returns false for an IRQ that the kernel refuses to move.
    pub fn write_if_movable(&self, host: &Host, cpus: &CpuList) -> Result<bool> {
        match self.try_write(host, cpus) {
            Ok(()) => Ok(true),
            // One that has gone meanwhile gives EIO, too.
            Err(e) if self.irq().is_some() && is_fixed(&e) && self.path(host).exists() => Ok(false),
            Err(e) => Err(self.refusal(host, cpus, &e)),
        }
    }

    fn try_write(&self, host: &Host, cpus: &CpuList) -> io::Result<()> {
        let text = match self.part {
            Part::Irq { .. } => cpus.to_string(),
            Part::Mask { .. } => mask::format(cpus),
        };
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(host))?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// The file with the CPUs.
    fn path(&self, host: &Host) -> PathBuf {
        match self.part {
            Part::Irq { irq } => host.proc().join(format!("irq/{irq}/smp_affinity_list")),
            Part::Mask { mask, queue } => mask.path(&host.sys(), &self.nic, queue),
        }
    }

    /// What the kernel's error for these CPUs means.
    fn refusal(&self, host: &Host, cpus: &CpuList, e: &io::Error) -> Error {
        let e = self.reason(&self.path(host), e);
        Error { what: format!("{self} to CPUs {}: {}", shown(cpus), e.what), ..e }
    }

    fn reason(&self, path: &Path, e: &io::Error) -> Error {
        match (e.raw_os_error(), self.irq().is_some()) {
            (_, true) if is_fixed(e) => Error::failure(
                "the kernel does not let it move: the kernel manages this IRQ itself, or the \
                 interrupt controller cannot move it",
            ),
            (Some(libc::EACCES | libc::EPERM), _) => {
                Error::new(ExitCode::Permission, "no right to write")
                    .help("run it as root, with sudo")
            }
            (Some(libc::EROFS), _) => Error::failure(format!("{} is read-only", path.display()))
                .help("in a container, run it on the host"),
            (Some(libc::EINVAL), true) => {
                Error::failure("the kernel refuses: none of these CPUs is online")
            }
            // An x86 CPU has about 200 vectors.
            (Some(libc::ENOSPC), true) => {
                Error::failure("the kernel refuses: these CPUs have no interrupt vector left")
            }
            // netdev_rx_queue_set_rps_mask(), net/core/net-sysfs.c.
            (Some(libc::EINVAL), false) => {
                Error::failure("the kernel refuses: all of these CPUs are isolated from such work")
            }
            _ => Error::failure(format!("{}: {e}", path.display())),
        }
    }
}

/// Whether an IRQ's file gives this error because the kernel refuses to move the IRQ:
/// write_irq_affinity(), kernel/irq/proc.c. Older kernels, such as 6.6, give EIO.
fn is_fixed(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPERM | libc::EIO))
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
        tree.allow(38, "0-3");
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000\n");
        let host = tree.host();
        let cpus: CpuList = "2,33".parse().unwrap();
        let target = |part| Target { nic: "eth0".into(), name: None, part };
        for (part, name) in [
            (Part::Irq { irq: 38 }, "eth0: IRQ 38"),
            (Part::Mask { mask: Steering::Rps, queue: 0 }, "eth0: RPS of rx-0"),
        ] {
            let target = target(part);
            target.write(&host, &cpus).unwrap();
            assert!(target.is_on(&host, &cpus).unwrap());
            assert_eq!(target.to_string(), name);
        }
        let mask = fs::read_to_string(tree.path("sys/class/net/eth0/queues/rx-0/rps_cpus"));
        assert_eq!(mask.unwrap(), "2,00000004\n");
        let gone = target(Part::Mask { mask: Steering::Xps, queue: 7 });
        assert_eq!(gone.read(&host).unwrap(), None);
        let what = gone.write(&host, &cpus).unwrap_err().what;
        assert!(what.starts_with("eth0: XPS of tx-7 to CPUs 2,33: "), "{what}");
    }
}
