//! Priority tasks that run without sleeping: one that works through packets keeps its priority,
//! within the guard's bound, and one that only spins does not.

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::host::Stalls;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

/// The CPU for which the measured task and a spinner without priority compete.
const CPU: usize = 3;
/// With fair sharing, the task gets half of the CPU. The guard lets it use up to 20/21.
const FAIR: f64 = 0.65;
const MOST: f64 = 0.75;
/// The interval of a stream of packets, ns.
const EVERY: u64 = 100_000;

fn start() -> Lease {
    shared::scheduler("strategies: [{command_regex: ^prio$, priority: true, execution_time: 20ms}]")
}

/// The share of the CPU that the task gets beside a spinner.
fn share(task: &Task) -> f64 {
    let normal = Task::fork_on("normal", Some(&[CPU]), task::spin);
    // Longer than a burst.
    std::thread::sleep(Duration::from_millis(500));
    let times = || [task, &normal].map(|task| task.cpu_time().as_secs_f64());
    let before = times();
    std::thread::sleep(Duration::from_secs(2));
    let after = times();
    let [its, normals] = [0, 1].map(|i| after[i] - before[i]);
    println!("{its:.3} s, the spinner without priority {normals:.3} s");
    assert!(normals > 0.04, "the guard gives the others {normals:.3} s");
    its / (its + normals)
}

/// The share of the task that `start` starts, and how often it lost its priority. Measures again if
/// the host stalled the task for so long that half of its burst would be used up.
fn share_and_demotions(gthctl: &Lease, start: impl Fn() -> Task) -> (f64, u64) {
    const STALL: u64 = 40_000_000;
    let measure = || {
        let before = gthctl.counter("COUNT_DEMOTIONS");
        let task = start();
        let found = (share(&task), gthctl.counter("COUNT_DEMOTIONS") - before);
        (task.shared().longest_gap.load(Ordering::Relaxed), found)
    };
    let mut measured = measure();
    for _ in 0..4 {
        if measured.0 < STALL {
            break;
        }
        println!("measured again: the host stalled for {:?}", Duration::from_nanos(measured.0));
        measured = measure();
    }
    measured.1
}

/// Sends datagrams from one socket to the address of another, with work in between.
fn sender(comm: &str, cpu: usize, from: &UdpSocket, to: &UdpSocket) -> Task {
    let (from, to) = (from.try_clone().unwrap(), to.local_addr().unwrap());
    Task::fork_on(comm, Some(&[cpu]), move |shared| {
        let mut stalls = Stalls::new();
        loop {
            stalls.look(shared);
            from.send_to(b"packet", to).unwrap();
            task::run_for(EVERY);
        }
    })
}

fn receiver(cpus: &[usize], socket: &UdpSocket) -> Task {
    let socket = socket.try_clone().unwrap();
    Task::fork_on("prio", Some(cpus), move |_| {
        loop {
            let _ = socket.recv(&mut [0; 8]);
        }
    })
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// For a receiver that may use only one CPU, the kernel does not ask the scheduler to select one.
#[test]
fn a_task_that_hands_packets_on_keeps_its_priority() {
    let gthctl = start();
    for cpus in [&[1, 2][..], &[2]] {
        let to = socket();
        let _receiver = receiver(cpus, &to);
        let from = socket();
        let (share, demotions) = share_and_demotions(&gthctl, || sender("prio", CPU, &from, &to));
        assert!(share > MOST, "{share:.3} with the receiver on {cpus:?}");
        assert_eq!(demotions, 0, "with the receiver on {cpus:?}");
    }
    gthctl.stop();
}

#[test]
fn who_hands_packets_to_tasks_without_priority_does_not() {
    let gthctl = start();
    let to = socket();
    let other = to.try_clone().unwrap();
    let _receiver = Task::fork_on("other", Some(&[1, 2]), move |_| {
        loop {
            let _ = other.recv(&mut [0; 8]);
        }
    });
    let share = share(&sender("prio", CPU, &socket(), &to));
    assert!(share < FAIR, "{share:.3}");
    gthctl.stop();
}

/// The softirq that interrupts the spinner receives what another CPU sends.
#[test]
fn softirqs_on_top_of_a_spinner_do_not_keep_its_priority() {
    const RPS: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
    let gthctl = start();
    fs::write(RPS, format!("{:x}", 1 << CPU)).unwrap();
    let to = socket();
    let _receiver = receiver(&[1, 2], &to);
    let _sender = sender("sender", 0, &socket(), &to);
    let share = share(&Task::fork_on("prio", Some(&[CPU]), task::spin));
    fs::write(RPS, "0").unwrap();
    assert!(share < FAIR, "{share:.3}");
    gthctl.stop();
}

/// No task on this machine waits for the packets that it sends.
#[test]
fn a_task_whose_packets_a_rule_counts_keeps_its_priority() {
    let from = socket();
    let port = from.local_addr().unwrap().port();
    let gthctl = shared::scheduler(&format!(
        "strategies: [{{gtp: {{port: {port}}}, priority: true, execution_time: 20ms}}]"
    ));
    gthctl.sees_packets();
    let to = socket();
    let (share, demotions) = share_and_demotions(&gthctl, || sender("upf", CPU, &from, &to));
    assert!(share > MOST, "{share:.3}");
    assert_eq!(demotions, 0);
    gthctl.stop();
}
