//! Which tasks a rule reaches. The tests see that by the CPU on which the kernel runs each task: the
//! rule gives its tasks a CPU of their own, and every task here keeps running.

use std::fs;
use std::sync::atomic::Ordering;

use crate::support::hot::{
    CPU, SOON, assert_places, is_cold, is_hot, other_threads, policy, rename_on_order, with_thread,
};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

#[test]
fn by_name_when_it_runs_already() {
    let hot = Task::spinner("hot");
    let cold = Task::spinner("cold");
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    assert_places(&[hot.pid], &[cold.pid]);
    gthctl.stop();
}

#[test]
fn by_name_when_it_starts_later() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    let hot = Task::spinner("hot");
    let cold = Task::spinner("hotter");
    assert_places(&[hot.pid], &[cold.pid]);
    gthctl.stop();
}

#[test]
fn after_it_renamed_itself_and_back() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    let task = Task::fork("cold", rename_on_order);
    assert!(is_cold(task.pid));
    task.shared().order.store(1, Ordering::Relaxed);
    assert!(is_hot(task.pid));
    task.shared().order.store(2, Ordering::Relaxed);
    assert!(is_cold(task.pid));
    gthctl.stop();
}

#[test]
fn its_children() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    let task = Task::fork("hot", |shared| {
        // SAFETY: the child only spins.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        } else {
            shared.answer.store(child as u32, Ordering::Relaxed);
        }
        task::spin(shared)
    });
    assert!(kernel::wait(SOON, || task.shared().answer.load(Ordering::Relaxed) != 0));
    let child = task.shared().answer.load(Ordering::Relaxed) as i32;
    assert_places(&[task.pid, child], &[]);
    gthctl.stop();
}

#[test]
fn after_exec() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot-prog$"));
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("hot-prog");
    fs::write(&program, "#!/bin/sh\nwhile :; do :; done\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::ffi::CString::new(program.to_str().unwrap()).unwrap();
    let task = Task::fork("cold", |shared| {
        task::spin_until_order(shared);
        let argv = [path.as_ptr(), std::ptr::null()];
        // SAFETY: a null-terminated array of C strings.
        unsafe { libc::execv(path.as_ptr(), argv.as_ptr()) };
    });
    assert!(is_cold(task.pid));
    task.shared().order.store(1, Ordering::Relaxed);
    assert!(is_hot(task.pid), "comm is {}", kernel::read(&format!("/proc/{}/comm", task.pid)));
    gthctl.stop();
}

#[test]
fn one_thread_of_a_process_by_its_own_name() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    let task = Task::fork("cold", with_thread("hot"));
    assert_places(&[other_threads(&task)[0]], &[task.pid]);
    gthctl.stop();
}

#[test]
fn every_thread_by_the_name_of_the_process() {
    let gthctl = shared::scheduler(&policy("command_regex: ^hot$"));
    let task = Task::fork("hot", with_thread("worker"));
    assert_places(&[task.pid, other_threads(&task)[0]], &[]);
    // It no longer matches when the leader takes another name.
    task.shared().order.store(2, Ordering::Relaxed);
    assert_places(&[], &[task.pid, other_threads(&task)[0]]);
    task.shared().order.store(1, Ordering::Relaxed);
    assert!(is_hot(other_threads(&task)[0]));
    gthctl.stop();
}

#[test]
fn by_pid_with_every_thread() {
    let task = Task::fork("any", with_thread("worker"));
    let other = Task::spinner("any");
    let gthctl = shared::scheduler(&policy(&format!("pid: {}", task.pid)));
    assert_places(&[task.pid, other_threads(&task)[0]], &[other.pid]);
    gthctl.stop();
}

#[test]
fn by_the_pid_of_a_thread_only_that() {
    let task = Task::fork("any", with_thread("worker"));
    let thread = other_threads(&task)[0];
    let gthctl = shared::scheduler(&policy(&format!("pid: {thread}")));
    assert_places(&[thread], &[task.pid]);
    gthctl.stop();
}

#[test]
fn a_reused_pid_inherits_nothing() {
    let task = Task::spinner("any");
    let pid = task.pid;
    let gthctl = shared::scheduler(&policy(&format!("pid: {pid}")));
    assert!(is_hot(pid));
    drop(task);
    let heir = Task::spinner_with_pid("any", pid);
    assert_eq!(heir.pid, pid);
    assert!(is_cold(heir.pid));
    gthctl.stop();
}

#[test]
fn the_first_rule_whose_conditions_all_hold() {
    let hot = Task::spinner("hot-1");
    let other = Task::spinner("hot-2");
    let gthctl = shared::scheduler(&format!(
        "strategies:
- {{command_regex: ^hot-1$, pid: {}, cpus: 2, exclusive: true}}
- {{command_regex: ^hot, cpus: {CPU}, exclusive: true}}",
        other.pid
    ));
    assert_places(&[hot.pid, other.pid], &[]);
    gthctl.stop();
}

#[test]
fn many_rules_at_once() {
    let rules: String = (0..127)
        .map(|i| format!("- {{command_regex: '^none-{i}[a-z]*$', priority: {}}}\n", i % 21))
        .collect();
    let hot = Task::spinner("hot");
    let cold = Task::spinner("cold");
    let last = format!("- {{command_regex: ^hot$, cpus: {CPU}, exclusive: true}}\n");
    let gthctl = shared::scheduler(&format!("strategies:\n{rules}{last}"));
    assert_places(&[hot.pid], &[cold.pid]);
    gthctl.stop();
}
