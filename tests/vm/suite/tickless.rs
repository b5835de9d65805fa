//! CPUs that need no tick (`nohz_full=`): tests/vm/test boots a VM with the last one such.

use std::time::{Duration, Instant};

use crate::support::kernel;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::TICKLESS;

const POLICY: &str = "strategies: [{command_regex: ^hot, cpus: 1, exclusive: true}]";
const CPU: usize = 1;

/// Timer interrupts of the CPU so far (LOC in /proc/interrupts).
fn timer_interrupts() -> u64 {
    let interrupts = kernel::read("/proc/interrupts");
    let line = interrupts.lines().find(|line| line.trim_start().starts_with("LOC:")).unwrap();
    line.split_whitespace().nth(1 + CPU).unwrap().parse().unwrap()
}

/// Timer interrupts in a second.
fn ticks() -> u64 {
    let before = timer_interrupts();
    std::thread::sleep(Duration::from_secs(1));
    timer_interrupts() - before
}

/// A scheduler with the policy, and a task that has its CPU to itself and no longer has a tick.
fn lonely() -> (Lease, Task) {
    assert_eq!(kernel::read("/sys/devices/system/cpu/nohz_full").trim(), CPU.to_string());
    let gthctl = shared::scheduler(POLICY);
    let hot = Task::spinner("hot");
    let is_there = || kernel::cpu_of(hot.pid) == Some(CPU);
    assert!(kernel::wait(Duration::from_secs(5), is_there));
    let mut last = 0;
    let is_quiet = || {
        last = ticks();
        last < 20
    };
    assert!(kernel::wait(Duration::from_secs(12), is_quiet), "{last} timer interrupts a second");
    (gthctl, hot)
}

/// The part of a second that the task gets.
fn part(task: &Task) -> f64 {
    let (before, begin) = (task.cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    (task.cpu_time() - before).as_secs_f64() / begin.elapsed().as_secs_f64()
}

#[test]
fn a_lone_task_has_no_tick_until_others_come() {
    let (gthctl, hot) = lonely();
    // The host may take a part of a second.
    let mut alone = 0.0;
    let has_the_cpu = || {
        alone = part(&hot);
        alone > 0.9
    };
    assert!(kernel::wait(Duration::from_secs(5), has_the_cpu), "{alone}");
    let took = kernel::run_kworkers();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let second = Task::spinner("hot-too");
    let parts = [part(&second), part(&hot)];
    assert!(parts.iter().all(|part| (0.3..0.7).contains(part)), "{parts:?}");
    drop(second);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), task::spin);
    let parts = [part(&pinned), part(&hot)];
    assert!(parts.iter().all(|part| (0.3..0.7).contains(part)), "{parts:?}");
    gthctl.stop();
}

/// The rule's task preempts one that may run nowhere else. That one waits in the CPU's local DSQ: the rule's
/// task is not alone, though no other DSQ holds a task.
#[test]
fn who_was_preempted_there_has_its_turns() {
    const WORK: u64 = 500_000_000;
    let policy = "strategies: [{command_regex: ^hot, cpus: 1, exclusive: true, priority: true}]";
    let gthctl = shared::scheduler(policy);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), |shared| {
        loop {
            let begin = task::now();
            task::use_cpu(2_000_000);
            shared.add_latency(task::now() - begin);
            task::sleep_until(task::now() + 500_000);
        }
    });
    let _hot = Task::fork("hot", |_| {
        loop {
            task::sleep_until(task::now() + 10_000_000);
            task::run_for(WORK);
        }
    });
    std::thread::sleep(Duration::from_secs(5));
    let longest = pinned.shared().latencies().last().copied().map(Duration::from_nanos).unwrap();
    println!("longest {longest:?} for 2 ms");
    assert!(longest < Duration::from_nanos(WORK / 2), "{longest:?}");
    gthctl.stop();
}

#[test]
fn a_policy_that_gives_the_cpu_to_all_ends_it() {
    let (gthctl, hot) = lonely();
    gthctl.replace("strategies: []");
    let mut tasks = task::spinners(3, "cold");
    tasks.push(hot);
    let are_equal = || {
        let parts = task::times(&tasks, Duration::from_secs(1));
        parts.iter().all(|part| (0.3..0.7).contains(part))
    };
    assert!(kernel::wait(Duration::from_secs(10), are_equal));
    gthctl.stop();
}
