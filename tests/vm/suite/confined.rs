//! Normal tasks that may use only some CPUs, beside others that progress faster.

use std::time::Duration;

use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::gthctl::NO_RULES;
use crate::support::host;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

/// Three CPUs of one LLC.
pub const VM: Vm = vm::TICKLESS;

/// The ratio of the heavy tasks' CPU time to the light tasks', on these CPUs, over three seconds.
fn ratio(cpus: &[usize], comms: &[&str]) -> f64 {
    let tasks: Vec<_> =
        comms.iter().map(|comm| Task::fork_on(comm, Some(cpus), task::spin)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let (mut light, mut heavy) = (0.0, 0.0);
    for (comm, time) in comms.iter().zip(task::times(&tasks, Duration::from_secs(3))) {
        *(if *comm == "heavy" { &mut heavy } else { &mut light }) += time;
    }
    heavy / light
}

/// An LLC's clock follows the task that progresses fastest. Tasks that share other CPUs fall behind it.
#[test]
fn time_goes_by_weight_though_another_cpu_gets_on_faster() {
    assert_eq!(kernel::cpus(), 3);
    let gthctl = shared::scheduler(
        "strategies:
- {command_regex: ^light$, weight: 100}
- {command_regex: ^heavy$, weight: 300}",
    );
    let other = task::use_and_rest(5_000_000, 5_000_000);
    let _other = Task::fork_on("other", Some(&[2]), other);
    let one = ratio(&[0], &["light", "heavy"]);
    let two = ratio(&[0, 1], &["light", "heavy", "light", "heavy"]);
    let many = ratio(&[0], &["light", "heavy"].repeat(10));
    println!("on one CPU {one:.2} times the CPU time, on two {two:.2}, of many {many:.2}");
    assert!((2.3..3.9).contains(&one), "on one CPU {one:.2}, not 3");
    assert!((2.3..3.9).contains(&two), "on two CPUs {two:.2}, not 3");
    assert!((2.3..3.9).contains(&many), "of many {many:.2}, not 3");
    gthctl.stop();
}

/// Like pods that the kubelet keeps off the CPUs that it has given to another pod.
#[test]
fn cgroups_share_some_cpus_by_their_weights() {
    let pods = [("light", "100", 4), ("heavy", "300", 2)].map(|(name, weight, tasks)| {
        let pod = Cgroup::on(name, "0-1");
        pod.set("cpu.weight", weight);
        pod.and_spinners(tasks)
    });
    let _other = Task::fork_on("other", Some(&[2]), task::spin);
    // Each of its turns moves the clock, as it does not wait.
    let _interrupter = host::Watch::on(&[2]);
    let gthctl = shared::scheduler(NO_RULES);
    std::thread::sleep(Duration::from_secs(1));
    let used = cpus_used(&pods.each_ref(), Duration::from_secs(3));
    let ratio = used[1] / used[0];
    println!("CPUs used: {used:.3?}, {ratio:.2} times");
    assert!((2.5..3.5).contains(&ratio), "{ratio:.2}, not 3");
    gthctl.stop();
}
