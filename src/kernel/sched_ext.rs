//! Whether the kernel has sched_ext, and which scheduler uses it.

use std::fs;
use std::path::Path;

use super::release;
use crate::base::error::{Error, ExitCode, Result};

/// Where the kernel shows sched_ext (Documentation/scheduler/sched-ext.rst).
pub const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// The oldest and the newest Linux that gthctl is built for.
pub const KERNELS: [(u32, u32); 2] = [(6, 12), (7, 3)];

/// What the kernel says about its sched_ext scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The kernel has no sched_ext.
    Missing,
    /// No scheduler is loaded.
    Disabled,
    /// A scheduler is loaded, or is being loaded or unloaded, as `state` says.
    InUse { state: String, name: String },
}

impl State {
    /// Reads the state; `root` is [`SCHED_EXT`] except in tests.
    pub fn read(root: &Path) -> Self {
        let Ok(state) = fs::read_to_string(root.join("state")) else { return Self::Missing };
        let state = state.trim().to_owned();
        if state == "disabled" {
            return Self::Disabled;
        }
        let name = fs::read_to_string(root.join("root/ops")).unwrap_or_default();
        let name = if name.trim().is_empty() { "unknown" } else { name.trim() }.to_owned();
        Self::InUse { state, name }
    }
}

/// Fails when the kernel has no sched_ext ([`ExitCode::NoSchedExt`]) or another scheduler
/// is using it ([`ExitCode::OtherScheduler`]); `root` is [`SCHED_EXT`] except in tests.
pub fn check_sched_ext(root: &Path) -> Result<()> {
    match State::read(root) {
        State::Missing => {
            let what = format!("this kernel ({}) has no sched_ext", release::running().trim());
            Err(Error::new(ExitCode::NoSchedExt, what)
                .help("gthctl needs Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y"))
        }
        State::Disabled => Ok(()),
        State::InUse { state, name } => {
            let what = format!("the sched_ext scheduler `{name}` is loaded ({state})");
            Err(Error::new(ExitCode::OtherScheduler, what).help("stop it first"))
        }
    }
}

/// How often CPUs have come and gone since boot. If that cannot be read, 0, which the kernel does
/// not compare.
pub fn hotplug_seq(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("hotplug_seq")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_why_sched_ext_cannot_be_had() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check_sched_ext(root.path()).unwrap_err().code, ExitCode::NoSchedExt);
        fs::write(root.path().join("state"), "disabled\n").unwrap();
        assert!(check_sched_ext(root.path()).is_ok());
        fs::write(root.path().join("state"), "enabled\n").unwrap();
        fs::create_dir(root.path().join("root")).unwrap();
        fs::write(root.path().join("root/ops"), "rustland_1.1\n").unwrap();
        let e = check_sched_ext(root.path()).unwrap_err();
        assert_eq!(e.code, ExitCode::OtherScheduler);
        assert!(e.what.contains("`rustland_1.1`"), "{e}");
    }
}
