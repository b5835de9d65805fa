//! The daemon's reports as tables.

use std::time::Duration;

use humantime::format_duration;
use serde_json::Value;

use super::reports::{
    Allocated, ApiStatus, ConditionCheck, Explanation, Failed, Keys, MarkedTask, Plan, PodNic,
    Rule, RuleCounters, RuleTask, RuleTasks, Shown, Status, ThrottledCgroup, Traffic,
};
use crate::base::escape;
use crate::base::output::{self, Cell, listing, row, table};
use crate::base::units::Nanoseconds;
use crate::irq::place::kept::{IrqMove, Irqs};
use crate::policy::diff::ChangeKind;
use crate::policy::{GTP_KEYS, IRQ_KEYS};
use crate::sched::stats::{latencies, quantile, round};

/// The rules of a policy.
pub fn rules(shown: &Shown) -> String {
    let counted = shown.rules.iter().any(|rule| rule.tasks.is_some());
    let mut rows = vec![row(["#", "rule", "conditions", "effects", "tasks"])];
    for (i, rule) in shown.rules.iter().enumerate() {
        let [name, conditions, effects, tasks] = cells(rule);
        rows.push(vec![(i + 1).to_string().into(), name, conditions, effects, tasks]);
    }
    if !counted {
        rows.iter_mut().for_each(|row| row.truncate(4));
    }
    let mut text = match shown.rules.is_empty() {
        true => "no rules: all tasks are scheduled fairly".into(),
        false => table(rows),
    };
    if !shown.exclusive_cpus.is_empty() {
        text += &format!("\nexclusive CPUs: {}", shown.exclusive_cpus);
    }
    for placement in &shown.irq {
        text += &format!("\ninterrupts: {}", in_one_line(placement, &IRQ_KEYS));
    }
    text
}

/// What a policy would change.
pub fn plan(plan: &Plan) -> String {
    let changes = plan.changes.iter().filter(|change| change.kind != ChangeKind::Kept);
    let mut rows = vec![row(["", "rule", "conditions", "effects", "tasks"])];
    for change in changes {
        let sign = match change.kind {
            ChangeKind::Added => "+ added",
            ChangeKind::Removed => "- removed",
            ChangeKind::Changed => "~ changed",
            ChangeKind::Moved | ChangeKind::Kept => "  moved",
        };
        let new = change.after.as_ref().or(change.before.as_ref()).map(cells);
        let [name, conditions, effects, tasks] = new.unwrap_or_default();
        let mut cells = vec![sign.into(), name, conditions, effects, tasks];
        if let (Some(before), Some(_)) = (&change.before, &change.after) {
            let before = self::cells(before);
            // Only the name of a moved rule may differ.
            let compared = if change.kind == ChangeKind::Changed { 1..5 } else { 1..2 };
            for (cell, before) in cells[compared].iter_mut().zip(before) {
                if *cell != before {
                    *cell = before.then(cell);
                }
            }
        } else if change.kind == ChangeKind::Removed {
            cells[4].push(" -> 0");
        }
        rows.push(cells);
    }
    let kept = plan.changes.iter().filter(|change| change.kind == ChangeKind::Kept).count();
    let mut text = match rows.len() {
        1 => "no rule changes".into(),
        _ => table(rows),
    };
    text += &format!("\nunchanged rules: {kept}");
    let (before, after) = (or_none(&plan.exclusive_cpus_before), or_none(&plan.exclusive_cpus));
    match before == after {
        true => text += &format!("\nexclusive CPUs: {after}"),
        false => text += &format!("\nexclusive CPUs: {before} -> {after}"),
    }
    text += &irq_changes(&plan.irq_before, &plan.irq);
    if !plan.irqs.is_empty() {
        text += &format!("\n{}", moves(&plan.irqs));
    }
    text
}

/// The changes to the entries of `irq`, one per line, each after a line break.
fn irq_changes(before: &[Keys], after: &[Keys]) -> String {
    let lines = |sign: &str, here: &[Keys], there: &[Keys]| -> String {
        let changed = here.iter().filter(|placement| !there.contains(placement));
        let line =
            |placement| format!("\n{sign} interrupts: {}", in_one_line(placement, &IRQ_KEYS));
        changed.map(line).collect()
    };
    let changes = lines("-", before, after) + &lines("+", after, before);
    match changes.is_empty() && before != after {
        true => "\n~ interrupts: the same entries, in another order or number".into(),
        false => changes,
    }
}

