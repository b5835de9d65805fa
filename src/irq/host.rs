//! Where the kernel, irqbalance and gthctl keep their files about interrupts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inventory::kind;
use crate::base::error::Result;
use crate::base::root::Root;
use crate::kernel::topology::Topology;

/// The machine whose interrupts gthctl looks at and moves.
#[derive(Clone, Debug)]
pub struct Host {
    pub root: Root,
    /// Returns the kind of a network device, for one whose kind sysfs does not show.
    pub kind_of: fn(&str) -> Option<String>,
    /// Shared by all clones.
    pub hurry: Hurry,
}

/// Whether the program is about to exit. It then waits only briefly for other processes.
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

impl Host {
    /// This machine.
    pub fn this() -> Self {
        Self { root: Root::default(), kind_of: kind::driver, hurry: Hurry::default() }
    }

    /// proc(5).
    pub fn proc(&self) -> PathBuf {
        self.root.proc()
    }

    /// sysfs(5), with debugfs in `kernel/debug`.
    pub fn sys(&self) -> PathBuf {
        self.root.sys()
    }

    /// Where gthctl saves the settings from before its changes. Only root can read it.
    pub fn state(&self) -> PathBuf {
        self.root.path("/run/gthctl/irq")
    }

    /// Where running programs have their sockets.
    pub fn run(&self) -> PathBuf {
        self.root.path("/run")
    }

    /// The machine's CPUs.
    pub fn topology(&self) -> Result<Topology> {
        Topology::read(&self.sys().join("devices/system/cpu"))
    }
}
