//! What /proc counts: the times of CPUs and of threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::kernel::procfs::{self, stat_field};

/// What a CPU has done since boot, in clock ticks (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Includes `nice` and guests.
    pub user: u64,
    pub system: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
    /// Includes `iowait`.
    pub idle: u64,
}

/// What a thread has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// Distinguishes it from a later thread with the same TID.
    pub start_ticks: u64,
    /// Where it ran last.
    pub cpu: u32,
    /// Absent where the kernel does not count them (CONFIG_SCHED_INFO).
    pub turns: Option<Turns>,
    pub switches: u64,
    /// The switches among them that it did not ask for.
    pub preempted: u64,
}

/// A thread's time on CPUs and its time waiting for them (`/proc/PID/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    pub run_ns: u64,
    pub wait_ns: u64,
    pub count: u64,
}

/// The times of each CPU that is online.
pub fn cpus(proc_root: &Path) -> Result<BTreeMap<u32, CpuTimes>> {
    let path = proc_root.join("stat");
    let text = fs::read_to_string(&path).map_err(|e| Error::because_of(path.display(), e))?;
    Ok(text.lines().filter_map(cpu).collect())
}

/// Parses a line such as `cpu0 1 2 3 ...`. The line for the sum of all CPUs has no number.
fn cpu(line: &str) -> Option<(u32, CpuTimes)> {
    let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let number = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
    let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = times[..] else {
        return None;
    };
    let (user, idle) = (user + nice, idle + iowait);
    Some((number, CpuTimes { user, system, irq, softirq, steal, idle }))
}

/// The times of a thread; `None` if there is none, or no longer.
pub fn task(proc_root: &Path, pid: u32, tid: u32) -> Option<TaskTimes> {
    let dir = proc_root.join(format!("{pid}/task/{tid}"));
    let stat = procfs::text(dir.join("stat")).ok()?;
    let status = procfs::text(dir.join("status")).ok()?;
    let schedstat = fs::read_to_string(dir.join("schedstat")).ok();
    let switches = |name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    let preempted = switches("nonvoluntary_ctxt_switches:")?;
    Some(TaskTimes {
        start_ticks: stat_field(&stat, 22)?,
        cpu: stat_field(&stat, 39)?,
        turns: schedstat.and_then(|text| turns(&text)),
        switches: switches("voluntary_ctxt_switches:")? + preempted,
        preempted,
    })
}

/// A kernel that does not count prints zeros.
fn turns(schedstat: &str) -> Option<Turns> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    let turns = Turns { run_ns: next()?, wait_ns: next()?, count: next()? };
    (turns != Turns::default()).then_some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_without_their_sum_and_without_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n\
                    cpu12 10 0 0 90 0 0 0 0 0 0\nintr 1\nctxt 2\n";
        fs::write(dir.path().join("stat"), text).unwrap();
        let cpus = cpus(dir.path()).unwrap();
        let first = CpuTimes { user: 3, system: 3, irq: 6, softirq: 7, steal: 8, idle: 9 };
        let second = CpuTimes { user: 10, idle: 90, ..CpuTimes::default() };
        assert_eq!(cpus, [(0, first), (12, second)].into());
        assert!(super::cpus(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_thread_whose_name_has_blanks() {
        let dir = tempfile::tempdir().unwrap();
        let thread = dir.path().join("7/task/8");
        fs::create_dir_all(&thread).unwrap();
        let rest: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        fs::write(thread.join("stat"), format!("8 (a) b) {}\n", rest.join(" "))).unwrap();
        let status = "Name:\ta) b\nvoluntary_ctxt_switches:\t30\nnonvoluntary_ctxt_switches:\t12\n";
        fs::write(thread.join("status"), status).unwrap();
        let without =
            TaskTimes { start_ticks: 22, cpu: 39, turns: None, switches: 42, preempted: 12 };
        assert_eq!(task(dir.path(), 7, 8), Some(without));
        fs::write(thread.join("schedstat"), "0 0 0\n").unwrap();
        assert_eq!(task(dir.path(), 7, 8), Some(without));
        fs::write(thread.join("schedstat"), "500 60 7\n").unwrap();
        let turns = Some(Turns { run_ns: 500, wait_ns: 60, count: 7 });
        assert_eq!(task(dir.path(), 7, 8), Some(TaskTimes { turns, ..without }));
        assert_eq!(task(dir.path(), 7, 9), None);
    }

    #[test]
    fn this_thread() {
        let pid = std::process::id();
        let tid = nix::unistd::gettid().as_raw() as u32;
        assert!(task(Path::new("/proc"), pid, tid).unwrap().start_ticks > 0);
        assert!(!cpus(Path::new("/proc")).unwrap().is_empty());
    }
}
