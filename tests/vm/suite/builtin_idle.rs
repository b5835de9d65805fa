//! With `builtin_idle`, the kernel chooses the idle CPUs.

use std::io::{Read, Write, pipe};
use std::time::Duration;

use crate::exclusive::{POLICY, runs_alone};
use crate::fairness::assert_every_cpu_is_used;
use crate::robustness::{STORMY, survives_storms};
use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
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
    // In virtual time, four seconds of this would take the host 40.
    survives_storms(shared::with_builtin_idle(STORMY), 1);
}

fn cpu() -> u8 {
    // SAFETY: no memory is involved.
    unsafe { libc::sched_getcpu() as u8 }
}

/// A task that writes to a pipe hints that it is about to sleep (WF_SYNC). This one keeps running.
#[test]
fn nobody_waits_for_a_waker_that_goes_on() {
    const WAKEUPS: usize = 100;
    let gthctl = shared::with_builtin_idle(NO_RULES);
    let (mut reader, mut writer) = pipe().unwrap();
    let sleeper = Task::fork("sleeper", move |shared| {
        let mut waker = [0];
        while reader.read_exact(&mut waker).is_ok() {
            shared.add_latency((cpu() == waker[0]).into());
        }
    });
    let _waker = Task::fork("waker", move |_| {
        loop {
            task::run_for(20_000_000);
            writer.write_all(&[cpu()]).unwrap();
        }
    });
    let all = || sleeper.shared().noted() >= WAKEUPS;
    assert!(kernel::wait(Duration::from_secs(60), all), "{} wake-ups", sleeper.shared().noted());
    let behind: u64 = sleeper.shared().latencies().iter().sum();
    println!("{behind} of {} wake-ups waited for the waker's CPU", sleeper.shared().noted());
    assert!(behind < WAKEUPS as u64 / 5, "{behind}");
    gthctl.stop();
}
