//! The CPUs of an IRQ.
//!
//! Source: `/proc/irq/N` (`Documentation/core-api/irq/irq-affinity.rst`).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::kernel::sysfs::{entries, failed};

/// The CPUs of an IRQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The CPUs that it may go to (`smp_affinity_list`). Some may be offline.
    pub allowed: CpuList,
    /// The CPUs that the interrupt controller sends it to (`effective_affinity_list`): one of the
    /// allowed, on x86. `None` if the kernel does not report it. Empty for an IRQ that was never
    /// started.
    pub effective: Option<CpuList>,
}

impl Affinity {
    /// Reads the affinity of `irq` from `proc_root` (/proc except in tests); `None` when there
    /// is no such IRQ (any more).
    ///
    /// Fails when a file cannot be read or is not a list of CPUs below [`CpuList::MAX`].
    pub fn read(proc_root: &Path, irq: u32) -> Result<Option<Self>> {
        let dir = proc_root.join("irq").join(irq.to_string());
        let Some(allowed) = read_list(&dir.join("smp_affinity_list"))? else { return Ok(None) };
        let effective = read_list(&dir.join("effective_affinity_list"))?;
        Ok(Some(Self { allowed, effective }))
    }
}

/// Tells which IRQs only the kernel can move: "managed" ones, whose CPUs a driver leaves to the
/// kernel, and those that the interrupt controller cannot move.
#[derive(Debug)]
pub struct Fixed<'a> {
    host: &'a Host,
    /// Whether the files' modes show it. Newer kernels, such as 7.2, make the file of such an IRQ
    /// read-only (kernel/irq/proc.c, `register_irq_proc()`).
    by_mode: bool,
}

impl<'a> Fixed<'a> {
    /// Finds out whether this kernel shows it in the files' modes.
    pub fn new(host: &'a Host) -> Self {
        let fixed = Self { host, by_mode: false };
        // One read-only file is enough, such as that of IRQ 0, the x86 timer.
        let irqs = entries(&host.proc().join("irq")).unwrap_or_default();
        let irqs = irqs.iter().filter_map(|name| name.parse().ok());
        let by_mode = irqs.into_iter().any(|irq| fixed.read_only(irq) == Some(true));
        Self { by_mode, ..fixed }
    }

    /// True for an IRQ that only the kernel can move; `None` if only an attempt to move it can show
    /// that.
    pub fn is(&self, irq: u32) -> Option<bool> {
        let read_only = self.read_only(irq);
        if read_only == Some(true) {
            return read_only;
        }
        // With CONFIG_GENERIC_IRQ_DEBUGFS (kernel/irq/debugfs.c).
        let debug = self.host.sys().join(format!("kernel/debug/irq/irqs/{irq}"));
        if let Ok(text) = fs::read_to_string(debug) {
            return Some(text.contains("IRQD_AFFINITY_MANAGED"));
        }
        read_only.filter(|_| self.by_mode)
    }

    fn read_only(&self, irq: u32) -> Option<bool> {
        let path = self.host.proc().join(format!("irq/{irq}/smp_affinity_list"));
        Some(fs::metadata(path).ok()?.permissions().mode() & 0o222 == 0)
    }
}

/// The list in the file at `path`; `None` when there is no such file.
fn read_list(path: &Path) -> Result<Option<CpuList>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        // The file was removed after it was opened.
        Err(e) if e.raw_os_error() == Some(libc::EIO) => return Ok(None),
        Err(e) => return Err(failed(path, e)),
    };
    let text = text.trim_end();
    if text.is_empty() {
        return Ok(Some(CpuList::default()));
    }
    let no_list = |e| Error::because_of(format_args!("{}: not a CPU list", path.display()), e);
    text.parse().map(Some).map_err(no_list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn allowed_and_effective() {
        let tree = Tree::new();
        tree.allow(38, "0-3,8-11");
        tree.write("proc/irq/38/effective_affinity_list", "9\n");
        tree.allow(39, "0-127");
        tree.allow(40, "0");
        tree.write("proc/irq/40/effective_affinity_list", "\n");
        let read = |irq| {
            let affinity = Affinity::read(&tree.proc(), irq).unwrap()?;
            Some((affinity.allowed.to_string(), affinity.effective.map(|cpus| cpus.to_string())))
        };
        assert_eq!(read(38), Some(("0-3,8-11".into(), Some("9".into()))));
        assert_eq!(read(39), Some(("0-127".into(), None)));
        assert_eq!(read(40), Some(("0".into(), Some(String::new()))));
    }

    #[test]
    fn what_only_the_kernel_moves() {
        let tree = Tree::new();
        for irq in [0, 38, 39] {
            tree.allow(irq, "0-3");
        }
        tree.write("proc/irq/default_smp_affinity", "f\n");
        tree.write("sys/kernel/debug/irq/irqs/39", "affinity: 0-3\n IRQD_AFFINITY_MANAGED\n");
        let host = tree.host();
        assert_eq!([38, 39, 40].map(|irq| Fixed::new(&host).is(irq)), [None, Some(true), None]);
        let timer = tree.path("proc/irq/0/smp_affinity_list");
        fs::set_permissions(timer, fs::Permissions::from_mode(0o444)).unwrap();
        // Debugfs shows one reason, the mode covers all.
        tree.write("sys/kernel/debug/irq/irqs/0", "affinity: 0-3\n IRQD_NO_BALANCING\n");
        let fixed = [0, 38, 39].map(|irq| Fixed::new(&host).is(irq));
        assert_eq!(fixed, [Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn an_irq_that_is_gone_is_no_error_but_nonsense_is() {
        let tree = Tree::new();
        assert_eq!(Affinity::read(&tree.proc(), 38).unwrap(), None);
        tree.allow(38, "0,x");
        let what = Affinity::read(&tree.proc(), 38).unwrap_err().what;
        assert!(what.contains("38/smp_affinity_list: not a CPU list: \"x\""), "{what}");
    }
}
