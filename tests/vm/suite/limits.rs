//! Limits of cgroups (cpu.max) hold, and hold tasks back no longer than they must, whatever tasks and
//! users do.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::cgroup::{Cgroup, Cgroups, cpus_used};
use crate::support::gthctl::{NO_RULES, status};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARES;

const WATCH: Duration = Duration::from_secs(3);

fn state_of(pid: i32) -> char {
    let stat = kernel::read(&format!("/proc/{pid}/stat"));
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
}

/// Any user may stop and continue their own tasks. The kernel keeps the number of the signal in
/// task_struct.jobctl.
#[test]
fn a_task_that_was_stopped_and_goes_on_has_its_limit() {
    let limited = Cgroup::with("limited", &[("cpu.max", "20000 100000")]).and_spinners(1);
    let gthctl = shared::scheduler(NO_RULES);
    let pid = limited.tasks()[0].pid;
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    assert!(kernel::wait(Duration::from_secs(20), || state_of(pid) == 'T'));
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    assert!(kernel::wait(Duration::from_secs(20), || state_of(pid) == 'R'));
    let used = cpus_used(&[&limited], WATCH);
    assert!((0.17..0.25).contains(&used[0]), "{used:?}");
    gthctl.stop();
}

/// Anyone who may set the limit of one cgroup can do this.
#[test]
fn limits_that_are_set_without_end_hold_up_no_other() {
    let busy = Cgroup::with("busy", &[]);
    let limited = Cgroup::with("limited", &[("cpu.max", "50000 100000")]).and_spinners(1);
    let gthctl = shared::scheduler(NO_RULES);
    let writer = Task::fork("writer", |shared| {
        loop {
            for limit in ["50000 100000", "51000 100000"] {
                busy.set("cpu.max", limit);
            }
            shared.answer.fetch_add(1, Ordering::Relaxed);
        }
    });
    let used = cpus_used(&[&limited], WATCH);
    println!("{used:?} CPUs beside {} changes", 2 * writer.answer());
    assert!((0.4..0.6).contains(&used[0]), "{used:?}");
    gthctl.stop();
}

/// The only CPU that looks for a task runs one with a long slice. The waiting tasks belong to other CPUs,
/// which are idle.
#[test]
fn tasks_that_were_held_back_return_to_idle_exclusive_cpus_at_once() {
    let mut limited = Cgroup::with("limited", &[("cpu.max", "90000 100000")]);
    let slices = "scheduler: {slice_ns_default: 100ms, slice_ns_min: 100ms}";
    let gthctl = shared::with_slices(
        slices,
        "strategies: [{command_regex: ^hot$, cpus: 1-3, exclusive: true}]",
    );
    let _cold = Task::spinner("cold");
    let dir = limited.file();
    limited.add(Task::start_in_cgroup("hot", &dir, task::spin));
    let used = cpus_used(&[&limited], WATCH);
    assert!(used[0] > 0.8, "{used:?}");
    gthctl.stop();
}

/// The tasks have their rule's slice. In the default slice, a single one of them would use up the quota.
#[test]
fn tasks_that_a_limit_held_back_share_the_next_period() {
    let mut limited = Cgroup::with("limited", &[("cpu.max", "80000 100000")]);
    let gthctl = shared::with_slices(
        "scheduler: {slice_ns_default: 100ms, slice_ns_min: 100ms}",
        "strategies: [{command_regex: ^hot$, execution_time: 2ms}]",
    );
    for _ in 0..8 {
        limited.add(Task::start_in_cgroup("hot", &limited.file(), |shared| {
            task::set_affinity(0, &[0]);
            task::spin(shared);
        }));
    }
    let switches = || -> u64 {
        let pids = limited.tasks().iter().map(|task| task.pid);
        pids.map(kernel::involuntary_switches).sum()
    };
    let mut turns = 0;
    // In one of the seconds, the host lets them take turns: ten periods with 80 ms in each.
    let take_turns = || {
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        turns = switches() - before;
        turns > 150
    };
    assert!(kernel::wait(Duration::from_secs(10), take_turns), "{turns} turns in a second");
    println!("{turns} turns in a second");
    gthctl.stop();
}

