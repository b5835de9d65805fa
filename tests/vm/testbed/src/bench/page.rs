//! The tables, as Markdown.

use std::fmt::Write;

use crate::stats::Summary;

use super::plan::{IDLE, LOAD, LOADS};
use super::record::Measure;
use super::summary::{Bar, Cell, distinct};

/// All tables. `about` says on what was measured, `times` is what the suite told of how soon
/// rules are in force.
pub fn page(cells: &[Cell], bars: &[Bar], about: &str, times: &str) -> String {
    let mut page = format!(
        "# Benchmark\n\nWritten by `make bench`. {about}\n\n\
        What is compared runs in turn, round after round, in one virtual machine; ratios say \
        more than times, which are the emulation's. `waited` is the share of its time for which \
        the VM waited for a CPU of the host; on 2 CPUs a measurement in which that was more than \
        10 % was taken again, up to twice, and the least disturbed one counts. \
        [NOTES.md](NOTES.md) says how to read it, and what was tried.\n\n## Bars\n\n\
        Medians of the ratios to what was measured in the same turn, or else in the same round; \
        of several others the one that is closest, or ahead.\n\n"
    );
    page += &bar_table(bars);
    let _ = write!(
        page,
        "\n## Round trips through the tunnel\n\n![RTT with {LOAD} load](rtt.svg)\n\n\
        ms; a probe each 5 ms. Load 1x: a spinning task for each CPU, 2x and 4x: two and four; \
        mixed: two, a pair that talks through a pipe, and one that forks.\n"
    );
    for load in [IDLE].iter().chain(&LOADS) {
        let _ =
            write!(page, "\n### {load}\n\n{}", samples(&of(cells, Measure::Rtt, load), 1.0, "ms"));
    }
    let more = |cell: &&Cell| cell.measure == Measure::Rtt && cell.setting.ends_with(" CPUs");
    for setting in distinct(cells.iter().filter(more).map(|cell| &cell.setting)) {
        let _ = write!(
            page,
            "\n### {setting}\n\n{}",
            samples(&of(cells, Measure::Rtt, setting), 1.0, "ms")
        );
    }
    let sections = [
        (
            Measure::Throughput,
            "Throughput",
            "iperf3 from the UE to the data network, 2x load; both ends and nr-gnb are \
             priority tasks. What the load gets done meanwhile is in bogo operations.",
        ),
        (
            Measure::Pipe,
            "Two tasks that wake each other",
            "`perf bench sched pipe --loop 15000`, no load.",
        ),
        (Measure::Hackbench, "hackbench", "`hackbench --groups 2 --loops 60`, no load."),
        (Measure::Build, "Short programs", "120 short pipelines, two at once for each CPU."),
        (
            Measure::Usable,
            "Normal tasks while priority tasks spin",
            "As many priority tasks as CPUs spin. Beside them as many normal tasks spin; then a \
             normal task starts programs one after another.",
        ),
    ];
    for (measure, title, text) in sections {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.measure == measure).collect();
        let _ = write!(page, "\n## {title}\n\n{text}\n\n{}", values(&cells));
    }
    let _ = write!(page, "\n## Wake-up latency\n\nus; cyclictest, a wake-up each ms, 2x load.\n");
    for part in ["priority", "normal"] {
        let cells: Vec<&Cell> = cells
            .iter()
            .filter(|c| c.measure == Measure::WakeUp && (c.part == part || c.error.is_some()))
            .collect();
        let _ = write!(page, "\n### A {part} task\n\n{}", samples(&cells, 1e-3, "us"));
    }
    let work: Vec<&Cell> =
        cells.iter().filter(|c| c.measure == Measure::WakeUp && c.part == "priority").collect();
    let _ = write!(page, "\n### What the load gets done meanwhile\n\n{}", values(&work));
    let process: Vec<&Cell> =
        cells.iter().filter(|c| c.measure == Measure::WakeUp && c.part == "process").collect();
    let _ = write!(page, "\n### The scheduler's process meanwhile\n\n{}", values(&process));
    for (measure, title) in [
        (Measure::Crowd, "A priority task among runnable normal tasks"),
        (Measure::Many, "Many priority tasks, each waking up every 10 ms, 2x load"),
    ] {
        let _ = write!(page, "\n## {title}\n\nWake-up latency, us.\n");
        let of_measure: Vec<&Cell> = cells.iter().filter(|c| c.measure == measure).collect();
        for setting in distinct(of_measure.iter().map(|cell| &cell.setting)) {
            let _ = write!(
                page,
                "\n### {setting}\n\n{}",
                samples(&of(cells, measure, setting), 1e-3, "us")
            );
        }
    }
    let _ = write!(
        page,
        "\n## How soon rules are in force\n\nFrom `tests/vm/test timing::`.\n\n```\n{}\n```\n",
        times.trim_end()
    );
    let _ = write!(
        page,
        "\n## What each BPF program costs\n\n2x load and a priority task that wakes up each ms; \
        instructions are those that the verifier followed.\n"
    );
    let ops: Vec<&Cell> = cells.iter().filter(|cell| cell.measure == Measure::Ops).collect();
    for candidate in distinct(ops.iter().map(|cell| &cell.candidate)) {
        let of: Vec<&Cell> =
            ops.iter().filter(|cell| cell.candidate == *candidate).copied().collect();
        let _ = write!(page, "\n### {candidate}\n\n{}", programs(&of));
    }
    page
}

fn of<'a>(cells: &'a [Cell], measure: Measure, setting: &str) -> Vec<&'a Cell> {
    cells.iter().filter(|cell| cell.measure == measure && cell.setting == setting).collect()
}

