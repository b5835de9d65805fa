//! Checks from outside whether a rule reaches a task. The rule gives its tasks a CPU of their own,
//! so the CPU on which the kernel runs a task that never sleeps shows whether it matches.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::halt::Halt;
use crate::support::kernel;
use crate::support::task::{self, Task};

/// The CPU of the tasks that match.
pub const CPU: usize = 1;

/// How long a task may take to get to the right CPU. Its record is right at once. After that, the
/// task's slice has to end and, on kernels without scx_bpf_kick_cpu, an idle CPU has to take its next
/// interrupt.
pub const SOON: Duration = Duration::from_secs(4);

pub fn policy(conditions: &str) -> String {
    format!("strategies: [{{name: hot, {conditions}, cpus: {CPU}, exclusive: true}}]")
}

/// Whether the thread comes to the rule's CPU and stays there.
pub fn is_hot(tid: i32) -> bool {
    settle(&[(tid, true)])
}

pub fn is_cold(tid: i32) -> bool {
    settle(&[(tid, false)])
}

/// Asserts that the threads of `hot` come to the rule's CPU and those of `cold` to others, and that
/// all stay there.
#[track_caller]
pub fn assert_places(hot: &[i32], cold: &[i32]) {
    let hot = hot.iter().map(|&tid| (tid, true));
    let all: Vec<_> = hot.chain(cold.iter().map(|&tid| (tid, false))).collect();
    if settle(&all) {
        return;
    }
    let place = |&(tid, hot): &(i32, bool)| {
        let comm = kernel::read(&format!("/proc/{tid}/comm"));
        let wanted = if hot { "" } else { "not " };
        format!("{tid} ({comm}) on {:?}, {wanted}{CPU} wanted", kernel::cpu_of(tid))
    };
    panic!("{}", all.iter().map(place).collect::<Vec<_>>().join("; "));
}

fn settle(tasks: &[(i32, bool)]) -> bool {
    let there = || {
        tasks.iter().all(|&(tid, hot)| kernel::cpu_of(tid).is_some_and(|cpu| (cpu == CPU) == hot))
    };
    kernel::wait(SOON, there) && !kernel::wait(Duration::from_millis(300), || !there())
}

/// Runs, and renames itself whenever `order` changes: 1 to hot, 2 to cold.
pub fn rename_on_order(shared: &task::Shared) {
    on_order(shared, |order| task::set_name(if order == 1 { "hot" } else { "cold" }));
}

/// Runs, and calls `act` whenever `order` changes.
pub fn on_order(shared: &task::Shared, mut act: impl FnMut(u32)) {
    let (mut done, mut halt) = (0, Halt::new());
    loop {
        let order = shared.order.load(Ordering::Relaxed);
        if order != done {
            act(order);
            done = order;
        }
        halt.rest();
    }
}

/// The threads of a process except its first one; there must be some.
pub fn other_threads(task: &Task) -> Vec<i32> {
    let list = || -> Vec<i32> {
        let dir = fs::read_dir(format!("/proc/{}/task", task.pid)).unwrap();
        let tids = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
        tids.filter(|&tid| tid != task.pid).collect()
    };
    assert!(kernel::wait(SOON, || !list().is_empty()));
    list()
}

/// A process with a second thread; both spin. The second thread takes the name, if any.
pub fn with_thread(name: &'static str) -> impl FnOnce(&task::Shared) {
    move |shared| {
        std::thread::spawn(move || {
            if !name.is_empty() {
                task::set_name(name);
            }
            task::spin_on();
        });
        rename_on_order(shared)
    }
}
