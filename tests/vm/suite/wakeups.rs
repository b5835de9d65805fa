//! How soon tasks without priority wake up.

use std::time::Duration;

use nix::unistd::Pid;

use crate::support::gthctl::NO_RULES;
use crate::support::shared;
use crate::support::task::{self, Task, wake_often};
use crate::support::vm::{self, Vm};

/// A wake-up takes 20 us, which a slow host multiplies.
pub const VM: Vm = vm::VIRTUAL;

/// How many of these wake-ups waited for a turn.
fn waited(late: &[u64]) -> usize {
    let waited = late.iter().filter(|ns| **ns > 500_000).count();
    println!("{waited} of {} waited, the longest {:?} ns", late.len(), late.iter().max());
    waited
}

/// The pool's clock jumps when a task that was preempted late in its turn continues. The task on the
/// other CPU is then far behind the clock, but tasks that hardly run still preempt it.
#[test]
fn a_task_that_hardly_runs_waits_for_no_turn_beside_priority_tasks() {
    let gthctl = shared::scheduler("strategies:\n- {command_regex: ^hot$, priority: true}\n");
    let _load = task::spinners(4, "load");
    let _hot = Task::fork_on("hot", Some(&[1]), wake_often(3_100_000));
    let rare = [1_000_000, 1_130_000, 1_570_000]
        .map(|period| Task::fork_on("rare", Some(&[0]), wake_often(period)));
    std::thread::sleep(Duration::from_millis(2000));
    let late: Vec<u64> = rare.iter().flat_map(|task| task.samples(1000)).collect();
    let waited = waited(&late);
    assert!(waited * 1000 < late.len(), "{waited} of {} waited", late.len());
    gthctl.stop();
}

/// Tasks that share a CPU fall behind the pool's clock while another CPU has one task. That does not put
/// a task that wakes up beside them behind them.
#[test]
fn a_task_that_hardly_runs_waits_for_no_turn_beside_those_that_fell_behind() {
    let gthctl = shared::scheduler(NO_RULES);
    let _other = Task::fork_on("other", Some(&[1]), task::spin);
    let _load = [(); 4].map(|()| Task::fork_on("load", Some(&[0]), task::spin));
    let rare = Task::fork_on("rare", Some(&[0]), wake_often(3_130_000));
    std::thread::sleep(Duration::from_millis(500));
    let late = rare.samples(500);
    let waited = waited(&late);
    assert!(waited * 100 < late.len(), "{waited} of {} waited", late.len());
    gthctl.stop();
}

/// Nor does it put a new task behind them.
#[test]
fn a_new_task_waits_no_longer_beside_those_that_fell_behind() {
    let gthctl = shared::scheduler(NO_RULES);
    let _other = Task::fork_on("other", Some(&[1]), task::spin);
    let _load = [(); 8].map(|()| Task::fork_on("load", Some(&[0]), task::spin));
    std::thread::sleep(Duration::from_secs(1));
    let parent = Task::fork_on("parent", Some(&[0]), |shared| {
        loop {
            let begin = task::now();
            let child = task::fork_below(|| shared.add_latency(task::now() - begin));
            nix::sys::wait::waitpid(Pid::from_raw(child), None).unwrap();
            task::sleep(20_000_000, 0);
        }
    });
    let late = parent.samples(60);
    let median = task::part(&late, 0.5);
    println!("median {median:?}, the longest {:?} ns", late.iter().max());
    assert!(median < Duration::from_millis(60), "{median:?}");
    gthctl.stop();
}
