//! What an administrator can give the data plane's tasks without another scheduler.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::process;

/// The priority of SCHED_FIFO tasks, in the range 1 to 99.
pub const FIFO_PRIORITY: i32 = 50;
/// The strongest nice value.
const NICE: i32 = -20;

/// How a task is favoured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boost {
    #[default]
    None,
    /// SCHED_FIFO (`chrt -f 50`), the baseline for every other row.
    Fifo,
    /// `nice -n -20`.
    Nice,
}

impl Boost {
    /// Gives the boost to a thread; 0 means the calling one.
    fn give(self, thread: libc::pid_t) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Fifo => set_policy(thread, libc::SCHED_FIFO, FIFO_PRIORITY),
            Self::Nice => set_nice(thread, NICE),
        }
    }

    fn take(self, thread: libc::pid_t) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Fifo => set_policy(thread, libc::SCHED_OTHER, 0),
            Self::Nice => set_nice(thread, 0),
        }
    }

    /// Makes `command` start with the boost.
    pub fn from_start(self, command: &mut Command) {
        // SAFETY: it makes one system call, allowed between fork and exec.
        unsafe {
            command.pre_exec(move || self.give(0));
        }
    }
}

/// Makes this process a SCHED_FIFO task whose children are normal ones.
pub fn only_this_process() -> io::Result<()> {
    set_policy(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 90)
}

/// Boosts every thread of a process until dropped.
pub struct Boosted(Boost, Vec<libc::pid_t>);

impl Boosted {
    pub fn threads_of(process: Pid, boost: Boost) -> Result<Self> {
        let mut threads = Self(boost, Vec::new());
        for thread in process::threads(process)? {
            boost.give(thread).with_context(|| format!("cannot give {thread} {boost:?}"))?;
            threads.1.push(thread);
        }
        Ok(threads)
    }

    /// Forgets the threads, once the process has ended.
    pub fn forget(&mut self) {
        self.1.clear();
    }
}

impl Drop for Boosted {
    fn drop(&mut self) {
        for &thread in &self.1 {
            if let Err(error) = self.0.take(thread) {
                eprintln!("testbed: {thread} keeps {:?}: {error}", self.0);
            }
        }
    }
}

fn set_policy(thread: libc::pid_t, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is valid for the call.
    result(unsafe { libc::sched_setscheduler(thread, policy, &parameters) })
}

fn set_nice(thread: libc::pid_t, nice: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    result(unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as u32, nice) })
}

fn result(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
