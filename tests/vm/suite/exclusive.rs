//! CPUs that belong to one rule only, and CPUs that a rule prefers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::host;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const CPU: usize = 1;
pub const POLICY: &str =
    "strategies: [{command_regex: ^hot, cpus: 1, exclusive: true, priority: true}]";

/// How many of the tasks are seen on the CPU within `watch`.
pub fn seen_on(cpu: usize, tasks: &[Task], watch: Duration) -> usize {
    let pids: Vec<i32> = tasks.iter().map(|task| task.pid).collect();
    seen(&pids, watch, |now| now == Some(cpu))
}

fn seen(pids: &[i32], watch: Duration, there: impl Fn(Option<usize>) -> bool) -> usize {
    let begin = Instant::now();
    let mut seen = vec![false; pids.len()];
    while begin.elapsed() < watch {
        for (seen, &pid) in seen.iter_mut().zip(pids) {
            *seen |= there(kernel::cpu_of(pid));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    seen.iter().filter(|&&seen| seen).count()
}

/// How many of the processes are seen on a CPU other than that one.
pub fn seen_elsewhere(cpu: usize, pids: &[i32], watch: Duration) -> usize {
    seen(pids, watch, |now| now != Some(cpu))
}

/// The share of the time that the CPU spent in user mode while `during` ran.
fn user_time(cpu: usize, during: impl FnOnce()) -> f64 {
    let read = || -> (u64, u64) {
        let stat = kernel::read("/proc/stat");
        let line = stat.lines().find(|line| line.starts_with(&format!("cpu{cpu} "))).unwrap();
        let ticks: Vec<u64> = line.split(' ').skip(1).map(|n| n.parse().unwrap()).collect();
        (ticks[0] + ticks[1], ticks.iter().sum())
    };
    let (user, all) = read();
    during();
    let (user_after, all_after) = read();
    (user_after - user) as f64 / (all_after - all).max(1) as f64
}

/// Some tasks are older than the rule, some younger.
pub fn runs_alone(before: Vec<Task>) {
    let mut cold = before;
    cold.extend(task::spinners(kernel::cpus(), "cold-too"));
    let off = || cold.iter().all(|task| kernel::cpu_of(task.pid) != Some(CPU));
    assert!(kernel::wait(Duration::from_secs(5), off));
    let used = user_time(CPU, || {
        assert_eq!(seen_on(CPU, &cold, Duration::from_secs(1)), 0);
    });
    assert!(used < 0.1, "nobody has a right to it, yet {used:.2} of its time was used");

    let hot = task::spinners(2, "hot");
    let settled = || hot.iter().all(|task| kernel::cpu_of(task.pid) == Some(CPU));
    assert!(kernel::wait(Duration::from_secs(5), settled));
    let before: Duration = hot.iter().map(Task::cpu_time).sum();
    let begin = Instant::now();
    assert_eq!(seen_on(CPU, &cold, Duration::from_secs(1)), 0);
    assert!(settled());
    let used = hot.iter().map(Task::cpu_time).sum::<Duration>() - before;
    let part = used.as_secs_f64() / begin.elapsed().as_secs_f64();
    assert!(part > 0.7, "the CPU's owners got {part:.2} of it");
}

#[test]
fn only_the_matched_run_there() {
    let before = task::spinners(kernel::cpus(), "cold");
    let gthctl = shared::scheduler(POLICY);
    runs_alone(before);
    assert!(gthctl.counter("COUNT_RESERVED_AVOIDED") > 0);
    assert!(gthctl.counter("COUNT_RESERVED_KTHREAD") > 0);
    gthctl.stop();
}

/// A child starts on its parent's CPU. It moves to an idle CPU, although it may use only exclusive CPUs.
#[test]
fn those_that_can_run_nowhere_else_use_all_idle_cpus_of_others() {
    let mut confined = Cgroup::with("confined", &[]);
    let gthctl =
        shared::scheduler("strategies: [{command_regex: ^hot$, cpus: 2-3, exclusive: true}]");
    let dir = confined.file();
    confined.add(Task::start_in_cgroup("parent", &dir, |_| {
        task::set_affinity(0, &[2, 3]);
        task::fork_below(task::spin_on);
        task::spin_on();
    }));
    let used = cpus_used(&[&confined], Duration::from_secs(2));
    assert!(used[0] > 1.5, "{used:?}");
    gthctl.stop();
}

#[test]
fn a_task_that_can_run_nowhere_else_is_let_in_and_counted() {
    let gthctl = shared::scheduler(POLICY);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), task::spin);
    let both = Task::fork_on("both", Some(&[0, CPU]), task::spin);
    let before = pinned.cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    assert!(pinned.cpu_time() - before > Duration::from_millis(300));
    assert_eq!(kernel::cpu_of(pinned.pid), Some(CPU));
    assert_eq!(seen_on(CPU, &[both], Duration::from_millis(500)), 0);
    assert!(gthctl.counter("COUNT_RESERVED_PINNED") > 0);
    gthctl.stop();
}

