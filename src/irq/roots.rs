//! Where the kernel and gthctl keep what is known of interrupts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inventory::kind;
use crate::base::error::Result;
use crate::kernel::topology::Topology;

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
    /// Whoever has a clone of them sees it change.
    pub hurry: Hurry,
}

/// Whether the program is about to end: what is waited for then, it waits for only briefly.
#[derive(Clone, Debug, Default)]
pub struct Hurry(Arc<AtomicBool>);

impl Hurry {
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
            hurry: Hurry::default(),
        }
    }

    /// The machine's CPUs.
    pub fn topology(&self) -> Result<Topology> {
        Topology::read(&self.sys.join("devices/system/cpu"))
    }
}
