//! Tasks without priority that hand something to each other: which of them wait for the waker's CPU,
//! and how long.

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

/// Waits for a message; returns how long ago it was sent, ns.
fn hear(from: &mut UnixStream) -> u64 {
    let mut sent = [0; 8];
    from.read_exact(&mut sent).unwrap();
    task::now() - u64::from_ne_bytes(sent)
}

/// Answers each message. Records how long the message took, if that was at least `least` ns.
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

/// Sends a message, does `work` and waits for the answer, forever.
fn asker(mut other: UnixStream, mut work: impl FnMut(&Shared)) -> Task {
    Task::fork("asker", move |shared| {
        loop {
            tell(&mut other);
            work(shared);
            hear(&mut other);
        }
    })
}

/// Both tasks, connected by a socket. Its wake-ups hint that the waker hands something over.
fn pair(least: u64, work: impl FnMut(&Shared)) -> [Task; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    [echo(one, least), asker(other, work)]
}

/// A second CPU is idle. If it takes longer to wake up than the waker takes to sleep, the tasks stay on
/// one CPU. That depends on the machine; the test measures whether the choice pays off.
#[test]
fn two_tasks_in_turn_run_where_they_are_faster() {
    let gthctl = shared::scheduler(NO_RULES);
    let [one, two, free] = [Some([&[0][..], &[0][..]]), Some([&[0], &[1]]), None].map(|cpus| {
        let [echo, asker] = pair(0, |_| {});
        for (task, cpus) in [&echo, &asker].into_iter().zip(cpus.into_iter().flatten()) {
            task::set_affinity(task.pid, cpus);
        }
        std::thread::sleep(Duration::from_millis(200));
        let answers = || echo.shared().noted() as f64;
        let (before, handed_over) = (answers(), gthctl.counter("PATH_HANDED_OVER"));
        // The rate is the median of ten parts, so that a stall of the host affects few of them.
        let mut parts = [(); 10].map(|()| {
            let before = answers();
            std::thread::sleep(Duration::from_millis(30));
            answers() - before
        });
        let answers = answers() - before;
        let handed_over = (gthctl.counter("PATH_HANDED_OVER") - handed_over) as f64;
        parts.sort_by(f64::total_cmp);
        let rate = parts[parts.len() / 2];
        println!("{cpus:?}: {answers} answers, {handed_over} handed over");
        (rate, answers, handed_over)
    });
    let ((one, ..), (two, ..), (free, answers, handed_over)) = (one, two, free);
    assert!(free > 0.5 * one.max(two), "{free} answers; on one CPU {one}, on two {two}");
    assert!(handed_over > 0.0, "{free} answers");
    // Each answer takes two handovers, unless the idle CPU was just as fast.
    assert!(
        one < 1.5 * two || handed_over > 0.5 * answers,
        "{handed_over} times, {answers} answers"
    );
    gthctl.stop();
}

/// The waker works for 20 ms before it sleeps: the woken task does not wait for that.
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

/// The waker sleeps at once, but one time in 64 it first works for 60 ms.
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
    let broken = || asker.answer() as usize;
    std::thread::sleep(Duration::from_secs(4));
    let enough = kernel::wait(Duration::from_secs(60), || broken() > 20);
    let (broken, long) = (broken(), echo.shared().noted());
    println!("{broken} broken promises, {long} long waits");
    assert!(enough, "{broken} broken promises");
    assert!(long < broken / 4, "{long} long waits, {broken} broken promises");
    gthctl.stop();
}
