//! Cgroups of the unified hierarchy, with tasks in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::kernel;
use crate::support::task::Task;

const MOUNTED_AT: &str = "/sys/fs/cgroup";

fn has_children(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| entry.unwrap().file_type().unwrap().is_dir())
}

/// A cgroup whose tasks end with it.
pub struct Cgroup {
    path: PathBuf,
    /// It has the cpu controller.
    controlled: bool,
    tasks: Vec<Task>,
}

impl Cgroup {
    /// Makes the cgroup `name`, a path below the root. Its parent must exist.
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(MOUNTED_AT).join(name);
        fs::create_dir(&path).unwrap();
        Self { path, controlled: false, tasks: Vec::new() }
    }

    /// The same, with the cpu controller and what is to be written to its files, such as
    /// `("cpu.weight", "200")`.
    pub fn with(name: &str, settings: &[(&str, &str)]) -> Self {
        let parent = PathBuf::from(MOUNTED_AT).join(name);
        let control = parent.parent().unwrap().join("cgroup.subtree_control");
        fs::write(control, "+cpu").unwrap();
        let mut cgroup = Self::new(name);
        cgroup.controlled = true;
        settings.iter().for_each(|(file, value)| cgroup.set(file, value));
        cgroup
    }

    /// So many spinners in it, too.
    pub fn and_spinners(mut self, count: usize) -> Self {
        let dir = self.file();
        self.tasks.extend((0..count).map(|_| Task::spinner_in_cgroup("spinner", &dir)));
        self
    }

    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.path.join(file), value).unwrap();
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn add(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// Moves a process here.
    pub fn take(&self, pid: i32) {
        self.set("cgroup.procs", &pid.to_string());
    }

    /// The CPU time of all its tasks, including those that have ended.
    pub fn used(&self) -> Duration {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).unwrap();
        let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
        Duration::from_micros(us.parse().unwrap())
    }

    pub fn file(&self) -> File {
        File::open(&self.path).unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.set("cgroup.kill", "1");
        self.tasks.clear();
        kernel::wait(Duration::from_secs(20), || fs::remove_dir(&self.path).is_ok());
        let control = self.path.parent().unwrap().join("cgroup.subtree_control");
        if self.controlled && !has_children(control.parent().unwrap()) {
            let _ = fs::write(control, "-cpu");
        }
    }
}

/// How many CPUs each cgroup uses while the test sleeps so long.
pub fn cpus_used(cgroups: &[&Cgroup], during: Duration) -> Vec<f64> {
    let used = || cgroups.iter().map(|cgroup| cgroup.used()).collect::<Vec<_>>();
    let (start, before) = (Instant::now(), used());
    std::thread::sleep(during);
    let (after, elapsed) = (used(), start.elapsed());
    let part =
        |(after, before): (&Duration, &Duration)| (*after - *before).div_duration_f64(elapsed);
    after.iter().zip(&before).map(part).collect()
}