#[test]
fn a_matched_task_whose_affinity_excludes_it_keeps_its_affinity() {
    let gthctl = shared::scheduler(POLICY);
    let hot = Task::fork_on("hot", Some(&[0, 2]), task::spin);
    let before = hot.cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    assert!(hot.cpu_time() - before > Duration::from_millis(300));
    assert!(matches!(kernel::cpu_of(hot.pid), Some(0 | 2)));
    assert!(gthctl.counter("COUNT_RESERVED_MISSED") > 0);
    gthctl.stop();
}

#[test]
fn kthreads_of_an_exclusive_cpu_still_run() {
    let gthctl = shared::scheduler(POLICY);
    let hot = task::spinners(2, "hot");
    assert!(kernel::wait(Duration::from_secs(5), || kernel::cpu_of(hot[0].pid) == Some(CPU)));
    kworkers_run();
    gthctl.stop();
}

fn kworkers_run() {
    let took = host::run_kworkers();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// The task is enqueued again when its CPU has already found nothing else to run, and continues there.
#[test]
fn a_task_that_changes_its_name_goes_on() {
    for rule in ["cpus: 1, exclusive: true", "weight: 100"] {
        let gthctl = shared::scheduler(&format!("strategies: [{{command_regex: ^hot, {rule}}}]"));
        let hot = Task::launch("hot", None, |_| {
            loop {
                for name in ["hot-1", "hot-2"] {
                    task::set_name(name);
                    task::run_for(1_000_000);
                }
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let (before, begin) = (hot.cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let (got, elapsed) = (hot.cpu_time() - before, begin.elapsed());
        println!("{rule}: {got:?} of {elapsed:?}");
        assert!(got > elapsed / 2, "{rule}: {got:?} of {elapsed:?}");
        gthctl.stop();
    }
}

/// Each wakes up the other one before it sleeps, so one of them is always waiting on that CPU.
#[test]
fn priority_tasks_that_hand_on_leave_the_others_their_turns() {
    let gthctl = shared::scheduler(POLICY);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), task::spin);
    let (left, right) = UnixStream::pair().unwrap();
    let hand_on = |mut other: UnixStream| {
        move |shared: &task::Shared| {
            while other.read_exact(&mut [0]).is_ok() {
                task::run_for(200_000);
                other.write_all(&[0]).unwrap();
                task::run_for(100_000);
                shared.answer.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    (&left).write_all(&[0]).unwrap();
    let hot = [left, right].map(|end| Task::fork("hot", hand_on(end)));
    let turns = || hot.iter().map(Task::answer).min().unwrap();
    assert!(kernel::wait(Duration::from_secs(5), || turns() > 100));
    let (before, turns_before, begin) = (pinned.cpu_time(), turns(), Instant::now());
    for _ in 0..10 {
        kworkers_run();
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(kernel::wait(Duration::from_secs(27), || turns() - turns_before > 1000));
    let (got, elapsed) = (pinned.cpu_time() - before, begin.elapsed());
    println!("{got:?} of {elapsed:?}, beside {} turns", turns() - turns_before);
    // The guard gives the pinned task 1/21 of the CPU.
    assert!(got > elapsed / 40, "{got:?} of {elapsed:?}");
    gthctl.stop();
}

#[test]
fn cpus_without_exclusive_are_a_preference() {
    let gthctl = shared::scheduler("strategies: [{command_regex: ^pref$, cpus: 2}]");
    let task = Task::fork("pref", task::wake_often(2_000_000));
    let elsewhere = Task::fork_on("pref", Some(&[0, 1]), task::wake_often(2_000_000));
    std::thread::sleep(Duration::from_millis(300));
    let mut on_it = 0;
    for _ in 0..200 {
        on_it += usize::from(kernel::cpu_of(task.pid) == Some(2));
        assert!(matches!(kernel::cpu_of(elsewhere.pid), Some(0 | 1)));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(on_it > 160, "on the CPU it prefers in {on_it} of 200 samples");
    // The task is not confined: while another task takes that CPU, it runs elsewhere.
    let busy = Task::fork_on("busy", Some(&[2]), task::spin);
    let wakes = task.shared().latencies().len();
    let moved = kernel::wait(Duration::from_secs(5), || kernel::cpu_of(task.pid) != Some(2));
    assert!(moved, "stayed behind {}", busy.pid);
    assert!(kernel::wait(Duration::from_secs(5), || task.shared().latencies().len() > wakes));
    gthctl.stop();
}
