//! Tasks without priority that hand many messages to others.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

/// A turn lasts for at least 200 us, in which a slow host sends only one message.
pub const VM: Vm = vm::VIRTUAL;

/// Two tasks that wake each other up through pipes, in turn.
fn pair() -> [Task; 2] {
    let answers = |mut from: PipeReader, mut to: PipeWriter| {
        Task::fork("pair", move |shared| {
            loop {
                let mut byte = [0];
                from.read_exact(&mut byte).unwrap();
                to.write_all(&byte).unwrap();
                shared.answer.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let [(from_one, mut to_other), (from_other, to_one)] = [(); 2].map(|()| io::pipe().unwrap());
    to_other.write_all(&[0]).unwrap();
    [answers(from_one, to_one), answers(from_other, to_other)]
}

/// A pair runs on one CPU while the other CPU is idle. Ticks come in the middle of turns.
#[test]
fn ticks_leave_a_pair_on_its_cpu() {
    let gthctl = shared::scheduler(NO_RULES);
    let [first, _second] = pair();
    std::thread::sleep(Duration::from_millis(300));
    let counts = || {
        let answers = u64::from(first.shared().answer.load(Ordering::Relaxed));
        (answers, gthctl.counter("PATH_HANDED_OVER"), gthctl.counter("PATH_IDLE"))
    };
    // A tick in the middle of a measured hand-off may spread the pair over two CPUs for a while, as may
    // other tasks. So the majority of five measurements decides; the first three do if they agree.
    let stays = || {
        let before = counts();
        std::thread::sleep(Duration::from_millis(500));
        let after = counts();
        let [answers, handed_over, idle] =
            [after.0 - before.0, after.1 - before.1, after.2 - before.2];
        println!(
            "{answers} answers, handed over {handed_over} times, to an idle CPU {idle}, in 250 ticks"
        );
        handed_over > answers && idle < 500
    };
    let (mut stayed, mut left) = (0, 0);
    while stayed < 3 && left < 3 {
        if stays() { stayed += 1 } else { left += 1 }
    }
    assert_eq!(stayed, 3, "{left} times it did not");
    gthctl.stop();
}

/// A pair never leaves the CPU's local DSQ empty. A task that may run only on that CPU still gets its
/// turns.
#[test]
fn a_pair_leaves_its_cpu_to_one_that_is_bound_to_it() {
    let gthctl = shared::scheduler(NO_RULES);
    let _pair = pair();
    std::thread::sleep(Duration::from_millis(300));
    let bound = [0, 1].map(|cpu| Task::fork_on("bound", Some(&[cpu]), task::spin));
    for _ in 0..3 {
        let handed_over = gthctl.counter("PATH_HANDED_OVER");
        let parts = task::times(&bound, Duration::from_millis(500));
        let handed_over = gthctl.counter("PATH_HANDED_OVER") - handed_over;
        println!("{parts:.3?} of 0.5 s each, {handed_over} handed over");
        assert!(parts.iter().all(|part| *part > 0.12), "{parts:?}");
    }
    gthctl.stop();
}

/// If a task may use only one CPU, the kernel does not tell the scheduler that it is handed something.
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
