//! Normal tasks: weights, even shares, every CPU used.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::gthctl::Gthctl;
use crate::kernel;
use crate::task::{self, Task, times};

const NO_RULES: &str = "strategies: []";

#[test]
fn time_goes_by_weight() {
    let gthctl = Gthctl::start(NO_RULES);
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
    let gthctl = Gthctl::start(
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
    let gthctl = Gthctl::start(NO_RULES);
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
    let cpus = kernel::cpus();
    for idle in ["builtin_idle: false", "builtin_idle: true"] {
        let gthctl = Gthctl::start_with(idle, NO_RULES, &[]);
        let tasks = task::spinners(cpus, "one-each");
        std::thread::sleep(Duration::from_millis(500));
        let got = times(&tasks, Duration::from_secs(2));
        let least = got.iter().copied().fold(f64::MAX, f64::min);
        // Each has a CPU to itself, but for the test's own work and the
        // emulation, which has fewer real CPUs.
        let most = got.iter().copied().fold(0.0, f64::max);
        assert!(least > most * 0.5, "{idle}: {got:?}");
        let spread = || {
            let homes: BTreeSet<_> =
                tasks.iter().filter_map(|task| kernel::cpu_of(task.pid)).collect();
            homes.len() == cpus
        };
        assert!(kernel::wait(Duration::from_secs(2), spread), "{idle}: a CPU has no task");
        gthctl.stop();
    }
}

#[test]
fn a_task_that_sleeps_is_not_behind_those_that_spin() {
    let gthctl = Gthctl::start(NO_RULES);
    let _load = task::spinners(kernel::cpus() * 3, "load");
    let sleeper = Task::fork("sleeper", task::wake_often(10_000_000));
    std::thread::sleep(Duration::from_secs(3));
    let latencies = sleeper.shared().latencies();
    // Three tasks a CPU with slices of at least 0.5 ms each, and ticks of 4 ms:
    // in the order of arrival it would wait for two of them or more.
    let median = Duration::from_nanos(latencies[latencies.len() / 2]);
    println!("median wake-up latency {median:?} over {}", latencies.len());
    assert!(median < Duration::from_millis(20), "{median:?}");
    gthctl.stop();
}
