//! CPUs that need no tick (`nohz_full=`): tests/vm/test boots a VM whose last two CPUs need none.

use std::ops::Range;
use std::time::Duration;

use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::host::{self, Stalls};
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
    assert_eq!(kernel::read("/sys/devices/system/cpu/nohz_full").trim(), "1-2");
    let gthctl = shared::scheduler(POLICY);
    let hot = Task::spinner("hot");
    let is_there = || kernel::cpu_of(hot.pid) == Some(CPU);
    assert!(kernel::wait(Duration::from_secs(5), is_there));
    assert_becomes_quiet(Duration::from_secs(12));
    (gthctl, hot)
}

/// The CPU loses its tick within that time.
#[track_caller]
fn assert_becomes_quiet(within: Duration) {
    let mut last = 0;
    let is_quiet = || {
        last = ticks();
        last < 20
    };
    assert!(kernel::wait(within, is_quiet), "{last} timer interrupts a second");
}

/// The share of a second that each of the tasks gets.
fn parts(tasks: &[&Task]) -> Vec<f64> {
    kernel::cpus_used(tasks, |task| task.cpu_time(), Duration::from_secs(1))
}

/// Asserts that each of the tasks gets a share of a second that is in the range, if the host takes none
/// of it. From the first second on, each task's share of what they get together must be in the range.
#[track_caller]
fn assert_parts(tasks: &[&Task], wanted: Range<f64>) {
    let mut are = Vec::new();
    let as_wanted = || {
        are = parts(tasks);
        let all: f64 = are.iter().sum();
        assert!(
            are.iter().all(|part| wanted.contains(&(part / all))),
            "{are:?}, {wanted:?} wanted"
        );
        are.iter().all(|part| wanted.contains(part))
    };
    assert!(kernel::wait(Duration::from_secs(5), as_wanted), "{are:?}, {wanted:?} wanted");
}

#[test]
fn a_lone_task_has_no_tick_until_others_come() {
    let (gthctl, hot) = lonely();
    assert_parts(&[&hot], 0.9..f64::INFINITY);
    let took = host::run_kworkers();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let second = Task::spinner("hot-too");
    assert_parts(&[&second, &hot], 0.3..0.7);
    drop(second);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), task::spin);
    assert_parts(&[&pinned, &hot], 0.3..0.7);
    gthctl.stop();
}

/// The task that stays began its turn while another one waited, and no turn begins after that one has
/// left.
#[test]
fn who_is_alone_again_has_no_tick() {
    let (gthctl, hot) = lonely();
    for _ in 0..4 {
        let other = Task::spinner("hot-too");
        assert_parts(&[&other, &hot], 0.3..0.7);
        task::set_affinity(other.pid, &[0]);
        assert_becomes_quiet(Duration::from_secs(5));
    }
    gthctl.stop();
}

/// The rule's task preempts one that may run nowhere else. The preempted task waits in the CPU's local
/// DSQ: the rule's task is not alone, though no other DSQ holds a task.
#[test]
fn who_was_preempted_there_has_its_turns() {
    const WORK: u64 = 500_000_000;
    const WANTED: u64 = 2_000_000;
    let policy = "strategies: [{command_regex: ^hot, cpus: 1, exclusive: true, priority: true}]";
    let gthctl = shared::scheduler(policy);
    let pinned = Task::fork_on("pinned", Some(&[CPU]), |shared| {
        loop {
            let (begin, used) = (task::now(), task::cpu_used());
            task::use_cpu(WANTED);
            let used = task::cpu_used() - used;
            // Without what the host takes of the task's own turns.
            shared.add_latency((task::now() - begin).saturating_sub(used) + WANTED);
            task::sleep_until(task::now() + 500_000);
        }
    });
    let hot = Task::fork("hot", |shared| {
        loop {
            task::sleep_until(task::now() + 10_000_000);
            let mut stalls = Stalls::new();
            let until = task::now() + WORK;
            while task::now() < until {
                stalls.look(shared);
            }
        }
    });
    std::thread::sleep(Duration::from_secs(5));
    let longest = pinned.shared().latencies().last().copied().map(Duration::from_nanos).unwrap();
    let stall = hot.shared().gap();
    println!("longest {longest:?} for 2 ms, the host stalled for {stall:?}");
    assert!(longest.saturating_sub(stall) < Duration::from_nanos(WORK / 2), "{longest:?}");
    gthctl.stop();
}

