//! `gthctl irq` and a policy's `irq` beside Debian's irqbalance. Unit tests cover the protocol
//! (src/irq/irqbalance/). So `make vm` runs one test with the real irqbalance; the others, which
//! wait for its rounds, run in `make test-kernels`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::placement::{SOON, all_on, with};
use crate::support::gthctl::{self, Gthctl, NO_RULES};
use crate::support::kernel;
use crate::support::nic::{Restore, SAVED, irq, irq_of, irqs_of, report};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

/// Debian's irqbalance, balancing every second, until dropped.
struct Irqbalance(Child);

impl Irqbalance {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new("irqbalance");
        command.args(["--foreground", "--interval=1"]).args(args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Self(command.spawn().unwrap());
        let listed = || report(&["list", "eth0"])["irqbalance"][0]["pid"] == daemon.0.id();
        assert!(kernel::wait(Duration::from_secs(30), listed));
        daemon
    }

    /// The IRQs that it says it leaves alone, once it answers.
    fn banned(&self) -> Vec<u64> {
        let mut list = Value::Null;
        let answers = kernel::wait(Duration::from_secs(30), || {
            list = report(&["list", "eth0"])["irqbalance"][0].clone();
            list.get("silent").is_none()
        });
        assert!(answers, "{list}");
        list["banned"].as_array().unwrap().iter().map(|irq| irq.as_u64().unwrap()).collect()
    }
}

impl Drop for Irqbalance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all("/run/irqbalance");
    }
}

#[test]
#[ignore = "make test-kernels"]
fn irqbalance_moves_what_it_is_not_told_to_leave_alone() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    report(&["pin", "eth0", "--cpus", "2"]);
    let daemon = Irqbalance::start(&[]);
    let moved = kernel::wait(Duration::from_secs(60), || irq(&["drift"]).code() == 1);
    assert!(moved, "irqbalance moved nothing");
    assert!(irq(&["drift"]).stderr.contains("irqbalance is running"));
    report(&["pin", "eth0", "--cpus", "2", "--ban"]);
    // After the ban, irqbalance scans all IRQs. This gives it ten rounds for that.
    std::thread::sleep(Duration::from_secs(10));
    let drift = irq(&["drift"]);
    assert_eq!(drift.code(), 0, "{}", drift.stdout);
    assert!(!drift.stderr.contains("irqbalance"), "{}", drift.stderr);
    report(&["restore"]);
    assert_eq!(daemon.banned(), [0_u64; 0]);
}

#[test]
fn irqbalance_is_told_and_told_again() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    // Something else banned one; that ban stays.
    let others = vec![u64::from(irq_of("eth1", "config"))];
    let daemon = Irqbalance::start(&[&format!("--banirq={}", others[0])]);
    assert_eq!(daemon.banned(), others);
    let refused = irq(&["pin", "eth0", "--cpus", "2"]);
    assert_eq!((refused.code(), Path::new(SAVED).exists()), (1, false));
    let why =
        format!("gthctl: error: irqbalance is running (PID {}) and would move", daemon.0.id());
    assert!(refused.stderr.starts_with(&why), "{}", refused.stderr);

    report(&["pin", "eth0", "--cpus", "2", "--ban"]);
    let irqs = irqs_of("eth0");
    let mut wanted: Vec<u64> =
        irqs.iter().map(|&(irq, _)| irq.into()).chain(others.clone()).collect();
    wanted.sort();
    assert_eq!(daemon.banned(), wanted);
    let mut drift = irq(&["drift"]);
    // gthctl waits a second for irqbalance's answer, and the host may be busy.
    let answers = || {
        drift = irq(&["drift"]);
        !drift.stderr.contains("no answer")
    };
    assert!(kernel::wait(Duration::from_secs(30), answers));
    assert_eq!(drift.code(), 0, "{}", drift.stdout);
    assert!(!drift.stderr.contains("irqbalance"), "{}", drift.stderr);
    // irqbalance does not matter for IRQs that it leaves alone.
    report(&["pin", "eth0", "--cpus", "1"]);
    report(&["restore"]);
    assert_eq!(daemon.banned(), others);
}

/// The note of a `pin --ban` of eth0 that succeeds.
#[track_caller]
fn ban(args: &[&str]) -> String {
    let placed = report(&[&["pin", "eth0", "--cpus", "2", "--ban"], args].concat());
    placed["notes"][0].as_str().unwrap().into()
}