/// The tasks under a rule.
pub fn tasks(RuleTasks { generation, tasks }: &RuleTasks) -> String {
    if tasks.is_empty() {
        return format!("no task falls under a rule of generation {generation}");
    }
    let mut rows = vec![row(["TID", "process", "name", "pod", "rule", "generation"])];
    for RuleTask { tid, pid, comm, pod, rule, generation, in_force } in tasks {
        let pending = if *in_force { "" } else { ", the new rule when it next runs" };
        rows.push(vec![
            tid.to_string().into(),
            pid.to_string().into(),
            Cell::from(comm.as_str()),
            pod.as_deref().unwrap_or("-").into(),
            rule.as_str().into(),
            match generation {
                0 => format!("none{pending}").into(),
                _ => format!("{generation}{pending}").into(),
            },
        ]);
    }
    listing(rows)
}

/// How long the wake-ups of each rule's tasks took.
pub fn wakeups(rules: &[RuleCounters]) -> String {
    let plot = |rule: &RuleCounters| {
        let name = rule.rule.as_deref().map_or("tasks without a rule".into(), escape::line);
        let buckets = &rule.stats.wakeups;
        let [Some(p50), Some(p99)] = [0.5, 0.99].map(|part| quantile(buckets, part)) else {
            return format!("{name}: no wake-ups");
        };
        let count = output::count(buckets.iter().sum::<u64>() as usize, "wake-up");
        let (half, most) = (round(p50), round(p99));
        let plot = latencies(buckets);
        format!("{name}: {count}, half under {half}, 99 % under {most}\n{}", plot.trim_end())
    };
    rules.iter().map(plot).collect::<Vec<_>>().join("\n\n")
}

/// The interrupts and masks that a policy would move.
fn moves(moves: &[IrqMove]) -> String {
    let mut rows = vec![row(["NIC", "what", "name", "CPUs"])];
    for IrqMove { nic, what, name, now, wanted } in moves {
        let cpus = format!("{} -> {}", or_none(now), or_none(wanted));
        rows.push(vec![nic.clone(), what.clone(), name.clone().unwrap_or("-".into()), cpus]);
    }
    listing(rows)
}

/// The state of the running gthctl.
pub fn status(status: &Status) -> String {
    let mut rows = policy_rows(status);
    rows.extend(traffic_rows(status));
    let mut text = table(rows);
    let tasks = status.traffic.iter().flat_map(|traffic| &traffic.tasks);
    let mut rows =
        vec![row(["task", "TID", "process", "rule", "since", "seen by", "packets", "ends in"])];
    rows.extend(tasks.map(marked_task));
    if rows.len() > 1 {
        text += &format!("\n{}", listing(rows));
    }
    if !status.allocated.is_empty() {
        text += &format!("\n{}", allocated(&status.allocated));
    }
    if status.pod_nics.iter().any(|nic| !nic.found.is_empty()) {
        text += &format!("\n{}", pod_nics(&status.pod_nics));
    }
    if !status.throttled_cgroups.is_empty() {
        text += &format!("\n{}", throttled(&status.throttled_cgroups));
    }
    text
}

/// The process, and the policy in force.
fn policy_rows(status: &Status) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, value: String| rows.push(vec![name.into(), value]);
    add("running", format!("PID {}, since {}", status.pid, status.running_since));
    let file = status.policy_file.as_ref();
    add("policy file", file.map_or("none".into(), |file| file.display().to_string()));
    let in_force = format!("generation {}, since {}", status.generation, status.in_force_since);
    add("in force", in_force);
    add("rules", status.rules.to_string());
    if let Some(ApiStatus { url, rules, answer_age_ms, error }) = &status.api {
        add("of the file", status.file_rules.to_string());
        add("of the API", rules.to_string());
        let age = answer_age_ms.map(|ms| format_duration(Duration::from_secs(ms / 1000)));
        let age = age.map_or("no answer yet".into(), |age| format!("last answer {age} ago"));
        add("API", format!("{url}, {age}"));
        if let Some(Failed { why, since }) = error {
            add("API fails", format!("since {since}: {why}"));
        }
    }
    add("tasks", format!("{} of {} fall under a rule", status.tasks_matched, status.tasks));
    if !status.exclusive_cpus.is_empty() {
        add("exclusive CPUs", status.exclusive_cpus.clone());
    }
    let in_step =
        if status.kernel_in_step { "as the policy says" } else { "NOT as the policy says" };
    add("kernel's tables", in_step.into());
    if let Some(kubernetes) = &status.kubernetes {
        add("Kubernetes", kubernetes.clone());
    }
    if let Some(rejected) = &status.rejected {
        add("file on disk", format!("REJECTED since {}: {}", rejected.since, rejected.why));
    }
    rows
}

