//! The shares and limits of cgroups (cpu.weight, cpu.max) hold as they do without gthctl.

use std::fs;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::exclusive::seen_elsewhere;
use crate::support::cgroup::{Cgroup, CpuHierarchy, cpus_used};
use crate::support::gthctl::NO_RULES;
use crate::support::host;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARES;

/// How long shares take to settle, and how long they are measured then.
const SETTLE: Duration = Duration::from_secs(1);
const WATCH: Duration = Duration::from_secs(5);

/// The CPUs that each cgroup uses.
fn used(cgroups: &[&Cgroup]) -> Vec<f64> {
    let gthctl = shared::scheduler(NO_RULES);
    std::thread::sleep(SETTLE);
    let used = cpus_used(cgroups, WATCH);
    gthctl.stop();
    println!("CPUs used: {used:.3?}");
    used
}

/// Like [`used`], but the cgroups and their tasks exist before gthctl starts.
fn used_after_a_start(cgroups: &[&Cgroup]) -> Vec<f64> {
    shared::unload();
    used(cgroups)
}

/// Each is at most `percent` from what it should be.
#[track_caller]
fn near(is: &[f64], should: &[f64], percent: f64) {
    for (is, should) in is.iter().zip(should) {
        let apart = (is / should - 1.0) * 100.0;
        assert!(apart.abs() <= percent, "{is:.3} CPUs instead of {should:.3}: {apart:+.1} %");
    }
}

/// What the cgroups should get of all CPUs that tasks run on.
fn parts_of(total: &[f64], shares: &[f64]) -> Vec<f64> {
    let total: f64 = total.iter().sum();
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum * total).collect()
}

#[test]
fn weights_divide_the_cpus_whatever_the_number_of_tasks() {
    let cgroups =
        [("one", "100", 1), ("two", "200", 8), ("four", "400", 3)].map(|(name, weight, tasks)| {
            Cgroup::with(name, &[("cpu.weight", weight)]).and_spinners(tasks)
        });
    let used = used(&cgroups.each_ref());
    near(&used, &parts_of(&used, &[1.0, 2.0, 4.0]), 5.0);
}

#[test]
fn weights_divide_each_level() {
    let _a = Cgroup::with("a", &[]);
    let _b = Cgroup::with("a/b", &[("cpu.weight", "300")]);
    let spinners =
        |name, weight, tasks| Cgroup::with(name, &[("cpu.weight", weight)]).and_spinners(tasks);
    let x = spinners("a/x", "100", 2);
    let (y, z) = (spinners("a/b/y", "100", 1), spinners("a/b/z", "100", 3));
    let other = spinners("other", "300", 4);
    let used = used(&[&x, &y, &z, &other]);
    // In sixteenths: a gets 4, of which a/b gets 3.
    near(&used, &parts_of(&used, &[1.0, 1.5, 1.5, 12.0]), 12.0);
}

/// Services, a session and machines as systemd arranges them, with CPUWeight= and CPUQuota=.
#[test]
fn slices_of_systemd_get_what_their_weights_and_quotas_say() {
    let slice = |name, weight| Cgroup::with(name, &[("cpu.weight", weight)]);
    let _slices = [("system.slice", "100"), ("user.slice", "100"), ("machine.slice", "200")]
        .map(|(name, weight)| slice(name, weight));
    let _user = slice("user.slice/user-1000.slice", "100");
    let web = slice("system.slice/web.service", "100").and_spinners(2);
    let db = slice("system.slice/db.service", "300").and_spinners(3);
    let session = slice("user.slice/user-1000.slice/session-1.scope", "100").and_spinners(4);
    let vm = slice("machine.slice/vm.scope", "100").and_spinners(4);
    let quota = |name, quota| Cgroup::with(name, &[("cpu.max", quota)]);
    let _container = quota("machine.slice/container.scope", "50000 100000");
    let small = quota("machine.slice/container.scope/small", "10000 100000").and_spinners(2);
    let used = used_after_a_start(&[&web, &db, &session, &vm, &small]);
    // The time that `small` may not use goes to the rest of its slice.
    let total: f64 = used.iter().sum();
    let parts = [1.0, 3.0, 4.0, 8.0].map(|sixteenths| sixteenths / 16.0 * total);
    near(&used, &[parts[0], parts[1], parts[2], parts[3] - 0.1, 0.1], 12.0);
}

