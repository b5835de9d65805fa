//! Whether gthctl does its work, as findings: what `gthctl status` says.

use std::collections::BTreeSet;
use std::time::Duration;

use humantime::format_duration;
use serde::ser::Error;
use serde::{Serialize, Serializer};

use crate::base::finding::{Counts, Finding, Level};
use crate::base::output::count;
use crate::daemon::last_run::{End, Run};
use crate::daemon::reports::{ApiStatus, Failed, Metrics, RuleCount, Status, Traffic};
use crate::doctor::nic_interrupts::irqbalance;
use crate::irq::host::Host;
use crate::irq::place::kept::Irqs;

/// The longest list of names in a finding.
const NAMES: usize = 5;

/// Everything that `gthctl status` says, in the form that `-o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    pub running: bool,
    #[serde(flatten)]
    pub counts: Counts,
    pub findings: Vec<Finding>,
    /// Absent while no gthctl runs. Its notes are among the findings: `notes` is their number.
    #[serde(flatten, serialize_with = "without_notes")]
    pub status: Option<Status>,
}

fn without_notes<S: Serializer>(status: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serde_json::to_value(status).map_err(S::Error::custom)?;
    fields.as_object_mut().map(|fields| fields.remove("notes"));
    fields.serialize(serializer)
}

impl Overview {
    /// What the running gthctl answered, including its rules' tasks, and what this process sees
    /// itself.
    pub fn of_running(host: &Host, Metrics { status, rules, .. }: Metrics) -> Self {
        let mut findings = vec![scheduler(&status), policy(&status)];
        findings.extend(rejected(&status));
        findings.push(self::rules(&rules, &status));
        findings.push(limits(&status));
        findings.extend(status.traffic.as_ref().map(packets));
        findings.extend(status.irqs.iter().flat_map(interrupts));
        findings.extend(irqbalance(host));
        findings.extend(status.api.as_ref().map(api));
        findings.extend(kubernetes(&status));
        findings.extend(kernel(&status));
        findings.extend(last_error(&status));
        findings.extend(status.last_run.as_ref().map(|run| last_end(run, true)));
        findings.extend(status.notes.iter().map(|note| Finding::note("note", note)));
        Self::new(findings, Some(status))
    }

    /// While no gthctl runs: how the last run ended, if that is known.
    pub fn without(host: &Host, last: Option<&Run>) -> Self {
        let none = Finding::error("scheduler", "no gthctl run is active")
            .fix("sudo gthctl run, or systemctl start gthctl");
        let mut findings = vec![none];
        findings.extend(irqbalance(host));
        findings.extend(last.map(|run| last_end(run, false)));
        Self::new(findings, None)
    }

    fn new(findings: Vec<Finding>, status: Option<Status>) -> Self {
        let counts = Counts::of(&findings);
        Self { running: status.is_some(), counts, findings, status }
    }
}

fn scheduler(status: &Status) -> Finding {
    let Status { pid, scheduler_since, running_since, .. } = status;
    let mut what = format!("loaded at {scheduler_since} by PID {pid}");
    if scheduler_since != running_since {
        what += &format!(", which has run since {running_since}");
    }
    Finding::ok("scheduler", what)
}

fn policy(status: &Status) -> Finding {
    const CHECK: &str = "policy";
    let Status { generation, in_force_since, rules, .. } = status;
    if !status.kernel_in_step {
        let what = format!("the kernel does not schedule by the policy of generation {generation}");
        return Finding::error(CHECK, what).fix("gthctl will retry");
    }
    let of = match &status.policy_file {
        Some(file) => format!(" of {}", file.display()),
        None => ", without a policy file".into(),
    };
    let rules = count(*rules, "rule");
    let what = format!("generation {generation}{of}: {rules}, in force since {in_force_since}");
    Finding::ok(CHECK, what)
}

/// The files on disk that are not in force.
fn rejected(status: &Status) -> Vec<Finding> {
    let files = [("policy-file", &status.rejected), ("config-file", &status.config_rejected)];
    let finding = |(check, failed): (&'static str, &Option<Failed>)| {
        let Failed { why, since } = failed.as_ref()?;
        let what = format!("rejected since {since}: {why}");
        Some(Finding::warning(check, what).fix("correct it; what was before stays in force"))
    };
    files.into_iter().filter_map(finding).collect()
}

