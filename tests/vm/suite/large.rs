//! A machine with 64 CPUs: two sockets, eight last-level caches, two threads a core. The load's tasks
//! halt their CPUs (tests/vm/modules/halt.c), so that a host with few CPUs can emulate it. The tests
//! look for what stalls there, or does not scale.

use std::fs;
use std::time::Duration;

use crate::support::gthctl::Gthctl;
use crate::support::halt;
use crate::support::kernel;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::LARGE;

/// How long things may take that need many of the emulated CPUs.
const PATIENCE: Duration = Duration::from_secs(60);
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// One core's two threads.
const OWN: [usize; 2] = [4, 5];

fn policy(priority: u32) -> String {
    format!(
        "strategies:
- {{name: alone, command_regex: ^alone$, priority: {priority}, cpus: 4-5, exclusive: true}}
- {{name: upf, command_regex: ^upf$, priority: {priority}}}"
    )
}

#[test]
#[ignore = "64 emulated CPUs take minutes"]
fn normal_tasks_share_the_cpus_that_others_leave() {
    let Some(load) = load() else { return };
    let gthctl = Gthctl::start(&policy(1));
    let alone = OWN.map(|_| Task::spinner("alone"));
    let waking = waking();
    for priority in 2..8 {
        gthctl.replace(&policy(priority));
        let settled = || alone.iter().all(is_on_own) && !load.iter().any(is_on_own);
        assert!(kernel::wait(PATIENCE, settled), "generation {priority}");
    }

    let times = task::times(&load, TEN_SECONDS);
    let (least, most) = extremes(&times);
    println!("80 tasks on 62 CPUs got {least:.2} to {most:.2} s each of 10 s");
    assert!(least > 0.9 * most, "{times:?}");
    let (least, _) = extremes(&task::times(&alone, TEN_SECONDS));
    assert!(least > 9.0, "a task with a CPU of its own got {least} s of 10 s");
    are_woken(&waking);
    few_are_scanned(&gthctl);
    gthctl.stop();
}

#[test]
#[ignore = "64 emulated CPUs take minutes"]
fn more_priority_tasks_than_cpus_starve_nobody() {
    let Some(load) = load() else { return };
    let mut gthctl = Gthctl::start(&policy(1));
    let spinning = task::spinners(80, "upf");
    let waking = waking();
    for on in [false, true] {
        online(&mut gthctl, 63, on);
    }

    let (least, most) = extremes(&task::times(&load, TEN_SECONDS));
    println!("80 tasks beside 80 with priority got {least:.2} to {most:.2} s each of 10 s");
    assert!(least > 0.0);
    are_woken(&waking);
    few_are_scanned(&gthctl);
    drop(spinning);
    gthctl.stop();
}

/// More normal tasks than CPUs; `None` where the module could not be built.
fn load() -> Option<Vec<Task>> {
    halt::is_there().then(|| task::spinners(80, "load"))
}

/// Priority tasks that sleep most of the time.
fn waking() -> Vec<Task> {
    (0..8).map(|_| Task::fork("upf", task::wake_often(20_000_000))).collect()
}

fn is_on_own(task: &Task) -> bool {
    kernel::cpu_of(task.pid).is_some_and(|cpu| OWN.contains(&cpu))
}

/// The least and the greatest.
fn extremes(times: &[f64]) -> (f64, f64) {
    times.iter().fold((f64::MAX, 0.0), |(least, most), time| (least.min(*time), most.max(*time)))
}

/// Waits for a hundred wake-ups of each task.
fn are_woken(tasks: &[Task]) {
    let mut late: Vec<u64> = tasks.iter().flat_map(|task| task.samples(100)).collect();
    late.sort_unstable();
    println!("late by {:?}, at most {:?}", task::part(&late, 0.5), task::part(&late, 1.0));
}

/// Priority wake-ups look at few CPUs, however many there are.
#[track_caller]
fn few_are_scanned(gthctl: &Gthctl) {
    let counters = gthctl.counters();
    let (wakeups, looks) = (counters.get("COUNT_PRIO_WAKEUPS"), counters.get("COUNT_LOOKS"));
    println!("{wakeups} priority wake-ups looked at {looks} CPUs");
    assert!(wakeups > 400 && looks <= 32 * wakeups, "{looks} CPUs in {wakeups} wake-ups");
}

/// Takes the CPU away or gives it back, and waits until gthctl schedules again.
#[track_caller]
fn online(gthctl: &mut Gthctl, cpu: usize, on: bool) {
    let loaded = gthctl.has_said("loading again");
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(file, if on { "1" } else { "0" }).unwrap();
    let again = || gthctl.has_said("loading again") > loaded && kernel::state() == "enabled";
    assert!(kernel::wait(PATIENCE, again), "{}", gthctl.stderr());
    assert!(!gthctl.has_ended(), "{}", gthctl.stderr());
}
