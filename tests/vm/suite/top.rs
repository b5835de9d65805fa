//! `gthctl top` beside a running gthctl.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::gthctl::{self, Output};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const SOON: Duration = Duration::from_secs(30);

pub fn top(args: &[&str]) -> Output {
    gthctl::output(Command::new(gthctl::binary()).arg("top").args(args))
}

#[track_caller]
fn report() -> Value {
    let output = top(&["-o", "json"]);
    assert_eq!((output.code(), &*output.stderr), (0, ""));
    serde_json::from_str(&output.stdout).unwrap()
}

fn task(report: &Value, tid: i32) -> &Value {
    let tasks = report["gthctl"]["tasks"].as_array().unwrap();
    tasks.iter().find(|task| task["tid"] == tid).unwrap_or(&Value::Null)
}

/// A CPU's time is counted by what runs there: a task under a rule with priority, one without a rule,
/// a real-time task.
#[test]
fn a_cpus_time_is_by_whose_tasks_ran() {
    let gthctl =
        shared::scheduler("strategies: [{name: upf, command_regex: ^upf$, priority: true}]");
    let _upf = Task::fork_on("upf", Some(&[1]), task::spin);
    let _load = Task::fork_on("load", Some(&[2]), task::spin);
    // It becomes real-time before it comes to that CPU: the kernel does not report that a task on a CPU
    // becomes real-time, and what waits in that CPU's local DSQ stays there.
    let _fifo = Task::fork_on("fifo", Some(&[0]), |shared| {
        task::become_realtime();
        task::set_affinity(0, &[3]);
        task::spin(shared);
    });
    let kinds = ["priority", "normal", "real_time"];
    let seen = || {
        let report = report();
        // The real-time task leaves a share of its CPU to others if there are ext servers.
        (1..=3).all(|cpu| {
            let shares = kinds.map(|kind| report["cpus"][cpu][kind].as_f64().unwrap_or(0.0));
            (0..3).all(|kind| (shares[kind] > 0.7) == (kind + 1 == cpu))
        })
    };
    assert!(kernel::wait(SOON, seen), "{:#}", report());
    let table = top(&["--once", "-d", "0.5"]).stdout;
    let head = table.lines().find(|line| line.trim_start().starts_with("CPU ")).expect(&table);
    let columns: Vec<&str> = head.split('|').map(str::trim).collect();
    assert!(columns.windows(3).any(|names| names == ["prio", "normal", "rt"]), "{table}");
    gthctl.stop();
}

#[test]
fn a_report_has_what_tasks_and_cpus_did() {
    let gthctl = shared::scheduler(
        "strategies: [{name: hot, command_regex: ^hot$, cpus: 1, exclusive: true}, \
         {name: upf, command_regex: ^upf$, priority: true}]",
    );
    let (hot, upf) = (Task::spinner("hot"), Task::fork("upf", task::wake_often(2_000_000)));
    let seen = || {
        let report = report();
        let (hot, upf) = (task(&report, hot.pid), task(&report, upf.pid));
        hot["run"].as_f64() > Some(0.5)
            && hot["cpu"] == 1
            && report["cpus"][1]["idle"].as_f64() < Some(0.5)
            && upf["switches_per_second"].as_f64() > Some(10.0)
            && report["gthctl"]["wakeups"]["per_second"].as_f64() > Some(10.0)
    };
    assert!(kernel::wait(SOON, seen), "{:#}", report());
    let report = report();
    assert_eq!(report["cpus"][1]["exclusive"], true, "{report:#}");
    assert_eq!(report["cpus"][0]["exclusive"], false, "{report:#}");
    assert_eq!(report["gthctl"]["rules"][0]["rule"], "hot", "{report:#}");
    assert_eq!(report["gthctl"]["rules"][1]["tasks"], 1, "{report:#}");

    let output = top(&["--once", "-d", "0.5"]);
    assert_eq!((output.code(), &*output.stderr), (0, ""));
    let rows: Vec<Vec<&str>> =
        output.stdout.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    for (tid, name) in [(hot.pid, "hot"), (upf.pid, "upf")] {
        let tid = tid.to_string();
        let row = [tid.as_str(), name, name];
        assert!(rows.iter().any(|cells| cells.starts_with(&row)), "{row:?}\n{}", output.stdout);
    }
    assert!(rows.iter().any(|cells| cells.starts_with(&["1", "exclusive"])), "{}", output.stdout);
    gthctl.stop();
}
