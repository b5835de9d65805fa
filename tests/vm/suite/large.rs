//! A machine with 64 CPUs: two sockets, eight last-level caches, two threads a core. On the host's
//! few CPUs it is slow, so this only looks for what stalls or does not scale.

use std::fs;
use std::time::Duration;

use crate::support::gthctl::Gthctl;
use crate::support::kernel;
use crate::support::task::{self, Task};
use crate::support::vm::Vm;

pub const VM: Vm =
    Vm { name: "large", smp: "64,sockets=2,dies=4,cores=4,threads=2", parameters: "", alone: true };

/// For what needs an emulated CPU that gets a thirtieth of the host's.
const PATIENCE: Duration = Duration::from_secs(120);
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
fn load_priorities_exclusive_cpus_reloads_and_hotplug() {
    let mut gthctl = Gthctl::start(&policy(1));
    online(&mut gthctl, 63, false);
    online(&mut gthctl, 63, true);

    let load = task::spinners(80, "load");
    let alone = OWN.map(|_| Task::fork("alone", task::spin));
    let upf: Vec<Task> = (0..8).map(|_| Task::fork("upf", task::wake_often(20_000_000))).collect();
    let settled = || {
        let at = |task: &Task| kernel::cpu_of(task.pid).is_some_and(|cpu| OWN.contains(&cpu));
        alone.iter().all(at) && !load.iter().any(at)
    };
    for priority in 2..8 {
        gthctl.replace(&policy(priority));
        assert!(kernel::wait(PATIENCE, settled), "generation {priority}");
    }
    let woken = || upf.iter().map(|task| task.shared().noted()).min();
    let before = (woken().unwrap(), task::times(&load, Duration::from_secs(20)));
    assert!(kernel::wait(PATIENCE, || woken().unwrap() > before.0 + 50), "{:?}", woken());

    let idle = before.1.iter().filter(|seconds| **seconds == 0.0).count();
    let gap = load.iter().map(|task| task.shared().gap()).max().unwrap();
    println!("{idle} of {} spinners had no turn in 20 s, the longest wait {gap:?}", load.len());
    assert_eq!(idle, 0);
    let (wakeups, looks) =
        (gthctl.counters().get("COUNT_PRIO_WAKEUPS"), gthctl.counters().get("COUNT_LOOKS"));
    println!("{wakeups} priority wake-ups looked at {looks} CPUs");
    assert!(wakeups > 400 && looks < 8 * wakeups, "{looks} CPUs in {wakeups} wake-ups");
    assert!(!gthctl.has_ended() && kernel::state() == "enabled", "{}", gthctl.stderr());
    gthctl.stop();
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