fn bar_table(bars: &[Bar]) -> String {
    let mut table = String::from("| | measured | bar | |\n|---|---:|---:|---|\n");
    for bar in bars {
        let ratio = bar.ratio.map_or("failed".into(), |ratio| format!("{ratio:.2}"));
        let limit = match (bar.at_most, bar.at_least) {
            (Some(most), _) => format!("≤ {most}"),
            (_, least) => format!("≥ {}", least.unwrap_or_default()),
        };
        let met = if bar.is_met() { "met" } else { "**missed**" };
        let _ = writeln!(table, "| {} | {ratio} | {limit} | {met} |", bar.what);
    }
    table
}

fn percent(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| format!("{value:.1} %"))
}

/// An error in a table, or below one; of paths in the error the last part, without where a
/// program was built.
fn in_line(error: &str) -> String {
    let words = error.split_whitespace().map(|word| match word.rsplit_once('/') {
        Some((path, last)) if path.starts_with('/') => last,
        _ => word,
    });
    let text = words.collect::<Vec<_>>().join(" ").replace('|', "/");
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Of those that failed in some of the rounds.
fn failures(cells: &[&Cell]) -> String {
    let mut text = String::new();
    for cell in cells {
        if let Some((times, error)) = &cell.failures {
            let times = if *times == 1 { "once".into() } else { format!("{times} times") };
            let _ = writeln!(text, "\n{} failed {times}: {}", cell.candidate, in_line(error));
        }
    }
    text
}

fn failure(table: &mut String, cell: &Cell, columns: usize) {
    let error = in_line(cell.error.as_deref().unwrap_or("nothing came back"));
    let _ = writeln!(table, "| {} | failed: {error} {}|", cell.candidate, "| ".repeat(columns - 1));
}

/// Samples times `scale`, in `unit`.
fn samples(cells: &[&Cell], scale: f64, unit: &str) -> String {
    let mut table = format!(
        "| {unit} | avg | p50 | p99 | p99.9 | max | samples | loss | waited |\n\
        |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for cell in cells {
        match cell.summary.as_ref().filter(|_| cell.error.is_none()) {
            Some(Summary { avg, p50, p99, p999, max, .. }) => {
                let times = [avg, p50, p99, p999, max].map(|time| number(time * scale));
                let _ = writeln!(
                    table,
                    "| {} | {} | {} | {} | {} |",
                    cell.candidate,
                    times.join(" | "),
                    cell.samples,
                    percent(cell.loss),
                    percent(cell.waited)
                );
            }
            None => failure(&mut table, cell, 8),
        }
    }
    table + &failures(cells)
}

/// The values that any of the cells has.
fn values(cells: &[&Cell]) -> String {
    let names = distinct(cells.iter().flat_map(|cell| cell.values.keys()));
    let is_used = |name: &&&String| {
        cells.iter().any(|cell| cell.values.get(**name).is_some_and(|value| *value != 0.0))
    };
    let names: Vec<&String> = names.iter().filter(is_used).copied().collect();
    let mut table = String::from("| |");
    for name in &names {
        let _ = write!(table, " {name} |");
    }
    let _ = writeln!(table, "\n|---|{}", "---:|".repeat(names.len()));
    for cell in cells {
        if cell.error.is_some() {
            failure(&mut table, cell, names.len().max(1));
            continue;
        }
        let row =
            names.iter().map(|name| cell.values.get(*name).copied().map_or(String::new(), number));
        let _ = writeln!(table, "| {} | {} |", cell.candidate, row.collect::<Vec<_>>().join(" | "));
    }
    table + &failures(cells)
}

fn programs(cells: &[&Cell]) -> String {
    if let Some(cell) = cells.iter().find(|cell| cell.error.is_some()) {
        return format!("failed: {}\n", cell.error.as_deref().unwrap_or_default());
    }
    let mut table =
        String::from("| program | ns a call | calls | instructions |\n|---|---:|---:|---:|\n");
    let value = |cell: &Cell, name: &str| cell.values.get(name).copied().unwrap_or_default();
    for cell in cells {
        let calls = value(cell, "calls");
        let ns = if calls > 0.0 { number(value(cell, "ns")) } else { String::new() };
        let instructions = value(cell, "instructions");
        let _ = writeln!(table, "| {} | {ns} | {calls} | {instructions} |", cell.part);
    }
    table
}

/// Three digits, at least.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::{Key, Part, Record};
    use crate::bench::summary::{bars, cells};

    #[test]
    fn what_failed_says_why_in_its_row() {
        let record = |candidate: &str, error: Option<&str>| Record {
            key: Key {
                measure: Measure::Rtt,
                setting: "1x".into(),
                candidate: candidate.into(),
                round: 1,
                turn: 1,
            },
            parts: match error {
                Some(_) => vec![],
                None => vec![Part { samples: vec![1.5, 2.5], ..Part::of([("sent", 2.0)]) }],
            },
            error: error.map(str::to_owned),
            waited_percent: None,
        };
        let records = [record("a", None), record("b", Some("EINVAL | no kfunc"))];
        let cells = cells(&records);
        let page = page(&cells, &bars(&records, &cells), "On a machine.", "policy: 1 ms");
        assert!(page.contains("| a | 2.00 | 1.50 | 2.50 | 2.50 | 2.50 | 2 | 0.0 % |  |"), "{page}");
        assert!(page.contains("| b | failed: EINVAL / no kfunc | | | | | | | |"), "{page}");
        assert!(page.contains("policy / SCHED_FIFO | failed | ≤ 1.1 | **missed** |"), "{page}");
    }

    #[test]
    fn three_digits() {
        assert_eq!([0.1234, 1.234, 12.34, 123.4].map(number), ["0.123", "1.23", "12.3", "123"]);
    }
}
