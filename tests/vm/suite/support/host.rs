//! Stalls of the host, as the VM sees them. Tests subtract them from the times that they measure.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::kernel;
use crate::support::task::{self, Shared, Task};

const PERIOD: u64 = 10_000_000;
/// A shorter delay is not a stall, ns.
const LEAST: u64 = 10_000_000;

/// Real-time tasks that wake up often. No task that gthctl schedules keeps them waiting, so the host
/// causes their delays.
pub struct Watch(Vec<Task>);

impl Watch {
    /// One on each of these CPUs.
    pub fn on(cpus: &[usize]) -> Self {
        let watch = |&cpu: &usize| {
            Task::fork_on("host-watch", Some(&[cpu]), |shared| {
                task::become_realtime();
                loop {
                    let at = task::now() + PERIOD;
                    task::sleep_until(at);
                    let late = task::now().saturating_sub(at);
                    shared.longest_gap.fetch_max(late, Ordering::Relaxed);
                }
            })
        };
        Self(cpus.iter().map(watch).collect())
    }

    pub fn on_all() -> Self {
        Self::on(&(0..kernel::cpus()).collect::<Vec<_>>())
    }

    /// The longest stall since the last call; zero if it was shorter than [`LEAST`].
    pub fn stall(&self) -> Duration {
        let period = Duration::from_nanos(2 * PERIOD);
        // By then every task that woke up late has recorded it.
        std::thread::sleep(period);
        let take = |task: &Task| task.shared().longest_gap.swap(0, Ordering::Relaxed);
        let longest = self.0.iter().map(take).max().unwrap();
        Duration::from_nanos(if longest < LEAST { 0 } else { longest })
    }
}

/// Detects stalls in a busy task that calls [`Stalls::look`] again and again.
pub struct Stalls {
    last: u64,
    used: u64,
}

impl Stalls {
    pub fn new() -> Self {
        Self { last: task::now(), used: task::cpu_used() }
    }

    /// Records in `longest_gap` how long the caller had its CPU but did not run.
    pub fn look(&mut self, shared: &Shared) {
        let now = Self::new();
        let stall = (now.last - self.last).min(now.used - self.used);
        if stall >= LEAST {
            shared.longest_gap.fetch_max(stall, Ordering::Relaxed);
        }
        *self = now;
    }
}

/// Like [`kernel::run_kworkers`], minus the stall. CPU 0 measures it, as the others may be under test.
pub fn run_kworkers() -> Duration {
    let watch = Watch::on(&[0]);
    let took = kernel::run_kworkers();
    took.saturating_sub(watch.stall())
}
