//! How soon and how cheaply rules take effect.

use std::ffi::CString;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::gthctl::{Gthctl, NO_RULES, many_rules};
use crate::support::host::Stalls;
use crate::support::kernel;
use crate::support::sender;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Shared, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::TIMING;

const IN_FORCE: &str = "in force as generation";

/// True on kernels where a running task cannot be made to choose its CPU at once.
fn cannot_kick(gthctl: &Lease) -> bool {
    let cannot = gthctl.has_ever_said("scx_bpf_kick_cpu");
    if cannot {
        println!("skipped: this kernel has no usable scx_bpf_kick_cpu");
    }
    cannot
}

/// Prints times in ns, sorted, and returns the median and the worst.
fn describe(what: &str, ns: &[u64]) -> (Duration, Duration) {
    let [median, worst] = [ns[ns.len() / 2], ns[ns.len() - 1]].map(Duration::from_nanos);
    println!("{what}: median {median:?}, worst {worst:?} of {}", ns.len());
    let bucket = |ns: &u64| (ns / 1000).checked_ilog2().map_or(0, |log| log + 1);
    for group in ns.chunk_by(|a, b| bucket(a) == bucket(b)) {
        println!("  under {:>7} us: {}", 1u64 << bucket(&group[0]), group.len());
    }
    (median, worst)
}

const PROCESSES: usize = 300;
/// Five u64 for each process: the time before its execve(), the time when main
/// began, the time when it was on one of the rule's CPUs, the CPU where main began,
/// and for how long the host stalled since then.
const SLOT: u64 = 40;

