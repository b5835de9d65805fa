//! A CPU of the data plane's own: a cpuset partition (cgroup v2), as an administrator sets one up
//! without another scheduler.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;

const ROOT: &str = "/sys/fs/cgroup";
const GROUP: &str = "/sys/fs/cgroup/data-plane";

/// A CPU for one cgroup only, until dropped.
pub struct Isolation;

impl Isolation {
    /// Makes the cgroup (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition)
    /// and moves a process there.
    pub fn of(process: Pid, cpu: usize) -> Result<Self> {
        write(&format!("{ROOT}/cgroup.subtree_control"), "+cpuset")?;
        fs::create_dir_all(GROUP)?;
        let isolation = Self;
        write(&format!("{GROUP}/cpuset.cpus"), &cpu.to_string())?;
        write(&format!("{GROUP}/cpuset.cpus.partition"), "isolated")?;
        let state = fs::read_to_string(format!("{GROUP}/cpuset.cpus.partition"))?;
        ensure!(state.trim() == "isolated", "the partition is {}", state.trim());
        isolation.take_in(process)?;
        Ok(isolation)
    }

    /// Moves one more process there.
    pub fn take_in(&self, process: Pid) -> Result<()> {
        write(&procs(), &process.to_string())
    }

    /// Makes `command` start there.
    pub fn from_start(&self, command: &mut Command) {
        // SAFETY: it opens and writes a file, which a process of one thread may do between fork and
        // exec.
        unsafe {
            command.pre_exec(|| fs::write(procs(), "0"));
        }
    }
}

impl Drop for Isolation {
    fn drop(&mut self) {
        let members = fs::read_to_string(procs()).unwrap_or_default();
        for pid in members.lines() {
            let _ = fs::write(format!("{ROOT}/cgroup.procs"), pid);
        }
        let _ = fs::write(format!("{GROUP}/cpuset.cpus.partition"), "member");
        if let Err(error) = fs::remove_dir(GROUP) {
            eprintln!("testbed: {GROUP}: {error}");
        }
    }
}

fn procs() -> String {
    format!("{GROUP}/cgroup.procs")
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {path}"))
}
