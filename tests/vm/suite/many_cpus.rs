//! A machine of 64 CPUs, all of them busy. The emulation takes minutes for it, so only
//! `make test-kernels` runs these tests.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ::gthctl::kernel::topology::{self, Topology};

use crate::support::gthctl::{NO_RULES, report};
use crate::support::kernel;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::MANY;

/// How long anything may take: each CPU has a thirtieth of one of the host's.
const SOON: Duration = Duration::from_secs(60);
const PRIO: &str = "strategies: [{command_regex: ^prio$, priority: true}]";

fn topology() -> Topology {
    Topology::read(Path::new(topology::SYSFS)).unwrap()
}

/// The CPUs of each last-level cache.
fn llcs() -> Vec<Vec<usize>> {
    let topology = topology();
    let of = |llc| {
        (0..topology.nr_cpus()).filter(|&cpu| usize::from(topology.llc[cpu]) == llc).collect()
    };
    (0..topology.nr_llcs()).map(of).collect()
}

/// As a policy has it.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Each of the tasks gets CPU time, more than once.
#[track_caller]
fn assert_all_run(what: &str, tasks: &[Task]) {
    for time in 1..=2 {
        let before: Vec<_> = tasks.iter().map(Task::cpu_time).collect();
        let runs = |(task, before): (&Task, &Duration)| task.cpu_time() > *before;
        let all_run = || tasks.iter().zip(&before).all(runs);
        let begin = Instant::now();
        assert!(kernel::wait(SOON, all_run), "{what}: not all run, time {time}");
        println!("{what}: all have run after {:?}", begin.elapsed());
    }
}

/// Priority tasks that wake up all the time.
fn priority_tasks(count: usize) -> Vec<Task> {
    (0..count).map(|_| Task::fork("prio", task::wake_often(20_000_000))).collect()
}

#[test]
#[ignore = "make test-kernels"]
fn the_tasks_of_each_cache_are_served() {
    let mut gthctl = shared::scheduler(NO_RULES);
    let llcs = llcs();
    assert!(llcs.len() >= 4 && topology().numa(), "{llcs:?}");
    // One more than the CPUs.
    let tasks: Vec<Task> = llcs
        .iter()
        .flat_map(|cpus| {
            (0..=cpus.len()).map(|_| Task::fork_on("confined", Some(cpus), task::spin))
        })
        .collect();
    assert_all_run("each cache", &tasks);
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// What a search for a weaker task may cost is bounded, whatever the number of CPUs.
#[test]
#[ignore = "make test-kernels"]
fn priority_tasks_go_first_and_look_at_few_cpus() {
    let gthctl = shared::scheduler(PRIO);
    let load = task::spinners(kernel::cpus(), "load");
    let prio = priority_tasks(8);
    prio.iter().for_each(|task| drop(task.samples(20)));
    let wakeups = gthctl.counter("COUNT_PRIO_WAKEUPS");
    let direct = gthctl.counter("PATH_PREEMPT") + gthctl.counter("PATH_IDLE");
    let looks = gthctl.counter("COUNT_LOOKS");
    let waited = gthctl.counter("PATH_PRIORITY");
    println!("{wakeups} wake-ups, {direct} straight to a CPU, {waited} by a queue, {looks} looks");
    assert!(gthctl.counter("COUNT_PREEMPTIONS") * 2 > wakeups, "{wakeups} wake-ups");
    assert!(waited * 10 < wakeups, "{waited} of {wakeups} waited in a queue");
    assert!(looks <= 2 * wakeups, "{looks} CPUs looked at in {wakeups} wake-ups");
    assert_all_run("beside priority tasks", &load);
    // As many strong ones as CPUs: a search looks at no more CPUs than it may.
    drop(prio);
    let before = (gthctl.counter("COUNT_PRIO_WAKEUPS"), gthctl.counter("COUNT_LOOKS"));
    let crowd = (0..2 * kernel::cpus())
        .map(|_| Task::fork("prio", task::use_and_rest(2_000_000, 1_000_000)))
        .collect::<Vec<_>>();
    assert_all_run("a crowd of priority tasks", &crowd);
    let wakeups = gthctl.counter("COUNT_PRIO_WAKEUPS") - before.0;
    let looks = gthctl.counter("COUNT_LOOKS") - before.1;
    println!("in the crowd: {wakeups} wake-ups, {looks} looks");
    // CLAIM_LOOKS in bpf/sched/idle.bpf.h, for each of two searches.
    assert!(looks <= 2 * 32 * wakeups, "{looks} CPUs looked at in {wakeups} wake-ups");
    gthctl.stop();
}

/// Exclusive CPUs in both nodes. None of the others is ever seen there.
#[test]
#[ignore = "make test-kernels"]
fn exclusive_cpus_hold_nobody_else() {
    let llcs = llcs();
    let own = [&llcs[1][..], &llcs[llcs.len() - 1][..2]].concat();
    let cold = task::spinners(kernel::cpus(), "cold");
    let gthctl = shared::scheduler(&format!(
        "strategies: [{{command_regex: ^hot, cpus: \"{}\", exclusive: true}}]",
        list(&own)
    ));
    let is_there = |task: &Task| kernel::cpu_of(task.pid).is_some_and(|cpu| own.contains(&cpu));
    assert!(kernel::wait(SOON, || !cold.iter().any(is_there)));
    let hot = task::spinners(own.len(), "hot");
    assert!(kernel::wait(SOON, || hot.iter().all(is_there)));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert!(!cold.iter().any(is_there) && hot.iter().all(is_there));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_all_run("the others", &cold);
    assert_all_run("the owners", &hot);
    gthctl.stop();
}

#[test]
#[ignore = "make test-kernels"]
fn policies_and_cpus_come_and_go_under_load() {
    let mut gthctl = shared::scheduler(PRIO);
    let load = task::spinners(kernel::cpus(), "load");
    let prio = priority_tasks(4);
    let llcs = llcs();
    let last = llcs.len() - 1;
    let across = [&llcs[0][..2], &llcs[last][..2]].concat();
    for cpus in [list(&llcs[1]), list(&across), list(&llcs[last])] {
        gthctl.replace(&format!(
            "strategies: [{{command_regex: ^x$, cpus: \"{cpus}\", exclusive: true}}]"
        ));
        assert_all_run(&cpus, &load);
        gthctl.replace(PRIO);
        assert_all_run("after it", &load);
    }
    for cpu in [5, kernel::cpus() - 1] {
        for on in ["0", "1"] {
            let loads = gthctl.has_said("gthctl: scheduling");
            fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), on).unwrap();
            comes_back(&mut gthctl, loads + 1);
            assert_all_run(&format!("CPU {cpu}, online {on}"), &load);
        }
    }
    let before: Vec<usize> = prio.iter().map(|task| task.shared().noted()).collect();
    let more = || prio.iter().zip(&before).all(|(task, before)| task.shared().noted() > before + 5);
    assert!(kernel::wait(SOON, more));
    assert_eq!(report(&["status"])["kernel_in_step"], true);
    gthctl.stop();
}

/// The kernel ends the scheduler when a CPU goes or comes, and gthctl loads it again.
#[track_caller]
fn comes_back(gthctl: &mut Lease, loads: usize) {
    let up = kernel::wait(5 * SOON, || {
        gthctl.has_ended()
            || (gthctl.has_said("gthctl: scheduling") >= loads && kernel::state() == "enabled")
    });
    assert!(up && !gthctl.has_ended(), "{}", gthctl.stderr());
    assert_eq!(kernel::ops(), "gthctl");
}
