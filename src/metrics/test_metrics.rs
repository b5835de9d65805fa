//! Metrics for the tests, with a value in each place.

use crate::daemon::reports::{
    Counters, CpuRun, GtpTraffic, Metrics, PodCounters, RuleCount, RuleCounters, Status,
};
use crate::gtp::{Direction, Module, Plane};
use crate::sched::activity::Activity;
use crate::sched::passed::Passed;
use crate::sched::rule_stats::RuleStats;

const DID: Activity = Activity {
    run_ns: 1_500_000_000,
    wait_ns: 250_000_000,
    slept: 10,
    expired: 3,
    preempted: 2,
    migrations: 12,
    core_migrations: 9,
    llc_migrations: 7,
    node_migrations: 5,
};

fn status() -> Status {
    serde_json::from_value(serde_json::json!({
        "pid": 7, "running_since": "then", "scheduler_since": "then", "generation": 3, "in_force_since": "then",
        "rules": 1, "file_rules": 1, "exclusive_cpus": "2-3", "tasks_matched": 4, "tasks": 90,
        "kernel_in_step": true, "rejected": {"why": "bad", "since": "then"},
        "throttled_cgroups": [{"cgroup": "/a\"b\\c", "limit_cpus": 0.5, "nr_periods": 10,
            "nr_throttled": 2, "throttled_usec": 1_500_000, "throttled": true}],
        "irqs": {"in_place": 5, "away": 1, "placed_again": 6, "waiting": []},
        "can_roll_back": false, "notes": []
    }))
    .unwrap()
}

fn rule_counters(rule: Option<String>) -> RuleCounters {
    let mut wakeups = [0; 32];
    (wakeups[3], wakeups[9], wakeups[11], wakeups[31]) = (1, 2, 4, 8);
    RuleCounters { rule, stats: RuleStats { did: DID, wakeups, wakeup_sum_ns: 500_000_000 } }
}

fn gtp(plane: Plane, direction: Direction, packets: u64, bytes: u64) -> GtpTraffic {
    GtpTraffic::new(plane, direction, Passed { packets, bytes, ..Passed::default() })
}

pub fn metrics() -> Metrics {
    let mut wakeups = vec![0; 32];
    (wakeups[9], wakeups[10]) = (3, 4);
    Metrics {
        status: status(),
        version: "1.2".into(),
        started: 1_700_000_000.5,
        scheduler_started: 1_700_000_001.0,
        in_force: 1_700_000_002.0,
        policy_changes: 2,
        policy_rejections: 1,
        exclusive_cpus: 2,
        rules: vec![RuleCount { rule: "upf".into(), tasks: 4 }],
        counters: Counters {
            paths: [("idle".to_owned(), 5)].into(),
            counts: [("preemptions".to_owned(), 8)].into(),
            wakeups,
            wakeup_sum_ns: 9_000,
        },
        rule_counters: [Some("upf".to_owned()), None].map(rule_counters).into(),
        cpus: vec![CpuRun { cpu: 1, priority_ns: 1_500_000_000, normal_ns: 250_000_000 }],
        pods: vec![PodCounters {
            namespace: "core".into(),
            pod: "upf-0".into(),
            uid: "u1".into(),
            tasks: 3,
            did: DID,
        }],
        node: Some("edge-1".into()),
        gtp: vec![
            GtpTraffic {
                time_ns: Some(500_000),
                ..gtp(Plane::Module(Module::Gtp), Direction::Uplink, 7, 800)
            },
            gtp(Plane::Port(2152), Direction::Sent, 1, 90),
        ],
    }
}
