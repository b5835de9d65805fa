//! No task gets more than the policy gives it by renaming a thread.

use std::fs;
use std::sync::atomic::Ordering;

use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARES;

/// A thread that keeps renaming its sibling makes gthctl match it again and again.
#[test]
fn a_task_that_is_being_matched_has_no_rule() {
    let gthctl =
        shared::scheduler("strategies: [{command_regex: ^nobody-at-all$, priority: true}]");
    let _load = task::spinners(kernel::cpus(), "load");
    let renamed = Task::fork("renamed", |shared| {
        // SAFETY: no pointers.
        let tid = unsafe { libc::gettid() };
        // Waits until the test has seen its first name.
        while shared.order.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::spawn(move || {
            for name in ["one", "two"].into_iter().cycle() {
                let _ = fs::write(format!("/proc/self/task/{tid}/comm"), name);
            }
        });
        task::wake_often(200_000)(shared)
    });
    renamed.order(1);
    renamed.samples(1000);
    drop(renamed);
    assert_eq!(gthctl.counter("COUNT_PRIO_WAKEUPS"), 0);
    gthctl.stop();
}
