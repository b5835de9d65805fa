//! Priority tasks that may run on only one CPU, where a task of the same rank runs that can move.

use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::support::kernel;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task, part};
use crate::support::vm::{self, Vm};

/// The tasks wait for less time than a slow host takes to switch.
pub const VM: Vm = vm::VIRTUAL;

/// How long the task that can move runs between two sleeps, ns of CPU time: less than its burst.
const TURN: u64 = 15_000_000;

/// A scheduler whose slices are longer than [`TURN`], with load on all CPUs.
fn start() -> (Lease, Vec<Task>) {
    let gthctl = shared::with_slices(
        "scheduler: {slice_ns_default: 20ms, slice_ns_min: 20ms}",
        "strategies: [{command_regex: ^prio$, priority: true}]",
    );
    (gthctl, task::spinners(kernel::cpus() * 2, "load"))
}

/// A task that may run on all CPUs. Records how long it did not run during each turn.
fn mover() -> Task {
    Task::fork("prio", |shared| {
        loop {
            let begin = task::now();
            task::use_cpu(TURN);
            shared.add_latency((task::now() - begin).saturating_sub(TURN));
            task::sleep_until(task::now() + 500_000);
        }
    })
}

/// Neither waits for the other: the task that can move goes to a CPU that runs something weaker.
fn check(late: Duration, mover: &Task) {
    let put_off = part(&mover.samples(60), 0.9);
    println!("p90: {late:?} late; the other one {put_off:?} of its turn off the CPUs");
    assert!(late < Duration::from_micros(500), "{late:?}");
    // On 6.12, the kick for the mover may come before the mover: then a tick ends the turn on that CPU.
    let old = kernel::read("/proc/sys/kernel/osrelease").starts_with("6.12.");
    assert!(put_off < Duration::from_millis(if old { 5 } else { 1 }), "{put_off:?}");
}

#[test]
fn one_that_wakes_up() {
    let (gthctl, _load) = start();
    let mover = mover();
    let pinned: Vec<Task> = (0..kernel::cpus())
        .map(|cpu| Task::fork_on("prio", Some(&[cpu]), task::wake_often(7_000_000)))
        .collect();
    let late = pinned.iter().map(|task| part(&task.samples(100), 0.9)).max();
    check(late.unwrap(), &mover);
    gthctl.stop();
}

/// The kernel's stopper moves the task while it runs, so it is not woken up.
#[test]
fn one_that_moves_to_that_cpu() {
    let (gthctl, _load) = start();
    let mover = mover();
    let pinned = Task::fork("prio", |shared| {
        for cpu in (0..kernel::cpus()).cycle() {
            let mut cpus = CpuSet::new();
            cpus.set(cpu).unwrap();
            let begin = task::now();
            sched_setaffinity(Pid::this(), &cpus).unwrap();
            shared.add_latency(task::now() - begin);
            task::sleep_until(task::now() + 7_000_000);
        }
    });
    check(part(&pinned.samples(100), 0.9), &mover);
    gthctl.stop();
}