fn rules(rules: &[RuleCount], status: &Status) -> Finding {
    const CHECK: &str = "rules";
    if rules.is_empty() {
        return Finding::note(CHECK, "there are none: all tasks are scheduled fairly")
            .fix("gthctl policy init -o FILE writes a first policy, and gthctl policy apply FILE puts it into force");
    }
    let idle = rules.iter().filter(|rule| rule.tasks == 0).map(|rule| rule.rule.as_str());
    let idle: Vec<&str> = idle.collect();
    if idle.is_empty() {
        let Status { tasks_matched, tasks, .. } = status;
        return Finding::ok(CHECK, format!("{tasks_matched} of {tasks} tasks fall under one"));
    }
    Finding::warning(CHECK, format!("no task falls under {}", names(&idle)))
        .fix("gthctl policy explain PID says why a task does not")
}

/// The first names, and how many more there are.
fn names(names: &[&str]) -> String {
    let first = names[..names.len().min(NAMES)].join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn limits(status: &Status) -> Finding {
    const CHECK: &str = "cpu-limits";
    let all = &status.throttled_cgroups;
    if all.is_empty() {
        return Finding::ok(CHECK, "no cgroup has used up its cpu.max");
    }
    let now: Vec<&str> =
        all.iter().filter(|one| one.throttled).map(|one| one.cgroup.as_str()).collect();
    let mut what = format!("{} used up the cpu.max since the start", count(all.len(), "cgroup"));
    if !now.is_empty() {
        what += &format!("; held back now: {}", names(&now));
    }
    Finding::note(CHECK, what).fix("gthctl policy status lists them")
}

fn packets(traffic: &Traffic) -> Finding {
    const CHECK: &str = "packets";
    let Traffic { functions, tasks, refused, .. } = traffic;
    if functions.is_empty() {
        return Finding::warning(CHECK, "gthctl sees no packets yet").fix("the notes say why");
    }
    let what = format!("{} with packets just now", count(tasks.len(), "task"));
    match refused {
        0 => Finding::ok(CHECK, what),
        _ => Finding::warning(CHECK, format!("{what}; max_tasks kept one out {refused} times"))
            .fix("raise gtp: max_tasks in the policy"),
    }
}

fn interrupts(irqs: &Irqs) -> Vec<Finding> {
    const CHECK: &str = "interrupts";
    let Irqs { in_place, away, placed_again, waiting } = irqs;
    let what = format!("{in_place} in place, {away} elsewhere; {placed_again} placed again");
    let state = match away {
        0 => Finding::ok(CHECK, what),
        _ => Finding::warning(CHECK, what).fix("gthctl irq drift says which"),
    };
    let waiting = waiting.iter().map(|why| Finding::warning(CHECK, format!("waiting: {why}")));
    std::iter::once(state).chain(waiting).collect()
}

fn api(api: &ApiStatus) -> Finding {
    const CHECK: &str = "gthulhu-api";
    if let Some(Failed { why, since }) = &api.error {
        return Finding::warning(CHECK, format!("since {since}: {why}"))
            .fix("gthctl keeps the last good strategies and retries");
    }
    let age = api.answer_age_ms.map(|ms| format_duration(Duration::from_secs(ms / 1000)));
    let age = age.map_or("no answer yet".into(), |age| format!("last answer {age} ago"));
    Finding::ok(CHECK, format!("{}: {}, {age}", api.url, count(api.rules, "rule")))
}

fn kubernetes(status: &Status) -> Option<Finding> {
    const CHECK: &str = "kubernetes";
    let known = status.kubernetes.as_ref()?;
    Some(match &status.kubernetes_doubt {
        None => Finding::ok(CHECK, known),
        Some(doubt) => Finding::warning(CHECK, doubt).fix("gthctl keeps what it knows and retries"),
    })
}

fn kernel(status: &Status) -> Vec<Finding> {
    const CHECK: &str = "kernel";
    let lacks = &status.kernel_lacks;
    if lacks.is_empty() {
        return vec![Finding::ok(CHECK, "it has all that gthctl uses")];
    }
    lacks.iter().map(|lack| Finding::note(CHECK, lack).fix("gthctl doctor")).collect()
}

/// The last error, unless another finding says the same.
fn last_error(status: &Status) -> Option<Finding> {
    let Failed { why, since } = status.last_error.as_ref()?;
    let rejected = [&status.rejected, &status.config_rejected];
    let told: BTreeSet<&str> = rejected.into_iter().flatten().map(|e| e.why.as_str()).collect();
    let finding = Finding::note("last-error", format!("at {since}: {why}"));
    (!told.contains(why.as_str())).then_some(finding)
}

/// How the previous run ended. While another one runs, this is no more than a note.
fn last_end(Run { pid, ended, .. }: &Run, is_past: bool) -> Finding {
    let (what, is_bad) = match ended {
        Some(End { at, why, exit_code }) => {
            (format!("PID {pid} at {at}: {why} (exit code {exit_code})"), *exit_code != 0)
        }
        None => (format!("PID {pid} was killed, or crashed"), true),
    };
    let level = match (is_bad, is_past) {
        (false, _) => Level::Ok,
        (true, true) => Level::Note,
        (true, false) => Level::Error,
    };
    Finding::new("last-end", level, what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::daemon::reports::{Counters, ThrottledCgroup};
    use crate::irq::tree::{Machine, Tree};

    fn failed(why: &str) -> Option<Failed> {
        Some(Failed { why: why.into(), since: "then".into() })
    }

    /// A gthctl that works, with one rule.
    fn answered() -> Metrics {
        let status = serde_json::from_value(json!({
            "pid": 7, "running_since": "then", "scheduler_since": "then",
            "policy_file": "/etc/p.yaml", "generation": 3, "in_force_since": "now", "rules": 1,
            "file_rules": 1, "exclusive_cpus": "", "tasks_matched": 2, "tasks": 80,
            "kernel_in_step": true, "can_roll_back": false, "notes": [],
        }));
        Metrics {
            status: status.unwrap(),
            version: "1".into(),
            started: 0.0,
            scheduler_started: 0.0,
            in_force: 0.0,
            policy_changes: 0,
            policy_rejections: 0,
            exclusive_cpus: 0,
            rules: vec![RuleCount { rule: "upf".into(), tasks: 2 }],
            rule_counters: Vec::new(),
            cpus: Vec::new(),
            pods: Vec::new(),
            node: None,
            gtp: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The levels of a check's findings, and what they say.
    fn of<'a>(overview: &'a Overview, check: &str) -> Vec<(Level, &'a str)> {
        let findings = overview.findings.iter().filter(|finding| finding.check == check);
        findings.map(|finding| (finding.level, finding.what.as_str())).collect()
    }

    #[test]
    fn all_is_well() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let overview = Overview::of_running(&tree.host(), answered());
        assert!(overview.findings.iter().all(|finding| finding.level == Level::Ok), "{overview:?}");
        let checks: Vec<&str> = overview.findings.iter().map(|finding| finding.check).collect();
        let wanted = ["scheduler", "policy", "rules", "cpu-limits", "irqbalance", "kernel"];
        assert_eq!(checks, wanted);
        assert_eq!(of(&overview, "rules")[0].1, "2 of 80 tasks fall under one");
        let json = serde_json::to_value(&overview).unwrap();
        assert_eq!((&json["running"], &json["errors"]), (&true.into(), &0.into()));
        assert_eq!(json["generation"], 3);
    }

    #[test]
    fn each_key_stands_once_with_a_running_gthctl_and_without() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let mut answer = answered();
        answer.status.notes = vec!["a note".into()];
        let running = Overview::of_running(&tree.host(), answer);
        for (overview, notes) in [(running, 1u64), (Overview::without(&tree.host(), None), 0)] {
            // serde_yaml refuses a key that occurs twice.
            let yaml = serde_yaml::to_string(&overview).unwrap();
            let read: serde_yaml::Value = serde_yaml::from_str(&yaml).unwrap();
            assert_eq!(read["notes"].as_u64(), Some(notes), "{yaml}");
        }
    }

    #[test]
    fn each_trouble_has_its_line() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let mut answer = answered();
        answer.rules.extend((0..7).map(|i| RuleCount { rule: format!("r{i}"), tasks: 0 }));
        let status = &mut answer.status;
        status.rejected = failed("p.yaml:1:1: bad");
        status.last_error = failed("p.yaml:1:1: bad");
        status.config_rejected = failed("c.yaml:2:1: bad");
        status.throttled_cgroups = vec![ThrottledCgroup {
            cgroup: "/kubepods/pod1".into(),
            limit_cpus: 0.25,
            nr_periods: 40,
            nr_throttled: 39,
            throttled_usec: 2_900_000,
            throttled: true,
        }];
        let functions = vec!["gtp:gtp_rx".into()];
        status.traffic =
            Some(Traffic { functions, marked: 5, ended: 4, refused: 3, tasks: Vec::new() });
        let waiting = vec!["eth9: gone".into()];
        status.irqs = Some(Irqs { in_place: 4, away: 1, placed_again: 7, waiting });
        status.api = Some(ApiStatus {
            url: "http://a".into(),
            rules: 2,
            answer_age_ms: None,
            error: failed("gone"),
        });
        status.kubernetes = Some("2 pods".into());
        status.kubernetes_doubt = Some("the API server is gone".into());
        status.kernel_lacks = vec!["no cgroups".into()];
        status.last_run = Some(Run { pid: 5, since: "then".into(), ended: None });
        status.notes = vec!["a note".into()];
        let overview = Overview::of_running(&tree.host(), answer);
        for (check, level, what) in [
            ("policy-file", Level::Warning, "rejected since then: p.yaml:1:1: bad"),
            ("config-file", Level::Warning, "rejected since then: c.yaml:2:1: bad"),
            ("rules", Level::Warning, "no task falls under r0, r1, r2, r3, r4 and 2 more"),
            (
                "cpu-limits",
                Level::Note,
                "1 cgroup used up the cpu.max since the start; held back now: /kubepods/pod1",
            ),
            (
                "packets",
                Level::Warning,
                "0 tasks with packets just now; max_tasks kept one out 3 times",
            ),
            ("interrupts", Level::Warning, "4 in place, 1 elsewhere; 7 placed again"),
            ("interrupts", Level::Warning, "waiting: eth9: gone"),
            ("gthulhu-api", Level::Warning, "since then: gone"),
            ("kubernetes", Level::Warning, "the API server is gone"),
            ("kernel", Level::Note, "no cgroups"),
            ("last-end", Level::Note, "PID 5 was killed, or crashed"),
            ("note", Level::Note, "a note"),
        ] {
            assert!(of(&overview, check).contains(&(level, what)), "{check}: {overview:#?}");
        }
        assert_eq!(of(&overview, "last-error"), []);
        assert_eq!((overview.counts.errors, overview.counts.warnings), (0, 8));

        let mut answer = answered();
        answer.status.kernel_in_step = false;
        answer.status.last_error = failed("no memory");
        let overview = Overview::of_running(&tree.host(), answer);
        assert_eq!(of(&overview, "policy")[0].0, Level::Error);
        assert_eq!(of(&overview, "last-error"), [(Level::Note, "at then: no memory")]);
    }

    /// The module may be missing, or have other functions.
    #[test]
    fn the_notes_say_why_no_packets_are_seen() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let mut answer = answered();
        let (functions, tasks) = (Vec::new(), Vec::new());
        answer.status.traffic = Some(Traffic { functions, marked: 0, ended: 0, refused: 0, tasks });
        let why = "gtp5g: gtp5g_dev_xmit: no such function";
        answer.status.notes = vec![why.into()];
        let overview = Overview::of_running(&tree.host(), answer);
        assert_eq!(of(&overview, "packets"), [(Level::Warning, "gthctl sees no packets yet")]);
        assert_eq!(of(&overview, "note"), [(Level::Note, why)]);
        let fixes = overview.findings.iter().filter(|finding| finding.check == "packets");
        let fixes: Vec<_> = fixes.map(|finding| finding.fix.as_deref()).collect();
        assert_eq!(fixes, [Some("the notes say why")]);
    }

    #[test]
    fn without_one_the_last_end_is_the_news() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        let run = |ended| Run { pid: 5, since: "then".into(), ended };
        let end = |exit_code, why: &str| Some(End { at: "now".into(), exit_code, why: why.into() });
        let last = |run: Run| {
            let overview = Overview::without(&host, Some(&run));
            assert_eq!(of(&overview, "scheduler"), [(Level::Error, "no gthctl run is active")]);
            let last = overview.findings.last().unwrap();
            assert_eq!(last.check, "last-end");
            (last.level, last.what.clone())
        };
        let stopped = (Level::Ok, "PID 5 at now: stopped by SIGTERM (exit code 0)".to_owned());
        assert_eq!(last(run(end(0, "stopped by SIGTERM"))), stopped);
        let stalled = last(run(end(8, "the kernel ended the scheduler: x[12] failed to run")));
        assert_eq!(stalled.0, Level::Error);
        assert!(stalled.1.contains("x[12] failed to run (exit code 8)"), "{stalled:?}");
        assert_eq!(last(run(None)).0, Level::Error);
        assert!(!Overview::without(&host, None).running);
    }
}
