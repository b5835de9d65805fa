//! What /proc says about a process (proc_pid_status(5), Documentation/scheduler/sched-stats.rst).

use std::fmt::Display;
use std::fs::{self, DirEntry};
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};

/// Its threads.
pub fn threads(pid: impl Display) -> Result<Vec<libc::pid_t>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    let thread = |entry: io::Result<DirEntry>| {
        let name = entry?.file_name();
        name.to_str().and_then(|name| name.parse().ok()).context("not a thread id")
    };
    entries.map(thread).collect()
}

/// CPU time of its threads so far.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut ns = 0;
    for thread in threads(pid)? {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"))?;
        let ran: u64 = text.split(' ').next().unwrap_or_default().parse()?;
        ns += ran;
    }
    Ok(Duration::from_nanos(ns))
}

/// Its resident memory in KiB.
pub fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.context("no VmRSS")?.trim().trim_end_matches(" kB").parse()?)
}
