//! What can happen to a scheduler: hotplug, storms of tasks.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::allocated::{Node, becomes};
use crate::support::kernel;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

pub const STORMY: &str = "strategies:
- {command_regex: ^hot, cpus: 1, exclusive: true}
- {command_regex: ^stress-ng-fork, priority: 3}
- {command_regex: ^stress-ng-switch, priority: 1, execution_time: 1ms}
- {command_regex: ^stress-ng-affin, cpus: 0-2}";

/// Runs stress-ng for `seconds` with everything that moves tasks about: forks,
/// switches, affinity, scheduling classes, exits.
#[track_caller]
pub fn survives_storms(mut gthctl: Lease, seconds: u32) {
    let done = Command::new("stress-ng")
        .args("--fork 2 --switch 2 --affinity 2 --schedpolicy 2 --yield 2 --pipe 2".split(' '))
        .args("--pthread 2 --exec 1 --oom-avoid".split(' '))
        .args(["--timeout", &seconds.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(!gthctl.has_ended(), "{}", gthctl.stderr());
    assert_eq!(kernel::state(), "enabled");
    let matched = gthctl.counter("COUNT_MATCHED");
    assert!(matched > 100, "{matched}\n{}", String::from_utf8_lossy(&done.stderr));
    gthctl.stop();
}

#[test]
fn survives_storms_of_tasks() {
    survives_storms(shared::scheduler(STORMY), 4);
}

/// Sets whether the last CPU is online.
pub fn online(on: &str) {
    fs::write("/sys/devices/system/cpu/cpu3/online", on).unwrap();
}

/// gthctl then loads its scheduler again, with what it knows about the cpusets. Otherwise interrupts
/// would come back to the pod's CPUs until gthctl has read the cpusets.
#[test]
fn a_cpu_goes_and_comes_back() {
    let _load = task::spinners(kernel::cpus(), "load");
    let mut gthctl = shared::scheduler(
        "strategies: [{command_regex: ^hot, priority: true}, \
         {cgroup: /kubepods/podA, cpus: allocated, exclusive: true}]",
    );
    let mut node = Node::new("2", "0-1,3");
    node.add(1);
    assert!(becomes("2"));
    let looked = "what the policy refers to has changed";
    let looks = gthctl.has_said(looked);
    for (on, cpus) in [("0", 3), ("1", 4)] {
        let loaded = format!("scheduling {cpus} CPUs in 2 pools, 2 rules, CPUs 2 exclusive\n");
        let loads = gthctl.has_said(&loaded);
        online(on);
        // gthctl has a quarter of an emulated CPU to load with: the load and the host take the rest.
        let up = kernel::wait(Duration::from_secs(120), || {
            gthctl.has_ended() || gthctl.has_said(&loaded) > loads
        });
        assert!(up && !gthctl.has_ended(), "{}", gthctl.stderr());
        // Long enough for a load under way to fail.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!((kernel::state(), kernel::ops()), ("enabled".into(), "gthctl".into()));
    }
    assert!(becomes("2"));
    assert_eq!(gthctl.has_said(looked), looks, "{}", gthctl.stderr());
    let fourth = Task::fork_on("fourth", Some(&[3]), task::spin);
    let runs = || fourth.cpu_time() > Duration::from_millis(50);
    assert!(kernel::wait(Duration::from_secs(10), runs));
    assert!(kernel::is_ext(fourth.pid));
    let said = gthctl.stderr();
    assert_eq!(said.matches("loading again").count(), 2, "{said}");
    drop(node);
    gthctl.stop();
}
