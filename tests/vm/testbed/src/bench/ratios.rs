//! What the quick benchmark's restarts come to: a table, ratios with their bars, and ceilings.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use crate::stats::Summary;

use super::plan::{CPUSET, DEDICATED, EEVDF, FIFO, NO_POLICY, POLICY, TRAFFIC};
use super::quick::CANDIDATES;
use super::record::{Measure, Record};

/// A number of each restart; less is better.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    measure: Measure,
    part: &'static str,
    of: Of,
}

#[derive(Clone, Copy)]
enum Of {
    Average,
    P99,
    /// The value of this name.
    Value(&'static str),
    /// One by the value of this name, of which more is better.
    Inverse(&'static str),
}

const fn figure(
    name: &'static str,
    unit: &'static str,
    measure: Measure,
    part: &'static str,
    of: Of,
) -> Figure {
    Figure { name, unit, measure, part, of }
}

const RTT: Figure = figure("RTT avg", "ms", Measure::Rtt, "", Of::Average);
const RTT_P99: Figure = figure("RTT p99", "ms", Measure::Rtt, "", Of::P99);
const PRIORITY: Figure =
    figure("priority wake-up avg", "ns", Measure::WakeUp, "priority", Of::Average);
const PRIORITY_P99: Figure =
    figure("priority wake-up p99", "ns", Measure::WakeUp, "priority", Of::P99);
const NORMAL: Figure = figure("normal wake-up avg", "ns", Measure::WakeUp, "normal", Of::Average);
const NORMAL_P99: Figure = figure("normal wake-up p99", "ns", Measure::WakeUp, "normal", Of::P99);
const BYTES: Figure = figure("time per Mbit", "s", Measure::Throughput, "", Of::Inverse("Mbit/s"));
const PIPE: Figure = figure("sched pipe", "s", Measure::Pipe, "", Of::Value("s"));
const HACKBENCH: Figure = figure("hackbench", "s", Measure::Hackbench, "", Of::Value("s"));
const FIGURES: [Figure; 9] =
    [RTT, RTT_P99, PRIORITY, PRIORITY_P99, NORMAL, NORMAL_P99, BYTES, PIPE, HACKBENCH];

/// What is to be at most `bar` times what another one is.
struct Bar {
    figure: Figure,
    of: &'static str,
    than: &'static str,
    bar: f64,
}

const fn bar(figure: Figure, of: &'static str, than: &'static str, bar: f64) -> Bar {
    Bar { figure, of, than, bar }
}

const BARS: [Bar; 17] = [
    bar(RTT, POLICY, FIFO, 1.0),
    bar(RTT_P99, POLICY, FIFO, 1.0),
    bar(RTT, TRAFFIC, POLICY, 1.05),
    bar(RTT_P99, TRAFFIC, POLICY, 1.05),
    bar(RTT, DEDICATED, CPUSET, 1.0),
    bar(RTT_P99, DEDICATED, CPUSET, 1.0),
    bar(PRIORITY, POLICY, FIFO, 1.2),
    bar(PRIORITY_P99, POLICY, FIFO, 1.2),
    bar(NORMAL, POLICY, EEVDF, 1.5),
    bar(NORMAL_P99, POLICY, EEVDF, 1.0),
    bar(NORMAL, NO_POLICY, EEVDF, 1.5),
    bar(NORMAL_P99, NO_POLICY, EEVDF, 1.0),
    bar(BYTES, POLICY, FIFO, 1.0),
    bar(PIPE, NO_POLICY, EEVDF, 1.05),
    bar(PIPE, POLICY, EEVDF, 1.05),
    bar(HACKBENCH, NO_POLICY, EEVDF, 0.97),
    bar(HACKBENCH, POLICY, EEVDF, 0.97),
];

impl Figure {
    fn of(&self, record: &Record) -> Option<f64> {
        let part = record.parts.iter().find(|part| part.part == self.part)?;
        match self.of {
            Of::Average => Some(Summary::of(&part.samples)?.avg),
            Of::P99 => Some(Summary::of(&part.samples)?.p99),
            Of::Value(name) => part.values.get(name).copied(),
            Of::Inverse(name) => part.values.get(name).map(|value| 1.0 / value),
        }
    }
}

/// One figure of one candidate over its restarts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    least: f64,
    mean: f64,
    worst: f64,
    restarts: usize,
}

impl Spread {
    /// `None` when a restart failed or there was none.
    fn of(records: &[Record], figure: Figure, candidate: &str) -> Option<Self> {
        let is = |record: &&Record| {
            record.key.measure == figure.measure && record.key.candidate == candidate
        };
        let values: Option<Vec<f64>> =
            records.iter().filter(is).map(|record| figure.of(record)).collect();
        let Summary { min, avg, max, .. } = Summary::of(values.as_ref()?)?;
        let restarts = values.map_or(0, |values| values.len());
        Some(Self { least: min, mean: avg, worst: max, restarts })
    }
}

/// A ratio of two candidates: of the means over their restarts, and of the worst ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    pub name: String,
    bar: f64,
    /// Mean and worst; `None` when something failed.
    measured: Option<(f64, f64)>,
}

