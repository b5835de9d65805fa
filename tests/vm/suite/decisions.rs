//! The cost of a scheduling decision.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::gthctl::many_rules;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

/// The times are a microsecond or two; other work on the host doubles them.
pub const VM: Vm = vm::VIRTUAL;

/// Measures the cost of BPF programs until dropped.
struct BpfStats;

impl BpfStats {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn on() -> Self {
        fs::write(Self::SWITCH, "1").unwrap();
        Self
    }

    /// Time in ns and number of runs of a process's struct_ops programs so far.
    fn read(&self, pid: i32) -> (u64, u64) {
        const STRUCT_OPS: u64 = 27; // BPF_PROG_TYPE_STRUCT_OPS, include/uapi/linux/bpf.h
        let mut programs = std::collections::BTreeMap::new();
        for info in kernel::open_files(pid) {
            let number = |name: &str| -> Option<u64> {
                let line = info.lines().find_map(|line| line.strip_prefix(name))?;
                line.strip_prefix(':')?.trim().parse().ok()
            };
            if number("prog_type") == Some(STRUCT_OPS) {
                let [id, time, runs] =
                    ["prog_id", "run_time_ns", "run_cnt"].map(|name| number(name).unwrap());
                programs.insert(id, (time, runs));
            }
        }
        assert!(!programs.is_empty());
        programs.values().fold((0, 0), |sum, program| (sum.0 + program.0, sum.1 + program.1))
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let _ = fs::write(Self::SWITCH, "0");
    }
}

/// A process and its child that wake each other up in turn, forever.
fn ping_pong(_: &task::Shared) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let bounce = |stream: &mut UnixStream| {
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
    };
    task::fork_below(|| bounce(&mut there));
    here.write_all(&[1]).unwrap();
    bounce(&mut here);
}

/// A decision costs the same with one rule as with the most there can be: gthctl matches a task
/// once, not at each decision.
#[test]
fn rules_cost_nothing_at_each_decision() {
    let matching = "- {command_regex: ^load$, weight: 100}\n";
    let one = format!("strategies:\n{matching}");
    let many = many_rules(127, "many") + matching;
    let gthctl = shared::scheduler(&one);
    let stats = BpfStats::on();
    // The load begins after the reload, which would take long under this load.
    let cost = || {
        let mut load: Vec<Task> = (0..3).map(|_| Task::fork("load", ping_pong)).collect();
        load.extend(task::spinners(2, "load"));
        std::thread::sleep(Duration::from_millis(100));
        let before = stats.read(gthctl.pid());
        std::thread::sleep(Duration::from_millis(300));
        let after = stats.read(gthctl.pid());
        let runs = after.1 - before.1;
        assert!(runs > 1000, "only {runs} runs");
        (after.0 - before.0) as f64 / runs as f64
    };
    let with_one = cost();
    gthctl.replace(&many);
    let with_many = cost();
    println!("{with_one:.0} ns with one rule, {with_many:.0} ns with 128");
    assert!(with_many < with_one * 1.25, "{with_many:.0} ns against {with_one:.0}");
    gthctl.stop();
}
