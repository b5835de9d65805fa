//! Limits of cgroups (cpu.max) hold, and hold back nobody for longer, whatever tasks and users do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::gthctl::NO_RULES;
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

/// Any user may stop his tasks and let them go on. The kernel keeps the number of the signal in
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

/// Whoever may set the limit of one cgroup.
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

/// The only CPU that looks for a task runs one with a long slice. Those that wait belong to others, which are idle.
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

/// The task was not ahead when it ended: it had waited for what it ran. So the next new task of its cgroup need
/// not wait for that once more.
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
