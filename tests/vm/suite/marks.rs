//! Packets that a rule does not cover give no task the rule's places or priority.

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;

use crate::support::gthctl::report;
use crate::support::hot::SOON;
use crate::support::kernel;
use crate::support::plane::Plane;
use crate::support::sender;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

fn traffic() -> serde_json::Value {
    report(&["status"])["traffic"].clone()
}

/// The threads that are marked, by name.
fn marked() -> Vec<String> {
    let tasks = traffic()["tasks"].clone();
    let tasks = tasks.as_array().unwrap().iter();
    let mut names: Vec<String> =
        tasks.map(|task| task["comm"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn start(rule: &str) -> Lease {
    let gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
    gthctl.sees_packets();
    gthctl
}

fn become_nobody() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::setuid(65534) }, 0);
}

/// A task that fails another condition of the rule takes none of its places.
#[test]
fn packets_of_others_use_up_no_places() {
    let plane = sender::plane();
    let gthctl = start("{name: traffic, gtp: {module: gtp, hold: 3600s}, user: root, priority: 1}");
    let unnoticed_before = unnoticed_users();
    // Each becomes user nobody and sends a packet before gthctl has looked at it.
    let strangers: Vec<Task> = (0..300)
        .map(|_| {
            Task::fork("stranger", |_| {
                sender::enter_upf();
                let socket = sender::socket();
                become_nobody();
                for _ in 0..3 {
                    let _ = socket.send(b"packet");
                }
                loop {
                    task::sleep_until(task::now() + 1_000_000_000);
                }
            })
        })
        .collect();
    assert!(strangers.len() > 256, "as many as there are places");
    plane.ping(20);
    assert!(kernel::wait(SOON, || marked() == ["nr-gnb"]), "{:?}", marked());
    let ended = gthctl.counter("COUNT_MARKS_ENDED");
    assert_eq!(
        (gthctl.counter("COUNT_MARKED") - ended, gthctl.counter("COUNT_MARKS_REFUSED")),
        (1, 0)
    );
    // If the kernel does not tell gthctl about a stranger's setuid(2), the stranger counts as root's until
    // gthctl makes up for that.
    let unnoticed = unnoticed_users() - unnoticed_before;
    println!("{unnoticed} unnoticed, {ended} ended");
    assert!(ended <= unnoticed, "{ended} strangers were marked, {unnoticed} unnoticed");
    gthctl.stop();
}

/// How often the kernel has skipped the program that notices that a task's user has changed. It does so
/// on a CPU where a task was preempted in it (`recursion_misses` in `struct bpf_prog_info`).
fn unnoticed_users() -> u64 {
    // gth_commit_creds: the kernel keeps 15 bytes of a name (BPF_OBJ_NAME_LEN).
    let mut programs = ProgInfoIter::default();
    let noticing = programs.find(|program| program.name == "gth_commit_cred");
    noticing.expect("a program that notices other users").recursion_misses
}

/// A marked task that its rule no longer covers leaves its place to others.
#[test]
fn who_becomes_another_user_leaves_its_place() {
    let _plane = sender::plane();
    let gthctl = start(
        "{name: traffic, gtp: {module: gtp, hold: 3600s, max_tasks: 1}, user: root, priority: 1}",
    );
    let leaver = Task::fork("leaver", |shared| {
        sender::enter_upf();
        let socket = sender::socket();
        let _ = socket.send(b"packet");
        while shared.order.load(Ordering::Relaxed) == 0 {
            task::sleep_until(task::now() + 1_000_000);
        }
        become_nobody();
        loop {
            task::sleep_until(task::now() + 1_000_000);
        }
    });
    assert!(kernel::wait(SOON, || marked() == ["leaver"]), "{:?}", marked());
    leaver.order(1);
    assert!(kernel::wait(SOON, || marked().is_empty()), "{:?}", marked());
    let stayer = sender::sender("stayer");
    sender::send(&stayer, 1);
    assert_eq!(marked(), ["stayer"]);
    let counts = ["COUNT_MARKED", "COUNT_MARKS_ENDED", "COUNT_MARKS_REFUSED"];
    assert_eq!(counts.map(|name| gthctl.counter(name)), [2, 1, 0]);
    gthctl.stop();
}

/// A softirq that interrupts a marked task wakes up others; the task hands nothing to them.
#[test]
fn softirqs_on_top_of_a_marked_task_hand_on_nothing() {
    let _plane = sender::plane();
    let gthctl = start(
        "{name: traffic, gtp: {module: gtp, woken: true, min_pps: 2, hold: 3600s}, priority: 1}",
    );
    // It spins on the CPU to which the loopback device's packets are steered.
    const RPS: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
    fs::write(RPS, "2").unwrap();
    let marked_one = Task::fork_on("marked", Some(&[1]), |shared| {
        sender::enter_upf();
        let socket = sender::socket();
        loop {
            for _ in 0..shared.order.swap(0, Ordering::Relaxed) {
                let _ = socket.send(b"packet");
            }
        }
    });
    marked_one.order(5);
    assert!(kernel::wait(SOON, || marked() == ["marked"]), "{:?}", marked());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let bystander = Task::fork_on("bystander", Some(&[2, 3]), move |shared| {
        loop {
            let _ = socket.recv(&mut [0; 8]);
            shared.answer.fetch_add(1, Ordering::Relaxed);
        }
    });
    let _busy = Task::fork_on("busy", Some(&[0]), move |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        loop {
            let _ = socket.send_to(b"8 bytes.", to);
            task::sleep_until(task::now() + 2_000_000);
        }
    });
    let received = || bystander.shared().answer.load(Ordering::Relaxed);
    let enough = kernel::wait(Duration::from_secs(20), || received() > 500);
    let found = marked();
    fs::write(RPS, "0").unwrap();
    assert!(enough, "only {} packets came", received());
    assert_eq!(found, ["marked"]);
    gthctl.stop();
}

/// Like the test in [`crate::traffic`], but the receiver may run on only one CPU.
#[test]
fn whoever_they_wake_up_on_its_only_cpu() {
    let plane: Plane = sender::plane();
    let gthctl = start(
        "{name: traffic, gtp: {module: gtp, woken: true, min_pps: 5, hold: 5s}, priority: 1}",
    );
    let pinging = plane.pinging(&["taskset", "-c", "1"]);
    assert!(kernel::wait(SOON, || marked() == ["nr-gnb", "ping"]), "{:?}", marked());
    drop((pinging, plane));
    gthctl.stop();
}
