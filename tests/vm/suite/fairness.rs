//! Normal tasks: weights, even shares, every CPU used.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::gthctl::{NO_RULES, replace_file};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task, times};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARES;

#[test]
fn time_goes_by_weight() {
    let gthctl = shared::scheduler(NO_RULES);
    let pair = [(); 2].map(|()| Task::fork_on("pair", Some(&[0]), task::spin));
    task::set_nice(pair[1].pid, 5);
    std::thread::sleep(Duration::from_millis(500));
    let got = times(&pair, Duration::from_secs(3));
    let ratio = got[0] / got[1];
    // sched_prio_to_weight (kernel/sched/core.c): nice 0 is 1024, nice 5 is 335.
    println!("{ratio:.2} times the CPU time");
    assert!((2.0..4.5).contains(&ratio), "{ratio:.2}, not 3.06");
    gthctl.stop();
}

#[test]
fn time_goes_by_the_weight_of_a_rule() {
    let gthctl = shared::scheduler(
        "strategies:
- {command_regex: ^light$, weight: 100}
- {command_regex: ^heavy$, weight: 300}",
    );
    let pair = ["light", "heavy"].map(|comm| Task::fork_on(comm, Some(&[0]), task::spin));
    std::thread::sleep(Duration::from_millis(500));
    let got = times(&pair, Duration::from_secs(3));
    let ratio = got[1] / got[0];
    println!("{ratio:.2} times the CPU time");
    assert!((2.3..3.9).contains(&ratio), "{ratio:.2}, not 3");
    gthctl.stop();
}

#[test]
fn equal_tasks_get_equal_time() {
    let cpus = kernel::cpus();
    let gthctl = shared::scheduler(NO_RULES);
    let tasks = task::spinners(cpus * 3, "equal");
    std::thread::sleep(Duration::from_millis(500));
    let got = times(&tasks, Duration::from_secs(4));
    let mean = got.iter().sum::<f64>() / got.len() as f64;
    let worst = got.iter().map(|got| (got - mean).abs() / mean).fold(0.0, f64::max);
    println!("{mean:.3} s each, at most {worst:.2} off");
    assert!(worst < 0.35, "{got:?}");
    gthctl.stop();
}

#[test]
fn no_cpu_is_left_idle_while_tasks_wait() {
    let gthctl = shared::scheduler(NO_RULES);
    assert_every_cpu_is_used();
    gthctl.stop();
}

#[track_caller]
pub fn assert_every_cpu_is_used() {
    let cpus = kernel::cpus();
    let tasks = task::spinners(cpus, "one-each");
    std::thread::sleep(Duration::from_millis(500));
    let got = times(&tasks, Duration::from_secs(2));
    let least = got.iter().copied().fold(f64::MAX, f64::min);
    // Each has a CPU to itself, except for the test's own work and the emulation, which has fewer
    // real CPUs.
    let most = got.iter().copied().fold(0.0, f64::max);
    assert!(least > most * 0.5, "{got:?}");
    let spread = || {
        let homes: BTreeSet<_> = tasks.iter().filter_map(|task| kernel::cpu_of(task.pid)).collect();
        homes.len() == cpus
    };
    assert!(kernel::wait(Duration::from_secs(2), spread), "a CPU has no task");
}

#[test]
fn a_task_that_sleeps_is_not_behind_those_that_spin() {
    let gthctl = shared::scheduler(NO_RULES);
    let _load = task::spinners(kernel::cpus() * 3, "load");
    let sleeper = Task::fork("sleeper", task::wake_often(10_000_000));
    let latencies = sleeper.samples(100);
    // Three tasks a CPU with slices of at least 0.5 ms each, and ticks of 4 ms:
    // in the order of arrival it would wait for two of them or more.
    let median = Duration::from_nanos(latencies[latencies.len() / 2]);
    println!("median wake-up latency {median:?} over {}", latencies.len());
    assert!(median < Duration::from_millis(20), "{median:?}");
    gthctl.stop();
}

#[test]
fn slices_are_followed() {
    const IN_FORCE: &str = "slices are in force";
    let mut gthctl = shared::with_slices("scheduler: {slice_ns_default: 1ms}", NO_RULES);
    let pair = [(); 2].map(|()| Task::fork_on("pair", Some(&[0]), task::spin));
    let turns = || {
        std::thread::sleep(Duration::from_millis(300));
        let before = kernel::involuntary_switches(pair[0].pid);
        std::thread::sleep(Duration::from_secs(1));
        kernel::involuntary_switches(pair[0].pid) - before
    };
    let short = turns();
    gthctl.expect_errors();
    let config = gthctl.config();
    let before = gthctl.has_said(IN_FORCE);
    replace_file(
        &config,
        "scheduler: {slice_ns_default: 100ms, slice_ns_min: 100ms}\npolicy: policy.yaml",
    );
    assert!(gthctl.says(IN_FORCE, before + 1));
    let long = turns();
    println!("{short} turns, {long} with long slices");
    assert!(long * 4 < short, "{long} against {short}");
    replace_file(&config, "scheduler: {slice_ns_default: 0}\npolicy: policy.yaml");
    assert!(gthctl.says("the previous settings stay in force", 1));
    let still_long = turns();
    assert!(still_long * 4 < short, "{still_long} against {short}");
    gthctl.stop();
}

/// Priority tasks that may run on only one CPU wait for it in their last-level cache's queue. That
/// does not affect the other caches' CPUs: their tasks keep their turns.
#[test]
fn waiting_priority_tasks_end_no_turns_in_another_cache() {
    let gthctl = shared::scheduler(
        "strategies:
- {command_regex: ^prio$, priority: true, execution_time: 20ms}
- {command_regex: ^normal$, execution_time: 100ms}",
    );
    // More tasks than a CPU skips to find one that may run there.
    let _waiting: Vec<Task> = (0..60)
        .map(|_| Task::fork_on("prio", Some(&[0]), task::use_and_rest(2_000_000, 1_000_000)))
        .collect();
    let pair = [(); 2].map(|()| Task::fork_on("normal", Some(&[2]), task::spin));
    std::thread::sleep(Duration::from_millis(500));
    let switches = || pair.iter().map(|task| kernel::involuntary_switches(task.pid)).sum::<u64>();
    let (before, waited) = (switches(), gthctl.counter("PATH_PRIORITY"));
    let got = times(&pair, Duration::from_secs(3));
    let ended = switches() - before;
    println!("{ended} turns in 3 s, {got:?} s");
    assert!(gthctl.counter("PATH_PRIORITY") - waited > 100);
    // 30 if nothing is late, 750 with one for each tick.
    assert!(ended < 120, "{ended} turns");
    assert!(got.iter().all(|&time| time > 0.7), "{got:?}");
    gthctl.stop();
}