/// Traffic, interrupts and notes.
fn traffic_rows(status: &Status) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, value: String| rows.push(vec![name.into(), value]);
    if let Some(traffic) = &status.traffic {
        let Traffic { functions, marked, ended, refused, tasks } = traffic;
        let by = if functions.is_empty() { "nothing yet".into() } else { functions.join(", ") };
        add("packets seen by", by);
        let counts = format!("{} now; {marked} marked, {ended} ended", tasks.len());
        let refused = format!("{refused} refused by max_tasks");
        add("tasks by traffic", format!("{counts}, {refused}"));
    }
    if let Some(Irqs { in_place, away, placed_again, waiting }) = &status.irqs {
        let counts = format!("{in_place} in place, {away} away; {placed_again} placed again");
        add("interrupts", counts);
        for why in waiting {
            add("waiting", why.clone());
        }
    }
    for note in &status.notes {
        add("note", note.clone());
    }
    rows
}

/// What is known of pods' NICs; notes say what is not.
fn pod_nics(all: &[PodNic]) -> String {
    let mut rows = vec![row(["pod", "NIC", "where"])];
    let found = all.iter().flat_map(|nic| nic.found.iter().map(move |how| (nic, how)));
    rows.extend(found.map(|(nic, how)| vec![nic.pod.clone(), nic.nic.clone(), how.clone()]));
    listing(rows)
}

/// The cpusets of rules' tasks.
fn allocated(all: &[Allocated]) -> String {
    let mut rows = vec![row(["rule", "CPUs", "", "cpuset of"])];
    for Allocated { rule, cgroup, cpus, exclusive, shared } in all {
        let how = if *exclusive { "exclusive" } else { "not exclusive" };
        let lines: Vec<&String> = [cgroup].into_iter().chain(shared).collect();
        let lines: Vec<String> = lines.into_iter().cloned().collect();
        rows.push(vec![
            rule.as_str().into(),
            cpus.as_str().into(),
            how.into(),
            Cell::lines(&lines),
        ]);
    }
    table(rows)
}

fn marked_task(task: &MarkedTask) -> Vec<Cell> {
    vec![
        task.comm.as_str().into(),
        task.tid.to_string().into(),
        task.pid.to_string().into(),
        Cell::lines(&task.rules),
        task.since.as_str().into(),
        task.function.as_str().into(),
        task.packets.to_string().into(),
        Nanoseconds(task.ends_in_ms * 1_000_000).to_string().into(),
    ]
}

fn throttled(cgroups: &[ThrottledCgroup]) -> String {
    let mut rows =
        vec![row(["throttled cgroup", "limit", "periods", "throttled", "held back for", "now"])];
    for cgroup in cgroups {
        rows.push(vec![
            Cell::from(cgroup.cgroup.as_str()),
            format!("{:.3} CPUs", cgroup.limit_cpus).into(),
            cgroup.nr_periods.to_string().into(),
            cgroup.nr_throttled.to_string().into(),
            Nanoseconds(cgroup.throttled_usec * 1000).to_string().into(),
            if cgroup.throttled { "throttled" } else { "runs" }.into(),
        ]);
    }
    listing(rows)
}

