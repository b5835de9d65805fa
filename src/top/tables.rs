//! The tables of a report, for the screen and for plain text.

use std::collections::BTreeMap;

use super::trends::{Cgroup, Cpu, Rates, Report, Rule, Running, Task, Wakeups};
use crate::base::units::Nanoseconds;
use crate::base::{escape, output};
use crate::daemon::reports::RuleTask;
use crate::sched::stats::{below, round};

/// A table. Columns in which nothing is known are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub head: Vec<&'static str>,
    /// Each cell is one line, fit for a terminal.
    pub rows: Vec<Vec<String>>,
    /// Which columns hold numbers.
    pub numbers: Vec<bool>,
}

/// The name of a column, and whether it holds numbers.
type Column = (&'static str, bool);

impl Table {
    fn new<const N: usize>(columns: [Column; N], rows: Vec<[String; N]>) -> Self {
        let is_known = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
        let known: Vec<usize> = (0..N).filter(is_known).collect();
        let pick = |row: &[String; N]| -> Vec<String> {
            known.iter().map(|&column| escape::line(&row[column]).into_owned()).collect()
        };
        Self {
            head: known.iter().map(|&column| columns[column].0).collect(),
            rows: rows.iter().map(pick).collect(),
            numbers: known.iter().map(|&column| columns[column].1).collect(),
        }
    }

    /// As plain text.
    pub fn text(&self) -> String {
        let head = self.head.iter().map(|&name| name.to_owned()).collect();
        let rows = self.rows.iter().cloned();
        output::listing(std::iter::once(head).chain(rows).collect())
    }

    /// Adds a column on the right.
    pub fn push(&mut self, name: &'static str, cells: impl Iterator<Item = String>) {
        self.head.push(name);
        self.numbers.push(false);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
}

/// How each CPU spent the time: by whose tasks ran or, where that is unknown, by user and system
/// time.
pub fn cpus(cpus: &[Cpu]) -> Table {
    let columns = [
        ("CPU", true),
        ("use", false),
        ("prio", true),
        ("normal", true),
        ("rt", true),
        ("user", true),
        ("sys", true),
        ("softirq", true),
        ("irq", true),
        ("steal", true),
        ("idle", true),
        ("last ran tasks of", false),
    ];
    let stolen = |cpu: &Cpu| cpu.shares.is_some_and(|shares| shares.steal > 0.0);
    let is_virtual = cpus.iter().any(stolen);
    let row = |cpu: &Cpu| {
        let (shares, tasks) = (cpu.shares, cpu.tasks);
        let unknown = shares.filter(|_| tasks.is_none());
        [
            cpu.cpu.to_string(),
            if cpu.exclusive { "exclusive" } else { "shared" }.into(),
            percent(tasks.map(|t| t.priority)),
            percent(tasks.map(|t| t.normal)),
            percent(tasks.map(|t| t.real_time)),
            percent(unknown.map(|s| s.user)),
            percent(unknown.map(|s| s.system)),
            percent(shares.map(|s| s.softirq)),
            percent(shares.map(|s| s.irq)),
            percent(shares.map(|s| s.steal).filter(|_| is_virtual)),
            percent(shares.map(|s| s.idle)),
            counted(&cpu.last_of),
        ]
    };
    Table::new(columns, cpus.iter().map(row).collect())
}

/// What the tasks of each rule did together.
pub fn rules(rules: &[Rule]) -> Table {
    let columns = [
        ("rule", false),
        ("tasks", true),
        ("run", true),
        ("wait", true),
        ("switch/s", true),
        ("preempt/s", true),
        ("wake p50", true),
        ("p99", true),
        ("worst", true),
    ];
    let row = |rule: &Rule| {
        let [run, wait, _, switches, preempted] = rates(&rule.rates);
        let Wakeups { p50_ns, p99_ns, worst_ns, .. } = rule.wakeups;
        let [p50, p99, worst] =
            [p50_ns, p99_ns, worst_ns].map(|ns| ns.map_or(String::new(), below));
        let (name, tasks) = (rule.rule.clone(), rule.tasks.to_string());
        [name, tasks, run, wait, switches, preempted, p50, p99, worst]
    };
    Table::new(columns, rules.iter().map(row).collect())
}

/// What each task did.
pub fn tasks(tasks: &[&Task]) -> Table {
    let columns = [
        ("TID", true),
        ("name", false),
        ("rule", false),
        ("CPU", true),
        ("run", true),
        ("wait", true),
        ("wait/turn", true),
        ("switch/s", true),
        ("preempt/s", true),
        ("pod", false),
    ];
    let row = |task: &&Task| {
        let [run, wait, turn, switches, preempted] = rates(&task.rates);
        let RuleTask { tid, comm, rule, pod, .. } = &task.task;
        let cpu = task.cpu.map_or(String::new(), |cpu| cpu.to_string());
        let (comm, rule, pod) = (comm.clone(), rule.clone(), pod.clone().unwrap_or_default());
        [tid.to_string(), comm, rule, cpu, run, wait, turn, switches, preempted, pod]
    };
    Table::new(columns, tasks.iter().map(row).collect())
}

/// The cgroups that their limits hold back.
pub fn cgroups(cgroups: &[Cgroup]) -> Table {
    let columns = [
        ("throttled cgroup", false),
        ("limit", true),
        ("time", true),
        ("periods", true),
        ("throttled", true),
        ("now", false),
    ];
    let row = |one: &Cgroup| {
        let cgroup = &one.cgroup;
        [
            cgroup.cgroup.clone(),
            format!("{:.2} CPUs", cgroup.limit_cpus),
            percent(one.throttled_share),
            cgroup.nr_periods.to_string(),
            cgroup.nr_throttled.to_string(),
            if cgroup.throttled { "waits" } else { "runs" }.into(),
        ]
    };
    Table::new(columns, cgroups.iter().map(row).collect())
}

/// General facts about a running gthctl: the name, the value, and whether it needs attention.
pub fn facts(running: &Running) -> Vec<(&'static str, String, bool)> {
    let status = &running.status;
    let policy = match &status.policy_file {
        Some(file) => format!("generation {} of {}", status.generation, file.display()),
        None => format!("generation {}, no file", status.generation),
    };
    let in_force = format!("{policy}, in force since {}", status.in_force_since);
    let mut facts = vec![("policy", in_force, false)];
    if !status.kernel_in_step {
        facts.push(("kernel", "its tables are NOT as the policy says".into(), true));
    }
    if let Some(rejected) = &status.rejected {
        facts.push(("file", format!("REJECTED since {}: {}", rejected.since, rejected.why), true));
    }
    let under = format!(
        "{} of {} under {}",
        status.tasks_matched,
        output::count(status.tasks, "task"),
        output::count(status.rules, "rule")
    );
    facts.push(("tasks", under, false));
    if let Some(api) = &status.api {
        let age = api.answer_age_ms.map(|ms| Nanoseconds(ms / 1000 * 1_000_000_000));
        let answer = age.map_or("no answer yet".into(), |age| format!("last answer {age} ago"));
        facts.push(("API", format!("{}, {answer}", api.url), api.error.is_some()));
        facts.extend(api.error.iter().map(|e| ("API", format!("FAILS: {}", e.why), true)));
    }
    if let Some(pods) = &status.kubernetes {
        facts.push(("Kubernetes", pods.clone(), false));
    }
    facts.extend(interrupts(running));
    facts.extend(scheduling(running));
    facts.iter_mut().for_each(|(_, value, _)| *value = escape::line(value).into_owned());
    facts
}

/// Where the NICs' interrupts are, if the policy places them.
fn interrupts(running: &Running) -> Option<(&'static str, String, bool)> {
    let irqs = running.status.irqs.as_ref()?;
    let away = if irqs.away > 0 { format!("{} AWAY", irqs.away) } else { "none away".into() };
    let mut text =
        format!("{} in place, {away}; {} placed again", irqs.in_place, irqs.placed_again);
    if !irqs.waiting.is_empty() {
        text += &format!("; {} waiting", irqs.waiting.len());
    }
    Some(("interrupts", text, irqs.away > 0))
}

/// How tasks got CPUs.
fn scheduling(running: &Running) -> Vec<(&'static str, String, bool)> {
    let mut facts = Vec::new();
    let wakeups = &running.wakeups;
    if let Some(rate) = wakeups.per_second {
        let mut text = format!("{rate:.0}/s");
        if let (Some(p50), Some(p99)) = (wakeups.p50_ns, wakeups.p99_ns) {
            text += &format!(", half under {}, 99 % under {}", round(p50), round(p99));
        }
        facts.push(("wake-ups", text, false));
    }
    let happened = |rates: &BTreeMap<String, f64>, wanted: &[&str]| {
        let rates = rates.iter().filter(|(name, rate)| {
            **rate > 0.0 && (wanted.is_empty() || wanted.contains(&name.as_str()))
        });
        let rates = rates.map(|(name, rate)| format!("{} {rate:.0}/s", name.replace('_', " ")));
        rates.collect::<Vec<_>>().join(", ")
    };
    let by = happened(&running.dispatches_per_second, &[]);
    let counts = happened(&running.counters_per_second, &["preemptions", "demotions"]);
    let packets = happened(&running.packets_per_second, &[]);
    for (name, text) in [("CPUs by", by), ("also", counts), ("packets", packets)] {
        if !text.is_empty() {
            facts.push((name, text, false));
        }
    }
    facts
}

/// Interrupts that are not placed yet, NICs of pods, and notes, one a line.
pub fn remarks(running: &Running) -> Vec<String> {
    let status = &running.status;
    let waiting = status.irqs.iter().flat_map(|irqs| &irqs.waiting);
    let waiting = waiting.map(|why| format!("waiting: {why}"));
    let nics = status.pod_nics.iter().map(|nic| {
        let facts = [&nic.found[..], &nic.missing[..]].concat();
        format!("{} {}: {}", nic.pod, nic.nic, facts.join("; "))
    });
    let notes = status.notes.iter().map(|note| format!("note: {note}"));
    let all = waiting.chain(nics).chain(notes);
    all.map(|line| escape::line(&line).into_owned()).collect()
}

/// Everything, as plain text.
pub fn text(report: &Report) -> String {
    let mut parts = Vec::new();
    if let Some(running) = &report.gthctl {
        let facts = facts(running);
        let lines = facts.iter().map(|(name, value, _)| format!("{name}: {value}"));
        parts.push(lines.chain(remarks(running)).collect::<Vec<_>>().join("\n"));
    }
    parts.push(cpus(&report.cpus).text());
    if let Some(running) = &report.gthctl {
        let mut sorted: Vec<&Task> = running.tasks.iter().collect();
        super::trends::Sort::default().sort(&mut sorted, false);
        let tables = [rules(&running.rules), tasks(&sorted), cgroups(&running.cgroups)];
        parts.extend(tables.iter().filter(|table| !table.rows.is_empty()).map(Table::text));
    }
    parts.join("\n\n")
}

/// How many tasks of each rule: `2 upf, 1 shell`.
fn counted(rules: &BTreeMap<String, usize>) -> String {
    let rules = rules.iter().map(|(rule, count)| format!("{count} {rule}"));
    rules.collect::<Vec<_>>().join(", ")
}

/// Run time, waiting time, wait per turn, switches, preemptions.
fn rates(rates: &Rates) -> [String; 5] {
    let number =
        |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.0}"));
    [
        percent(rates.run),
        percent(rates.wait),
        rates.wait_per_turn_ns.map_or(String::new(), time),
        number(rates.switches_per_second),
        number(rates.preempted_per_second),
    ]
}

/// A part of one CPU or of the time, where 1 is 100 %.
fn percent(part: Option<f64>) -> String {
    part.map_or(String::new(), |part| format!("{:.1}%", part * 100.0))
}

/// With three digits at most, so that it changes little.
fn time(ns: f64) -> String {
    match ns as u64 {
        ns if ns < 1_000 => format!("{ns}ns"),
        ns if ns < 1_000_000 => format!("{}us", ns / 1_000),
        ns if ns < 1_000_000_000 => format!("{}ms", ns / 1_000_000),
        ns => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_samples::{alone, model, sample};
    use super::*;
    use crate::base::escape::NASTY;
    use crate::base::output::{Format, written};
    use crate::daemon::reports::Failed;

    fn report() -> Report {
        model([sample(1), sample(2)]).report.unwrap()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split('|').map(str::trim).collect()
    }

    #[test]
    fn the_text_has_every_fact_and_every_row() {
        let text = text(&report());
        for line in [
            "policy: generation 3 of /etc/gthctl/policy.yaml, in force since 2026-01-02T00:00:00Z",
            "tasks: 2 of 90 tasks under 2 rules",
            "Kubernetes: 2 pods",
            "interrupts: 4 in place, 1 AWAY; 7 placed again; 1 waiting",
            "wake-ups: 1000/s, half under 2us, 99 % under 16us",
            "CPUs by: fair 30/s, idle 900/s",
            "also: preemptions 8/s",
            "packets: gtp5g downlink 400/s, gtp5g uplink 500/s",
            "waiting: eth9: gone",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for row in [
            &[
                "1",
                "exclusive",
                "50.0%",
                "25.0%",
                "0.0%",
                "25.0%",
                "0.0%",
                "0.0%",
                "1 fast, 1 slow",
            ][..],
            &["fast", "1", "50.0%", "0.1%", "1010", "10", "<2us", "<16us", "<32us"],
            &["11", "upf-rx", "fast", "1", "50.0%", "0.1%", "1us", "1010", "10"],
            &["12", "shell", "slow", "1", "10.0%", "30.0%", "300us", "1010", "10"],
            &["/batch", "0.50 CPUs", "25.0%", "20", "8", "waits"],
        ] {
            assert!(text.lines().any(|line| words(line) == row), "{row:?}\n{text}");
        }
    }

    #[test]
    fn a_wake_up_of_the_last_bucket_has_no_upper_bound() {
        let mut running = report().gthctl.unwrap();
        running.rules[0].wakeups.worst_ns = Some(1 << 32);
        let rules = rules(&running.rules);
        assert!(rules.rows[0].ends_with(&["<2us", "<16us", ">2s"].map(String::from)), "{rules:?}");
    }

    #[test]
    fn what_is_wrong_wants_attention() {
        let mut running = report().gthctl.unwrap();
        let bad = |running: &Running| {
            let facts = facts(running).into_iter().filter(|fact| fact.2);
            facts.map(|(name, value, _)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(bad(&running), ["interrupts: 4 in place, 1 AWAY; 7 placed again; 1 waiting"]);
        running.status.irqs = None;
        running.status.kernel_in_step = false;
        let why = "p.yaml:1:1: bad".into();
        running.status.rejected = Some(Failed { why, since: "noon".into() });
        assert_eq!(
            bad(&running),
            [
                "kernel: its tables are NOT as the policy says",
                "file: REJECTED since noon: p.yaml:1:1: bad",
            ]
        );
    }

    #[test]
    fn a_column_without_data_is_not_there() {
        let head = |table: Table| table.head.join(" ");
        let report = report();
        assert!(!head(cpus(&report.cpus)).contains("steal"));
        let running = report.gthctl.unwrap();
        let mut tasks: Vec<Task> = running.tasks;
        let all = |tasks: &[Task]| head(super::tasks(&tasks.iter().collect::<Vec<_>>()));
        assert_eq!(all(&tasks), "TID name rule CPU run wait wait/turn switch/s preempt/s");
        tasks[0].task.pod = Some("core/upf-0".into());
        tasks.iter_mut().for_each(|task| task.rates = Rates::default());
        assert_eq!(all(&tasks), "TID name rule CPU pod");
        // Without gthctl, too.
        let report = model([alone(1), alone(2)]).report.unwrap();
        assert_eq!(head(cpus(&report.cpus)), "CPU use user sys softirq irq idle");
        assert_eq!(text(&report).lines().count(), 4);
    }

    #[test]
    fn no_name_moves_the_cursor_and_json_has_every_fact() {
        let mut report = report();
        let running = report.gthctl.as_mut().unwrap();
        running.tasks[0].task.comm = NASTY.into();
        running.rules[0].rule = NASTY.into();
        running.cgroups[0].cgroup.cgroup = NASTY.into();
        running.status.kubernetes = Some(NASTY.into());
        running.status.notes = vec![NASTY.into()];
        report.cpus[0].last_of = [(NASTY.into(), 1)].into();
        let lines = text(&report).lines().count();
        assert_eq!(lines, text(&self::report()).lines().count() + 1);
        for format in [Format::Table, Format::Json] {
            let text = written(format, &report, text).unwrap();
            assert!(!text.contains(escape::is_unfit_in_lines) && text.contains("[2J"), "{text:?}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["gthctl"]["status"]["generation"], 3);
        assert_eq!(json["cpus"][1]["softirq"], 0.25);
        assert_eq!(json["gthctl"]["tasks"][1]["wait"], 0.3);
        assert_eq!(json["gthctl"]["cgroups"][0]["limit_cpus"], 0.5);
        assert_eq!(json["gthctl"]["wakeups"]["p99_ns"], 16384);
    }

    #[test]
    fn times_stay_short() {
        assert_eq!([999.4, 1e3, 5.5e6, 3e9].map(time), ["999ns", "1us", "5ms", "3s"]);
    }
}
