//! Tasks to be scheduled: forked processes with a name and a job, which report
//! through shared memory.

use std::ffi::CString;
use std::fs::File;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::support::halt::{self, Halt};
use crate::support::kernel;

/// From include/uapi/linux/sched.h; libc's constant is truncated to 32 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Memory that a task and the test share.
pub struct Shared {
    /// The longest time between two turns of a spinner, ns.
    pub longest_gap: AtomicU64,
    /// A command to the task; the task defines its meaning.
    pub order: AtomicU32,
    /// Answers of the task.
    pub answer: AtomicU32,
    /// When a waker woke up others, by [`now`].
    pub woken_at: AtomicU64,
    /// How many latencies there are.
    count: AtomicU32,
    /// Wake-up latencies, ns.
    latencies: [AtomicU32; 8192],
}

impl Shared {
    /// The longest time for which a spinner did not run.
    pub fn gap(&self) -> Duration {
        Duration::from_nanos(self.longest_gap.load(Ordering::Relaxed))
    }

    /// Records one latency; drops it if there is no room.
    pub fn add_latency(&self, ns: u64) {
        let i = self.count.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(slot) = self.latencies.get(i) {
            slot.store(ns.min(u32::MAX.into()) as u32, Ordering::Relaxed);
        }
    }

    /// How many latencies it has recorded so far.
    pub fn noted(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// The latencies so far, sorted.
    pub fn latencies(&self) -> Vec<u64> {
        let count = self.noted().min(self.latencies.len());
        let mut all: Vec<u64> =
            self.latencies[..count].iter().map(|ns| ns.load(Ordering::Relaxed).into()).collect();
        all.sort_unstable();
        all
    }
}

/// A forked process; killed when dropped.
pub struct Task {
    pub pid: i32,
    shared: *mut Shared,
}

impl Task {
    /// Forks a process named `comm` that does `job` forever.
    pub fn fork(comm: &str, job: impl FnOnce(&Shared)) -> Self {
        Self::fork_on(comm, None, job)
    }

    /// Like [`Task::fork`], with its affinity set to `cpus`.
    pub fn fork_on(comm: &str, cpus: Option<&[usize]>, job: impl FnOnce(&Shared)) -> Self {
        // SAFETY: see begin().
        Self::start(comm, cpus, || unsafe { libc::fork() }, job)
    }

    /// A spinner with a PID of the test's choice, which must be free.
    pub fn spinner_with_pid(comm: &str, pid: i32) -> Self {
        let set = |args: &mut libc::clone_args| {
            args.set_tid = std::ptr::from_ref(&pid) as u64;
            args.set_tid_size = 1;
        };
        Self::start(comm, None, || clone3(set), spin)
    }

    /// A spinner that starts in a cgroup, given as an open directory.
    pub fn spinner_in_cgroup(comm: &str, cgroup: &File) -> Self {
        Self::start_in_cgroup(comm, cgroup, spin)
    }

    /// Like [`Task::fork`], started in a cgroup, given as an open directory.
    pub fn start_in_cgroup(comm: &str, cgroup: &File, job: impl FnOnce(&Shared)) -> Self {
        let set = |args: &mut libc::clone_args| {
            args.flags = CLONE_INTO_CGROUP;
            args.cgroup = cgroup.as_raw_fd() as u64;
        };
        Self::start(comm, None, || clone3(set), job)
    }

    /// Like [`Task::fork_on`], but does not wait until it has begun.
    pub fn launch(comm: &str, cpus: Option<&[usize]>, job: impl FnOnce(&Shared)) -> Self {
        // SAFETY: see begin().
        Self::begin(comm, cpus, || unsafe { libc::fork() }, job)
    }

    fn start(
        comm: &str,
        cpus: Option<&[usize]>,
        fork: impl FnOnce() -> i32,
        job: impl FnOnce(&Shared),
    ) -> Self {
        let task = Self::begin(comm, cpus, fork, job);
        let named = || kernel::read(&format!("/proc/{}/comm", task.pid)) == comm;
        assert!(kernel::wait(Duration::from_secs(20), named), "{comm} did not start");
        task
    }

