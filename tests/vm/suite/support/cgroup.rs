//! Cgroups of the unified hierarchy, with tasks in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};

use crate::support::kernel;
use crate::support::shared;
use crate::support::task::Task;

const MOUNTED_AT: &str = "/sys/fs/cgroup";

fn has_children(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| entry.unwrap().file_type().unwrap().is_dir())
}

/// A cgroup whose tasks end with it.
pub struct Cgroup {
    path: PathBuf,
    /// Its controllers, such as "cpu".
    controllers: Vec<&'static str>,
    tasks: Vec<Task>,
}

impl Cgroup {
    /// Makes the cgroup `name`, a path below the root. Its parent must exist.
    pub fn new(name: &str) -> Self {
        Self::below(Path::new(MOUNTED_AT), name)
    }

    /// Like [`Cgroup::new`], in the hierarchy that is mounted at `root`.
    pub fn below(root: &Path, name: &str) -> Self {
        let path = root.join(name.trim_start_matches('/'));
        fs::create_dir(&path).unwrap();
        Self { path, controllers: Vec::new(), tasks: Vec::new() }
    }

    /// Like [`Cgroup::new`], with the cpu controller. Writes `settings` to the cgroup's files, such as
    /// `("cpu.weight", "200")`.
    pub fn with(name: &str, settings: &[(&str, &str)]) -> Self {
        Self::controlled(name, vec!["cpu"], settings)
    }

    /// Like [`Cgroup::new`], with these CPUs (`cpuset.cpus`); "" for its parent's CPUs.
    pub fn on(name: &str, cpus: &str) -> Self {
        Self::controlled(name, vec!["cpu", "cpuset"], &[("cpuset.cpus", cpus)])
    }

    fn controlled(name: &str, controllers: Vec<&'static str>, settings: &[(&str, &str)]) -> Self {
        let parent = PathBuf::from(MOUNTED_AT).join(name);
        let control = parent.parent().unwrap().join("cgroup.subtree_control");
        for controller in &controllers {
            fs::write(&control, format!("+{controller}")).unwrap();
        }
        let mut cgroup = Self::new(name);
        cgroup.controllers = controllers;
        settings.iter().for_each(|(file, value)| cgroup.set(file, value));
        cgroup
    }

    /// Adds `count` spinners.
    pub fn and_spinners(mut self, count: usize) -> Self {
        let dir = self.file();
        self.tasks.extend((0..count).map(|_| Task::spinner_in_cgroup("spinner", &dir)));
        self
    }

    /// Like [`Cgroup::and_spinners`] in cgroup v1, where a process cannot be started in a given cgroup.
    pub fn and_spinners_that_move_in(mut self, count: usize) -> Self {
        self.tasks.extend((0..count).map(|_| Task::spinner("spinner")));
        self.tasks.iter().for_each(|task| self.take(task.pid));
        self
    }

    pub fn set(&self, file: &str, value: &str) {
        let path = self.path.join(file);
        fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn add(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// Moves a process here.
    pub fn take(&self, pid: i32) {
        enter(&self.path, pid);
    }

    /// The CPU time of all its tasks, including those that have ended.
    pub fn used(&self) -> Duration {
        if let Ok(ns) = fs::read_to_string(self.path.join("cpuacct.usage")) {
            return Duration::from_nanos(ns.trim().parse().unwrap());
        }
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
        // A threaded cgroup has no cgroup.kill, nor has cgroup v1.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        self.tasks.clear();
        kernel::wait(Duration::from_secs(20), || fs::remove_dir(&self.path).is_ok());
        let control = self.path.parent().unwrap().join("cgroup.subtree_control");
        if has_children(control.parent().unwrap()) {
            return;
        }
        for controller in &self.controllers {
            let _ = fs::write(&control, format!("-{controller}"));
        }
    }
}

/// A hierarchy of cgroup v1 with the cpu controller (and cpuacct, which counts the CPU time).
pub struct CpuHierarchy(tempfile::TempDir);

fn mount_cpu(at: &Path) -> nix::Result<()> {
    let cgroup = Some("cgroup");
    mount(cgroup, at, cgroup, MsFlags::empty(), Some("cpu,cpuacct"))
}

impl CpuHierarchy {
    /// Ends the scheduler that tests share. Returns `None` and prints why if the kernel has no such
    /// controller.
    pub fn mount() -> Option<Self> {
        shared::unload();
        let dir = tempfile::tempdir().unwrap();
        let mut mounted = Ok(());
        // The mount fails until the kernel has released the cgroups of earlier tests.
        kernel::wait(Duration::from_secs(20), || {
            mounted = mount_cpu(dir.path());
            mounted != Err(Errno::EBUSY)
        });
        match mounted {
            Ok(()) => Some(Self(dir)),
            Err(e @ (Errno::EINVAL | Errno::ENODEV | Errno::ENOENT)) => {
                println!("skipped: this kernel has no cpu controller of cgroup v1: {e}");
                None
            }
            Err(e) => panic!("the cpu controller cannot be had in a hierarchy of its own: {e}"),
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for CpuHierarchy {
    /// Gives the controller back to the unified hierarchy. A hierarchy outlives its mount while the
    /// kernel still has one of its removed cgroups (cgroup_kill_sb(), kernel/cgroup/cgroup.c).
    fn drop(&mut self) {
        let controllers = Path::new(MOUNTED_AT).join("cgroup.controllers");
        let is_back = || {
            let text = fs::read_to_string(&controllers).unwrap_or_default();
            text.split_whitespace().any(|name| name == "cpu")
        };
        kernel::wait(Duration::from_secs(20), || {
            umount(self.path()).is_ok()
                && (kernel::wait(Duration::from_millis(200), is_back) || {
                    let _ = mount_cpu(self.path());
                    false
                })
        });
    }
}

/// Cgroups and the parents made for them; removed with everything below them when dropped.
#[derive(Default)]
pub struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    /// Makes the cgroup `path`, a path from the root, and those of its parents that are missing.
    pub fn make(&mut self, path: &str) -> PathBuf {
        let path = Path::new(MOUNTED_AT).join(path.trim_start_matches('/'));
        let missing: Vec<_> = path.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir).unwrap();
            self.0.push(dir.into());
        }
        path
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        while let Some(dir) = self.0.pop() {
            kernel::wait(Duration::from_secs(20), || remove(&dir));
        }
    }
}

/// Removes a cgroup and its children.
fn remove(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return true };
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for entry in dirs {
        remove(&entry.path());
    }
    fs::remove_dir(dir).is_ok()
}

/// Moves a process into a cgroup.
pub fn enter(cgroup: &Path, pid: i32) {
    let file = cgroup.join("cgroup.procs");
    fs::write(&file, pid.to_string()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// Moves a process to the root.
pub fn take_out(pid: i32) {
    enter(Path::new(MOUNTED_AT), pid);
}

/// How many CPUs each cgroup uses while the test sleeps for `during`.
pub fn cpus_used(cgroups: &[&Cgroup], during: Duration) -> Vec<f64> {
    kernel::cpus_used(cgroups, |cgroup| cgroup.used(), during)
}
