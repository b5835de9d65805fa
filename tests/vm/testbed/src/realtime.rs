//! SCHED_FIFO, the floor every other row is compared with.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::Pid;

const PRIORITY: i32 = 50;

/// Makes `command` start as a SCHED_FIFO task.
pub fn from_start(command: &mut Command) {
    // SAFETY: sched_setscheduler is one system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| set(0, libc::SCHED_FIFO, PRIORITY));
    }
}

/// Every thread of a process as SCHED_FIFO; back to normal when dropped.
pub struct Realtime(Vec<libc::pid_t>);

impl Realtime {
    pub fn threads_of(process: Pid) -> Result<Self> {
        let mut threads = Self(Vec::new());
        for entry in fs::read_dir(format!("/proc/{process}/task"))? {
            let name = entry?.file_name();
            let thread = name.to_str().and_then(|n| n.parse().ok()).context("not a thread id")?;
            set(thread, libc::SCHED_FIFO, PRIORITY)
                .with_context(|| format!("cannot make {thread} a SCHED_FIFO task"))?;
            threads.0.push(thread);
        }
        Ok(threads)
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        for &thread in &self.0 {
            if let Err(error) = set(thread, libc::SCHED_OTHER, 0) {
                eprintln!("testbed: {thread} stays SCHED_FIFO: {error}");
            }
        }
    }
}

fn set(thread: libc::pid_t, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is valid for the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
