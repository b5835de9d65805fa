//! What the records of all rounds come to.

use serde::Serialize;

use crate::stats::{Summary, median, percentile};

use super::plan::{CROWDS, DEDICATED, EEVDF, FIFO, IDLE, LOAD, LOADS, NO_POLICY, POLICY};
use super::record::{Key, Measure, Part, Record};

/// One cell of the tables.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub measure: Measure,
    pub setting: String,
    pub candidate: String,
    pub part: String,
    /// Why it failed, where it did in every round.
    pub error: Option<String>,
    /// How often it failed, and why the first time, where it did not always.
    pub failures: Option<(usize, String)>,
    /// The median of the rounds, by name.
    pub values: std::collections::BTreeMap<String, f64>,
    /// How many samples there are of all rounds together, and what they come to.
    pub samples: usize,
    pub summary: Option<Summary>,
    /// Every 0.5 % of the samples, sorted.
    pub quantiles: Vec<f64>,
    /// Of probes, percent.
    pub loss: Option<f64>,
    /// How much of its time the VM waited for the host's CPUs, percent.
    pub waited: Option<f64>,
}

/// All rounds of everything, in the order of the first round.
pub fn cells(records: &[Record]) -> Vec<Cell> {
    let mut keys: Vec<&Key> = Vec::new();
    for Record { key, .. } in records {
        if !keys.iter().any(|other| other.is_round_of(key)) {
            keys.push(key);
        }
    }
    let of_key = |key: &Key| -> Vec<Cell> {
        let all: Vec<&Record> =
            records.iter().filter(|record| record.key.is_round_of(key)).collect();
        let parts = all.iter().flat_map(|record| &record.parts);
        let mut names = distinct(parts.map(|part| &part.part));
        // One that failed has no part, unless it did not in another round.
        let none = String::new();
        if names.is_empty() {
            names.push(&none);
        }
        names.into_iter().map(|name| Cell::of(&all, key, name)).collect()
    };
    keys.into_iter().flat_map(of_key).collect()
}

/// Each once, in the order of their first.
pub fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

impl Cell {
    fn of(all: &[&Record], key: &Key, part: &str) -> Self {
        let parts: Vec<&Part> = all
            .iter()
            .flat_map(|record| record.parts.iter().filter(|other| other.part == part))
            .collect();
        let error = all.iter().find_map(|record| record.error.clone());
        let failed = all.iter().filter(|record| record.error.is_some()).count();
        let names = parts.iter().flat_map(|part| part.values.keys());
        let median_of = |name: &String| {
            let values: Vec<f64> =
                parts.iter().filter_map(|part| part.values.get(name).copied()).collect();
            Some((name.clone(), median(&values)?))
        };
        let mut sorted: Vec<f64> = parts.iter().flat_map(|part| part.samples.clone()).collect();
        sorted.sort_by(f64::total_cmp);
        let quantiles = (0..=200).filter_map(|step| percentile(&sorted, 5 * step));
        let sent: f64 = parts.iter().filter_map(|part| part.values.get("sent")).sum();
        let waited: Vec<f64> = all.iter().filter_map(|record| record.waited_percent).collect();
        Self {
            measure: key.measure,
            setting: key.setting.clone(),
            candidate: key.candidate.clone(),
            part: part.into(),
            error: error.clone().filter(|_| parts.is_empty()),
            failures: error.filter(|_| !parts.is_empty()).map(|error| (failed, error)),
            values: names.filter_map(median_of).collect(),
            samples: sorted.len(),
            summary: Summary::of(&sorted),
            quantiles: quantiles.collect(),
            loss: (sent > 0.0).then(|| (sent - sorted.len() as f64) * 100.0 / sent),
            waited: median(&waited),
        }
    }

    pub fn is(&self, measure: Measure, setting: &str, candidate: &str) -> bool {
        self.measure == measure && self.setting == setting && self.candidate == candidate
    }
}

/// A ratio, and what it must not exceed or fall below.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub what: String,
    /// `None` when something that it takes failed.
    pub ratio: Option<f64>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
}