/// Two tasks run once in each period of their limits, on one CPU. The one that a rule lets go ahead comes first.
#[test]
fn a_task_that_goes_ahead_does_so_after_a_limit_has_held_it_back() {
    const PERIOD: u64 = 40_000_000;
    let policy = |ahead: &str, behind: &str| {
        format!(
            "strategies: [{{command_regex: ^{ahead}$, priority: 10, execution_time: 100ms}}, \
             {{command_regex: ^{behind}$, execution_time: 100ms}}]"
        )
    };
    let mut cgroups = ["a", "b"].map(|name| Cgroup::with(name, &[("cpu.max", "8000 40000")]));
    let gthctl = shared::scheduler(NO_RULES);
    let last = Task::fork("last", |_| task::sleep_until(u64::MAX >> 1));
    let _beside = Task::fork_on("beside", Some(&[0]), task::spin);
    for (cgroup, name) in cgroups.iter_mut().zip(["a", "b"]) {
        cgroup.add(Task::start_in_cgroup(name, &cgroup.file(), |shared| {
            task::set_affinity(0, &[0]);
            let mut before = task::now();
            loop {
                let now = task::now();
                // This task was held back. The other one began just before it, or will begin.
                if now - before > PERIOD / 4 {
                    let since = now - last.shared().woken_at.swap(now, Ordering::Relaxed);
                    shared.add_latency((since < PERIOD / 2).into());
                }
                before = now;
            }
        }));
    }
    let came_second = |cgroup: &Cgroup| {
        let shared = cgroup.tasks()[0].shared();
        let count = || (shared.noted(), shared.latencies().iter().sum::<u64>());
        let before = count();
        assert!(kernel::wait(Duration::from_secs(60), || shared.noted() >= before.0 + 50));
        let after = count();
        (after.1 - before.1) as f64 / (after.0 - before.0) as f64
    };
    for (ahead, behind) in [(0, 1), (1, 0)] {
        let names = ["a", "b"];
        gthctl.replace(&policy(names[ahead], names[behind]));
        std::thread::sleep(Duration::from_secs(1));
        let second = [came_second(&cgroups[ahead]), came_second(&cgroups[behind])];
        println!("came second: {second:?}");
        assert!(second[1] - second[0] > 0.4, "{second:?}");
    }
    gthctl.stop();
}

/// The task was not ahead when it ended: it had already waited for the time that it ran. So the next new
/// task of its cgroup need not wait for that time again.
#[test]
fn a_new_task_pays_for_no_other_that_has_waited() {
    const ROUNDS: usize = 6;
    let cgroup = Cgroup::with("shell", &[]).and_spinners(3 * kernel::cpus());
    let gthctl = shared::scheduler(NO_RULES);
    let shell = Task::start_in_cgroup("shell", &cgroup.file(), |shared| {
        // SAFETY: its own child.
        let end = |pid| unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        for _ in 0..ROUNDS {
            end(task::fork_below(|| {
                end(task::fork_below(|| {}));
                task::use_cpu(200_000_000);
            }));
            let begin = task::now();
            end(task::fork_below(|| shared.add_latency(task::now() - begin)));
        }
        task::sleep_until(u64::MAX >> 1);
    });
    assert!(kernel::wait(Duration::from_secs(60), || shell.shared().noted() == ROUNDS));
    let waits = shell.shared().latencies();
    let median = Duration::from_nanos(waits[ROUNDS / 2]);
    println!("{median:?} from the fork to the first turn: {waits:?}");
    assert!(median < Duration::from_millis(250), "{waits:?}");
    gthctl.stop();
}

/// Nested cgroups.
struct Nested(Vec<Cgroup>);

impl Nested {
    /// The deepest of them is on this level of the hierarchy.
    fn down_to(level: usize) -> Self {
        let names = (1..=level).map(|level| vec!["nested"; level].join("/"));
        Self(names.map(|name| Cgroup::with(&name, &[])).collect())
    }