#[test]
#[ignore = "make test-kernels"]
fn a_busy_irqbalance_is_waited_for() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    let first = irq_of("eth0", "config");
    let second = irq_of("eth0", "input.0");
    // After a change of the bans, version 1.9.2 does not listen for one interval.
    let daemon = Irqbalance::start(&["--interval=3"]);
    let busy = || {
        let silent = || report(&["list", "eth0"])["irqbalance"][0].get("silent").is_some();
        assert!(kernel::wait(Duration::from_secs(30), silent), "it answers all the time");
    };
    assert!(daemon.banned().is_empty());
    ban(&["--irq", &first.to_string()]);
    busy();
    let note = ban(&["--irq", &second.to_string()]);
    assert!(note.contains(&format!("leaves IRQ {second} alone")), "{note}");
    busy();
    report(&["restore"]);
    assert_eq!((daemon.banned(), Path::new(SAVED).exists()), (vec![], false));

    // gthctl cannot reach a stopped irqbalance, so it remembers what it has told it.
    ban(&["--irq", &first.to_string()]);
    let pid = Pid::from_raw(daemon.0.id() as i32);
    signal::kill(pid, Signal::SIGSTOP).unwrap();
    let args = ["pin", "eth0", "--cpus", "1", "--ban", "--irq", &second.to_string()];
    let refused = irq(&args);
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("no answer in 15 s; nothing changed"), "{}", refused.stderr);
    let restored = irq(&["restore"]);
    assert_eq!((restored.code(), Path::new(SAVED).exists()), (1, true), "{}", restored.stderr);
    signal::kill(pid, Signal::SIGCONT).unwrap();
    assert_eq!(daemon.banned(), [u64::from(first)]);
    report(&["restore"]);
    assert_eq!((daemon.banned(), Path::new(SAVED).exists()), (vec![], false));
}

#[test]
#[ignore = "make test-kernels"]
fn an_irqbalance_without_its_directory_has_an_abstract_socket() {
    let _restore = Restore;
    assert!(!Path::new("/run/irqbalance").exists());
    let daemon = Irqbalance::start(&["--banirq=1"]);
    assert_eq!(daemon.banned(), [1]);
    let irq = irq_of("eth0", "config");
    ban(&["--irq", &irq.to_string()]);
    assert_eq!(daemon.banned(), [1, u64::from(irq)]);
    report(&["restore"]);
    assert_eq!(daemon.banned(), [1]);
}

#[test]
#[ignore = "make test-kernels"]
fn an_irqbalance_without_a_socket_is_for_the_administrator() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    let irqs: Vec<u32> = irqs_of("eth0").iter().map(|&(irq, _)| irq).collect();
    let daemon = Irqbalance::start(&[]);
    daemon.banned();
    // Its socket is gone.
    fs::remove_dir_all("/run/irqbalance").unwrap();
    let refused = irq(&["pin", "eth0", "--cpus", "2", "--ban"]);
    assert_eq!((refused.code(), Path::new(SAVED).exists()), (1, false));
    let bans: Vec<String> = irqs.iter().map(|irq| format!("--banirq={irq}")).collect();
    let line = format!("put IRQBALANCE_ARGS=\"{}\" into /etc/", bans.join(" "));
    assert!(refused.stderr.contains(&line), "{}", refused.stderr);
    drop(daemon);
    let bans: Vec<&str> = bans.iter().map(String::as_str).collect();
    let _daemon = Irqbalance::start(&bans);
    // With those arguments, irqbalance does not interfere.
    report(&["pin", "eth0", "--cpus", "1"]);
    report(&["restore"]);
}

#[test]
#[ignore = "make test-kernels"]
fn irqbalance_in_the_way_of_a_policy() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    let daemon = Irqbalance::start(&[]);
    assert_eq!(daemon.banned(), [0_u64; 0]);
    // gthctl reports it and schedules anyway.
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    let why = format!("irqbalance is running (PID {}) and would move IRQ ", daemon.0.id());
    assert!(gthctl.says(&format!("gthctl: error: {why}"), 1), "{}", gthctl.stderr());
    let waiting = gthctl::report(&["status"])["irqs"]["waiting"][0].as_str().unwrap().to_owned();
    assert!(waiting.starts_with(&why) && waiting.contains("`irqbalance: ban`"), "{waiting}");
    assert!(!Path::new(SAVED).exists());
    // Once irqbalance has ended, gthctl places the interrupts.
    drop(daemon);
    assert!(kernel::wait(2 * SOON, || all_on("eth0", "2")), "{}", gthctl.stderr());
    assert!(kernel::wait(SOON, || gthctl::report(&["status"])["irqs"]["waiting"] == json!([])));
    gthctl.replace(NO_RULES);
    assert!(kernel::wait(SOON, || !Path::new(SAVED).exists()));

    let daemon = Irqbalance::start(&[]);
    gthctl.replace(&with("{nic: eth0, cpus: 2, irqbalance: ban}"));
    assert!(kernel::wait(2 * SOON, || all_on("eth0", "2")), "{}", gthctl.stderr());
    let irqs: Vec<u64> = irqs_of("eth0").into_iter().map(|(irq, _)| irq.into()).collect();
    assert_eq!(daemon.banned(), irqs);
    gthctl.stop();
    // Now irqbalance may move them again.
    assert_eq!((daemon.banned(), Path::new(SAVED).exists()), (vec![], false));
}
