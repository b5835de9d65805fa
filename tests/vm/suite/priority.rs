//! What priority does: how fast its tasks get a CPU, and what it must leave to the others.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::gthctl::NO_RULES;
use crate::support::host::Stalls;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task, part};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::TIMING;

/// Slices so long that the tests can tell a task that waits for the end of one from a task that
/// does not, however slow the machine.
const LONG_SLICES: &str = "scheduler: {slice_ns_default: 20ms, slice_ns_min: 20ms}";
/// How long a task runs after each wake-up, ns, to have had more than its share of the CPUs. A task
/// that has had less preempts even without priority (see
/// [`a_normal_task_preempts_who_has_had_more`]), so it would prove nothing.
const MORE_THAN_ITS_SHARE: u64 = 4_000_000;
const PRIO: &str = "strategies: [{command_regex: ^prio$, priority: true}]";

#[test]
fn a_priority_task_preempts_at_its_wakeup() {
    let gthctl = shared::with_slices(LONG_SLICES, PRIO);
    let load = task::spinners(kernel::cpus() * 3, "load");
    // One after the other: otherwise the second would take a CPU that the first one leaves.
    let [prio, normal] = [("prio", 300), ("normal", 100)].map(|(comm, samples)| {
        let task = Task::fork(comm, task::rest_and_work(1_000_000, MORE_THAN_ITS_SHARE));
        task.samples(samples)
    });
    let (fast, slow) = (part(&prio, 0.5), part(&normal, 0.5));
    println!("p50 {fast:?}, without priority {slow:?}");
    assert!(fast * 4 < slow, "{fast:?}, without priority {slow:?}");
    drop(load);
    let (preemptions, wakeups) =
        (gthctl.counter("COUNT_PREEMPTIONS"), gthctl.counter("COUNT_PRIO_WAKEUPS"));
    assert!(preemptions > 100, "{preemptions}");
    // Now and then a task is so late that it need not sleep at all.
    assert!(wakeups as usize >= prio.len() * 9 / 10, "{wakeups}");
    gthctl.stop();
}

/// A task without priority that sleeps most of the time has had less CPU time than spinners. So it
/// does not wait for the end of a slice.
#[test]
fn a_normal_task_preempts_who_has_had_more() {
    let gthctl =
        shared::with_slices("scheduler: {slice_ns_default: 60ms, slice_ns_min: 20ms}", PRIO);
    let _load = task::spinners(kernel::cpus(), "load");
    let normal = Task::fork("normal", task::wake_often(25_000_000));
    let late = part(&normal.samples(100), 0.75);
    println!("p75 {late:?}");
    assert!(late < Duration::from_millis(5), "{late:?}");
    assert!(gthctl.counter("PATH_OVERTAKEN") > 50);
    gthctl.stop();
}

