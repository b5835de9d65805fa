//! The benchmark's page, as Markdown, and all figures of all restarts.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::stats::Summary;

use super::figure::Spread;
use super::path;
use super::plan::{IDLE, LOAD, LOADS};
use super::ratios::Ratio;
use super::record::{Key, Measure, Part, Record, distinct, settings};
use super::table::{bars, failures, range};

/// Measures that are numbers: the measure, its part, a title, and what the numbers are.
const NUMBERS: [(Measure, &str, &str, &str); 7] = [
    (
        Measure::Throughput,
        "",
        "Throughput",
        "iperf3 from the UE to the data network, 4 MiB, 2x load; both ends and nr-gnb are \
         priority tasks.",
    ),
    (
        Measure::Work,
        "",
        "What the load gets done",
        "In bogo operations of stress-ng, 2x load, while a priority task and a normal one wake up \
         each ms.",
    ),
    (
        Measure::WakeUp,
        "process",
        "The scheduler's process",
        "2x load, while a priority task and a normal one wake up each ms. Loading is without load.",
    ),
    (
        Measure::Pipe,
        "",
        "Two tasks that wake each other",
        "`perf bench sched pipe --loop 15000`, no load.",
    ),
    (Measure::Hackbench, "", "hackbench", "`hackbench --groups 2 --loops 60`, no load."),
    (Measure::Build, "", "Short programs", "40 short pipelines, two at once for each CPU."),
    (
        Measure::Usable,
        "",
        "Normal tasks while priority tasks spin",
        "As many priority tasks as CPUs spin. Beside them as many normal tasks spin; then a \
         normal task starts programs one after another.",
    ),
];

/// All tables. `about` says what was measured on; `times` is what the suite reported on how soon
/// rules are in force.
pub fn page(records: &[Record], ratios: &[Ratio], about: &str, times: &str) -> String {
    let mut page = format!(
        "# Benchmark\n\nWritten by `make bench`. {about}\n\n\
        Everything is measured in [virtual time](../performance.md), in which an instruction takes \
        a nanosecond, after several restarts of the data plane's processes in each of several \
        virtual machines. The tables have means over the restarts, and in brackets the least and \
        the worst one; a p99 is taken of each restart by itself. The [bars](#bars) are at the end. \
        [NOTES.md](NOTES.md) says how to read it, and what was tried.\n"
    );
    page += &round_trips(records);
    page += &wake_ups(records);
    page += &numbers(records);
    page += &paths(records);
    let _ = write!(
        page,
        "\n## How soon rules are in force\n\nFrom `tests/vm/test timing::`, in real time.\n\n\
        ```\n{}\n```\n",
        times.trim_end()
    );
    page += &programs(records);
    let failures = failures(records);
    if !failures.is_empty() {
        let _ = write!(page, "\n## What failed\n{failures}");
    }
    let _ = write!(
        page,
        "\n## Bars\n\n\
        Ratios of the means, and of the worst restarts. Both are to be at most the bar. Where \
        more is better, they are inverse: less is better in every row.\n\n{}",
        bars(ratios)
    );
    page
}

fn round_trips(records: &[Record]) -> String {
    let mut text = format!(
        "\n## Round trips through the tunnel\n\n![RTT with {LOAD} load](rtt.svg)\n\n\
        Load 1x: a spinning task for each CPU, 2x and 4x: two and four; mixed: two, a pair that \
        talks through a pipe, and one that forks. On 4 and 8 CPUs: 2x.\n"
    );
    let settings = settings(records, Measure::Rtt);
    let is_larger = |setting: &&&str| setting.ends_with(" CPUs");
    let larger = settings.iter().filter(is_larger);
    for setting in [IDLE].iter().chain(&LOADS).chain(larger).filter(|s| settings.contains(s)) {
        let of = of(records, Measure::Rtt, setting);
        let _ = write!(text, "\n### {setting}\n\n{}", samples(&of, "", 1.0, "ms"));
    }
    text
}

