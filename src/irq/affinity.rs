//! The CPUs that an IRQ may go to.
//!
//! Source: `/proc/irq/N` (`Documentation/core-api/irq/irq-affinity.rst`).

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::cpulist::CpuList;
use crate::error::{Error, Result};

/// Where an IRQ may and does go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// What was asked for (`smp_affinity_list`); CPUs that are offline may be among them.
    pub allowed: CpuList,
    /// Those of them that the interrupt controller sends it to
    /// (`effective_affinity_list`): one, on x86. `None` where the kernel doesn't say;
    /// empty for an IRQ that was never started.
    pub effective: Option<CpuList>,
}

impl Affinity {
    /// Reads the affinity of `irq` from `proc_root` (/proc but in tests); `None` when
    /// there is no such IRQ (any more).
    ///
    /// Fails when a file cannot be read or has something else than CPUs below
    /// [`CpuList::MAX`].
    pub fn read(proc_root: &Path, irq: u32) -> Result<Option<Self>> {
        let dir = proc_root.join("irq").join(irq.to_string());
        let Some(allowed) = read_list(&dir.join("smp_affinity_list"))? else { return Ok(None) };
        let effective = read_list(&dir.join("effective_affinity_list"))?;
        Ok(Some(Self { allowed, effective }))
    }
}

/// The list in the file at `path`; `None` when there is no such file.
fn read_list(path: &Path) -> Result<Option<CpuList>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        // What proc says of a file that was open when it was removed.
        Err(e) if e.raw_os_error() == Some(libc::EIO) => return Ok(None),
        Err(e) => return Err(Error::failure(format!("{}: {e}", path.display()))),
    };
    let text = text.trim_end();
    if text.is_empty() {
        return Ok(Some(CpuList::default()));
    }
    let list = text.parse();
    list.map(Some).map_err(|e| Error::failure(format!("{}: not a CPU list: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn allowed_and_effective() {
        let tree = Tree::new();
        tree.write("proc/irq/38/smp_affinity_list", "0-3,8-11\n");
        tree.write("proc/irq/38/effective_affinity_list", "9\n");
        tree.write("proc/irq/39/smp_affinity_list", "0-127\n");
        tree.write("proc/irq/40/smp_affinity_list", "0\n");
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
    fn an_irq_that_is_gone_is_no_error_but_nonsense_is() {
        let tree = Tree::new();
        assert_eq!(Affinity::read(&tree.proc(), 38).unwrap(), None);
        tree.write("proc/irq/38/smp_affinity_list", "0,x\n");
        let what = Affinity::read(&tree.proc(), 38).unwrap_err().what;
        assert!(what.contains("38/smp_affinity_list: not a CPU list: \"x\""), "{what}");
    }
}
