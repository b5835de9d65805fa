//! What gthctl counts for each rule, compared with what the kernel counts for the rule's only task.

use std::fs;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

use crate::support::gthctl;
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const SOON: Duration = Duration::from_secs(30);

/// The value of a metric of a rule, whose labels begin with the rule's.
#[track_caller]
fn metric(name: &str, labels: &str) -> f64 {
    let output = gthctl::output(Command::new(gthctl::binary()).arg("metrics"));
    let metric = format!("gthctl_rule_{name}{{{labels}}} ");
    let value = output.stdout.lines().find_map(|line| line.strip_prefix(&metric)?.parse().ok());
    value.unwrap_or_else(|| panic!("no {metric}in\n{}{}", output.stdout, output.stderr))
}

/// A count of a thread in /proc/PID/status.
pub fn in_status(pid: i32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap().trim().parse().unwrap()
}

/// How long a thread ran and how long it waited for a CPU, in seconds (/proc/PID/schedstat).
pub fn times(pid: i32) -> [f64; 2] {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let mut times = text.split_whitespace().map(|ns| ns.parse::<f64>().unwrap() / 1e9);
    [times.next().unwrap(), times.next().unwrap()]
}

/// By how much `metric` and `truth` rise until `metric` has risen by `much`. The truth is a range, as
/// it is read before and after each value.
#[track_caller]
pub fn rises<T: Fn() -> f64>(
    much: f64,
    metric: impl Fn() -> f64,
    truth: T,
) -> (f64, RangeInclusive<f64>) {
    let before = truth();
    let from = metric();
    let after = truth();
    assert!(kernel::wait(SOON, || metric() >= from + much), "{from}, then {}", metric());
    let least = truth();
    let to = metric();
    let most = truth();
    (to - from, least - after..=most - before)
}

/// The counted wake-ups of these rules are the sleeps of their tasks: a priority one, a normal one,
/// and one that may use a single CPU.
#[test]
fn a_rule_has_as_many_wakeups_as_its_task() {
    let gthctl = shared::scheduler(
        "strategies: [{name: upf, command_regex: ^upf$, priority: true}, \
         {name: smf, command_regex: ^smf$, weight: 200}, \
         {name: amf, command_regex: ^amf$, weight: 50}]",
    );
    let wakes = || task::wake_often(1_000_000);
    let tasks = [
        ("upf", Task::fork("upf", wakes())),
        ("smf", Task::fork("smf", wakes())),
        ("amf", Task::fork_on("amf", Some(&[3]), wakes())),
    ];
    for (rule, task) in &tasks {
        let label = format!("rule=\"{rule}\"");
        let truth = || in_status(task.pid, "voluntary_ctxt_switches");
        for (name, labels) in [
            ("wakeup_latency_seconds_count", label.clone()),
            ("switches_total", format!("{label},kind=\"voluntary\"")),
        ] {
            let (counted, slept) = rises(300.0, || metric(name, &labels), truth);
            // A sleep that has begun is a switch, but not yet a wake-up.
            let slept = slept.start() - 1.0..=slept.end() + 1.0;
            assert!(slept.contains(&counted), "{rule}, {name}: {counted} of {slept:?}");
        }
        let count = metric("wakeup_latency_seconds_count", &label);
        let mean = metric("wakeup_latency_seconds_sum", &label) / count;
        assert!(mean > 1e-7 && mean < 1.0, "{rule}: {mean}");
        let all = metric("wakeup_latency_seconds_bucket", &format!("{label},le=\"+Inf\""));
        assert!(all >= count, "{rule}: {all} of {count}");
    }
    assert!(metric("wakeup_latency_seconds_count", "rule=\"\"") > 0.0);

    let plot = gthctl::output(Command::new(gthctl::binary()).args(["policy", "show", "--plot"]));
    assert_eq!((plot.code(), &*plot.stderr), (0, ""));
    for rule in ["upf", "smf", "amf", "tasks without a rule"] {
        let head = plot.stdout.lines().position(|line| line.starts_with(&format!("{rule}: ")));
        let bars = plot.stdout.lines().skip(head.expect(&plot.stdout) + 1);
        let bars = bars.take_while(|line| !line.is_empty());
        assert!(
            bars.clone().all(|bar| bar.contains(" .. ")) && bars.count() > 0,
            "{}",
            plot.stdout
        );
    }
    drop(tasks);
    gthctl.stop();
}

