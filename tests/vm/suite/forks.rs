//! Tasks that fork get no more than others.

use std::time::Duration;

use crate::support::cgroup::Cgroup;
use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

/// The cost of a fork beside a spinner depends on what else the host does.
pub const VM: Vm = vm::VIRTUAL;

/// Forks, and continues as the child.
fn become_a_child() {
    // SAFETY: the child continues as its parent did.
    if unsafe { libc::fork() } != 0 {
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
}

/// Like [`become_a_child`], but the parent sleeps briefly after the fork and then runs until it ends.
fn become_a_child_and_run_on() {
    // SAFETY: the child continues as its parent did.
    if unsafe { libc::fork() } != 0 {
        task::sleep_until(task::now() + 1_000);
        task::run_for(3_000_000);
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    // The parent runs meanwhile.
    task::sleep_until(task::now() + 3_000_000);
}

/// The share of the two CPUs that four spinners get beside four chains of tasks.
fn part_of_spinners(under: &str, chains: &Cgroup, step: fn()) -> f64 {
    let dir = chains.file();
    for _ in 0..4 {
        // The first task of a chain ends by itself; the cgroup ends the chain.
        std::mem::forget(Task::start_in_cgroup("chain", &dir, move |_| {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            loop {
                step();
            }
        }));
    }
    let spinners = task::spinners(4, "spinner");
    std::thread::sleep(Duration::from_millis(500));
    let times: [&dyn Fn() -> Duration; 2] =
        [&|| spinners.iter().map(Task::cpu_time).sum(), &|| chains.used()];
    let used = kernel::cpus_used(&times, |time| time(), Duration::from_secs(1));
    let [got, others] = [0, 1].map(|i| used[i] / kernel::cpus() as f64);
    println!("{under}: spinners {got:.2} of the CPUs, chains {others:.2}");
    chains.set("cgroup.kill", "1");
    got
}

/// The same applies in a cgroup with a weight. Loading gthctl once is enough for both.
#[test]
fn chains_of_forks_get_what_they_get_from_the_kernel() {
    let plain = || Cgroup::new("chains");
    let weighted = || Cgroup::with("chains", &[("cpu.weight", "50")]);
    let steps: [fn(); 2] = [become_a_child, become_a_child_and_run_on];
    let kinds: [fn() -> Cgroup; 2] = [plain, weighted];
    let all: Vec<_> = kinds.into_iter().flat_map(|kind| steps.map(|step| (kind, step))).collect();
    let part = |under: &str, (chains, step): (fn() -> Cgroup, fn())| {
        part_of_spinners(under, &chains(), step)
    };
    shared::unload();
    let eevdf: Vec<f64> = all.iter().map(|&one| part("EEVDF", one)).collect();
    let gthctl = shared::scheduler(NO_RULES);
    for (one, eevdf) in all.into_iter().zip(eevdf) {
        let ours = part("gthctl", one);
        assert!(ours > eevdf - 0.03, "{ours:.2} against {eevdf:.2}");
    }
    gthctl.stop();
}
