//! Reports when its main() began and when it first ran on one of the given CPUs. The VM suite
//! executes it to see how soon a rule is in force.
//!
//! usage: exec-probe FILE OFFSET FIRST_CPU LAST_CPU
//!
//! It writes four u64 to FILE at OFFSET: the two times (CLOCK_MONOTONIC, ns; 0 means not within a
//! second), the CPU where main() began, and for how long the host stalled in between (ns).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

/// A shorter time between two rounds of the loop is no stall, ns.
const LEAST: u64 = 10_000_000;

fn main() -> Result<()> {
    let (began, used) = (now(), cpu_used());
    let first_cpu = cpu();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, numbers @ ..] = &args[..] else { anyhow::bail!("usage: see the source") };
    let numbers: Vec<u64> = numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
    let &[offset, first, last] = &numbers[..] else { anyhow::bail!("usage: see the source") };
    let (mut there, mut time, mut gaps) = (0, began, 0);
    while there == 0 && time < began + 1_000_000_000 {
        let gap = now() - time;
        if gap >= LEAST {
            gaps += gap;
        }
        time += gap;
        if (first..=last).contains(&cpu()) {
            there = time;
        }
    }
    // Its CPU time advances while the host stalls, but not while another task runs.
    let stalled = (cpu_used() - used + gaps).saturating_sub(time - began).min(gaps);
    let times = [began, there, first_cpu, stalled].map(u64::to_ne_bytes).concat();
    let file = OpenOptions::new().write(true).open(file).context("the file")?;
    Ok(file.write_all_at(&times, offset)?)
}

fn cpu() -> u64 {
    // SAFETY: no pointers.
    unsafe { libc::sched_getcpu() as u64 }
}

fn now() -> u64 {
    clock(ClockId::CLOCK_MONOTONIC)
}

fn cpu_used() -> u64 {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id).expect("every kernel has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
