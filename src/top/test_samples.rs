//! Samples for the tests of `top`, a second apart.

use std::time::Duration;

use serde_json::json;

use super::proc::{CpuTimes, TaskTimes, Turns};
use super::sample::{Answers, Sample};
use super::trends::Model;
use crate::base::error::{Error, ExitCode};
use crate::daemon::reports::{CpuRun, Metrics, RuleCounters, RuleTask};
use crate::sched::rule_stats::RuleStats;

/// The sample after `second` seconds. CPU 1 is exclusive and busy, half of the time with priority.
/// A real-time task runs on CPU 0 for a twentieth of the time. Thread 11 runs for half of the time
/// in 1000 turns and waits for 1 ms of it. Thread 12 runs for a tenth.
pub fn sample(second: u64) -> Sample {
    let cpu = |busy: u64, softirq: u64| CpuTimes {
        user: busy * second,
        softirq: softirq * second,
        idle: (100 - busy - softirq) * second,
        ..CpuTimes::default()
    };
    Sample {
        at: Duration::from_secs(1000 + second),
        cpus: [(0, cpu(20, 5)), (1, cpu(75, 25))].into(),
        gthctl: Ok(Answers {
            metrics: metrics(second),
            tasks: vec![task(11, "upf-rx", "fast"), task(12, "shell", "slow")],
            times: [(11, times(second, 500, 1)), (12, times(second, 100, 300))].into(),
        }),
    }
}

/// The same without a gthctl.
pub fn alone(second: u64) -> Sample {
    let none = Error::new(ExitCode::NotRunning, "no gthctl run is active");
    Sample { gthctl: Err(none.help("start one with: sudo gthctl run")), ..sample(second) }
}

/// The same, with `tasks` more tasks under the second rule.
pub fn crowded(second: u64, tasks: u32) -> Sample {
    let mut sample = sample(second);
    if let Ok(answers) = &mut sample.gthctl {
        for tid in 1000..1000 + tasks {
            answers.tasks.push(task(tid, &format!("t{tid}"), "slow"));
            answers.times.insert(tid, times(second, u64::from(tid) / 100, 1));
        }
    }
    sample
}

/// The model that these samples make.
pub fn model(samples: impl IntoIterator<Item = Sample>) -> Model {
    let mut model = Model::default();
    samples.into_iter().for_each(|sample| model.add(sample));
    model
}

pub fn task(tid: u32, comm: &str, rule: &str) -> RuleTask {
    RuleTask {
        tid,
        pid: 10,
        comm: comm.into(),
        pod: None,
        rule: rule.into(),
        generation: 3,
        in_force: true,
    }
}

fn times(second: u64, run_ms: u64, wait_ms: u64) -> TaskTimes {
    let (run_ns, wait_ns) = (second * run_ms * 1_000_000, second * wait_ms * 1_000_000);
    TaskTimes {
        start_ticks: 5,
        cpu: 1,
        turns: Some(Turns { run_ns, wait_ns, count: second * 1000 }),
        switches: second * 1010,
        preempted: second * 10,
    }
}

fn metrics(second: u64) -> Metrics {
    let cpu = |cpu, priority_ms: u64, normal_ms: u64| CpuRun {
        cpu,
        priority_ns: second * priority_ms * 1_000_000,
        normal_ns: second * normal_ms * 1_000_000,
    };
    let mut wakeups = vec![0; 32];
    (wakeups[10], wakeups[13]) = (second * 980, second * 20);
    let mut fast = RuleStats::default();
    (fast.wakeups[10], fast.wakeups[13], fast.wakeups[14]) = (second * 980, second * 19, second);
    // A slow wake-up before the first sample.
    fast.wakeups[20] = 1;
    serde_json::from_value(json!({
        "status": {
            "pid": 42, "running_since": "then", "scheduler_since": "then", "policy_file": "/etc/gthctl/policy.yaml",
            "generation": 3, "in_force_since": "2026-01-02T00:00:00Z", "rules": 2, "file_rules": 2,
            "exclusive_cpus": "1", "tasks_matched": 2, "tasks": 90, "kernel_in_step": true,
            "throttled_cgroups": [{"cgroup": "/batch", "limit_cpus": 0.5,
                "nr_periods": second * 10, "nr_throttled": second * 4,
                "throttled_usec": second * 250_000, "throttled": true}],
            "irqs": {"in_place": 4, "away": 1, "placed_again": 7, "waiting": ["eth9: gone"]},
            "kubernetes": "2 pods",
            "can_roll_back": false, "notes": []
        },
        "version": "1", "started": 1.0, "scheduler_started": 2.0, "in_force": 3.0,
        "policy_changes": 0, "policy_rejections": 0, "exclusive_cpus": 1,
        "rules": [{"rule": "fast", "tasks": 1}, {"rule": "slow", "tasks": 1}],
        "counters": {
            "paths": {"idle": second * 900, "fair": second * 30},
            "counts": {"preemptions": second * 8, "demotions": 0},
            "wakeups": wakeups, "wakeup_sum_ns": second
        },
        "gtp": [{"plane": "gtp5g", "direction": "uplink", "packets": second * 500, "bytes": second},
            {"plane": "gtp5g", "direction": "downlink", "packets": second * 400, "bytes": second}],
        "cpus": [cpu(0, 0, 150), cpu(1, 500, 250)],
        "rule_counters": [RuleCounters { rule: Some("fast".into()), stats: fast }]
    }))
    .unwrap()
}