fn wake_ups(records: &[Record]) -> String {
    let mut text =
        String::from("\n## Wake-up latency\n\ncyclictest, a wake-up each ms, 2x load.\n");
    for part in ["priority", "normal"] {
        let of = of(records, Measure::WakeUp, LOAD);
        let _ = write!(text, "\n### A {part} task\n\n{}", samples(&of, part, 1e-3, "us"));
    }
    for (measure, title) in [
        (Measure::Crowd, "A priority task among runnable normal tasks"),
        (Measure::Many, "Many priority tasks, each waking up every 10 ms, 2x load"),
    ] {
        let _ = write!(text, "\n## {title}\n\nWake-up latency.\n");
        for setting in settings(records, measure) {
            let of = of(records, measure, setting);
            let _ = write!(text, "\n### {setting}\n\n{}", samples(&of, "", 1e-3, "us"));
        }
    }
    text
}

fn numbers(records: &[Record]) -> String {
    let mut text = String::new();
    for (measure, part, title, about) in NUMBERS {
        let of: Vec<&Record> = records.iter().filter(|r| r.key.measure == measure).collect();
        let _ = write!(text, "\n## {title}\n\n{about}\n\n{}", values(&of, part));
    }
    text
}

fn paths(records: &[Record]) -> String {
    let mut text = String::from(
        "\n## The choice of a CPU at a wake-up\n\nThe scheduler's own code, called 100,000 times \
        on a made-up machine of so many CPUs, 16 to each last-level cache \
        (tests/vm/testbed/bpf/wakeup.bpf.c).\n\n| ns a call |",
    );
    let settings = settings(records, Measure::Path);
    let _ = writeln!(text, " {} |\n|---|{}", settings.join(" | "), "---:|".repeat(settings.len()));
    for case in path::cases() {
        let _ = write!(text, "| {case} |");
        for setting in &settings {
            let parts = parts(&of(records, Measure::Path, setting), case).unwrap_or_default();
            let of = |name: &str| cell(&parts, |part| part.values.get(name).copied());
            let _ = write!(text, " {} ({} CPUs looked at) |", of("ns"), of("CPUs looked at"));
        }
        text.push('\n');
    }
    text
}

fn of<'a>(records: &'a [Record], measure: Measure, setting: &str) -> Vec<&'a Record> {
    let is = |key: &Key| key.measure == measure && key.setting == setting;
    records.iter().filter(|record| is(&record.key)).collect()
}

/// The records of each candidate, by its name.
fn by_candidate<'a>(records: &[&'a Record]) -> Vec<(&'a str, Vec<&'a Record>)> {
    let own = |name| records.iter().filter(move |record| record.key.candidate == name);
    let names = distinct(records.iter().map(|record| record.key.candidate.as_str()));
    names.into_iter().map(|name| (name, own(name).copied().collect())).collect()
}

/// The parts of this name; `None` when one restart has none.
fn parts<'a>(records: &[&'a Record], name: &str) -> Option<Vec<&'a Part>> {
    records.iter().map(|record| record.parts.iter().find(|part| part.part == name)).collect()
}

/// A cell that sums up one number of each part.
fn cell(parts: &[&Part], number: impl Fn(&Part) -> Option<f64>) -> String {
    let numbers: Option<Vec<f64>> = parts.iter().map(|part| number(part)).collect();
    numbers.and_then(|numbers| Spread::of(&numbers)).map_or(String::new(), range)
}

/// The share of ping's probes that were lost, in percent.
fn loss(part: &Part) -> Option<f64> {
    let sent = part.values.get("sent")?;
    Some((sent - part.samples.len() as f64) * 100.0 / sent)
}

/// A row for each candidate with its samples times `scale`, in `unit`.
fn samples(records: &[&Record], name: &str, scale: f64, unit: &str) -> String {
    let mut table = format!(
        "| {unit} | avg | p50 | p99 | loss, % | restarts |\n|---|---:|---:|---:|---:|---:|\n"
    );
    for (candidate, own) in by_candidate(records) {
        let Some(parts) = parts(&own, name) else {
            let _ = writeln!(table, "| {candidate} | failed | | | | |");
            continue;
        };
        let of = |number: fn(Summary) -> f64| {
            cell(&parts, |part| Some(number(Summary::of(&part.samples)?) * scale))
        };
        let (avg, p50, p99) = (of(|all| all.avg), of(|all| all.p50), of(|all| all.p99));
        let (loss, restarts) = (cell(&parts, loss), parts.len());
        let _ = writeln!(table, "| {candidate} | {avg} | {p50} | {p99} | {loss} | {restarts} |");
    }
    table
}