/// Two tasks share a CPU: both run, wait and are switched out involuntarily.
#[test]
fn run_and_wait_times_are_the_kernels() {
    let gthctl =
        shared::scheduler("strategies: [{name: load, command_regex: ^load$, weight: 100}]");
    let load = Task::fork_on("load", Some(&[2]), task::spin);
    let _other = Task::fork_on("other", Some(&[2]), task::spin);
    let label = "rule=\"load\"";
    for (name, time) in [("run_seconds_total", 0), ("wait_seconds_total", 1)] {
        let (counted, truth) = rises(2.0, || metric(name, label), || times(load.pid)[time]);
        // A slice that has begun is counted at its end.
        let truth = truth.start() - 0.2..=truth.end() + 0.2;
        assert!(truth.contains(&counted), "{name}: {counted} of {truth:?}");
    }
    let truth = || in_status(load.pid, "nonvoluntary_ctxt_switches");
    let switches = || metric("switches_total", "rule=\"load\",kind=\"involuntary\"");
    let (counted, truth) = rises(50.0, switches, truth);
    let truth = truth.start() - 1.0..=truth.end() + 1.0;
    assert!(truth.contains(&counted), "{counted} of {truth:?}");
    gthctl.stop();
}

/// A priority task preempts the one that it shares a CPU with, and is never preempted itself.
#[test]
fn who_is_preempted_is_counted() {
    let gthctl = shared::scheduler(
        "strategies: [{name: upf, command_regex: ^upf$, priority: true}, \
         {name: load, command_regex: ^load$, weight: 100}]",
    );
    let _load = Task::fork_on("load", Some(&[2]), task::spin);
    let upf = Task::fork_on("upf", Some(&[2]), task::wake_often(1_000_000));
    let preempted = || metric("preemptions_total", "rule=\"load\"");
    let sleeps = || in_status(upf.pid, "voluntary_ctxt_switches");
    let before = metric("preemptions_total", "rule=\"upf\"");
    let (counted, slept) = rises(200.0, preempted, sleeps);
    // Each wake-up preempts; so do a few other tasks, and a turn may just have ended.
    assert!(counted > 0.8 * slept.start() && counted < 1.5 * slept.end(), "{counted} of {slept:?}");
    let others = metric("preemptions_total", "rule=\"upf\"") - before;
    assert!(others < 0.2 * counted, "{others} of {counted}");
    gthctl.stop();
}

/// Each last-level cache of this VM is a NUMA node with two CPUs.
#[test]
fn moves_to_other_caches_are_migrations() {
    let gthctl =
        shared::scheduler("strategies: [{name: nomad, command_regex: ^nomad$, weight: 100}]");
    let nomad = Task::fork_on("nomad", Some(&[0]), task::spin);
    let moves =
        |scope: &str| metric("migrations_total", &format!("rule=\"nomad\",scope=\"{scope}\""));
    let goes_to = |cpu: usize| {
        task::set_affinity(nomad.pid, &[cpu]);
        assert!(kernel::runs_on(nomad.pid, cpu), "CPU {cpu}");
        // It is in that CPU's queue. A task that is sent on before it has run there does not count as moved.
        let before = times(nomad.pid)[0];
        assert!(kernel::wait(SOON, || times(nomad.pid)[0] > before), "CPU {cpu}");
    };
    let before = ["llc", "numa"].map(moves);
    goes_to(1);
    assert_eq!(["llc", "numa"].map(moves), before);
    goes_to(2);
    goes_to(3);
    goes_to(0);
    assert_eq!(["llc", "numa"].map(moves), before.map(|moves| moves + 2.0));
    gthctl.stop();
}

/// A rule that stays keeps its counters when others come and go; a new one begins at zero.
#[test]
fn counters_go_on_with_another_policy() {
    let upf = "{name: upf, command_regex: ^upf$, priority: true}";
    let gthctl = shared::scheduler(&format!(
        "strategies: [{{name: first, user: nobody, weight: 9}}, {upf}]"
    ));
    let _upf = Task::fork("upf", task::wake_often(1_000_000));
    let count = |rule: &str| metric("wakeup_latency_seconds_count", &format!("rule=\"{rule}\""));
    assert!(kernel::wait(SOON, || count("upf") > 200.0), "{}", count("upf"));
    for round in 0..3 {
        let before = count("upf");
        gthctl.replace(&format!(
            "strategies: [{upf}, {{name: new{round}, user: nobody, weight: 9}}]"
        ));
        let after = count("upf");
        assert!(after >= before, "{after} after {before}");
        assert_eq!(count(&format!("new{round}")), 0.0);
        assert!(kernel::wait(SOON, || count("upf") > after + 50.0), "{}", count("upf"));
    }
    gthctl.stop();
}
