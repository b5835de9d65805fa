//! Tasks without priority that hand something to each other: who waits for the waker's CPU, and how
//! long.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Shared, Task, part};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::TIMING;

fn tell(to: &mut UnixStream) {
    to.write_all(&task::now().to_ne_bytes()).unwrap();
}

/// Waits to be told; returns how long that took, ns.
fn hear(from: &mut UnixStream) -> u64 {
    let mut sent = [0; 8];
    from.read_exact(&mut sent).unwrap();
    task::now() - u64::from_ne_bytes(sent)
}

/// Answers. Records how long it took to hear, if that was at least `least` ns.
fn echo(mut other: UnixStream, least: u64) -> Task {
    Task::fork("echo", move |shared| {
        loop {
            let late = hear(&mut other);
            if late >= least {
                shared.add_latency(late);
            }
            tell(&mut other);
        }
    })
}

/// Tells, does `work` and waits for the answer, forever.
fn asker(mut other: UnixStream, mut work: impl FnMut(&Shared)) -> Task {
    Task::fork("asker", move |shared| {
        loop {
            tell(&mut other);
            work(shared);
            hear(&mut other);
        }
    })
}

/// Both, over a socket, which says that it hands something over.
fn pair(least: u64, work: impl FnMut(&Shared)) -> [Task; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    [echo(one, least), asker(other, work)]
}

/// The kernel does not tell the scheduler that a task with one CPU is handed something.
#[test]
fn a_sender_on_the_same_cpu_is_not_switched_out_for_each_message() {
    let gthctl =
        shared::with_slices("scheduler: {slice_ns_default: 20ms, slice_ns_min: 100us}", NO_RULES);
    let (mut to, from): (Vec<_>, Vec<_>) = (0..20).map(|_| UnixStream::pair().unwrap()).unzip();
    let hears = |mut other: UnixStream| {
        Task::fork_on("receiver", Some(&[0]), move |_| {
            loop {
                let _ = other.read(&mut [0; 8]);
            }
        })
    };
    let _receivers: Vec<Task> = from.into_iter().map(hears).collect();
    let sender = Task::fork_on("sender", Some(&[0]), move |shared| {
        for other in (0..to.len()).cycle() {
            let _ = to[other].write(&[0; 8]);
            shared.answer.fetch_add(1, Ordering::Relaxed);
        }
    });
    let sent_and_switches = || {
        (
            u64::from(sender.shared().answer.load(Ordering::Relaxed)),
            kernel::involuntary_switches(sender.pid),
        )
    };

    std::thread::sleep(Duration::from_millis(100));
    let before = sent_and_switches();
    std::thread::sleep(Duration::from_millis(500));
    let (sent, switches) = sent_and_switches();
    let (sent, switches) = (sent - before.0, switches - before.1);
    println!("{switches} switches for {sent} messages");
    assert!(sent > 100 && switches < sent / 4, "{switches} switches for {sent} messages");
    gthctl.stop();
}

/// A second CPU is idle. To wake it up takes longer, if not always.
#[test]
fn two_tasks_in_turn_stay_on_one_cpu() {
    let gthctl = shared::scheduler(NO_RULES);
    let [echo, _asker] = pair(0, |_| {});
    std::thread::sleep(Duration::from_millis(500));
    let counts = || {
        let handed_over = gthctl.counter("PATH_HANDED_OVER");
        (handed_over as f64, echo.shared().noted() as f64)
    };
    let before = counts();
    std::thread::sleep(Duration::from_secs(1));
    let after = counts();
    let (handed_over, answers) = (after.0 - before.0, after.1 - before.1);
    println!("handed over {handed_over} times, {answers} answers");
    // Each answer takes two, unless the idle CPU has just been as soon: on a quiet host, the emulation
    // wakes it up in nearly the time that the waker takes to sleep.
    assert!(handed_over > 0.5 * answers, "{handed_over} times, {answers} answers");
    gthctl.stop();
}

/// The waker works for 20 ms before it sleeps: the other one does not wait for that.
#[test]
fn who_is_woken_by_a_task_that_goes_on_takes_the_idle_cpu() {
    let gthctl = shared::scheduler(NO_RULES);
    let [echo, _asker] = pair(0, |_| task::run_for(20_000_000));
    let late = part(&echo.samples(60), 0.75);
    let handed_over = gthctl.counter("PATH_HANDED_OVER");
    println!("p75 {late:?}, handed over {handed_over} times");
    assert!(late < Duration::from_millis(10), "{late:?}");
    assert!(handed_over < 15, "handed over {handed_over} times");
    gthctl.stop();
}

/// Far more than a tick, in ns.
const LONG: u64 = 30_000_000;

/// The waker sleeps at once, and once in 64 times it works for 60 ms before.
#[test]
fn a_tick_ends_the_turn_of_a_waker_that_breaks_its_promise() {
    let gthctl =
        shared::with_slices("scheduler: {slice_ns_default: 60ms, slice_ns_min: 20ms}", NO_RULES);
    let mut times = 0;
    let [echo, asker] = pair(LONG, move |shared| {
        times += 1;
        if times % 64 == 0 {
            shared.answer.fetch_add(1, Ordering::Relaxed);
            task::run_for(60_000_000);
        }
    });
    std::thread::sleep(Duration::from_secs(4));
    let broken = asker.answer() as usize;
    let long = echo.shared().noted();
    println!("{broken} broken promises, {long} long waits");
    assert!(broken > 20, "{broken} broken promises");
    assert!(long < broken / 4, "{long} long waits, {broken} broken promises");
    gthctl.stop();
}
