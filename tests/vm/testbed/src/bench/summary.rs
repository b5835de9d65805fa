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

/// What gthctl is to be like, in ratios of one run.
pub fn bars(cells: &[Cell]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let find = |measure, setting: &str, candidate: &str, part: &str| {
        cells
            .iter()
            .find(|cell| cell.is(measure, setting, candidate) && cell.part == part)
            .filter(|cell| cell.error.is_none())
    };
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let mut at_most = |what: String, ratio: Option<f64>, most: f64| {
        bars.push(Bar { what, ratio, at_most: Some(most), at_least: None });
    };
    let rtt = |setting: &str, candidate: &str, of: fn(&Summary) -> f64| {
        find(Measure::Rtt, setting, candidate, "")?.summary.as_ref().map(of)
    };
    let average: fn(&Summary) -> f64 = |summary| summary.avg;
    for load in LOADS {
        for (kind, of) in [("average", average), ("p99", |summary| summary.p99)] {
            let of_policy = rtt(load, POLICY, of);
            let what = |than: &str| format!("RTT, {load}, {kind}: policy / {than}");
            let (fifo, idle) = (rtt(load, FIFO, of), rtt(IDLE, EEVDF, of));
            at_most(what("SCHED_FIFO"), ratio(of_policy, fifo), 1.1);
            let of_dedicated = rtt(load, DEDICATED, of);
            let what_of = |than: &str| format!("RTT, {load}, {kind}: dedicated CPU / {than}");
            at_most(what_of("SCHED_FIFO"), ratio(of_dedicated, fifo), 1.0);
            at_most(what_of("idle"), ratio(of_dedicated, idle), 1.2);
            at_most(what("idle"), ratio(of_policy, idle), 1.2);
            let others = cells.iter().filter(|cell| {
                cell.measure == Measure::Rtt
                    && cell.setting == load
                    && cell.error.is_none()
                    && (cell.candidate == EEVDF || cell.candidate.starts_with("scx_"))
            });
            let best =
                others.filter_map(|cell| cell.summary.as_ref().map(of)).min_by(f64::total_cmp);
            at_most(what("the best of EEVDF and the scx schedulers"), ratio(of_policy, best), 1.0);
        }
        let loss = find(Measure::Rtt, load, POLICY, "").and_then(|cell| cell.loss);
        at_most(format!("RTT, {load}: loss with the policy, percent"), loss, 0.0);
    }
    for tasks in &CROWDS[1..] {
        let p99 = |tasks: usize| {
            let cell = find(Measure::Crowd, &format!("{tasks} tasks"), POLICY, "")?;
            Some(cell.summary?.p99)
        };
        let what = format!("wake-up p99 with the policy: {tasks} runnable tasks / {}", CROWDS[0]);
        at_most(what, ratio(p99(*tasks), p99(CROWDS[0])), 1.2);
    }
    for (measure, name) in [(Measure::Pipe, "sched pipe"), (Measure::Hackbench, "hackbench")] {
        let seconds = |candidate| find(measure, IDLE, candidate, "")?.values.get("s").copied();
        let what = format!("{name} without a policy: gthctl / EEVDF, time");
        at_most(what, ratio(seconds(NO_POLICY), seconds(EEVDF)), 1.05);
    }
    let mut at_least = |what: String, ratio: Option<f64>, least: f64| {
        bars.push(Bar { what, ratio, at_most: None, at_least: Some(least) });
    };
    for candidate in [NO_POLICY, POLICY] {
        let bogo = |candidate| {
            let cell = find(Measure::WakeUp, LOAD, candidate, "priority")?;
            cell.values.get("cpu bogo/s").copied()
        };
        let what = format!("work that the load gets done: {candidate} / EEVDF");
        at_least(what, ratio(bogo(candidate), bogo(EEVDF)), 0.95);
    }
    let share = |candidate| {
        let cell = find(Measure::Usable, IDLE, candidate, "")?;
        cell.values.get("share of normal tasks, %").copied()
    };
    at_least(
        "share of normal tasks while as many priority tasks spin: policy / EEVDF".into(),
        ratio(share(POLICY), share(EEVDF)),
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
            bars(&cells(&records)).remove(0)
        };
        assert!(of(2.2).is_met());
        assert!(!of(2.3).is_met());
        let nothing = bars(&[]);
        assert!(!nothing.is_empty() && nothing.iter().all(|bar| !bar.is_met()));
    }
}