/// Why a thread falls under its rule.
pub fn explanation(explanation: &Explanation) -> String {
    let mut facts: Vec<Vec<String>> = Vec::new();
    let ids = match explanation.tid == explanation.pid {
        true => format!("process {}", explanation.pid),
        false => format!("thread {} of process {}", explanation.tid, explanation.pid),
    };
    facts.push(vec!["task".into(), ids]);
    for (name, value) in &explanation.task {
        facts.push(vec![name.clone(), plain(name, value)]);
    }
    let rule = explanation.rule.as_deref().unwrap_or("none: scheduled fairly");
    let pending = if explanation.in_force { "" } else { " (from the next time it runs)" };
    facts.push(vec!["rule".into(), format!("{rule}{pending}")]);
    facts.extend(explanation.notes.iter().map(|note| vec!["note".into(), note.clone()]));
    let mut text = table(facts);
    let mut rows = vec![row(["#", "rule", "", "because"])];
    for (i, rule) in explanation.rules.iter().enumerate() {
        let verdict = match (rule.matches, explanation.rule.as_ref() == Some(&rule.name)) {
            (true, true) => "in force",
            (true, false) => "matches, but an earlier rule does too",
            (false, _) => "no",
        };
        let mut because: Vec<String> = rule.conditions.iter().flat_map(check).collect();
        if rule.inherited {
            because.push("yes  child of a task that matches".into());
        }
        let name = rule.name.as_str().into();
        rows.push(vec![(i + 1).to_string().into(), name, verdict.into(), Cell::lines(&because)]);
    }
    if rows.len() > 1 {
        text += &format!("\n{}", table(rows));
    }
    if !explanation.threads.is_empty() {
        let mut rows = vec![row(["thread", "name", "rule"])];
        for thread in &explanation.threads {
            let rule = thread.rule.clone().unwrap_or("none".into());
            rows.push(vec![thread.tid.to_string(), thread.comm.clone(), rule]);
        }
        text += &format!("\n{}", listing(rows));
    }
    text
}

/// The lines for a condition.
fn check(condition: &ConditionCheck) -> Vec<String> {
    let holds = if condition.holds { "yes" } else { "no " };
    let mut lines = lines(&condition.asks);
    let first = lines.first().map_or("", String::as_str);
    let first = format!("{holds}  {first}");
    lines.splice(..lines.len().min(1), [first]);
    lines.extend(condition.why.as_ref().map(|why| format!("     {why}")));
    lines
}

/// Name, conditions, effects, tasks.
fn cells(rule: &Rule) -> [Cell; 4] {
    let tasks = rule.tasks.map_or(String::new(), |tasks| tasks.to_string());
    let of = |keys| Cell::lines(&lines(keys));
    [rule.name.as_str().into(), of(&rule.conditions), of(&rule.effects), tasks.into()]
}

/// One key a line, as in a policy file.
fn lines(keys: &Keys) -> Vec<String> {
    keys.iter().map(|(key, value)| format!("{key}: {}", plain(key, value))).collect()
}

fn plain(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(ns) if ["execution_time", "hold"].contains(&key) => {
            ns.as_u64().map_or(ns.to_string(), |ns| Nanoseconds(ns).to_string())
        }
        Value::Array(items) => {
            items.iter().map(|item| plain("", item)).collect::<Vec<_>>().join(", ")
        }
        Value::Object(gtp) if key == "gtp" => in_one_line(gtp, &GTP_KEYS),
        Value::Object(label) => {
            let of = |key: &str| label.get(key).and_then(Value::as_str).unwrap_or_default();
            format!("{}={}", of("key"), of("value"))
        }
        other => other.to_string(),
    }
}

/// A map of a policy file, with its keys in this order.
fn in_one_line(map: &Keys, order: &[&str]) -> String {
    let keys = order.iter().filter_map(|&key| {
        Some(match map.get(key)? {
            value @ Value::Array(_) => format!("{key}: [{}]", plain(key, value)),
            value => format!("{key}: {}", plain(key, value)),
        })
    });
    format!("{{{}}}", keys.collect::<Vec<_>>().join(", "))
}

