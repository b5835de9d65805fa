//! Nobody gets more than the policy gives him: not by renaming a thread, not by packets
//! that are no business of his rule, not by forking.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::gthctl::{Gthctl, report};
use crate::hot::SOON;
use crate::kernel;
use crate::plane::Plane;
use crate::sender;
use crate::task::{self, Task};

/// A thread that renames its sibling again and again has it matched again and again.
#[test]
fn a_task_that_is_being_matched_has_no_rule() {
    let gthctl = Gthctl::start("strategies: [{command_regex: ^nobody-at-all$, priority: true}]");
    let _load = task::spinners(kernel::cpus(), "load");
    let renamed = Task::fork("renamed", |shared| {
        // SAFETY: no pointers.
        let tid = unsafe { libc::gettid() };
        // Not before the test has seen its first name.
        while shared.order.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        std::thread::spawn(move || {
            for name in ["one", "two"].into_iter().cycle() {
                let _ = fs::write(format!("/proc/self/task/{tid}/comm"), name);
            }
        });
        task::wake_often(200_000)(shared)
    });
    renamed.order(1);
    std::thread::sleep(Duration::from_secs(4));
    let wakes = renamed.shared().latencies().len();
    drop(renamed);
    let output = gthctl.stop();
    assert!(wakes > 100, "only {wakes} wake-ups");
    assert_eq!(output.counter("priority wake-ups"), 0, "{}", output.stdout);
}

/// A cgroup whose tasks end with it.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let path = PathBuf::from("/sys/fs/cgroup").join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The CPU time of all its tasks, those that have ended too.
    fn used(&self) -> Duration {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
        Duration::from_micros(us.parse().unwrap())
    }

    fn file(&self) -> fs::File {
        fs::File::open(&self.0).unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        kernel::wait(Duration::from_secs(10), || fs::remove_dir(&self.0).is_ok());
    }
}

/// Goes on as a child of itself.
fn become_a_child() {
    // SAFETY: the child goes on as its parent did.
    if unsafe { libc::fork() } != 0 {
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
}

/// The same, but the parent sleeps for a moment after the fork, and runs on until it ends.
fn become_a_child_and_run_on() {
    // SAFETY: the child goes on as its parent did.
    if unsafe { libc::fork() } != 0 {
        task::sleep_until(task::now() + 1_000);
        task::run_for(3_000_000);
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    // The parent runs meanwhile.
    task::sleep_until(task::now() + 3_000_000);
}

/// Which part of two CPUs four spinners get beside four chains of tasks.
fn part_of_spinners(under: &str, step: fn()) -> f64 {
    let cpus = [0, 1];
    let chains = Cgroup::new("chains");
    let dir = chains.file();
    for _ in 0..4 {
        // The first of a chain ends by itself; the cgroup ends the chain.
        std::mem::forget(Task::start_in_cgroup("chain", &dir, move |_| {
            task::set_affinity(0, &cpus);
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            loop {
                step();
            }
        }));
    }
    let spinners: Vec<Task> =
        (0..4).map(|_| Task::fork_on("spinner", Some(&cpus), task::spin)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let before: Duration = spinners.iter().map(Task::cpu_time).sum();
    let (begin, used) = (Instant::now(), chains.used());
    std::thread::sleep(Duration::from_secs(4));
    let used_after = chains.used();
    let got = spinners.iter().map(Task::cpu_time).sum::<Duration>() - before;
    let part =
        |time: Duration| time.as_secs_f64() / begin.elapsed().as_secs_f64() / cpus.len() as f64;
    println!(
        "{under}: spinners {:.2} of the CPUs, chains {:.2}",
        part(got),
        part(used_after - used)
    );
    part(got)
}

#[test]
fn chains_of_forks_get_what_they_get_from_the_kernel() {
    let steps = [become_a_child, become_a_child_and_run_on];
    let eevdf = steps.map(|step| part_of_spinners("EEVDF", step));
    let gthctl = Gthctl::start("strategies: []");
    for (step, eevdf) in steps.into_iter().zip(eevdf) {
        let ours = part_of_spinners("gthctl", step);
        assert!(ours > eevdf - 0.1, "{ours:.2} against {eevdf:.2}");
    }
    gthctl.stop();
}

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

fn start(rule: &str) -> Gthctl {
    let gthctl = Gthctl::start(&format!("strategies: [{rule}]"));
    assert!(gthctl.says("packets are seen by", 1), "{}", gthctl.stderr());
    gthctl
}

/// Who does not meet a rule otherwise takes none of its places.
#[test]
fn packets_of_others_use_up_no_places() {
    let plane = sender::plane();
    let gthctl = start("{name: traffic, gtp: {module: gtp, hold: 3600s}, user: root, priority: 1}");
    // As nobody, and each with a packet before anybody has looked at it.
    let strangers: Vec<Task> = (0..300)
        .map(|_| {
            Task::fork("stranger", |_| {
                sender::enter_upf();
                let socket = sender::socket();
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::setuid(65534) }, 0);
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
    assert_eq!(marked(), ["nr-gnb"]);
    let output = gthctl.stop();
    assert_eq!(output.counter("traffic: tasks marked"), 1);
    assert_eq!(output.counter("traffic: refused, max_tasks are marked"), 0);
}

/// A softirq on top of a marked task wakes up others, to which that task hands on nothing.
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
    std::thread::sleep(Duration::from_secs(3));
    let received = bystander.answer();
    let found = marked();
    fs::write(RPS, "0").unwrap();
    assert!(received > 200, "only {received} packets came");
    assert_eq!(found, ["marked"]);
    gthctl.stop();
}

/// As [`crate::traffic`]'s, but the receiver may run on one CPU only.
#[test]
fn whoever_they_wake_up_on_its_only_cpu() {
    let plane: Plane = sender::plane();
    let gthctl = start(
        "{name: traffic, gtp: {module: gtp, woken: true, min_pps: 5, hold: 5s}, priority: 1}",
    );
    let ping = "-c 1 ip netns exec ran ping -n -I uesimtun0 -i 0.05 -W 5 10.200.0.2 -c 60";
    let mut ping =
        Command::new("taskset").args(ping.split(' ')).stdout(Stdio::null()).spawn().unwrap();
    let both = kernel::wait(SOON, || marked() == ["nr-gnb", "ping"]);
    let found = marked();
    ping.wait().unwrap();
    assert!(both, "{found:?}");
    drop(plane);
    gthctl.stop();
}