#[test]
fn a_changed_weight_and_a_task_that_moves() {
    let one = Cgroup::with("one", &[]).and_spinners(4);
    let other = Cgroup::with("other", &[]).and_spinners(4);
    let gthctl = shared::scheduler(NO_RULES);
    one.set("cpu.weight", "300");
    std::thread::sleep(SETTLE);
    let used = cpus_used(&[&one, &other], WATCH);
    near(&used, &parts_of(&used, &[3.0, 1.0]), 5.0);
    // At any time, either cgroup may have a task more or less: no load is lost or left behind.
    for _ in 0..50 {
        one.tasks().iter().for_each(|task| other.take(task.pid));
        one.tasks().iter().for_each(|task| one.take(task.pid));
    }
    one.set("cpu.weight.nice", "0");
    other.set("cpu.weight", "200");
    std::thread::sleep(SETTLE);
    let used = cpus_used(&[&one, &other], WATCH);
    near(&used, &parts_of(&used, &[1.0, 2.0]), 5.0);
    gthctl.stop();
}

/// A rule's weights divide the time of the cgroup, even if they are set while its tasks run. The tasks
/// never sleep.
#[test]
fn a_rules_weight_for_tasks_that_run_changes_no_share_of_their_cgroup() {
    let cgroups = ["a", "b"].map(|name| Cgroup::with(name, &[]).and_spinners(4));
    let gthctl = shared::scheduler(NO_RULES);
    std::thread::sleep(SETTLE);
    gthctl.replace("strategies: [{cgroup: /a, weight: 1000}]");
    std::thread::sleep(SETTLE);
    let used = cpus_used(&cgroups.each_ref(), WATCH);
    println!("CPUs used: {used:.3?}");
    near(&used, &parts_of(&used, &[1.0, 1.0]), 12.0);
    gthctl.stop();
}

#[test]
fn limits_hold() {
    let limited =
        |name, quota: &str, tasks| Cgroup::with(name, &[("cpu.max", quota)]).and_spinners(tasks);
    let (quarter, half) =
        (limited("quarter", "25000 100000", 1), limited("half", "50000 100000", 4));
    let _two = Cgroup::with("two", &[("cpu.max", "160000 80000")]);
    let (inner, most) = (limited("two/inner", "75000 100000", 4), limited("two/most", "max", 4));
    let used = used(&[&quarter, &half, &inner, &most]);
    near(&used, &[0.25, 0.5, 0.75, 1.25], 5.0);
}

#[test]
fn a_limit_that_is_set_changed_and_removed_while_tasks_spin() {
    let cgroup = Cgroup::with("limited", &[]).and_spinners(2);
    let gthctl = shared::scheduler(NO_RULES);
    // Limits hold per period; 5 s are 50 of the longer periods.
    for (limit, cpus, watch) in [
        ("max", 2.0, WATCH / 3),
        ("20000 100000", 0.2, WATCH),
        ("150000", 1.5, WATCH),
        ("3000 10000", 0.3, WATCH / 3),
        ("max", 2.0, WATCH / 3),
    ] {
        cgroup.set("cpu.max", limit);
        std::thread::sleep(SETTLE);
        near(&cpus_used(&[&cgroup], watch), &[cpus], 5.0);
    }
    gthctl.stop();
}

#[test]
fn a_burst_is_what_earlier_periods_left() {
    // More than the quota of a period, less than quota and burst.
    const WORK: u64 = 36_000_000;
    const REST: u64 = 300_000_000;
    let gthctl = shared::scheduler(NO_RULES);
    let settings = [("cpu.max", "20000 100000"), ("cpu.max.burst", "20000")];
    let cgroups = ["with", "without"].map(|name| Cgroup::with(name, &settings));
    // Each records how long it does not run during its work. How late it wakes up does not count, as it
    // depends on the host.
    let tasks = cgroups.each_ref().map(|cgroup| {
        Task::start_in_cgroup("bursts", &cgroup.file(), |shared| {
            loop {
                task::sleep_until(task::now() + REST);
                let (begin, used) = (task::now(), task::cpu_used());
                task::use_cpu(WORK);
                let used = task::cpu_used() - used;
                shared.add_latency((task::now() - begin).saturating_sub(used));
            }
        })
    });
    cgroups[1].set("cpu.max.burst", "0");
    let [with, without] = tasks.each_ref().map(|task| {
        let held_back = task.samples(30);
        let mean = held_back.iter().sum::<u64>() / held_back.len() as u64;
        WORK as f64 / (WORK + REST + mean) as f64
    });
    println!("{with:.4} with a burst, {without:.4} without");
    // Without a burst, the work ends in the period after the one in which it begins.
    near(&[with], &[36.0 / 336.0], 8.0);
    assert!(without < with * 0.92);
    drop(tasks);
    gthctl.stop();
}

