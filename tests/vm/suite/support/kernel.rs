//! What the kernel says about its scheduler, its CPUs and its tasks.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// `disabled`, `enabled`, …
pub fn state() -> String {
    read(&format!("{SCHED_EXT}/state"))
}

/// The name of the loaded sched_ext scheduler.
pub fn ops() -> String {
    read(&format!("{SCHED_EXT}/root/ops"))
}

pub fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// How many CPUs are online.
pub fn cpus() -> usize {
    read("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count()
}

/// True when the task is scheduled by the loaded sched_ext scheduler.
pub fn is_ext(pid: i32) -> bool {
    read(&format!("/proc/{pid}/sched"))
        .lines()
        .any(|line| line.starts_with("ext.enabled") && line.ends_with('1'))
}

/// The CPU a thread is on, or was on last (proc_pid_stat(5), field 39).
pub fn cpu_of(tid: i32) -> Option<usize> {
    let stat = read(&format!("/proc/{tid}/stat"));
    let after_comm = &stat[stat.rfind(')')? + 2..];
    after_comm.split(' ').nth(36)?.parse().ok()
}

/// Whether a thread sleeps (proc_pid_status(5)).
pub fn is_asleep(tid: i32) -> bool {
    read(&format!("/proc/{tid}/status")).contains("\nState:\tS")
}

/// How long a thread may take to move to another CPU: the VM is slow, and its host may be busy.
const MOVED: Duration = Duration::from_secs(30);

/// True once a thread that never sleeps is on the CPU.
pub fn runs_on(tid: i32, cpu: usize) -> bool {
    wait(MOVED, || cpu_of(tid) == Some(cpu))
}

/// True once a thread that never sleeps has left the CPU.
pub fn runs_elsewhere(tid: i32, cpu: usize) -> bool {
    wait(MOVED, || cpu_of(tid).is_some_and(|now| now != cpu))
}

/// CPU time of a thread (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat).
pub fn cpu_time(tid: i32) -> Duration {
    let schedstat = read(&format!("/proc/{tid}/schedstat"));
    let ns = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_else(|| panic!("/proc/{tid}/schedstat: {schedstat:?}")))
}

/// How often a thread was made to leave its CPU (proc_pid_status(5)).
pub fn involuntary_switches(tid: i32) -> u64 {
    let status = read(&format!("/proc/{tid}/status"));
    let line = status.lines().find(|line| line.starts_with("nonvoluntary_ctxt_switches"));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How often a process has read from files so far (proc_pid_io(5)); 0 where the kernel does not
/// count reads, like 6.12 as built here.
pub fn reads(pid: i32) -> u64 {
    if !Path::new("/proc/self/io").exists() {
        return 0;
    }
    let io = read(&format!("/proc/{pid}/io"));
    let syscr = io.lines().find_map(|line| line.strip_prefix("syscr: "));
    syscr.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("/proc/{pid}/io: {io:?}"))
}

/// What the kernel says about each open file of a process (/proc/PID/fdinfo, proc(5)).
pub fn open_files(pid: i32) -> impl Iterator<Item = String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default())
}

/// Gives each CPU's kworker something to do and waits for all of them. Returns how long that took
/// (mm/vmstat.c, vmstat_refresh()).
pub fn run_kworkers() -> Duration {
    let begin = Instant::now();
    fs::write("/proc/sys/vm/stat_refresh", "1").unwrap();
    begin.elapsed()
}

/// Waits for `condition`, at most `limit`; false if it did not come true. Checks a condition that takes
/// long to check less often, so that the checks take a fifth of the time.
pub fn wait(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        let look = Instant::now();
        if condition() {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(
            (4 * look.elapsed()).clamp(Duration::from_millis(5), Duration::from_millis(250)),
        );
    }
}

/// A reading that takes less than this counts as taken at one moment.
const AT_ONCE: Duration = Duration::from_millis(20);

/// Returns when `read` began and what it returned. Reads again, for a while, if the host stalls or other
/// tasks take the CPU in between; the quickest reading counts.
pub fn at_once<T>(read: impl Fn() -> T) -> (Instant, T) {
    let mut quickest: Option<(Duration, Instant, T)> = None;
    wait(Duration::from_secs(3), || {
        let begin = Instant::now();
        let all = read();
        let took = begin.elapsed();
        if quickest.as_ref().is_none_or(|(least, ..)| took < *least) {
            quickest = Some((took, begin, all));
        }
        took < AT_ONCE
    });
    let (_, begin, all) = quickest.expect("it reads at least once");
    (begin, all)
}

/// How many CPUs each of `by` uses while the test sleeps for `watch`.
pub fn cpus_used<T>(by: &[T], used: impl Fn(&T) -> Duration, watch: Duration) -> Vec<f64> {
    let read = || by.iter().map(&used).collect::<Vec<_>>();
    let (begin, before) = at_once(read);
    std::thread::sleep(watch);
    let (end, after) = at_once(read);
    let of =
        |(after, before): (&Duration, &Duration)| (*after - *before).div_duration_f64(end - begin);
    after.iter().zip(&before).map(of).collect()
}
