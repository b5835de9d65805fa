//! Pins the data plane's tasks to one CPU by affinity; others may run there, too.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::process;

/// Every thread of one process on one CPU, until dropped.
pub struct Pinning {
    one: CpuSet,
    /// The affinity of the threads before.
    all: CpuSet,
    threads: Vec<libc::pid_t>,
}

impl Pinning {
    pub fn of(process: Pid, cpu: usize) -> Result<Self> {
        let mut one = CpuSet::new();
        one.set(cpu)?;
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut pinning = Self { one, all, threads: Vec::new() };
        pinning.take_in(process)?;
        Ok(pinning)
    }

    /// Moves another process there; the previous one has ended.
    pub fn take_in(&mut self, process: Pid) -> Result<()> {
        self.threads.clear();
        for thread in process::threads(process)? {
            sched_setaffinity(Pid::from_raw(thread), &self.one)
                .with_context(|| format!("cannot pin {thread}"))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Makes `command` start there.
    pub fn from_start(&self, command: &mut Command) {
        let one = self.one;
        // SAFETY: it makes one system call, allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                sched_setaffinity(Pid::from_raw(0), &one).map_err(io::Error::from)
            });
        }
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        for &thread in &self.threads {
            if let Err(error) = sched_setaffinity(Pid::from_raw(thread), &self.all) {
                eprintln!("testbed: {thread} stays on its CPU: {error}");
            }
        }
    }
}