#[test]
fn a_limit_holds_for_priority_tasks_too() {
    let limited = Cgroup::with("limited", &[("cpu.max", "30000 100000")]).and_spinners(2);
    let gthctl = shared::scheduler("strategies: [{command_regex: ^spinner$, priority: true}]");
    std::thread::sleep(SETTLE);
    near(&cpus_used(&[&limited], WATCH), &[0.3], 5.0);
    gthctl.stop();
}

/// When their limit lets them run again, tasks of an exclusive rule continue on the rule's CPUs, not on
/// the CPUs of others.
#[test]
fn tasks_that_a_limit_held_back_return_to_their_exclusive_cpus() {
    const CPU: usize = 2;
    let limited = Cgroup::with("limited", &[("cpu.max", "50000 100000")]).and_spinners(2);
    let _others = task::spinners(2 * kernel::cpus(), "other");
    let rule = format!("{{command_regex: ^spinner$, cpus: {CPU}, exclusive: true}}");
    let gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
    std::thread::sleep(SETTLE);
    let pids: Vec<i32> = limited.tasks().iter().map(|task| task.pid).collect();
    let seen = std::thread::spawn(move || seen_elsewhere(CPU, &pids, WATCH));
    let used = cpus_used(&[&limited], WATCH);
    let seen = seen.join().unwrap();
    near(&used, &[0.5], 5.0);
    assert_eq!(seen, 0, "times that one was seen on another CPU");
    gthctl.stop();
}

#[test]
fn a_rule_takes_its_tasks_out_of_the_limits() {
    let limited = Cgroup::with("limited", &[]);
    let held = Cgroup::with("limited/held", &[]).and_spinners(1);
    let mut free = Cgroup::with("limited/free", &[]);
    free.add(Task::spinner_in_cgroup("free", &free.file()));
    limited.set("cpu.max", "30000 100000");
    let gthctl = shared::scheduler("strategies: [{command_regex: ^free$, cpu_limit: ignore}]");
    std::thread::sleep(SETTLE);
    // The free one takes a whole CPU, and nothing from the other's quota.
    near(&cpus_used(&[&held, &free], WATCH), &[0.3, 1.0], 5.0);
    gthctl.stop();
}

#[test]
fn an_idle_cgroup_gets_what_others_leave() {
    let idle = Cgroup::with("idle", &[("cpu.idle", "1")]).and_spinners(4);
    let other = Cgroup::with("other", &[]).and_spinners(4);
    let gthctl = shared::scheduler(NO_RULES);
    std::thread::sleep(SETTLE);
    let [beside, ..] = cpus_used(&[&idle, &other], WATCH)[..] else { panic!("no figures") };
    idle.set("cpu.idle", "0");
    std::thread::sleep(SETTLE);
    let used = cpus_used(&[&idle, &other], WATCH);
    println!("{beside:.3} CPUs as an idle cgroup, {used:.3?} as a normal one");
    assert!(beside < 0.2);
    near(&used, &parts_of(&used, &[1.0, 1.0]), 5.0);
    // systemd applies a weight in this way, even an unchanged one.
    idle.set("cpu.weight", "300");
    for values in [&["0"][..], &["1", "0"]] {
        values.iter().for_each(|value| idle.set("cpu.idle", value));
        idle.set("cpu.weight", "300");
        std::thread::sleep(SETTLE);
        let used = cpus_used(&[&idle, &other], WATCH);
        println!("{used:.3?} with a weight of 300 after cpu.idle {values:?}");
        near(&used, &parts_of(&used, &[3.0, 1.0]), 5.0);
    }
    gthctl.stop();
}

/// Changes the protection of its memory forever. A tick during such a change takes effect in an RCU
/// read-side critical section (change_pte_range(), mm/mprotect.c).
fn protect(shared: &task::Shared) {
    const LEN: usize = 16 << 20;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which only this function knows.
    let memory = unsafe { libc::mmap(ptr::null_mut(), LEN, both, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: as above. A kernel that has no huge pages refuses.
    unsafe { libc::madvise(memory, LEN, libc::MADV_NOHUGEPAGE) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::madvise(memory, LEN, libc::MADV_POPULATE_WRITE) }, 0);
    shared.answer.store(1, Ordering::Relaxed);
    for protection in [libc::PROT_READ, both].into_iter().cycle() {
        // SAFETY: nobody uses that memory.
        assert_eq!(unsafe { libc::mprotect(memory, LEN, protection) }, 0);
    }
}

/// A cgroup of tasks that all run [`protect`].
fn crowd_that_protects() -> Cgroup {
    let mut crowd = Cgroup::with("crowd", &[]);
    let dir = crowd.file();
    (0..8).for_each(|_| crowd.add(Task::start_in_cgroup("protect", &dir, protect)));
    let begun = |task: &Task| task.shared().answer.load(Ordering::Relaxed) == 1;
    assert!(kernel::wait(Duration::from_secs(20), || crowd.tasks().iter().all(begun)));
    crowd
}

#[test]
fn tasks_that_a_limit_holds_back_do_not_hold_up_rcu() {
    let gthctl = shared::scheduler(NO_RULES);
    let crowd = crowd_that_protects();
    crowd.set("cpu.max", "1000 100000");
    std::thread::sleep(SETTLE);
    let host = host::Watch::on_all();
    let grace_period = || {
        let begin = Instant::now();
        // SAFETY: it takes no pointers. It is synchronize_rcu() (kernel/sched/membarrier.c).
        let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0) };
        assert_eq!(done, 0);
        begin.elapsed().saturating_sub(host.stall())
    };
    let longest = (0..10).map(|_| grace_period()).max().unwrap();
    println!("longest grace period {longest:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    gthctl.stop();
}