/// A row for each candidate with all its values.
fn values(records: &[&Record], name: &str) -> String {
    let all = records.iter().flat_map(|record| &record.parts).filter(|part| part.part == name);
    let names = distinct(all.flat_map(|part| part.values.keys()).map(String::as_str));
    let mut table = String::from("| |");
    for name in &names {
        let _ = write!(table, " {name} |");
    }
    let _ = writeln!(table, " restarts |\n|---|{}---:|", "---:|".repeat(names.len()));
    for (candidate, own) in by_candidate(records) {
        match parts(&own, name) {
            Some(parts) => {
                let of = |name: &&str| cell(&parts, |part| part.values.get(*name).copied());
                let cells: Vec<String> = names.iter().map(of).collect();
                let _ =
                    writeln!(table, "| {candidate} | {} | {} |", cells.join(" | "), parts.len());
            }
            // The kernel's own schedulers have no process.
            None if own.iter().all(|record| record.error.is_none()) => {}
            None => {
                let _ = writeln!(table, "| {candidate} | failed {}|", "| ".repeat(names.len()));
            }
        }
    }
    table
}

fn programs(records: &[Record]) -> String {
    let mut text = String::from(
        "\n## What each BPF program costs\n\n2x load and a priority task that wakes up each ms; \
        instructions are those that the verifier followed.\n",
    );
    for (candidate, own) in by_candidate(&of(records, Measure::Ops, LOAD)) {
        let _ = write!(
            text,
            "\n### {candidate}\n\n| program | ns a call | calls | instructions |\n\
            |---|---:|---:|---:|\n"
        );
        let all = own.iter().flat_map(|record| &record.parts).map(|part| part.part.as_str());
        for program in distinct(all) {
            let parts = parts(&own, program).unwrap_or_default();
            let of = |name: &str| cell(&parts, |part| part.values.get(name).copied());
            let (ns, calls, instructions) = (of("ns"), of("calls"), of("instructions"));
            let _ = writeln!(text, "| {program} | {ns} | {calls} | {instructions} |");
        }
    }
    text
}

/// Everything measured after each restart; for samples their summary.
pub fn results(records: &[Record], ratios: &[Ratio], about: &str) -> Value {
    let part = |part: &Part| {
        json!({
            "part": part.part,
            "values": part.values,
            "samples": part.samples.len(),
            "summary": Summary::of(&part.samples),
        })
    };
    let restart = |Record { key, parts, error }: &Record| {
        let parts: Vec<Value> = parts.iter().map(part).collect();
        json!({"of": key, "parts": parts, "error": error})
    };
    let restarts: Vec<Value> = records.iter().map(restart).collect();
    json!({"about": about, "bars": ratios, "restarts": restarts})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ratios::ratios;

    #[test]
    fn a_row_for_each_candidate_with_its_restarts() {
        let record = |candidate: &str, restart, samples: &[f64], error: Option<&str>| Record {
            key: Key {
                measure: Measure::Rtt,
                setting: "1x".into(),
                candidate: candidate.into(),
                boot: 1,
                restart,
            },
            parts: match error {
                Some(_) => vec![],
                None => vec![Part { samples: samples.into(), ..Part::of([("sent", 2.0)]) }],
            },
            error: error.map(str::to_owned),
        };
        let records = [
            record("a", 1, &[1.5, 2.5], None),
            record("a", 2, &[4.0], None),
            record("b", 1, &[1.0], None),
            record("b", 2, &[], Some("EINVAL | no kfunc")),
        ];
        let ratios = ratios(&records);
        let page = page(&records, &ratios, "On a machine.", "policy: 1 ms");
        let row = "| a | 3.00 (2.00 to 4.00) | 2.75 (1.50 to 4.00) | 3.25 (2.50 to 4.00) \
            | 25.0 (0.0 to 50.0) | 2 |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| b | failed | | | | |"), "{page}");
        assert!(page.contains("b: EINVAL / no kfunc (1 measurements)"), "{page}");
        let titles: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(titles.first(), Some(&"## Round trips through the tunnel"));
        assert_eq!(titles.last(), Some(&"## Bars"));
        let results = results(&records, &ratios, "On a machine.");
        assert_eq!(results["restarts"][0]["of"]["restart"], 1);
        assert_eq!(results["restarts"][0]["parts"][0]["summary"]["avg"], 2.0);
    }
}