/// A priority task wakes up another one and keeps working. The other one gets the CPU next, ahead of
/// the normal task that the first one has preempted.
#[test]
fn a_priority_task_that_waits_comes_before_a_preempted_one() {
    let policy = PRIO.replace(']', ", {command_regex: ^alone$, cpus: 1, exclusive: true}]");
    let gthctl = shared::with_slices(LONG_SLICES, &policy);
    for cpus in [Some(&[0][..]), None] {
        let normal = Task::fork_on("normal", cpus, task::spin);
        let (mut to, mut from) = UnixStream::pair().unwrap();
        let second = Task::fork_on("prio", cpus, move |shared| {
            while from.read_exact(&mut [0]).is_ok() {
                shared.answer.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _first = Task::fork_on("prio", cpus, move |_| {
            loop {
                task::sleep_until(task::now() + 5_000_000);
                to.write_all(&[0]).unwrap();
                task::run_for(500_000);
            }
        });
        let counts = || (second.answer(), kernel::involuntary_switches(normal.pid));
        std::thread::sleep(Duration::from_millis(200));
        let before = counts();
        std::thread::sleep(Duration::from_secs(1));
        let after = counts();
        let (turns, switches) = (u64::from(after.0 - before.0), after.1 - before.1);
        println!("{cpus:?}: {turns} turns of both, {switches} preemptions");
        assert!(turns > 40, "{turns} turns");
        assert!(switches * 2 < turns * 3, "{switches} preemptions in {turns} turns");
    }
    gthctl.stop();
}

/// A preempted task keeps its place on its CPU only briefly: it continues elsewhere if the task that
/// preempted it stays.
#[test]
fn a_preempted_task_does_not_wait_for_a_long_turn() {
    let gthctl = shared::scheduler(
        "strategies: [{command_regex: ^prio$, priority: true, execution_time: 40ms}]",
    );
    let others: Vec<Task> = (0..kernel::cpus())
        .map(|_| Task::fork("other", |shared| note_gaps(shared, 30_000_000, u64::MAX)))
        .collect();
    let prio = Task::fork("prio", task::rest_and_work(40_000_000, 120_000_000));
    let turns = prio.samples(30).len();
    let gaps: Vec<u64> = others.iter().flat_map(|task| task.shared().latencies()).collect();
    println!("{turns} turns of the priority task, {} gaps: {gaps:?}", gaps.len());
    assert!(gaps.len() < turns / 3, "{} gaps in {turns} turns", gaps.len());
    gthctl.stop();
}

/// Spins, and records each time that it did not run for at least `least` ns. Its CPU time keeps counting
/// while the host stalls. It sleeps for 20 us after each `turn` ns of CPU time.
fn note_gaps(shared: &task::Shared, least: u64, turn: u64) {
    let (mut last, mut last_used) = (task::now(), task::cpu_used());
    let mut rested = last_used;
    loop {
        if last_used - rested >= turn {
            task::sleep(20_000, 0);
            rested = last_used;
        }
        let before = task::now();
        let used = task::cpu_used();
        let now = task::now();
        // Otherwise the two belong to different times, and the next pair is used.
        if now - before < least / 10 {
            let gap = (now - last).saturating_sub(used - last_used);
            if gap >= least {
                shared.add_latency(gap);
            }
            (last, last_used) = (now, used);
        }
    }
}

/// A softirq on the sender's CPU delivers a datagram over the loopback device. The sender keeps
/// running, so no CPU becomes free because it sleeps.
#[test]
fn also_when_softirq_on_another_cpu_wakes_it() {
    // The sender's share of its CPU is so small that its datagrams are hardly more work than the
    // receiver's share.
    let policy = PRIO.replace(']', ", {command_regex: ^normal$, weight: 50}]");
    let gthctl = shared::with_slices(LONG_SLICES, &policy);
    let _load = task::spinners(kernel::cpus() * 3, "load");
    let anywhere: Vec<usize> = (0..kernel::cpus()).collect();
    for cpus in [&anywhere[1..], &anywhere] {
        let [prio, normal] = ["prio", "normal"].map(|comm| datagram_delays(comm, cpus));
        let (fast, slow) = (part(&prio, 0.75), part(&normal, 0.75));
        println!("on {cpus:?}: p75 {fast:?}, without priority {slow:?}");
        assert!(fast * 4 < slow, "on {cpus:?}: {fast:?}, without priority {slow:?}");
        // A quarter of the slice of the task that runs there.
        assert!(fast < Duration::from_millis(5), "on {cpus:?}: {fast:?}");
    }
    gthctl.stop();
}

/// How long datagrams take from a sender on CPU 0 to a receiver on `cpus`.
fn datagram_delays(comm: &str, cpus: &[usize]) -> Vec<u64> {
    let (receiver, to) = receiver(comm, Some(cpus), MORE_THAN_ITS_SHARE);
    let _sender = Task::fork_on("sender", Some(&[0]), send_to(to, 5_000_000));
    // Waits until the receiver has had its share, which a number of samples would not show.
    std::thread::sleep(Duration::from_secs(3));
    receiver.shared().latencies()
}

/// A task that records how long each datagram takes to reach it and then runs for `work` ns, and its
/// address.
fn receiver(comm: &str, cpus: Option<&[usize]>, work: u64) -> (Task, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let receiver = Task::fork_on(comm, cpus, move |shared| {
        loop {
            let mut sent = [0; 8];
            socket.recv(&mut sent).unwrap();
            shared.add_latency(task::now() - u64::from_ne_bytes(sent));
            task::run_for(work);
        }
    });
    (receiver, to)
}

/// Sends the time there, each time after spinning for `every` ns.
fn send_to(to: SocketAddr, every: u64) -> impl FnOnce(&task::Shared) {
    move |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        loop {
            socket.send_to(&task::now().to_ne_bytes(), to).unwrap();
            task::run_for(every);
        }
    }
}

#[test]
fn a_stronger_priority_preempts_a_weaker_one() {
    let cpus = kernel::cpus() as u64;
    let gthctl = shared::with_slices(
        LONG_SLICES,
        "strategies:
- {command_regex: ^strong$, priority: 1}
- {command_regex: ^(weak|same)$, priority: 5}",
    );
    // Weaker priority tasks that sleep now and then, so that they keep their rank.
    let weak: Vec<Task> = (0..cpus * 2)
        .map(|_| Task::fork("weak", task::spin_and_rest(10_000_000, 500_000)))
        .collect();
    let [fast, slow] = ["strong", "same"].map(|comm| {
        let task = Task::fork(comm, task::wake_often(7_000_000));
        part(&task.samples(200), 0.5)
    });
    println!("p50 {fast:?} against {slow:?}");
    assert!(fast * 2 < slow, "{fast:?} against {slow:?}");
    drop(weak);
    gthctl.stop();
}

/// Spinners with priority, two for each CPU: the others share the machine with
/// them, and wait for a CPU for far less time than the watchdog allows.
#[test]
fn priority_spinners_starve_nobody() {
    let cpus = kernel::cpus();
    let gthctl = shared::scheduler("strategies: [{command_regex: ^prio$, priority: true}]");
    let prio = task::spinners(cpus * 2, "prio");
    let normal = task::spinners(cpus, "normal");
    let pinned: Vec<Task> =
        (0..cpus).map(|cpu| Task::fork_on("pinned", Some(&[cpu]), task::spin)).collect();
    let times = |tasks: &[Task]| -> Vec<Duration> { tasks.iter().map(Task::cpu_time).collect() };
    let begin = Instant::now();
    let before = (times(&normal), times(&pinned));
    std::thread::sleep(Duration::from_secs(6));
    let elapsed = begin.elapsed();
    // Their even share of the CPUs would be a quarter; half of that is required.
    let least = elapsed / 8;
    for (tasks, before) in [(&normal, before.0), (&pinned, before.1)] {
        for (task, before) in tasks.iter().zip(before) {
            let got = task.cpu_time() - before;
            println!("{got:?} of {elapsed:?}");
            assert!(got > least, "{got:?} of {elapsed:?}");
            let gap = task.shared().gap();
            assert!(gap < Duration::from_secs(2), "did not run for {gap:?}");
        }
    }
    assert_eq!(kernel::state(), "enabled");
    drop(prio);
    assert!(gthctl.counter("COUNT_DEMOTIONS") > 0);
    gthctl.stop();
}

/// Two spinning tasks for each CPU. When the host stalls, one of them has its turn, or the task beside them.
fn load_that_sees_stalls() -> [Task; 4] {
    let spins = |shared: &task::Shared| {
        let mut stalls = Stalls::new();
        loop {
            stalls.look(shared);
        }
    };
    let load = [(); 4].map(|()| Task::fork("load", spins));
    assert_eq!(load.len(), kernel::cpus() * 2);
    load
}

/// Asserts that a task that [records its gaps](note_gaps) has not been kept waiting beside that load.
#[track_caller]
fn has_not_waited(task: &Task, load: &[Task]) {
    let gaps = task.shared().latencies();
    let gap = Duration::from_nanos(*gaps.last().expect("it has waited"));
    let stall = load.iter().map(|task| task.shared().gap()).max().unwrap();
    println!("the longest wait: {gap:?}, the host stalled for {stall:?}");
    assert!(gap.saturating_sub(stall) < Duration::from_millis(100), "did not run for {gap:?}");
}

/// The time that a task ran with priority is not a debt once it shares the CPU fairly. If it were,
/// 80 ms among two others for each CPU would make the task wait for 160 ms.
#[test]
fn a_task_that_has_used_up_its_burst_is_not_kept_waiting() {
    let gthctl = shared::scheduler(
        "strategies: [{command_regex: ^prio$, priority: true, execution_time: 20ms}]",
    );
    let load = load_that_sees_stalls();
    let prio = Task::fork("prio", |shared| note_gaps(shared, 1_000_000, u64::MAX));
    std::thread::sleep(Duration::from_secs(2));
    has_not_waited(&prio, &load);
    drop(prio);
    assert!(gthctl.counter("COUNT_DEMOTIONS") > 0);
    gthctl.stop();
}

/// The same if the rule is removed before the task has used up its burst. The task sleeps too often to
/// use it up.
#[test]
fn a_task_whose_rule_goes_is_not_kept_waiting() {
    let gthctl = shared::scheduler(PRIO);
    let load = load_that_sees_stalls();
    let prio = Task::fork("prio", |shared| note_gaps(shared, 1_000_000, 2_000_000));
    std::thread::sleep(Duration::from_secs(2));
    gthctl.replace(NO_RULES);
    std::thread::sleep(Duration::from_secs(1));
    has_not_waited(&prio, &load);
    gthctl.stop();
}

/// A task that has used up its burst wakes up others that have not. They take the CPU of a task
/// without priority, not the waker's. A futex wake-up does not hint that something is handed over.
#[test]
fn a_task_that_has_used_up_its_burst_is_not_put_off_by_whom_it_wakes_up() {
    let gthctl = shared::with_slices(LONG_SLICES, PRIO);
    let _load = task::spinners(kernel::cpus() * 2, "load");
    let waker = Task::fork("prio", |shared| {
        loop {
            task::wake_all(shared);
            task::run_for(2_000_000);
        }
    });
    let woken = Task::fork("prio", |shared| {
        loop {
            shared.add_latency(task::wait_to_be_woken(waker.shared()));
        }
    });
    // Until the waker's burst is used up.
    std::thread::sleep(Duration::from_secs(1));
    let (turns, times) = (kernel::involuntary_switches(waker.pid), woken.shared().noted());
    woken.samples(times + 500);
    let turns = kernel::involuntary_switches(waker.pid) - turns;
    let times = woken.shared().noted() - times;
    println!("put off {turns} times while it woke another one up {times} times");
    assert!((turns as usize) < times / 3, "put off {turns} times in {times}");
    assert!(gthctl.counter("COUNT_DEMOTIONS") > 0);
    gthctl.stop();
}

/// Priority tasks that sleep just often enough to keep their rank.
#[test]
fn priority_tasks_that_hardly_sleep_starve_nobody() {
    let cpus = kernel::cpus();
    let gthctl = shared::scheduler("strategies: [{command_regex: ^prio$, priority: true}]");
    let prio: Vec<Task> =
        (0..cpus * 2).map(|_| Task::fork("prio", task::use_and_rest(4_000_000, 20_000))).collect();
    let normal = task::spinners(cpus, "normal");
    let before: Vec<_> = normal.iter().map(Task::cpu_time).collect();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(6));
    let elapsed = begin.elapsed();
    for (task, before) in normal.iter().zip(before) {
        let got = task.cpu_time() - before;
        // The guard gives them 1/21.
        assert!(got > elapsed / 40, "{got:?} of {elapsed:?}");
        let gap = task.shared().gap();
        assert!(gap < Duration::from_secs(3), "did not run for {gap:?}");
    }
    assert_eq!(kernel::state(), "enabled");
    drop(prio);
    assert!(gthctl.counter("COUNT_GUARDED") > 0);
    gthctl.stop();
}

#[test]
fn per_cpu_kthreads_may_be_given_priority() {
    // A per-CPU kworker takes its work in fair order, or at once if the policy names it.
    let refresh = |policy: &str| {
        let gthctl = shared::scheduler(policy);
        let _load = task::spinners(kernel::cpus() * 2, "load");
        for _ in 0..20 {
            kernel::run_kworkers();
        }
        let counts = ["COUNT_PRIO_WAKEUPS", "PATH_KTHREAD", "PATH_OVERTAKEN"];
        let counts = counts.map(|name| gthctl.counter(name));
        gthctl.stop();
        counts
    };
    let [wakeups, queued, overtook] = refresh(NO_RULES);
    assert_eq!(wakeups, 0);
    assert!(queued + overtook >= 20, "{queued} queued, {overtook} overtook");
    let [wakeups, ..] =
        refresh("strategies: [{command_regex: '^(kworker|ksoftirqd)/', priority: 1}]");
    assert!(wakeups >= 20, "{wakeups}");
}

#[test]
fn a_rule_with_only_a_slice_takes_effect() {
    // Two tasks on one CPU: long slices mean few turns.
    let turns = |policy: &str| {
        let gthctl = shared::scheduler(policy);
        let pair = [(); 2].map(|()| Task::fork_on("pair", Some(&[0]), task::spin));
        std::thread::sleep(Duration::from_millis(500));
        let switches = || kernel::involuntary_switches(pair[0].pid);
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        let turns = switches() - before;
        gthctl.stop();
        turns
    };
    let short = turns(NO_RULES);
    let long = turns("strategies: [{command_regex: ^pair$, execution_time: 100ms}]");
    println!("{short} turns, {long} with the long slice");
    assert!(long * 4 < short, "{long} against {short}");
}
