//! Where the kernel and gthctl keep what is known of interrupts.

use std::path::PathBuf;

use super::kind;
use crate::error::Result;
use crate::topology::Topology;

/// The directories that everything here is read from and written to.
#[derive(Clone, Debug)]
pub struct Roots {
    /// proc(5).
    pub proc: PathBuf,
    /// sysfs(5), with debugfs in `kernel/debug`.
    pub sys: PathBuf,
    /// What was there before gthctl changed it; root's alone.
    pub state: PathBuf,
    /// The configuration of other programs.
    pub etc: PathBuf,
    /// What running programs leave for others.
    pub run: PathBuf,
    /// Tells the kind of a network device of which sysfs has none.
    pub kind_of: fn(&str) -> Option<String>,
}

impl Roots {
    /// Those of this machine.
    pub fn of_this_machine() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            state: "/run/gthctl/irq".into(),
            etc: "/etc".into(),
            run: "/run".into(),
            kind_of: kind::driver,
        }
    }

    /// The machine's CPUs.
    pub fn topology(&self) -> Result<Topology> {
        Topology::read(&self.sys.join("devices/system/cpu"))
    }
}
