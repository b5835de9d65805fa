//! What can happen to a scheduler: hotplug, storms of tasks, a stall.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::gthctl::{self, Gthctl};
use crate::support::kernel;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const POLICY: &str = "strategies:
- {command_regex: ^hot, cpus: 1, exclusive: true}
- {command_regex: ^stress-ng-fork, priority: 3}
- {command_regex: ^stress-ng-switch, priority: 1, execution_time: 1ms}
- {command_regex: ^stress-ng-affin, cpus: 0-2}";

/// stress-ng with everything that moves tasks about: forks, switches, affinity,
/// scheduling classes, exits.
#[test]
fn survives_storms_of_tasks() {
    for idle in ["builtin_idle: false", "builtin_idle: true"] {
        let mut gthctl = Gthctl::start_with(idle, POLICY, &[]);
        let done = Command::new("stress-ng")
            .args("--fork 2 --switch 2 --affinity 2 --schedpolicy 2 --yield 2 --pipe 2".split(' '))
            .args("--pthread 2 --exec 1 --timeout 4 --oom-avoid".split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(!gthctl.has_ended(), "{}", gthctl.wait().stderr);
        assert_eq!(kernel::state(), "enabled", "{idle}");
        let output = gthctl.stop();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(output.counter("tasks matched") > 100, "{idle}: {}\n{said}", output.stdout);
    }
}

#[test]
fn a_cpu_goes_and_comes_back() {
    let online = |on: &str| fs::write("/sys/devices/system/cpu/cpu3/online", on).unwrap();
    let _load = task::spinners(kernel::cpus(), "load");
    let mut gthctl = Gthctl::start("strategies: [{command_regex: ^hot, priority: true}]");
    let back = |gthctl: &mut Gthctl| {
        // It loads with a quarter of an emulated CPU: the load and the host take the rest.
        let up = kernel::wait(Duration::from_secs(120), || {
            gthctl.has_ended() || (kernel::state() == "enabled" && kernel::ops() == "gthctl")
        });
        assert!(up && !gthctl.has_ended(), "{}", gthctl.stderr());
        // Long enough for a load under way to fail.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(kernel::state(), "enabled");
    };
    online("0");
    std::thread::sleep(Duration::from_millis(500));
    back(&mut gthctl);
    online("1");
    std::thread::sleep(Duration::from_millis(500));
    back(&mut gthctl);
    let fourth = Task::fork_on("fourth", Some(&[3]), task::spin);
    let runs = || fourth.cpu_time() > Duration::from_millis(50);
    assert!(kernel::wait(Duration::from_secs(10), runs));
    assert!(kernel::is_ext(fourth.pid));
    let output = gthctl.stop();
    assert_eq!(output.stderr.matches("loading again").count(), 2, "{}", output.stderr);
}

/// A real-time task takes a CPU for good, so a task that may only run there
/// waits until the kernel's watchdog ends the scheduler: its own exit code, the
/// kernel's reason and the name of the task that waited.
#[test]
fn the_watchdog_is_reported() {
    // The kernel would give the others 5 %, through RT throttling or, newer, a
    // deadline server (kernel/sched/rt.c, kernel/sched/deadline.c).
    let runtime = "/proc/sys/kernel/sched_rt_runtime_us";
    let throttle = kernel::read(runtime);
    let servers = ["ext_server", "fair_server"]
        .map(|server| format!("/sys/kernel/debug/sched/{server}/cpu1/runtime"));
    let saved = servers.each_ref().map(|path| kernel::read(path));
    let _ = fs::write(runtime, "-1");
    for path in &servers {
        let _ = fs::write(path, "0");
    }
    let gthctl = Gthctl::start_watched(gthctl::files("", "strategies: []"), Duration::from_secs(3));
    let spinner = Task::fork_on("realtime", Some(&[1]), |shared| {
        task::become_realtime();
        task::spin(shared)
    });
    std::thread::sleep(Duration::from_millis(200));
    // It cannot even name itself, so no Task::fork, which waits for that.
    let waiting = Command::new("taskset").args(["-c", "1", "sleep", "60"]).spawn();
    // On 6.12 gthctl's end waits for tasks that the spinner keeps from running: its
    // BPF programs are detached from functions in which those may be (RCU tasks).
    let gone = kernel::wait(Duration::from_secs(60), || kernel::state() == "disabled");
    drop(spinner);
    assert!(gone, "the watchdog did nothing");
    let output = gthctl.wait();
    let _ = waiting.map(|mut child| child.kill());
    let _ = fs::write(runtime, throttle);
    for (path, value) in servers.iter().zip(saved) {
        let _ = fs::write(path, value);
    }
    assert_eq!(output.code(), 8, "{}", output.stderr);
    assert!(output.stderr.contains("stall"), "{}", output.stderr);
    assert!(output.stderr.contains("failed to run for"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
}