impl Bar {
    pub fn is_met(&self) -> bool {
        self.ratio.is_some_and(|ratio| {
            self.at_most.is_none_or(|most| ratio <= most)
                && self.at_least.is_none_or(|least| ratio >= least)
        })
    }
}

/// The median of one thing's ratios to another, each to what was measured of that in the same
/// turn, or else in the same round: the host's speed, which changes within minutes, is in both.
///
/// Things are a setting and a candidate; `None` where nothing was measured of both.
fn beside(
    records: &[Record],
    measure: Measure,
    of: (&str, &str),
    than: (&str, &str),
    value: &dyn Fn(&Record) -> Option<f64>,
) -> Option<f64> {
    let all = |(setting, candidate): (&str, &str)| -> Vec<(&Key, f64)> {
        let is = |key: &Key| {
            key.measure == measure && key.setting == setting && key.candidate == candidate
        };
        let records = records.iter().filter(|record| is(&record.key));
        records.filter_map(|record| Some((&record.key, value(record)?))).collect()
    };
    let others = all(than);
    let ratio = |(key, value): (&Key, f64)| {
        let mut of_round = others.iter().filter(|(other, _)| other.round == key.round);
        let of_turn = of_round.clone().find(|(other, _)| other.turn == key.turn);
        Some(value / of_turn.or_else(|| of_round.next())?.1)
    };
    median(&all(of).into_iter().filter_map(ratio).collect::<Vec<f64>>())
}

fn part<'a>(record: &'a Record, name: &str) -> Option<&'a Part> {
    record.parts.iter().find(|part| part.part == name)
}

/// What the samples of a measurement without parts come to.
fn summary(record: &Record) -> Option<Summary> {
    Summary::of(&part(record, "")?.samples)
}

