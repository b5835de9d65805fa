//! Random mixes of tasks and policies, each made from a seed.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::kernel;
use crate::support::task::{self, Task};

/// The most tasks at a time.
const MOST: usize = 24;

/// A small generator: the same numbers from the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn one_of<'a, T: ?Sized>(&mut self, values: &[&'a T]) -> &'a T {
        values[self.below(values.len())]
    }

    /// Some of the CPUs, at least one.
    fn cpus(&mut self) -> Vec<usize> {
        let set = 1 + self.below((1 << kernel::cpus()) - 1);
        (0..kernel::cpus()).filter(|cpu| set >> cpu & 1 == 1).collect()
    }
}

/// The current tasks of the mix, and its last steps.
#[derive(Default)]
pub struct Mix {
    tasks: Vec<Task>,
    /// Killed tasks, which end when they get a CPU.
    killed: Vec<Task>,
    last: String,
}

impl std::fmt::Debug for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks; {}", self.tasks.len(), self.last)
    }
}

impl Mix {
    /// Changes some tasks, and every other time the policy.
    pub fn change(&mut self, seed: u64, policy: &Path) {
        let mut random = Random::new(seed);
        self.last.clear();
        for _ in 0..2 + random.below(4) {
            if self.tasks.len() < MOST && random.below(3) != 0 {
                self.add(&mut random);
            } else if !self.tasks.is_empty() {
                self.alter(&mut random);
            }
        }
        if seed.is_multiple_of(2) {
            let text = policy_of(&mut random);
            let _ = write!(self.last, "policy {text}");
            fs::write(policy, &text).unwrap();
        }
    }

    fn add(&mut self, random: &mut Random) {
        let comm = random.one_of(&["a", "b", "c", "hot", "other"]);
        let cpus = random.cpus();
        let on = (random.below(2) == 0).then_some(cpus.as_slice());
        let nice = random.below(40) as i32 - 20;
        let job = random.below(5);
        let _ = write!(self.last, "add {comm} {on:?} nice {nice} job {job}; ");
        self.tasks.push(Task::launch(comm, on, move |shared| {
            task::set_nice(0, nice);
            match job {
                0 => task::wake_often(1_000_000)(shared),
                1 => task::spin_and_rest(3_000_000, 300_000)(shared),
                2 => fork_and_wait(),
                _ => task::spin(shared),
            }
        }));
    }

    fn alter(&mut self, random: &mut Random) {
        let i = random.below(self.tasks.len());
        match random.below(3) {
            0 => {
                let task = self.tasks.swap_remove(i);
                let _ = write!(self.last, "end {}; ", task.pid);
                task.kill();
                self.killed.push(task);
            }
            1 => {
                let cpus = random.cpus();
                task::set_affinity(self.tasks[i].pid, &cpus);
                let _ = write!(self.last, "{} to {cpus:?}; ", self.tasks[i].pid);
            }
            _ => {
                let nice = random.below(40) as i32 - 20;
                task::set_nice(self.tasks[i].pid, nice);
                let _ = write!(self.last, "{} nice {nice}; ", self.tasks[i].pid);
            }
        }
    }

    /// The longest time for which a spinner did not run.
    pub fn longest_gap(&self) -> Duration {
        let tasks = self.tasks.iter().chain(&self.killed);
        tasks.map(|task| task.shared().gap()).max().unwrap_or_default()
    }
}

/// Short-lived children, one after the other.
fn fork_and_wait() {
    loop {
        let child = task::fork_below(|| task::run_for(5_000_000));
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

fn policy_of(random: &mut Random) -> String {
    let mut rules = Vec::new();
    for comm in ["a", "b", "c"] {
        let effect = match random.below(6) {
            0 => format!("priority: {}", random.below(10)),
            1 => format!("priority: {}, execution_time: 1s", random.below(21)),
            2 => format!("weight: {}", 1 + random.below(1000)),
            3 => format!("cpus: {}, priority: {}", random.below(kernel::cpus()), random.below(21)),
            4 => "execution_time: 1s".to_owned(),
            _ => continue,
        };
        rules.push(format!("{{command_regex: ^{comm}$, {effect}}}"));
    }
    match random.below(4) {
        0 => rules.push("{command_regex: ^hot$, cpus: 2-3, exclusive: true}".to_owned()),
        1 => rules.push("{command_regex: ^hot$, cpus: 1, exclusive: true, priority: 0}".to_owned()),
        _ => {}
    }
    format!("strategies: [{}]", rules.join(", "))
}