/// Every ratio that a bar is about.
pub fn ratios(records: &[Record]) -> Vec<Ratio> {
    let ratio = |Bar { figure, of, than, bar }: &Bar| {
        let spread = |candidate| Spread::of(records, *figure, candidate);
        let both = spread(of).zip(spread(than));
        Ratio {
            name: format!("{}: {of} / {than}", figure.name),
            bar: *bar,
            measured: both.map(|(of, than)| (of.mean / than.mean, of.worst / than.worst)),
        }
    };
    BARS.iter().map(ratio).collect()
}

/// What was measured of everyone, and the ratios.
pub fn table(records: &[Record]) -> String {
    let mut table = String::from("| mean (least to worst) |");
    for candidate in CANDIDATES {
        let _ = write!(table, " {candidate} |");
    }
    let _ = writeln!(table, "\n|---|{}", "---:|".repeat(CANDIDATES.len()));
    for figure in FIGURES {
        let _ = write!(table, "| {}, {} |", figure.name, figure.unit);
        for candidate in CANDIDATES {
            let _ = match Spread::of(records, figure, candidate) {
                Some(spread) => write!(table, " {} |", range(spread)),
                None => write!(table, " |"),
            };
        }
        table.push('\n');
    }
    table.push_str("\n| ratio | mean | worst | bar | |\n|---|---:|---:|---:|---|\n");
    for Ratio { name, bar, measured } in ratios(records) {
        let _ = match measured {
            Some((mean, worst)) => {
                let verdict = if mean <= bar && worst <= bar { "met" } else { "**missed**" };
                writeln!(table, "| {name} | {mean:.3} | {worst:.3} | {bar} | {verdict} |")
            }
            None => writeln!(table, "| {name} | | | {bar} | not measured |"),
        };
    }
    table
}

fn range(Spread { least, mean, worst, restarts }: Spread) -> String {
    let digits = if mean < 1.0 { 4 } else { 0 };
    format!("{mean:.digits$} ({least:.digits$} to {worst:.digits$}; {restarts})")
}

/// What each ratio of the means may be at most, by its name.
pub type Ceilings = BTreeMap<String, f64>;

/// The ratios that exceed their ceiling or were not measured, in words.
pub fn exceeded(ratios: &[Ratio], ceilings: &Ceilings) -> Result<Vec<String>> {
    let mut exceeded = Vec::new();
    for (name, ceiling) in ceilings {
        let ratio = ratios.iter().find(|ratio| ratio.name == *name);
        let ratio = ratio.with_context(|| format!("there is no ratio {name:?}"))?;
        ensure!(ceiling.is_finite(), "{name}: {ceiling} is no ceiling");
        match ratio.measured {
            Some((mean, _)) if mean <= *ceiling => {}
            Some((mean, _)) => exceeded.push(format!("{name}: {mean:.3} exceeds {ceiling}")),
            None => exceeded.push(format!("{name}: not measured")),
        }
    }
    Ok(exceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::{Key, Part};

    fn record(candidate: &str, turn: usize, samples: &[f64]) -> Record {
        let key = Key {
            measure: Measure::Rtt,
            setting: "2x".into(),
            candidate: candidate.into(),
            round: 1,
            turn,
        };
        let part = Part { samples: samples.into(), ..Part::default() };
        Record { key, parts: vec![part], error: None, waited_percent: None }
    }

    #[test]
    fn means_of_restarts_and_the_worst_ones() {
        let records = [
            record(POLICY, 1, &[2.0, 4.0]),
            record(POLICY, 2, &[6.0, 6.0]),
            record(FIFO, 1, &[2.0]),
            record(FIFO, 2, &[4.0]),
        ];
        let ratios = ratios(&records);
        assert_eq!(ratios[0].name, "RTT avg: gthctl, policy / EEVDF, SCHED_FIFO");
        assert_eq!(ratios[0].measured, Some((1.5, 1.5)));
        assert_eq!(ratios[2].measured, None);
        let ceilings = |name: &str, ceiling| Ceilings::from([(name.to_owned(), ceiling)]);
        let check = |ceilings| exceeded(&ratios, &ceilings);
        assert!(check(ceilings(&ratios[0].name, 1.5)).unwrap().is_empty());
        assert_eq!(
            check(ceilings(&ratios[0].name, 1.4)).unwrap(),
            ["RTT avg: gthctl, policy / EEVDF, SCHED_FIFO: 1.500 exceeds 1.4"]
        );
        assert_eq!(check(ceilings(&ratios[2].name, 1.4)).unwrap().len(), 1);
        assert!(check(ceilings("RTT avg: nobody / nobody", 1.4)).is_err());
    }

    #[test]
    fn a_failed_restart_is_no_figure() {
        let mut records = vec![record(POLICY, 1, &[2.0]), record(FIFO, 1, &[2.0])];
        assert!(
            table(&records).contains(
                "| RTT avg: gthctl, policy / EEVDF, SCHED_FIFO | 1.000 | 1.000 | 1 | met |"
            )
        );
        records[0].parts.clear();
        assert_eq!(Spread::of(&records, RTT, POLICY), None);
    }
}