/// Only the CPU itself sees that the task waits there, and it looks at nothing during an infinite slice.
#[test]
fn who_was_held_back_by_a_limit_comes_back_there() {
    let mut limited = Cgroup::with("limited", &[("cpu.max", "20000 100000")]);
    let gthctl = shared::scheduler(POLICY);
    let dir = limited.file();
    limited.add(Task::start_in_cgroup("pinned", &dir, |shared| {
        task::set_affinity(0, &[CPU]);
        task::spin(shared);
    }));
    let _hot = Task::spinner("hot");
    let used = cpus_used(&[&limited], Duration::from_secs(5));
    assert!(used[0] > 0.1, "{used:?}");
    gthctl.stop();
}

/// Both want the CPU at the same time, again and again. The end of one task's turn does not delay the
/// other task.
#[test]
fn two_of_one_rank_there_take_turns() {
    const WORK: u64 = 5_000_000;
    const PERIOD: u64 = 200_000_000;
    let policy = "strategies: [{command_regex: ^hot, cpus: 1, exclusive: true, priority: true, \
                  execution_time: 20ms}]";
    let gthctl = shared::scheduler(policy);
    let tasks = ["hot-a", "hot-b"].map(|name| {
        Task::fork(name, |shared| {
            loop {
                let at = (task::now() / PERIOD + 1) * PERIOD;
                task::sleep_until(at);
                task::use_cpu(WORK);
                shared.add_latency(task::now() - at);
            }
        })
    });
    for task in &tasks {
        let times = task.samples(20);
        let median = Duration::from_nanos(times[times.len() / 2]);
        println!("{median:?} for 5 ms: {times:?}");
        assert!(median < Duration::from_nanos(8 * WORK), "{times:?}");
    }
    gthctl.stop();
}

/// The third task gets room on one of the two CPUs. The task on the other CPU has no tick and no kick,
/// so only the kernel's check of such CPUs, once a second, ends its turn.
#[test]
fn tasks_share_all_cpus_of_their_rule() {
    let gthctl =
        shared::scheduler("strategies: [{command_regex: ^hot, cpus: 1-2, exclusive: true}]");
    let mut tasks = task::spinners(2, "hot");
    let are_alone = || task::times(&tasks, Duration::from_secs(1)).iter().all(|&part| part > 0.9);
    assert!(kernel::wait(Duration::from_secs(10), are_alone));
    tasks.push(Task::spinner("hot-too"));
    std::thread::sleep(Duration::from_secs(1));
    // Without a tick, a task's time is known only to the second.
    let times = task::times(&tasks, Duration::from_secs(12));
    assert!(times.iter().all(|time| (6.6..9.6).contains(time)), "{times:?}");
    gthctl.stop();
}

/// Without a tick nothing else would end its turn for up to a second.
#[test]
fn a_task_that_leaves_its_rule_leaves_the_cpu_at_once() {
    // SAFETY: it takes no arguments.
    let is_there = || unsafe { libc::sched_getcpu() } == CPU as i32;
    let gthctl = shared::scheduler(POLICY);
    let hot = Task::fork("hot", |shared| {
        let mut stalls = Stalls::new();
        loop {
            task::set_name("hot");
            while !is_there() {
                stalls.look(shared);
            }
            task::use_cpu(3_000_000);
            let begin = task::now();
            task::set_name("cold");
            while is_there() {
                stalls.look(shared);
            }
            shared.add_latency(task::now() - begin);
        }
    });
    let times = hot.samples(1_000);
    let (longest, stall) = (times[times.len() - 1], hot.shared().gap());
    let longest = Duration::from_nanos(longest).saturating_sub(stall);
    println!("longest {longest:?}, the host stalled for {stall:?}");
    assert!(longest < Duration::from_millis(100), "{longest:?}");
    gthctl.stop();
}

#[test]
fn a_policy_that_gives_the_cpu_to_all_ends_it() {
    let (gthctl, hot) = lonely();
    gthctl.replace("strategies: []");
    let mut tasks = task::spinners(5, "cold");
    tasks.push(hot);
    let are_equal = || {
        let parts = task::times(&tasks, Duration::from_secs(1));
        parts.iter().all(|part| (0.3..0.7).contains(part))
    };
    assert!(kernel::wait(Duration::from_secs(10), are_equal));
    gthctl.stop();
}