/// A list of CPUs.
fn or_none(cpus: &str) -> &str {
    if cpus.is_empty() { "none" } else { cpus }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::escape::{self, NASTY};
    use crate::base::output::{Format, json_line, written};
    use crate::daemon::reports::{Change, RuleCheck, ThreadRule};

    /// The cells of a table's rows, without the lines that separate them.
    fn rows(table: &str) -> Vec<Vec<&str>> {
        let lines = table.lines().filter(|line| !line.starts_with('-'));
        lines.map(|line| line.split('|').map(str::trim).collect()).collect()
    }

    fn keys(value: Value) -> Keys {
        value.as_object().unwrap().clone()
    }

    fn rule(name: &str, cpus: &str, tasks: Option<usize>) -> Rule {
        let conditions = keys(json!({"command_regex": format!("^{name}$")}));
        let effects = keys(json!({"cpus": cpus, "execution_time": 1_500_000}));
        Rule { name: name.into(), conditions, effects, tasks }
    }

    fn shown(generation: Option<u32>, rules: Vec<Rule>) -> Shown {
        let irq = vec![keys(json!({"cpus": "2", "nic": "n6", "queues": [0, 1], "rps": "off"}))];
        Shown { generation, rules, exclusive_cpus: "2-3".into(), irq, notes: Vec::new() }
    }

    #[test]
    fn rules_in_their_columns() {
        let live = rules(&shown(Some(7), vec![rule("a", "2", Some(5)), rule("b", "3", Some(0))]));
        assert_eq!(
            rows(&live),
            [
                vec!["#", "rule", "conditions", "effects", "tasks"],
                vec!["1", "a", "command_regex: ^a$", "cpus: 2", "5"],
                vec!["", "", "", "execution_time: 1.5ms", ""],
                vec!["2", "b", "command_regex: ^b$", "cpus: 3", "0"],
                vec!["", "", "", "execution_time: 1.5ms", ""],
                vec!["exclusive CPUs: 2-3"],
                vec!["interrupts: {nic: n6, cpus: 2, queues: [0, 1], rps: off}"],
            ]
        );
        let (exclusive_cpus, irq) = (String::new(), Vec::new());
        let none = Shown { exclusive_cpus, irq, ..shown(Some(1), Vec::new()) };
        assert_eq!(rules(&none), "no rules: all tasks are scheduled fairly");
    }

    #[test]
    fn traffic_as_in_a_policy_file() {
        let conditions = keys(json!({"gtp": {
            "module": "gtp5g", "functions": ["a", "b"], "min_pps": 10, "hold": 30_000_000_000_u64,
            "max_tasks": 256,
        }}));
        let text =
            "gtp: {module: gtp5g, functions: [a, b], min_pps: 10, hold: 30s, max_tasks: 256}";
        assert_eq!(lines(&conditions), [text]);
    }

    #[test]
    fn what_was_only_checked_has_no_tasks_and_no_generation() {
        let checked = shown(None, vec![rule("a", "2", None)]);
        let table = rules(&checked);
        assert_eq!(rows(&table)[0], ["#", "rule", "conditions", "effects"]);
        assert_eq!(rows(&table)[1], ["1", "a", "command_regex: ^a$", "cpus: 2"]);
        let value = serde_json::to_value(&checked).unwrap();
        assert_eq!((value.get("generation"), value["rules"][0].get("tasks")), (None, None));
        let again: Shown = serde_json::from_value(value).unwrap();
        assert_eq!(again, checked);
    }

    #[test]
    fn a_row_for_each_task() {
        let task = |tid, pod: Option<&str>, generation| RuleTask {
            tid,
            pid: 10,
            comm: NASTY.into(),
            pod: pod.map(Into::into),
            rule: "upf".into(),
            generation,
            in_force: generation == 4,
        };
        let mut all = RuleTasks { generation: 4, tasks: Vec::new() };
        assert_eq!(tasks(&all), "no task falls under a rule of generation 4");
        all.tasks = vec![task(10, None, 4), task(12, Some("core/upf-0"), 3), task(13, None, 0)];
        let table = written(Format::Table, &all, tasks).unwrap();
        let name = escape::line(NASTY);
        assert_eq!(
            rows(&table)[1..],
            [
                vec!["10", "10", &*name, "-", "upf", "4"],
                vec!["12", "10", &*name, "core/upf-0", "upf", "3, the new rule when it next runs"],
                vec!["13", "10", &*name, "-", "upf", "none, the new rule when it next runs"],
            ]
        );
    }

    #[test]
    fn a_plan_with_a_sign_for_every_kind() {
        let change =
            |kind, before: Option<Rule>, after: Option<Rule>| Change { kind, before, after };
        let (one, two) = (rule("one", "1", Some(1)), rule("two", "2", Some(2)));
        let changes = vec![
            change(ChangeKind::Added, None, Some(rule("new", "0", Some(4)))),
            change(ChangeKind::Changed, Some(one), Some(rule("one", "3", Some(6)))),
            change(ChangeKind::Moved, Some(two.clone()), Some(two.clone())),
            change(ChangeKind::Kept, Some(two.clone()), Some(two)),
            change(ChangeKind::Removed, Some(rule("old", "3", Some(9))), None),
        ];
        let mut plan = Plan {
            generation: 3,
            changes,
            exclusive_cpus_before: String::new(),
            exclusive_cpus: "2-3".into(),
            irq_before: Vec::new(),
            irq: Vec::new(),
            irqs: Vec::new(),
            notes: Vec::new(),
        };
        assert!(!plan.is_empty());
        let table = super::plan(&plan);
        let rows = rows(&table);
        assert_eq!(rows[0], ["", "rule", "conditions", "effects", "tasks"]);
        assert_eq!(rows[1], ["+ added", "new", "command_regex: ^new$", "cpus: 0", "4"]);
        assert_eq!(rows[3], ["~ changed", "one", "command_regex: ^one$", "cpus: 1", "1"]);
        let arrows: Vec<&Vec<&str>> =
            rows.iter().filter(|row| row.iter().any(|cell| cell.starts_with("->"))).collect();
        assert_eq!(arrows.len(), 2, "{table}");
        assert!(arrows[0][4] == "-> 6" && arrows[1][3] == "-> cpus: 3", "{table}");
        let starts = |sign: &str| rows.iter().find(|row| row[0] == sign).unwrap();
        assert_eq!(starts("moved")[1..], ["two", "command_regex: ^two$", "cpus: 2", "2"]);
        assert_eq!(starts("- removed")[1..], ["old", "command_regex: ^old$", "cpus: 3", "9 -> 0"]);
        assert!(table.ends_with("\nunchanged rules: 1\nexclusive CPUs: none -> 2-3"), "{table}");
        plan.changes.retain(|change| change.kind == ChangeKind::Kept);
        plan.exclusive_cpus_before = "2-3".into();
        let nothing = "no rule changes\nunchanged rules: 1\nexclusive CPUs: 2-3";
        assert_eq!(super::plan(&plan), nothing);
        assert!(plan.is_empty());
        // Changed entries are shown even where no such NIC has an interrupt to move.
        let of = |cpus: &str| keys(json!({"nic": "n6", "cpus": cpus}));
        plan.irq_before = vec![of("1"), of("3")];
        plan.irq = vec![of("3"), of("2")];
        let placed = "\n- interrupts: {nic: n6, cpus: 1}\n+ interrupts: {nic: n6, cpus: 2}";
        assert_eq!(super::plan(&plan), nothing.to_owned() + placed);
        assert!(!plan.is_empty());
        // The first entry for a pod's NIC takes precedence, so the order counts.
        (plan.irq_before, plan.irq) = (vec![of("1"), of("3")], vec![of("3"), of("1")]);
        let swapped = "\n~ interrupts: the same entries, in another order or number";
        assert_eq!(super::plan(&plan), nothing.to_owned() + swapped);
        (plan.irq_before, plan.irq) = (Vec::new(), Vec::new());
        let moved = |what: &str, name: Option<&str>, now: &str| {
            let (what, name) = (what.into(), name.map(Into::into));
            IrqMove { nic: "eth0".into(), what, name, now: now.into(), wanted: "2".into() }
        };
        plan.irqs = vec![moved("IRQ 38", Some("rx0"), "0-3"), moved("RPS of rx-0", None, "")];
        let table = super::plan(&plan);
        assert_eq!(
            super::tests::rows(&table)[3..],
            [
                vec!["NIC", "what", "name", "CPUs"],
                vec!["eth0", "IRQ 38", "rx0", "0-3 -> 2"],
                vec!["eth0", "RPS of rx-0", "-", "none -> 2"],
            ]
        );
    }

    #[test]
    fn a_status_says_what_is_wrong_and_nothing_where_nothing_is() {
        let mut status = Status {
            pid: 42,
            running_since: "2026-01-01T00:00:00Z".into(),
            scheduler_since: "2026-01-01T00:00:00Z".into(),
            policy_file: Some("/etc/p.yaml".into()),
            generation: 7,
            in_force_since: "2026-01-02T00:00:00Z".into(),
            rules: 3,
            file_rules: 1,
            exclusive_cpus: "1".into(),
            allocated: Vec::new(),
            tasks_matched: 5,
            tasks: 90,
            kernel_in_step: true,
            rejected: None,
            config_rejected: None,
            last_error: None,
            last_run: None,
            kubernetes_doubt: None,
            kernel_lacks: Vec::new(),
            api: None,
            kubernetes: None,
            traffic: None,
            throttled_cgroups: Vec::new(),
            pod_nics: Vec::new(),
            irqs: None,
            can_roll_back: false,
            notes: Vec::new(),
        };
        let good = super::status(&status);
        for row in [
            ["running", "PID 42, since 2026-01-01T00:00:00Z"],
            ["policy file", "/etc/p.yaml"],
            ["in force", "generation 7, since 2026-01-02T00:00:00Z"],
            ["rules", "3"],
            ["tasks", "5 of 90 fall under a rule"],
            ["exclusive CPUs", "1"],
            ["kernel's tables", "as the policy says"],
        ] {
            assert!(rows(&good).contains(&row.to_vec()), "{row:?} in\n{good}");
        }
        assert_eq!(rows(&good).len(), 7, "{good}");
        status.rejected = Some(Failed { why: "p.yaml:1:1: bad".into(), since: "now".into() });
        status.kernel_in_step = false;
        status.kubernetes = Some("2 pods".into());
        let error = Failed { why: "Gthulhu's API at http://a: gone".into(), since: "then".into() };
        status.api = Some(ApiStatus {
            url: "http://a".into(),
            rules: 2,
            answer_age_ms: Some(83_999),
            error: Some(error),
        });
        status.notes = vec!["a note".into()];
        let allocated = |cpus: &str, shared: Option<&str>| Allocated {
            rule: "upf".into(),
            cgroup: "/kubepods/c".into(),
            cpus: cpus.into(),
            exclusive: shared.is_none(),
            shared: shared.map(Into::into),
        };
        status.allocated = vec![allocated("2-3", None), allocated("0-1", Some("others"))];
        let waiting = vec!["eth9: gone".into()];
        status.irqs = Some(Irqs { in_place: 4, away: 1, placed_again: 7, waiting });
        status.traffic = Some(Traffic {
            functions: vec!["gtp:gtp_rx".into()],
            marked: 5,
            ended: 4,
            refused: 3,
            tasks: vec![MarkedTask {
                tid: 12,
                pid: 10,
                comm: "rx".into(),
                rules: vec!["a".into(), "b".into()],
                since: "then".into(),
                function: "gtp_rx".into(),
                packets: 7,
                ends_in_ms: 1500,
            }],
        });
        status.pod_nics = vec![PodNic {
            pod: "core/upf-0".into(),
            nic: "n3".into(),
            found: vec!["net1 (macvlan) leads to eth1".into()],
            devices: vec!["eth1".into()],
            missing: Vec::new(),
        }];
        status.throttled_cgroups = vec![ThrottledCgroup {
            cgroup: "/kubepods/pod1".into(),
            limit_cpus: 0.25,
            nr_periods: 40,
            nr_throttled: 39,
            throttled_usec: 2_900_000,
            throttled: true,
        }];
        let bad = super::status(&status);
        for row in [
            ["kernel's tables", "NOT as the policy says"],
            ["Kubernetes", "2 pods"],
            ["packets seen by", "gtp:gtp_rx"],
            ["tasks by traffic", "1 now; 5 marked, 4 ended, 3 refused by max_tasks"],
            ["file on disk", "REJECTED since now: p.yaml:1:1: bad"],
            ["rules", "3"],
            ["of the file", "1"],
            ["of the API", "2"],
            ["API", "http://a, last answer 1m 23s ago"],
            ["API fails", "since then: Gthulhu's API at http://a: gone"],
            ["interrupts", "4 in place, 1 away; 7 placed again"],
            ["waiting", "eth9: gone"],
            ["note", "a note"],
        ] {
            assert!(rows(&bad).contains(&row.to_vec()), "{row:?} in\n{bad}");
        }
        for row in [
            ["upf", "2-3", "exclusive", "/kubepods/c"],
            ["upf", "0-1", "not exclusive", "/kubepods/c"],
            ["", "", "", "others"],
        ] {
            assert!(rows(&bad).contains(&row.to_vec()), "{row:?} in\n{bad}");
        }
        let of_pod = ["core/upf-0", "n3", "net1 (macvlan) leads to eth1"];
        assert!(rows(&bad).contains(&of_pod.to_vec()), "{bad}");
        let marked = ["rx", "12", "10", "a", "then", "gtp_rx", "7", "1.5s"];
        assert!(rows(&bad).contains(&marked.to_vec()), "{bad}");
        let held_back = ["/kubepods/pod1", "0.250 CPUs", "40", "39", "2.9s", "throttled"];
        assert!(rows(&bad).contains(&held_back.to_vec()), "{bad}");
    }

    /// Others choose the names. No name may reach the terminal unescaped or add rows.
    #[test]
    fn no_name_moves_the_cursor() {
        let asks = keys(json!({"exe": NASTY, "k8s_namespace": [NASTY]}));
        let rule = Rule { name: NASTY.into(), conditions: asks.clone(), ..rule("a", "1", None) };
        let condition = ConditionCheck { asks: asks.clone(), holds: true, why: Some(NASTY.into()) };
        let check = RuleCheck {
            name: NASTY.into(),
            matches: true,
            inherited: false,
            conditions: vec![condition],
        };
        let explanation = Explanation {
            tid: 12,
            pid: 10,
            generation: 3,
            task: keys(json!({"comm": NASTY, "exe": NASTY, "cgroup": NASTY})),
            rule: Some(NASTY.into()),
            in_force: true,
            rules: vec![check],
            threads: vec![ThreadRule { tid: 10, comm: NASTY.into(), rule: Some(NASTY.into()) }],
            notes: Vec::new(),
        };
        let table = written(Format::Table, &explanation, super::explanation).unwrap();
        // One line each for two headers, five facts, the rule's two conditions, the reason
        // and a thread. The lines under each header and between the facts do not count.
        assert_eq!(table.lines().filter(|line| !line.starts_with('-')).count(), 11, "{table}");
        let task = MarkedTask {
            tid: 12,
            pid: 10,
            comm: NASTY.into(),
            rules: vec![NASTY.into(), NASTY.into()],
            since: "then".into(),
            function: "gtp_rx".into(),
            packets: 7,
            ends_in_ms: 1500,
        };
        let marked = super::table(vec![marked_task(&task)]);
        // Its two rules, and the line under the first row of a table.
        assert_eq!(marked.lines().count(), 3, "{marked}");
        let moved = |nic: &str| IrqMove {
            nic: nic.into(),
            what: "IRQ 38".into(),
            name: Some(nic.into()),
            now: "0".into(),
            wanted: "2".into(),
        };
        let table = |shown: &Shown| rules(shown);
        let shown = shown(None, vec![rule]);
        for text in [
            marked,
            moves(&[moved(NASTY)]),
            written(Format::Table, &shown, table).unwrap(),
            written(Format::Json, &explanation, super::explanation).unwrap(),
            written(Format::Yaml, &explanation, super::explanation).unwrap(),
            json_line(&explanation).unwrap(),
        ] {
            assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
            assert!(text.contains("[2J"), "{text}");
        }
        for format in [Format::Json, Format::Yaml] {
            let text = written(format, &explanation, super::explanation).unwrap();
            assert_eq!(serde_yaml::from_str::<Explanation>(&text).unwrap(), explanation);
        }
    }

    #[test]
    fn an_explanation_has_each_rule_and_each_condition() {
        let condition = |key: &str, holds| {
            let why = (key == "gtp").then(|| "no packet has been seen".into());
            ConditionCheck { asks: keys(json!({key: "x"})), holds, why }
        };
        let rule = |name: &str, matches, inherited, conditions| RuleCheck {
            name: name.into(),
            matches,
            inherited,
            conditions,
        };
        let mut explanation = Explanation {
            tid: 12,
            pid: 10,
            generation: 3,
            task: keys(json!({"comm": "rx"})),
            rule: Some("second".into()),
            in_force: true,
            rules: vec![
                rule("first", false, false, vec![condition("user", true), condition("gtp", false)]),
                rule("second", true, true, vec![condition("threads", false)]),
                rule("third", true, false, vec![condition("pid", true)]),
            ],
            threads: vec![ThreadRule { tid: 10, comm: "main".into(), rule: None }],
            notes: vec!["why".into()],
        };
        let table = super::explanation(&explanation);
        let rows = rows(&table);
        for row in [
            vec!["task", "thread 12 of process 10"],
            vec!["comm", "rx"],
            vec!["rule", "second"],
            vec!["note", "why"],
            vec!["#", "rule", "", "because"],
            vec!["1", "first", "no", "yes  user: x"],
            vec!["", "", "", "no   gtp: x"],
            vec!["", "", "", "no packet has been seen"],
            vec!["2", "second", "in force", "no   threads: x"],
            vec!["", "", "", "yes  child of a task that matches"],
            vec!["3", "third", "matches, but an earlier rule does too", "yes  pid: x"],
            vec!["thread", "name", "rule"],
            vec!["10", "main", "none"],
        ] {
            assert!(rows.contains(&row), "{row:?} in\n{table}");
        }
        explanation.in_force = false;
        explanation.rule = None;
        let table = super::explanation(&explanation);
        assert!(table.contains("none: scheduled fairly (from the next time it runs)"), "{table}");
    }
}
