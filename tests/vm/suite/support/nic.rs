//! Network cards: where their interrupts go, and traffic through them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ::gthctl::base::cpulist::CpuList;
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

use crate::support::gthctl::{self, Output};
use crate::support::kernel;
use crate::support::plane::succeeds;

pub const SAVED: &str = "/run/gthctl/irq/saved.json";

pub fn irq(args: &[&str]) -> Output {
    gthctl::output(Command::new(gthctl::binary()).arg("irq").args(args).stdin(Stdio::null()))
}

/// What `gthctl irq` reports in JSON; it must succeed.
#[track_caller]
pub fn report(args: &[&str]) -> Value {
    let output = irq(&[args, &["-o", "json"]].concat());
    assert_eq!(output.code(), 0, "{args:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// Each IRQ of a virtio device with its name without the device, from /proc/interrupts.
pub fn irqs_of(nic: &str) -> Vec<(u32, String)> {
    let device = fs::read_link(format!("/sys/class/net/{nic}/device")).unwrap();
    let device = format!("{}-", device.file_name().unwrap().to_str().unwrap());
    let text = kernel::read("/proc/interrupts");
    let lines = text.lines().filter_map(|line| {
        let name = line.split_whitespace().next_back()?.strip_prefix(&device)?;
        Some((line.trim_start().split(':').next()?.parse().ok()?, name.to_owned()))
    });
    lines.collect()
}

pub fn irq_of(nic: &str, name: &str) -> u32 {
    irqs_of(nic).into_iter().find(|(_, one)| one == name).unwrap().0
}

pub fn affinity(irq: u32) -> String {
    kernel::read(&format!("/proc/irq/{irq}/smp_affinity_list"))
}

/// The affinities of all IRQs of a NIC.
pub fn affinities(nic: &str) -> BTreeMap<u32, String> {
    irqs_of(nic).into_iter().map(|(irq, _)| (irq, affinity(irq))).collect()
}

/// How many interrupts of an IRQ each CPU has taken.
pub fn counts(irq: u32) -> Vec<u64> {
    let text = kernel::read("/proc/interrupts");
    let start = format!("{irq}:");
    let line = text.lines().find(|line| line.trim_start().starts_with(&start)).unwrap();
    let numbers = line.split_whitespace().skip(1).take(kernel::cpus());
    numbers.map(|number| number.parse().unwrap()).collect()
}

/// Whether the kernel sends an IRQ to one of its CPUs. After a change, the next interrupt still comes in on
/// the former CPU and moves the IRQ. If the move before that has not ended, later ones do, too
/// (assign_vector_locked(), arch/x86/kernel/apic/vector.c).
fn has_moved(irq: u32) -> bool {
    let cpus = |list: String| list.parse::<CpuList>().unwrap();
    let effective = kernel::read(&format!("/proc/irq/{irq}/effective_affinity_list"));
    cpus(effective).without(&cpus(affinity(irq))).is_empty()
}

/// How many interrupts of an IRQ each CPU takes during `work`, once `work` has made the kernel move the IRQ
/// where it should be. Repeats `work` while it has caused less than [`ENOUGH`]: where QEMU waits for the
/// host, many packets cause one interrupt.
pub fn taken(irq: u32, work: impl Fn()) -> Vec<u64> {
    for _ in 0..10 {
        if has_moved(irq) {
            break;
        }
        work();
    }
    let before = counts(irq);
    let mut taken = Vec::new();
    for _ in 0..10 {
        work();
        taken = counts(irq).iter().zip(&before).map(|(now, before)| now - before).collect();
        if taken.iter().sum::<u64>() >= ENOUGH {
            break;
        }
    }
    taken
}

/// This many interrupts show which CPU takes them.
const ENOUGH: u64 = 50;

/// True if `cpu` took almost all of them.
pub fn on(taken: &[u64], cpu: usize) -> bool {
    let all: u64 = taken.iter().sum();
    all >= ENOUGH && taken[cpu] * 20 >= all * 19
}

/// Runs commands of iproute2.
pub fn ip(commands: &[&str]) {
    for command in commands {
        succeeds(Command::new("ip").args(command.split(' ')));
    }
}

/// Puts everything back, whatever the outcome of the test.
pub struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = irq(&["restore"]);
    }
}

/// eth1 here and eth2 in a network namespace, with addresses; until dropped.
pub struct Pair;

impl Pair {
    /// eth1 has the address 10.44.0.1.
    pub fn up() -> Self {
        assert!(Path::new("/sys/class/net/eth2").exists(), "no eth2: tests/vm/run takes -n");
        let pair = Self;
        ip(&[
            "netns add peer",
            "link set eth2 netns peer",
            "addr add 10.44.0.1/24 dev eth1",
            "link set eth1 up",
            "-n peer addr add 10.44.0.2/24 dev eth2",
            "-n peer link set eth2 up",
        ]);
        pair.ping(1);
        pair
    }

    /// Each answer causes an interrupt of eth1's receive queue, unless several come at once.
    pub fn ping(&self, count: usize) {
        let ping = "-q -i 0.005 -W 5 10.44.0.2 -c";
        succeeds(Command::new("ping").args(ping.split(' ')).arg(count.to_string()));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for command in ["addr flush dev eth1", "link set eth1 down", "netns del peer"] {
            let _ = Command::new("ip").args(command.split(' ')).status();
        }
        // When the namespace is gone, the device comes back.
        kernel::wait(Duration::from_secs(10), || Path::new("/sys/class/net/eth2").exists());
    }
}

/// Holds the lock until dropped, like another gthctl that moves interrupts and does not finish.
pub fn hold_irq_lock() -> Flock<File> {
    fs::create_dir_all("/run/gthctl/irq").unwrap();
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600);
    let lock = lock.open("/run/gthctl/irq/lock").unwrap();
    Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap()
}
