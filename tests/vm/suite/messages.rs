//! A task without priority that hands many messages to others, on one CPU.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::gthctl::NO_RULES;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::Task;
use crate::support::vm::{self, Vm};

/// A turn lasts for 200 us at least, in which a slow host sends one message.
pub const VM: Vm = vm::VIRTUAL;

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