    fn begin(
        comm: &str,
        cpus: Option<&[usize]>,
        fork: impl FnOnce() -> i32,
        job: impl FnOnce(&Shared),
    ) -> Self {
        halt::is_there();
        // SAFETY: an anonymous mapping of the size of Shared, all zeroes, is a
        // valid Shared. The child only uses its own copy of the heap.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            let shared: *mut Shared = memory.cast();
            let pid = fork();
            assert!(pid >= 0, "{}", std::io::Error::last_os_error());
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                set_name(comm);
                if let Some(cpus) = cpus {
                    set_affinity(0, cpus);
                }
                job(&*shared);
                libc::_exit(0);
            }
            Self { pid, shared }
        }
    }

    /// A process that never sleeps.
    pub fn spinner(comm: &str) -> Self {
        Self::fork(comm, spin)
    }

    pub fn shared(&self) -> &Shared {
        // SAFETY: mapped until drop.
        unsafe { &*self.shared }
    }

    pub fn cpu_time(&self) -> Duration {
        kernel::cpu_time(self.pid)
    }

    /// Ends the task without waiting for its end.
    pub fn kill(&self) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits for at least `count` latencies and returns the recorded ones, sorted.
    #[track_caller]
    pub fn samples(&self, count: usize) -> Vec<u64> {
        let there = || self.shared().noted() >= count;
        let begin = self.shared().noted();
        let enough = kernel::wait(Duration::from_secs(60), there);
        assert!(enough, "{} samples, {begin} at first", self.shared().noted());
        self.shared().latencies()
    }

    /// Gives the task an order.
    pub fn order(&self, order: u32) {
        self.shared().order.store(order, Ordering::Relaxed);
    }

    /// Waits for the task's answer and returns it.
    pub fn answer(&self) -> u32 {
        let answer = || self.shared().answer.load(Ordering::Relaxed);
        assert!(kernel::wait(Duration::from_secs(5), || answer() != 0), "no answer");
        answer()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: our own child and our own mapping.
        unsafe {
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            libc::munmap(self.shared.cast(), size_of::<Shared>());
        }
    }
}

/// Like fork(2), with the arguments that `set` changes (clone3(2)).
fn clone3(set: impl FnOnce(&mut libc::clone_args)) -> i32 {
    // SAFETY: all zeroes is a valid clone_args; without a stack the child gets
    // a copy of the caller's, as with fork.
    unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.exit_signal = libc::SIGCHLD as u64;
        set(&mut args);
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) as i32
    }
}

/// Wakes up all tasks in [`wait_to_be_woken`] on the same memory at once.
pub fn wake_all(waker: &Shared) {
    waker.woken_at.store(now(), Ordering::SeqCst);
    waker.answer.fetch_add(1, Ordering::SeqCst);
    futex(&waker.answer, libc::FUTEX_WAKE, i32::MAX as u32);
}

/// Sleeps until a waker wakes everybody up; returns how long the wake-up took, ns.
pub fn wait_to_be_woken(waker: &Shared) -> u64 {
    let seen = waker.answer.load(Ordering::SeqCst);
    while waker.answer.load(Ordering::SeqCst) == seen {
        futex(&waker.answer, libc::FUTEX_WAIT, seen);
    }
    now() - waker.woken_at.load(Ordering::SeqCst)
}

fn futex(word: &AtomicU32, op: i32, value: u32) {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, no_timeout) };
}

/// The value that the fraction `part` of the sorted times (ns) does not exceed.
pub fn part(sorted: &[u64], part: f64) -> Duration {
    assert!(sorted.len() > 50, "only {} samples", sorted.len());
    Duration::from_nanos(sorted[((sorted.len() - 1) as f64 * part) as usize])
}

/// The CPU time that each task gets within `watch`, in seconds.
pub fn times(tasks: &[Task], watch: Duration) -> Vec<f64> {
    let parts = kernel::cpus_used(tasks, Task::cpu_time, watch);
    parts.into_iter().map(|part| part * watch.as_secs_f64()).collect()
}

/// `count` spinners, all with the same name.
pub fn spinners(count: usize, comm: &str) -> Vec<Task> {
    (0..count).map(|_| Task::spinner(comm)).collect()
}

/// Names the calling thread.
pub fn set_name(comm: &str) {
    let comm = CString::new(comm).unwrap();
    // SAFETY: a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) };
}