    fn and_spinners(mut self, count: usize) -> Self {
        let deepest = self.0.pop().unwrap();
        self.0.push(deepest.and_spinners(count));
        self
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// Any user to whom a cgroup is delegated may make these. gthctl keeps records down to level 31.
#[test]
fn cgroups_nested_deeply_have_the_limits_and_weights_above_them() {
    let limited = Cgroup::with("limited", &[("cpu.max", "50000 100000")]).and_spinners(1);
    for level in [31, 32, 40] {
        let nested = Nested::down_to(level).and_spinners(2 * kernel::cpus());
        let other =
            Cgroup::with("other", &[("cpu.weight", "300")]).and_spinners(2 * kernel::cpus());
        let gthctl = shared::scheduler(NO_RULES);
        let used = cpus_used(&[&nested.0[0], &other, &limited], WATCH);
        println!("level {level}, by weight: {used:?}");
        let left = kernel::cpus() as f64 - used[2];
        assert!((0.2..0.3).contains(&(used[0] / left)), "{used:?}");
        assert!((0.4..0.6).contains(&used[2]), "{used:?}");
        nested.0[0].set("cpu.max", "30000 100000");
        let used = cpus_used(&[&nested.0[0]], WATCH);
        println!("level {level}, by limit: {used:?}");
        assert!((0.25..0.35).contains(&used[0]), "{used:?}");
        gthctl.stop();
    }
}

/// Systemd gives each user the cpu controller, so a user can make more cgroups than gthctl keeps
/// records of.
#[test]
#[ignore = "takes 50 s"]
fn a_user_may_make_any_number_of_cgroups() {
    const MADE: usize = 16_400;
    let gthctl = shared::scheduler(NO_RULES);
    let mut cgroups = Cgroups::default();
    let user = cgroups.make("/user.slice/user-1000.slice");
    let above: Vec<_> = user.ancestors().take(3).collect();
    for dir in above.into_iter().rev() {
        fs::write(dir.join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    let begin = Instant::now();
    (0..MADE).for_each(|number| fs::create_dir(user.join(number.to_string())).unwrap());
    println!("{MADE} cgroups after {:?}", begin.elapsed());
    let beside = Cgroup::with("beside", &[("cpu.max", "50000 100000")]).and_spinners(1);
    let used = cpus_used(&[&beside], WATCH);
    assert!((0.4..0.6).contains(&used[0]), "{used:?}");
    assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
    drop(beside);
    drop(cgroups);
    println!("gone after {:?}", begin.elapsed());
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "-cpu");
    gthctl.stop();
}

/// A limit of the deepest cgroup applies to none above it, and writing to its files is no error.
#[test]
fn the_settings_of_a_cgroup_without_a_record_change_no_other() {
    let gthctl = shared::scheduler(NO_RULES);
    let nested = Nested::down_to(32).and_spinners(1);
    nested.0[31].set("cpu.max", "10000 100000");
    nested.0[31].set("cpu.weight", "1");
    let beside = Cgroup::with(&format!("{}/beside", vec!["nested"; 30].join("/")), &[]);
    let beside = beside.and_spinners(1);
    let used = cpus_used(&[&beside], WATCH);
    assert!(used[0] > 0.8, "{used:?}");
    drop(beside);
    drop(nested);
    gthctl.stop();
}

/// What earlier periods have left makes no difference: a period in which less than that is used counts,
/// too.
#[test]
fn each_period_in_which_a_cgroup_with_a_burst_runs_is_counted() {
    let mut limited =
        Cgroup::with("limited", &[("cpu.max", "20000 100000"), ("cpu.max.burst", "20000")]);
    let gthctl = shared::scheduler(NO_RULES);
    let dir = limited.file();
    limited.add(Task::start_in_cgroup("limited", &dir, |shared| {
        task::use_cpu(200_000_000); // so that it is held back and reported
        task::use_and_rest(5_000_000, 100_000_000)(shared);
    }));
    let periods = || {
        let all = status().unwrap().throttled_cgroups;
        let its = all.iter().find(|cgroup| cgroup.cgroup.ends_with("/limited"));
        // The first looks come before the end of a period in which it was held back.
        assert!(its.is_none_or(|its| its.nr_throttled <= its.nr_periods), "{its:?}");
        its.map(|cgroup| cgroup.nr_periods).ok_or(all)
    };
    assert!(kernel::wait(Duration::from_secs(20), || periods().is_ok()));
    let before = periods().unwrap();
    let grown = || periods().is_ok_and(|now| now > before + 40);
    assert!(kernel::wait(Duration::from_secs(30), grown), "{before}, then {:?}", periods());
    gthctl.stop();
}
