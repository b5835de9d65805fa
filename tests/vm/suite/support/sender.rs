//! Tasks that send through the gtp device of the data plane (plane.rs).

use std::fs::File;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::Ordering;

use nix::sched::{CloneFlags, setns};

use crate::support::halt::Halt;
use crate::support::hot::SOON;
use crate::support::kernel;
use crate::support::plane::{Plane, succeeds};
use crate::support::task::{self, Shared, Task};

/// An address behind the gtp device that no tunnel leads to: the driver is called and
/// drops the packet.
const NOWHERE: &str = "10.61.0.1:9";

/// The plane on the kernel's driver, with a route for senders and no packets but theirs.
pub fn plane() -> Plane {
    let plane = Plane::on_gtp();
    succeeds(Command::new("ip").args(["-n", "upf", "route", "add", "10.61.0.0/24", "dev", "gtp0"]));
    plane
}

/// Makes a softirq on that CPU handle the packets that arrive at the UPF from the gNB.
pub fn steer_uplink_to(cpu: usize) {
    write_in_upf(&format!("{:x}", 1 << cpu), "/sys/class/net/n3/queues/rx-0/rps_cpus");
}

pub fn write_in_upf(text: &str, file: &str) {
    let write = format!("echo {text} > {file}");
    succeeds(Command::new("ip").args(["netns", "exec", "upf", "sh", "-c", &write]));
}

/// Moves the calling thread to the namespace of the gtp device.
pub fn enter_upf() {
    setns(File::open("/run/netns/upf").unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

/// A socket whose packets go to the gtp device.
pub fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(NOWHERE).unwrap();
    socket
}

/// A task that sends as many packets as each new order says and otherwise sleeps. It always has a
/// name of its own.
pub fn sender(comm: &str) -> Task {
    Task::fork(comm, |shared| {
        on_order(shared, || task::sleep_until(task::now() + 1_000_000));
    })
}

/// Like [`sender`], but never sleeps.
pub fn spinning_sender(comm: &str) -> Task {
    Task::fork(comm, |shared| {
        let mut halt = Halt::new();
        on_order(shared, || halt.rest());
    })
}

fn on_order(shared: &Shared, mut between: impl FnMut()) {
    enter_upf();
    let socket = socket();
    loop {
        let packets = shared.order.swap(0, Ordering::Relaxed);
        for _ in 0..packets {
            // The driver's answer does not matter.
            let _ = socket.send(b"packet");
        }
        shared.answer.fetch_add(packets, Ordering::Relaxed);
        between();
    }
}

/// Makes the sender send, and waits until it has.
pub fn send(task: &Task, packets: u32) {
    let answer = || task.shared().answer.load(Ordering::Relaxed);
    let before = answer();
    task.order(packets);
    assert!(kernel::wait(SOON, || answer() == before + packets));
}