/// What gthctl is to be like, in ratios of one run. The cells are those of the records.
pub fn bars(records: &[Record], cells: &[Cell]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut at_most = |what: String, ratio: Option<f64>, most: f64| {
        bars.push(Bar { what, ratio, at_most: Some(most), at_least: None });
    };
    let average: fn(Summary) -> f64 = |summary| summary.avg;
    for load in LOADS {
        for (kind, of) in [("average", average), ("p99", |summary| summary.p99)] {
            let rtt = |candidate, than| {
                let of = |record: &Record| summary(record).map(of);
                beside(records, Measure::Rtt, (load, candidate), than, &of)
            };
            let what = |of: &str, than: &str| format!("RTT, {load}, {kind}: {of} / {than}");
            at_most(what("policy", "SCHED_FIFO"), rtt(POLICY, (load, FIFO)), 1.1);
            at_most(what("dedicated CPU", "SCHED_FIFO"), rtt(DEDICATED, (load, FIFO)), 1.0);
            at_most(what("dedicated CPU", "idle"), rtt(DEDICATED, (IDLE, EEVDF)), 1.2);
            at_most(what("policy", "idle"), rtt(POLICY, (IDLE, EEVDF)), 1.2);
            let others = cells.iter().filter(|cell| {
                cell.measure == Measure::Rtt
                    && cell.setting == load
                    && (cell.candidate == EEVDF || cell.candidate.starts_with("scx_"))
            });
            let best = others.filter_map(|other| rtt(POLICY, (load, &other.candidate)));
            at_most(
                what("policy", "the best of EEVDF and the scx schedulers"),
                best.max_by(f64::total_cmp),
                1.0,
            );
        }
        let of_policy = cells.iter().find(|cell| cell.is(Measure::Rtt, load, POLICY));
        let loss = of_policy.and_then(|cell| cell.loss);
        at_most(format!("RTT, {load}: loss with the policy, percent"), loss, 0.0);
    }
    for tasks in &CROWDS[1..] {
        let [many, few] = [*tasks, CROWDS[0]].map(|tasks| format!("{tasks} tasks"));
        let p99 = |record: &Record| Some(summary(record)?.p99);
        let ratio = beside(records, Measure::Crowd, (&many, POLICY), (&few, POLICY), &p99);
        let what = format!("wake-up p99 with the policy: {tasks} runnable tasks / {}", CROWDS[0]);
        at_most(what, ratio, 1.2);
    }
    let value = |of: &'static str, name: &'static str| {
        move |record: &Record| part(record, of)?.values.get(name).copied()
    };
    for (measure, name) in [(Measure::Pipe, "sched pipe"), (Measure::Hackbench, "hackbench")] {
        let seconds = value("", "s");
        let ratio = beside(records, measure, (IDLE, NO_POLICY), (IDLE, EEVDF), &seconds);
        at_most(format!("{name} without a policy: gthctl / EEVDF, time"), ratio, 1.05);
    }
    let mut at_least = |what: String, ratio: Option<f64>, least: f64| {
        bars.push(Bar { what, ratio, at_most: None, at_least: Some(least) });
    };
    for candidate in [NO_POLICY, POLICY] {
        let bogo = value("priority", "cpu bogo/s");
        let ratio = beside(records, Measure::WakeUp, (LOAD, candidate), (LOAD, EEVDF), &bogo);
        at_least(format!("work that the load gets done: {candidate} / EEVDF"), ratio, 0.95);
    }
    let share = value("", "share of normal tasks, %");
    at_least(
        "share of normal tasks while as many priority tasks spin: policy / EEVDF".into(),
        beside(records, Measure::Usable, (IDLE, POLICY), (IDLE, EEVDF), &share),
        0.9,
    );
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(candidate: &str, round: usize, samples: &[f64]) -> Record {
        let key = Key {
            measure: Measure::Rtt,
            setting: "1x".into(),
            candidate: candidate.into(),
            round,
            turn: 1,
        };
        let part = Part { samples: samples.into(), ..Part::of([("sent", 2.0)]) };
        Record { key, parts: vec![part], error: None, waited_percent: Some(10.0) }
    }

    #[test]
    fn rounds_are_pooled() {
        let records =
            [record("a", 1, &[1.0, 2.0]), record("b", 1, &[5.0, 5.0]), record("a", 2, &[3.0])];
        let cells = cells(&records);
        assert_eq!(cells.len(), 2);
        assert_eq!(cells[0].samples, 3);
        assert_eq!(cells[0].summary.unwrap().avg, 2.0);
        assert_eq!((cells[0].loss, cells[0].waited), (Some(25.0), Some(10.0)));
        assert_eq!(cells[0].quantiles.len(), 201);
    }

    #[test]
    fn a_bar_is_met_or_not() {
        let of = |ratio| {
            let records = [record(FIFO, 1, &[2.0, 2.0]), record(POLICY, 1, &[ratio, ratio])];
            bars(&records, &cells(&records)).remove(0)
        };
        assert!(of(2.2).is_met());
        assert!(!of(2.3).is_met());
        let nothing = bars(&[], &[]);
        assert!(!nothing.is_empty() && nothing.iter().all(|bar| !bar.is_met()));
    }

    #[test]
    fn a_ratio_is_to_what_was_measured_beside_it() {
        let turn = |candidate, round, turn, value| {
            let mut record = record(candidate, round, &[value]);
            record.key.turn = turn;
            record
        };
        // The host is slower by ten in the second turn, and by two in round 2.
        let records = [
            turn("a", 1, 1, 1.0),
            turn("b", 1, 1, 1.0),
            turn("a", 1, 2, 12.0),
            turn("b", 1, 2, 10.0),
            turn("a", 2, 1, 3.5),
            turn("b", 2, 1, 2.0),
            turn("once a round", 2, 1, 7.0),
        ];
        let average = |record: &Record| Some(summary(record)?.avg);
        let beside = |of, than| beside(&records, Measure::Rtt, ("1x", of), ("1x", than), &average);
        assert_eq!(beside("a", "b"), Some(1.2));
        assert_eq!(beside("a", "once a round"), Some(0.5));
        assert_eq!(beside("a", "nobody"), None);
    }
}