#[test]
fn a_task_that_a_limit_holds_back_can_be_killed() {
    let cgroup = Cgroup::with("limited", &[]).and_spinners(4);
    let gthctl = shared::scheduler(NO_RULES);
    cgroup.set("cpu.max", "1000 1000000");
    std::thread::sleep(SETTLE);
    drop(cgroup);
    assert!(!fs::exists("/sys/fs/cgroup/limited").unwrap());
    gthctl.stop();
}

/// Far more tasks wait ahead of it than gthctl moves at a time.
#[test]
fn a_killed_task_waits_for_no_other_that_the_limit_holds_back() {
    const TASKS: usize = 150;
    let cgroup = Cgroup::with("limited", &[]).and_spinners(TASKS);
    let gthctl = shared::scheduler(NO_RULES);
    cgroup.set("cpu.max", "1000 1000000");
    std::thread::sleep(SETTLE);
    let mut longest = Duration::ZERO;
    for task in cgroup.tasks().iter().step_by(TASKS / 5) {
        let begin = Instant::now();
        task.kill();
        let stat = format!("/proc/{}/stat", task.pid);
        let has_ended = || kernel::read(&stat).contains(") Z ");
        assert!(kernel::wait(Duration::from_secs(30), has_ended), "PID {}", task.pid);
        longest = longest.max(begin.elapsed());
    }
    println!("the last ended after {longest:?}");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    drop(cgroup);
    gthctl.stop();
}

/// The tasks owe minutes of CPU time, which they used while they might have held up RCU. A tick may come
/// after a killed task has taken the signal and before it begins to exit: in one round of twelve.
#[test]
fn killed_tasks_of_a_cgroup_that_owes_much_end_at_once() {
    let gthctl = shared::scheduler(NO_RULES);
    let host = host::Watch::on_all();
    let mut longest = Duration::ZERO;
    for _ in 0..4 {
        let crowd = crowd_that_protects();
        crowd.set("cpu.max", "1000 100000");
        std::thread::sleep(2 * SETTLE);
        host.stall();
        let begin = Instant::now();
        drop(crowd);
        longest = longest.max(begin.elapsed().saturating_sub(host.stall()));
    }
    println!("the last ended after {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    gthctl.stop();
}

/// cpu.shares and cpu.cfs_quota_us (Documentation/scheduler/sched-bwc.rst).
#[test]
fn shares_and_quotas_of_cgroup_v1_hold() {
    let Some(cpu) = CpuHierarchy::mount() else { return };
    let with = |name, file, value, tasks| {
        let cgroup = Cgroup::below(cpu.path(), name);
        cgroup.set(file, value);
        cgroup.and_spinners_that_move_in(tasks)
    };
    let one = with("one", "cpu.shares", "1024", 6);
    let three = with("three", "cpu.shares", "3072", 4);
    let half = with("half", "cpu.cfs_quota_us", "50000", 2);
    let used = used_after_a_start(&[&one, &three, &half]);
    near(&used[2..], &[0.5], 5.0);
    near(&used[..2], &parts_of(&used[..2], &[1.0, 3.0]), 10.0);
}

#[test]
fn cgroups_that_come_and_go() {
    let gthctl = shared::scheduler(NO_RULES);
    let (one, two) = (Cgroup::with("one", &[]), Cgroup::with("two", &[("cpu.weight", "200")]));
    let (one, two) = (one.and_spinners(4), two.and_spinners(4));
    for i in 0..1_000 {
        let cgroup = Cgroup::with("passing", &[("cpu.max", "50000 100000")]);
        if i % 20 == 0 {
            drop(cgroup.and_spinners(1));
        }
    }
    let used = cpus_used(&[&one, &two], WATCH);
    near(&used, &parts_of(&used, &[1.0, 2.0]), 5.0);
    assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
    gthctl.stop();
}
