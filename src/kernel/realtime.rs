//! Finds real-time tasks (sched(7)), which run before everything that sched_ext schedules.

use std::path::Path;

use super::procfs::{is_of_kernel, processes, stat_field, text};
use super::sysfs::entries;
use crate::base::error::Result;

/// include/uapi/linux/sched.h.
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;

/// A thread of a program that is scheduled by SCHED_FIFO or SCHED_RR.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    pub tid: u32,
    pub comm: String,
}

/// All such threads except kernel threads. Threads that end meanwhile are missing.
pub fn threads(proc_root: &Path) -> Result<Vec<Thread>> {
    let mut found = Vec::new();
    for pid in processes(proc_root)? {
        let Ok(stat) = text(proc_root.join(format!("{pid}/stat"))) else { continue };
        if is_of_kernel(&stat) {
            continue;
        }
        let tasks = proc_root.join(format!("{pid}/task"));
        let Ok(names) = entries(&tasks) else { continue };
        found.extend(names.iter().filter_map(|name| thread(&tasks.join(name), name)));
    }
    found.sort();
    Ok(found)
}

/// The thread whose files are in `dir`, if it is a real-time thread.
fn thread(dir: &Path, name: &str) -> Option<Thread> {
    let stat = text(dir.join("stat")).ok()?;
    let policy: u32 = stat_field(&stat, 41)?;
    let comm = || text(dir.join("comm")).map(|comm| comm.trim_end().to_owned());
    [SCHED_FIFO, SCHED_RR]
        .contains(&policy)
        .then(|| Some(Thread { tid: name.parse().ok()?, comm: comm().ok()? }))?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// PF_KTHREAD (include/linux/sched.h).
    const OF_KERNEL: u32 = 0x0020_0000;

    /// Writes a thread: the kernel's flags and policy are fields 9 and 41.
    fn write(root: &Path, pid: u32, tid: u32, comm: &str, flags: u32, policy: u32) {
        let zeros = |n| vec!["0"; n].join(" ");
        let stat = format!("{tid} ({comm}) S {} {flags} {} {policy} 0\n", zeros(5), zeros(31));
        let dir = root.join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stat"), &stat).unwrap();
        fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
        if pid == tid {
            fs::write(root.join(format!("{pid}/stat")), stat).unwrap();
        }
    }

    #[test]
    fn programs_threads_of_both_policies_and_not_the_kernels() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), 20, 20, "migration/0", OF_KERNEL, SCHED_FIFO);
        write(root.path(), 30, 30, "upf", 0, 0);
        write(root.path(), 30, 31, "a) (b", 0, SCHED_FIFO);
        write(root.path(), 5, 5, "rr", 0, SCHED_RR);
        fs::create_dir(root.path().join("sys")).unwrap();
        let thread = |tid, comm: &str| Thread { tid, comm: comm.into() };
        assert_eq!(threads(root.path()).unwrap(), [thread(5, "rr"), thread(31, "a) (b")]);
    }

    #[test]
    fn of_this_machine() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(stat_field::<u32>(&stat, 41), Some(0), "this test is no real-time task");
        assert!(threads(Path::new("/proc")).is_ok());
    }
}
