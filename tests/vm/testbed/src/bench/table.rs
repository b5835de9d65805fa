//! The ratios with their bars, and all figures of all candidates, as Markdown.

use std::fmt::Write;

use super::figure::{
    self, BUILD, BYTES, CROWD, Figure, HACKBENCH, LOADING, MANY, NORMAL, NORMAL_P99, PIPE,
    PRIORITY, PRIORITY_P99, RTT, RTT_FIRST, RTT_P99, RTT_SECOND, SHARE, Spread, WORK,
};
use super::path;
use super::ratios::{Measured, Ratio, ratios};
use super::record::{Key, Record, distinct, settings};

const FIGURES: [Figure; 17] = [
    RTT,
    RTT_P99,
    RTT_FIRST,
    RTT_SECOND,
    PRIORITY,
    PRIORITY_P99,
    NORMAL,
    NORMAL_P99,
    CROWD,
    MANY,
    BYTES,
    WORK,
    SHARE,
    PIPE,
    HACKBENCH,
    BUILD,
    LOADING,
];

/// The results of all candidates, the ratios, and what failed.
pub fn table(records: &[Record]) -> String {
    format!("{}\n{}{}", figures(records), bars(&ratios(records)), failures(records))
}

/// A row for each figure with a result, a column for each candidate.
fn figures(records: &[Record]) -> String {
    let candidates = distinct(records.iter().map(|record| record.key.candidate.as_str()));
    let mut table = String::from("| mean (least to worst; restarts) |");
    for candidate in &candidates {
        let _ = write!(table, " {candidate} |");
    }
    let _ = writeln!(table, "\n|---|{}", "---:|".repeat(candidates.len()));
    for figure in FIGURES.into_iter().chain(path::cases().map(figure::path)) {
        for setting in settings(records, figure.measure) {
            let _ = write!(table, "| {}, {} |", figure.name_in(setting), figure.unit);
            for candidate in &candidates {
                let _ = match figure.spread_in(records, setting, candidate) {
                    Some(spread) => write!(table, " {}; {} |", range(spread), spread.restarts),
                    None => write!(table, " |"),
                };
            }
            table.push('\n');
        }
    }
    table
}

/// The ratios with a result.
pub fn bars(ratios: &[Ratio]) -> String {
    let mut table =
        String::from("| ratio | mean | worst | at most | |\n|---|---:|---:|---:|---|\n");
    for ratio in ratios.iter().filter(|ratio| ratio.is_planned) {
        let best = ratio.best.as_ref().map_or(String::new(), |best| format!(" ({best})"));
        let most = (ratio.most * 1000.0).round() / 1000.0;
        let (name, verdict) = (&ratio.name, if ratio.is_met() { "met" } else { "**missed**" });
        let _ = match ratio.measured {
            Some(Measured { mean, worst }) => {
                writeln!(table, "| {name}{best} | {mean:.3} | {worst:.3} | {most} | {verdict} |")
            }
            None => writeln!(table, "| {name} | | | {most} | failed |"),
        };
    }
    table
}

/// A line for each candidate and reason.
pub fn failures(records: &[Record]) -> String {
    let reason = |record: &Record| {
        let Key { candidate, .. } = &record.key;
        Some(format!("\n{candidate}: {}\n", in_line(record.error.as_ref()?)))
    };
    let reasons: Vec<String> = records.iter().filter_map(reason).collect();
    let mut text = String::new();
    for reason in distinct(reasons.iter().map(String::as_str)) {
        let times = reasons.iter().filter(|other| *other == reason).count();
        let _ = writeln!(text, "{} ({times} measurements)", reason.trim_end());
    }
    text
}

/// An error as text in a table, or below one. Only the last part of each path is kept, without
/// where a program was built.
pub fn in_line(error: &str) -> String {
    let words = error.split_whitespace().map(|word| match word.rsplit_once('/') {
        Some((path, last)) if path.starts_with('/') => last,
        _ => word,
    });
    let text = words.collect::<Vec<_>>().join(" ").replace('|', "/");
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// The mean of several restarts, and the range from best to worst if they differ.
pub fn range(Spread { least, mean, worst, .. }: Spread) -> String {
    let digits = match mean.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 4,
        _ => 6,
    };
    let number = |number: f64| format!("{number:.digits$}");
    if least.to_bits() == worst.to_bits() {
        return number(mean);
    }
    format!("{} ({} to {})", number(mean), number(least), number(worst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{FIFO, POLICY};

    fn record(candidate: &str, samples: &[f64], error: Option<&str>) -> Record {
        let record = Record::of_round_trips("2x", candidate, 1, samples);
        let parts = if error.is_some() { vec![] } else { record.parts };
        Record { parts, error: error.map(str::to_owned), ..record }
    }

    #[test]
    fn what_was_measured_and_no_more() {
        let table = table(&[record(POLICY, &[2.0], None), record(FIFO, &[2.0], None)]);
        assert!(table.contains("| RTT avg, ms | 2.00; 1 | 2.00; 1 |"), "{table}");
        let ratio = "| RTT avg: gthctl, policy / EEVDF, SCHED_FIFO | 1.000 | 1.000 | 1 | met |";
        assert!(table.contains(ratio), "{table}");
        assert!(!table.contains("wake-up") && !table.contains("1x"), "{table}");
    }

    #[test]
    fn what_failed_says_why() {
        let error = Some("/a/path/scx: EINVAL | no kfunc");
        let table = table(&[record(POLICY, &[2.0], None), record(FIFO, &[], error)]);
        assert!(
            table.contains("\nEEVDF, SCHED_FIFO: scx: EINVAL / no kfunc (1 measurements)"),
            "{table}"
        );
        assert!(table.contains("SCHED_FIFO | | | 1 | failed |"), "{table}");
    }
}
