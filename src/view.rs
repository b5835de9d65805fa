//! How reports are printed: as a table, or as the same facts in JSON or YAML.

use std::io::{IsTerminal, stdout};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use tabled::builder::Builder;
use tabled::settings::peaker::Priority;
use tabled::settings::{Style, Width};

use crate::control::report::{
    ChangeKind, ConditionCheck, Explanation, Keys, Plan, Rule, Shown, Status,
};
use crate::error::{Error, Result};
use crate::units::Nanoseconds;

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

/// Prints `report` on standard output; `table` makes its table.
pub fn print<T: Serialize>(
    format: Format,
    report: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::failure(format!("writing the report: {e}"));
    match format {
        Format::Table => println!("{}", table(report)),
        Format::Json => {
            println!("{}", serde_json::to_string_pretty(report).map_err(|e| failed(&e))?);
        }
        Format::Yaml => print!("{}", serde_yaml::to_string(report).map_err(|e| failed(&e))?),
    }
    Ok(())
}

/// The rules of a policy.
pub fn rules(shown: &Shown) -> String {
    let mut rows = vec![row(["#", "rule", "conditions", "effects", "tasks"])];
    for (i, rule) in shown.rules.iter().enumerate() {
        let [name, conditions, effects, tasks] = cells(rule);
        rows.push(vec![(i + 1).to_string(), name, conditions, effects, tasks]);
    }
    let mut text = match shown.rules.is_empty() {
        true => "no rules: all tasks are scheduled fairly".into(),
        false => table(rows),
    };
    if !shown.exclusive_cpus.is_empty() {
        text += &format!("\nexclusive CPUs: {}", shown.exclusive_cpus);
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
            for (cell, before) in cells[1..].iter_mut().zip(before) {
                if *cell != before && change.kind == ChangeKind::Changed {
                    *cell = format!("{before}\n-> {cell}");
                }
            }
        } else if change.kind == ChangeKind::Removed {
            cells[4] += " -> 0";
        }
        rows.push(cells);
    }
    let kept = plan.changes.iter().filter(|change| change.kind == ChangeKind::Kept).count();
    let mut text = match rows.len() {
        1 => "no rule changes".into(),
        _ => table(rows),
    };
    text += &format!("\nunchanged rules: {kept}");
    let cpus = |cpus: &str| if cpus.is_empty() { "none".into() } else { cpus.to_owned() };
    let (before, after) = (cpus(&plan.exclusive_cpus_before), cpus(&plan.exclusive_cpus));
    match before == after {
        true => text += &format!("\nexclusive CPUs: {after}"),
        false => text += &format!("\nexclusive CPUs: {before} -> {after}"),
    }
    text
}

/// The state of the running gthctl.
pub fn status(status: &Status) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, value: String| rows.push(vec![name.into(), value]);
    add("running", format!("PID {}, since {}", status.pid, status.running_since));
    let file = status.policy_file.as_ref();
    add("policy file", file.map_or("none".into(), |file| file.display().to_string()));
    let in_force = format!("generation {}, since {}", status.generation, status.in_force_since);
    add("in force", in_force);
    add("rules", status.rules.to_string());
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
    for note in &status.notes {
        add("note", note.clone());
    }
    table(rows)
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
    let mut text = table(facts);
    let mut rows = vec![row(["#", "rule", "", "because"])];
    for (i, rule) in explanation.rules.iter().enumerate() {
        let verdict = match (rule.matches, explanation.rule.as_ref() == Some(&rule.name)) {
            (true, true) => "in force",
            (true, false) => "matches, but an earlier rule does too",
            (false, _) => "no",
        };
        let mut because: Vec<String> = rule.conditions.iter().map(check).collect();
        if rule.inherited {
            because.push("yes  child of a task that matches".into());
        }
        rows.push(vec![(i + 1).to_string(), rule.name.clone(), verdict.into(), because.join("\n")]);
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
        text += &format!("\n{}", table(rows));
    }
    text
}

fn check(condition: &ConditionCheck) -> String {
    format!("{}  {}", if condition.holds { "yes" } else { "no " }, lines(&condition.asks))
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(Into::into).into()
}

/// Name, conditions, effects, tasks.
fn cells(rule: &Rule) -> [String; 4] {
    let tasks = rule.tasks.map_or(String::new(), |tasks| tasks.to_string());
    [rule.name.clone(), lines(&rule.conditions), lines(&rule.effects), tasks]
}

/// One key a line, as in a policy file.
fn lines(keys: &Keys) -> String {
    let lines = keys.iter().map(|(key, value)| format!("{key}: {}", plain(key, value)));
    lines.collect::<Vec<_>>().join("\n")
}

fn plain(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(ns) if key == "execution_time" => {
            ns.as_u64().map_or(ns.to_string(), |ns| Nanoseconds(ns).to_string())
        }
        Value::Array(items) => {
            items.iter().map(|item| plain("", item)).collect::<Vec<_>>().join(", ")
        }
        Value::Object(label) => {
            let of = |key: &str| label.get(key).and_then(Value::as_str).unwrap_or_default();
            format!("{}={}", of("key"), of("value"))
        }
        other => other.to_string(),
    }
}

/// A table no wider than the terminal.
fn table(rows: Vec<Vec<String>>) -> String {
    let mut builder = Builder::default();
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Style::psql());
    if let Some(width) = width() {
        table.with(Width::wrap(width).priority(Priority::max(true)).keep_words(true));
    }
    table.to_string()
}

/// The width of the terminal, if there is one.
fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size().filter(|_| stdout().is_terminal())?;
    Some(usize::from(width.0))
}
