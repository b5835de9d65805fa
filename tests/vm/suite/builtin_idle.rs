//! With `builtin_idle`, the kernel chooses the idle CPUs.

use crate::exclusive::{POLICY, runs_alone};
use crate::fairness::assert_every_cpu_is_used;
use crate::robustness::{STORMY, survives_storms};
use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARES;

#[test]
fn no_cpu_is_left_idle_while_tasks_wait() {
    let gthctl = shared::with_builtin_idle(NO_RULES);
    assert_every_cpu_is_used();
    gthctl.stop();
}

#[test]
fn only_the_matched_run_on_an_exclusive_cpu() {
    let before = task::spinners(kernel::cpus(), "cold");
    let gthctl = shared::with_builtin_idle(POLICY);
    runs_alone(before);
    gthctl.stop();
}

#[test]
fn survives_storms_of_tasks() {
    survives_storms(shared::with_builtin_idle(STORMY));
}