/// Forks a process that does `job` and ends. It is killed if the caller ends first.
/// Returns its PID.
pub fn fork_below(job: impl FnOnce()) -> i32 {
    // SAFETY: the child only uses its own copy of the heap.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: no pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        job();
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// Sets the nice value of a thread; 0 is the calling one.
pub fn set_nice(tid: i32, nice: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, nice) }, 0);
}

/// Makes the calling thread a real-time one.
pub fn become_realtime() {
    let param = libc::sched_param { sched_priority: 50 };
    // SAFETY: a valid sched_param.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }, 0);
}

/// Sets the affinity of a thread; 0 is the calling one.
pub fn set_affinity(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu).unwrap());
    sched_setaffinity(Pid::from_raw(tid), &set).unwrap();
}

/// CLOCK_MONOTONIC, ns.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The CPU time that the calling thread has used, ns.
pub fn cpu_used() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until a point of CLOCK_MONOTONIC, exactly (no timer slack).
pub fn sleep_until(at: u64) {
    sleep(at, libc::TIMER_ABSTIME);
}

pub fn sleep(time: u64, flags: i32) {
    let time = libc::timespec {
        tv_sec: (time / 1_000_000_000) as i64,
        tv_nsec: (time % 1_000_000_000) as i64,
    };
    // SAFETY: valid pointers.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &time, std::ptr::null_mut());
    }
}

/// How often the calling process has slept (getrusage(2)).
pub fn sleeps() -> i64 {
    // SAFETY: all zeroes is a valid rusage, and the pointer is one to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Runs forever and records the longest time it did not run. If it halts its CPU
/// ([`Halt`]), that time is not known.
pub fn spin(shared: &Shared) {
    let mut halt = Halt::new();
    let mut last = now();
    loop {
        let this = now();
        shared.longest_gap.fetch_max(this - last, Ordering::Relaxed);
        last = this;
        halt.rest();
    }
}

/// Runs forever.
pub fn spin_on() {
    let mut halt = Halt::new();
    loop {
        halt.rest();
    }
}

/// Runs until it is given an order.
pub fn spin_until_order(shared: &Shared) {
    let mut halt = Halt::new();
    while shared.order.load(Ordering::Relaxed) == 0 {
        halt.rest();
    }
}

/// Runs for `ns`.
pub fn run_for(ns: u64) {
    run_by(libc::CLOCK_MONOTONIC, ns);
}

/// Uses `ns` of CPU time, however long that takes.
pub fn use_cpu(ns: u64) {
    run_by(libc::CLOCK_THREAD_CPUTIME_ID, ns);
}

/// Runs until a clock has advanced by `ns`.
fn run_by(id: libc::clockid_t, ns: u64) {
    let until = clock(id) + ns;
    let mut halt = None;
    while let Some(left @ 1..) = until.checked_sub(clock(id)) {
        if left > halt::LEAST {
            halt.get_or_insert_with(Halt::new).rest_for(left);
        }
    }
}

/// Uses `work` ns of CPU time, however long that takes, and sleeps `rest` ns, forever. The sleep is
/// relative: on a slow host, so near an absolute time would pass before the call, which would not sleep.
pub fn use_and_rest(work: u64, rest: u64) -> impl FnOnce(&Shared) {
    move |_| {
        loop {
            use_cpu(work);
            sleep(rest, 0);
        }
    }
}

/// Runs `work` ns and sleeps `rest` ns, forever.
pub fn spin_and_rest(work: u64, rest: u64) -> impl FnOnce(&Shared) {
    move |_| {
        loop {
            run_for(work);
            sleep_until(now() + rest);
        }
    }
}

/// Wakes up every `period` ns and records how late it was.
pub fn wake_often(period: u64) -> impl FnOnce(&Shared) {
    rest_and_work(period, 0)
}

/// Sleeps `rest` ns, records how late it wakes up and runs `work` ns, forever.
pub fn rest_and_work(rest: u64, work: u64) -> impl FnOnce(&Shared) {
    move |shared| {
        loop {
            let at = now() + rest;
            sleep_until(at);
            shared.add_latency(now().saturating_sub(at));
            run_for(work);
        }
    }
}