/// A task that executes a program comes under another rule from then on. Measures how long the
/// program runs before it is on that rule's CPUs, where nothing else may run.
///
/// There are never more such programs than CPUs for them: each parent waits for its child's end
/// before it forks the next. So the programs do not wait for each other during the measured time.
#[test]
fn a_rule_is_in_force_when_a_program_begins() {
    let cpus = kernel::cpus();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("exec-probe");
    let testbed: PathBuf = std::env::var_os("TESTBED_DIR").expect("set by tests/vm/test").into();
    fs::copy(testbed.join("exec-probe"), &program).unwrap();
    let path = dir.path().join("times");
    let times = File::create_new(&path).unwrap();
    times.set_len(SLOT * PROCESSES as u64).unwrap();

    let rule = format!("exe: {}, cpus: 1-{}, exclusive: true", program.display(), cpus - 1);
    let gthctl = shared::scheduler(&format!("strategies: [{{{rule}}}]"));
    if cannot_kick(&gthctl) {
        return;
    }
    let c_string = |text: &str| CString::new(text).unwrap();
    let [program, path] = [&program, &path].map(|path| c_string(path.to_str().unwrap()));
    let last_cpu = c_string(&(cpus - 1).to_string());
    let lanes: Vec<Task> = (1..cpus)
        .map(|lane| {
            Task::fork("parent", |shared| {
                for slot in (lane - 1..PROCESSES).step_by(cpus - 1) {
                    let at = SLOT * slot as u64;
                    let offset = c_string(&(at + 8).to_string());
                    let argv = [&program, &path, &offset, c"1", &last_cpu];
                    let mut argv = argv.map(|arg: &std::ffi::CStr| arg.as_ptr()).to_vec();
                    argv.push(std::ptr::null());
                    // SAFETY: a null-terminated array of C strings; a null status is allowed.
                    unsafe {
                        let child = libc::fork();
                        if child == 0 {
                            times.write_all_at(&task::now().to_ne_bytes(), at).unwrap();
                            libc::execv(program.as_ptr(), argv.as_ptr());
                            libc::_exit(1);
                        }
                        libc::waitpid(child, std::ptr::null_mut(), 0);
                    }
                }
                shared.answer.store(1, Ordering::Relaxed);
            })
        })
        .collect();
    let done = || lanes.iter().all(|lane| lane.shared().answer.load(Ordering::Relaxed) == 1);
    let in_time = kernel::wait(Duration::from_secs(120), done);
    let time = |slot: u64, i: u64| {
        let mut bytes = [0; 8];
        times.read_exact_at(&mut bytes, SLOT * slot + 8 * i).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let slots = 0..PROCESSES as u64;
    let count = |i| slots.clone().filter(|&slot| time(slot, i) > 0).count();
    assert!(
        in_time,
        "{} of {PROCESSES} were executed, for {} a rule was in force",
        count(1),
        count(2)
    );
    let mut in_main = Vec::new();
    let mut with_exec = Vec::new();
    let mut elsewhere = 0;
    for slot in slots.clone() {
        let [before, began, there, stalled] = [0, 1, 2, 4].map(|i| time(slot, i));
        assert!(before > 0 && began > 0, "process {slot} was not executed");
        assert!(there > 0, "process {slot} did not come to the rule's CPUs");
        in_main.push((there - began).saturating_sub(stalled));
        elsewhere += usize::from(time(slot, 3) == 0);
        with_exec.push(there - before);
    }
    in_main.sort_unstable();
    with_exec.sort_unstable();
    println!("{elsewhere} began on another CPU");
    describe("from before execve() until a rule is in force", &with_exec);
    let (median, worst) = describe("from main until a rule is in force", &in_main);
    assert!(median < Duration::from_millis(1), "{median:?}");
    // Allows for a tick, and for what the host takes a little at a time.
    let late = task::part(&in_main, 0.99);
    assert!(late < Duration::from_millis(10), "{late:?}");
    assert!(worst < Duration::from_millis(100), "{worst:?}");
    gthctl.stop();
}

/// After this time a sender counts as never having come to the rule's CPUs.
const LOST: u64 = 2_000_000_000;

/// A fresh process sends its first packet through the gtp device. Measures how long it
/// takes until the scheduler applies the rule, that is, until the process is on the rule's
/// CPUs. One kind of sender keeps running and has to wait for a tick; the other sleeps and
/// has to be there when it wakes up. No other task is ever on these CPUs.
///
/// A check for such tasks once a second would take half a second on average.
#[test]
fn the_first_packet_boosts_its_sender() {
    const SENDERS: usize = 200;
    const SLEEP: u64 = 1_000_000;
    let cpus = kernel::cpus();
    let _plane = sender::plane();
    let rule = format!("gtp: {{module: gtp, hold: 3600s}}, cpus: 1-{}, exclusive: true", cpus - 1);
    let gthctl = shared::scheduler(&format!("strategies: [{{{rule}}}]"));
    gthctl.sees_packets();
    // SAFETY: no pointers.
    let is_there = || unsafe { libc::sched_getcpu() } > 0;
    let senders = |job: fn(&dyn Fn() -> bool, &UdpSocket, &Shared) -> u64| {
        Task::fork("parent", move |shared| {
            sender::enter_upf();
            let socket = sender::socket();
            for _ in 0..SENDERS {
                let child = task::fork_below(|| {
                    assert!(!is_there());
                    shared.add_latency(job(&is_there, &socket, shared));
                });
                // SAFETY: a null status is allowed.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
            shared.answer.store(1, Ordering::Relaxed);
            task::sleep_until(u64::MAX / 2);
        })
    };
    let measured = |what: &str, parent: Task| {
        let done = || parent.shared().answer.load(Ordering::Relaxed) == 1;
        assert!(kernel::wait(Duration::from_secs(120), done));
        let took = parent.shared().latencies();
        assert_eq!(took.len(), SENDERS, "{what}: some were on the rule's CPUs before they sent");
        describe(what, &took)
    };
    let (median, worst) = measured(
        "from before sendto() until a rule is in force for who goes on running",
        senders(|is_there, socket, shared| {
            let (before, mut stalls) = (task::now(), Stalls::new());
            let _ = socket.send(b"packet");
            while !is_there() && task::now() < before + LOST {
                stalls.look(shared);
            }
            stalls.look(shared);
            let stalled = shared.longest_gap.swap(0, Ordering::Relaxed);
            (task::now() - before).saturating_sub(stalled)
        }),
    );
    assert!(median < Duration::from_millis(20), "{median:?}");
    assert!(worst < Duration::from_millis(200), "{worst:?}");
    let (_, worst) = measured(
        "lateness of the first wake-up after the first sendto(), always by the rule",
        senders(|is_there, socket, _| {
            let _ = socket.send(b"packet");
            let sleeps = task::sleeps();
            let mut awake_at = 0;
            // If the host stops the virtual CPU, the time is over before the task sleeps.
            while task::sleeps() == sleeps {
                awake_at = task::now() + SLEEP;
                task::sleep_until(awake_at);
            }
            if is_there() { task::now().saturating_sub(awake_at) } else { LOST }
        }),
    );
    assert!(worst < Duration::from_nanos(LOST), "not in force at the first wake-up");
    let counts = ["COUNT_MARKED", "COUNT_MARKS_REFUSED"].map(|name| gthctl.counter(name));
    assert_eq!(counts, [2 * SENDERS as u64, 0]);
    gthctl.stop();
}

/// CPU time of a whole process.
fn process_time(pid: i32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(libc::clock_getcpuclockid(pid, &mut clock), 0);
        assert_eq!(libc::clock_gettime(clock, &mut time), 0);
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn set_threads_max(count: &str) -> String {
    let path = "/proc/sys/kernel/threads-max";
    let before = kernel::read(path);
    fs::write(path, count).unwrap();
    before
}

/// The CPU time that it takes to look once at each thread of a process from user space,
/// as a scheduler does that makes its decisions there.
fn look_at_threads(pid: i32) -> Duration {
    let me = std::process::id() as i32;
    let before = process_time(me);
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let stat = fs::read(entry.unwrap().path().join("stat")).unwrap();
        count += usize::from(!stat.is_empty());
    }
    assert!(count > THREADS);
    process_time(me) - before
}

const THREADS: usize = 10_000;

/// The last test of its VM, as it loads a scheduler of its own.
///
/// The kernel's verifier takes most of a start, and its time varies by more than all tasks add. So
/// the test checks that gthctl reads nothing for each task. Beyond its cost without tasks, a reload
/// costs less than a quarter of looking at each task once.
#[test]
fn what_ten_thousand_tasks_and_a_hundred_rules_cost() {
    const READS: u64 = THREADS as u64 / 10;
    // A start without the tasks and rules.
    let gthctl = shared::scheduler(NO_RULES);
    let bare = gthctl.reads;
    if bare == 0 {
        println!("this kernel counts no reads");
    }
    gthctl.stop();
    let before = set_threads_max("20000");
    let tasks = Task::fork("sleepers", |shared| {
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new().stack_size(16 * 1024);
            thread
                .spawn(|| {
                    loop {
                        std::thread::park()
                    }
                })
                .unwrap();
            shared.answer.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            std::thread::park();
        }
    });
    let there = || tasks.shared().answer.load(Ordering::Relaxed) as usize == THREADS;
    assert!(kernel::wait(Duration::from_secs(120), there), "{}", tasks.answer());
    let gthctl = Gthctl::start(&many_rules(100, "first"));
    let (pid, loaded) = (gthctl.pid(), gthctl.reads);
    println!("start: {:?} of CPU time, {loaded} reads", process_time(pid));
    let reload = |policy: &str, times: usize| {
        let before = (process_time(pid), kernel::reads(pid));
        fs::write(gthctl.policy(), policy).unwrap();
        // Asking gthctl would cost it CPU time.
        assert!(gthctl.says(IN_FORCE, times));
        (process_time(pid) - before.0, kernel::reads(pid) - before.1)
    };
    let policies = ["second", "third", "fourth"].map(|name| many_rules(100, name));
    let policies = policies.into_iter().chain([NO_RULES.into(), many_rules(100, "fifth")]);
    // Before and after: the host's speed changes within minutes.
    let looked = look_at_threads(tasks.pid);
    let (mut took, read): (Vec<Duration>, Vec<u64>) =
        policies.enumerate().map(|(i, policy)| reload(&policy, i + 1)).unzip();
    let looked = (looked + look_at_threads(tasks.pid)) / 2;
    println!("reloads, the fourth one to no rules: {took:?}, {read:?} reads");
    println!("all tasks looked at once: {looked:?}");
    drop(tasks);
    set_threads_max(&before);
    // Compiling the rules does not depend on tasks.
    let alone = ["sixth", "seventh"].map(|name| many_rules(100, name));
    let alone: Vec<Duration> =
        alone.into_iter().enumerate().map(|(i, policy)| reload(&policy, i + 6).0).collect();
    println!("reloads without the tasks: {alone:?}");
    let alone = alone.iter().sum::<Duration>() / 2;
    // The median, not the worst, as time that the emulated CPU waits for the host counts too.
    took.sort();
    assert!(took[took.len() / 2] < alone + looked / 4, "{took:?} against {alone:?}, {looked:?}");
    assert!(loaded < bare + READS, "{loaded} reads against {bare}");
    assert!(read.iter().all(|reads| *reads < READS), "{read:?}");
    gthctl.stop();
}

#[test]
fn a_saved_policy_is_soon_in_force() {
    let gthctl = shared::scheduler(NO_RULES);
    let mut took: Vec<u64> = (1..=20)
        .map(|i| {
            let rule = format!("{{command_regex: ^hot-{i}$, priority: {i}, execution_time: 1ms}}");
            fs::write(gthctl.policy(), format!("strategies: [{rule}]")).unwrap();
            let closed = Instant::now();
            while gthctl.has_said(IN_FORCE) < i {
                assert!(closed.elapsed() < Duration::from_secs(10), "rewrite {i}");
                std::thread::sleep(Duration::from_millis(1));
            }
            closed.elapsed().as_nanos() as u64
        })
        .collect();
    took.sort_unstable();
    let (median, _) = describe("from the close of the file until it is in force", &took);
    assert!(median < Duration::from_millis(50), "{median:?}");
    gthctl.stop();
}
