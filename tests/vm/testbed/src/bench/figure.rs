//! The numbers that the bars compare, one for each restart.

use serde::Serialize;

use crate::stats::Summary;

use super::plan::{IDLE, LOAD};
use super::record::{Measure, Record};

/// A number of each restart; less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    name: &'static str,
    pub unit: &'static str,
    pub measure: Measure,
    pub setting: &'static str,
    part: &'static str,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Average,
    P99,
    /// The value of this name.
    Value(&'static str),
    /// The inverse of the value of this name, of which more is better.
    Inverse(&'static str),
}

const fn samples(
    name: &'static str,
    unit: &'static str,
    measure: Measure,
    part: &'static str,
    of: Of,
) -> Figure {
    Figure { name, unit, measure, setting: LOAD, part, of }
}

const fn value(name: &'static str, unit: &'static str, measure: Measure, of: Of) -> Figure {
    Figure { name, unit, measure, setting: IDLE, part: "", of }
}

pub const RTT: Figure = samples("RTT avg", "ms", Measure::Rtt, "", Of::Average);
/// What [`Measure::Rtt`] calls the times of the first probes after the start of ping, which are not
/// among its samples.
pub const APART: [&str; 2] = ["first probe, ms", "second probe, ms"];
pub const RTT_FIRST: Figure =
    value("RTT of the first probe", "ms", Measure::Rtt, Of::Value(APART[0])).beside(LOAD);
pub const RTT_SECOND: Figure =
    value("RTT of the second probe", "ms", Measure::Rtt, Of::Value(APART[1])).beside(LOAD);
pub const RTT_P99: Figure = samples("RTT p99", "ms", Measure::Rtt, "", Of::P99);
pub const PRIORITY: Figure =
    samples("priority wake-up avg", "ns", Measure::WakeUp, "priority", Of::Average);
pub const PRIORITY_P99: Figure =
    samples("priority wake-up p99", "ns", Measure::WakeUp, "priority", Of::P99);
pub const NORMAL: Figure =
    samples("normal wake-up avg", "ns", Measure::WakeUp, "normal", Of::Average);
pub const NORMAL_P99: Figure =
    samples("normal wake-up p99", "ns", Measure::WakeUp, "normal", Of::P99);
/// Measured in several settings.
pub const CROWD: Figure = samples("wake-up avg in a crowd", "ns", Measure::Crowd, "", Of::Average);
pub const MANY: Figure = samples("wake-up avg of many", "ns", Measure::Many, "", Of::Average);
pub const BYTES: Figure =
    value("time per Mbit", "s", Measure::Throughput, Of::Inverse("Mbit/s")).beside(LOAD);
pub const WORK: Figure =
    value("load's time per bogo op", "s", Measure::Work, Of::Inverse("bogo ops/s")).beside(LOAD);
pub const LOADING: Figure = Figure {
    part: "process",
    ..value("loading", "ms", Measure::WakeUp, Of::Value("loading ms")).beside(LOAD)
};
pub const PIPE: Figure = value("sched pipe", "s", Measure::Pipe, Of::Value("s"));
pub const HACKBENCH: Figure = value("hackbench", "s", Measure::Hackbench, Of::Value("s"));
pub const BUILD: Figure = value("build", "s", Measure::Build, Of::Value("s"));
/// The figure of a case of [`path`]. Its setting is the number of CPUs.
pub const fn path(case: &'static str) -> Figure {
    Figure { part: case, ..value(case, "ns", Measure::Path, Of::Value("ns")) }
}
pub const SHARE: Figure = value(
    "time per share of normal tasks",
    "1/%",
    Measure::Usable,
    Of::Inverse("share of normal tasks, %"),
);

impl Figure {
    /// The same figure in another setting.
    pub const fn beside(self, setting: &'static str) -> Self {
        Self { setting, ..self }
    }

    /// The name, without the setting that the figure usually has.
    pub fn name(&self) -> String {
        self.name_in(self.setting)
    }

    pub fn name_in(&self, setting: &str) -> String {
        match setting {
            LOAD => self.name.into(),
            IDLE if self.setting == IDLE => self.name.into(),
            setting => format!("{}, {setting}", self.name),
        }
    }

    pub fn is_in(&self, record: &Record) -> bool {
        record.key.measure == self.measure && record.key.setting == self.setting
    }

    fn of(&self, record: &Record) -> Option<f64> {
        let part = record.parts.iter().find(|part| part.part == self.part)?;
        match self.of {
            Of::Average => Some(Summary::of(&part.samples)?.avg),
            Of::P99 => Some(Summary::of(&part.samples)?.p99),
            Of::Value(name) => part.values.get(name).copied(),
            Of::Inverse(name) => part.values.get(name).map(|value| 1.0 / value),
        }
    }

    /// `None` when a restart failed or there was none.
    pub fn spread(&self, records: &[Record], candidate: &str) -> Option<Spread> {
        self.spread_in(records, self.setting, candidate)
    }

    pub fn spread_in(&self, records: &[Record], setting: &str, candidate: &str) -> Option<Spread> {
        let is = |Record { key, .. }: &&Record| {
            key.measure == self.measure && key.setting == setting && key.candidate == candidate
        };
        let values: Option<Vec<f64>> =
            records.iter().filter(is).map(|record| self.of(record)).collect();
        Spread::of(&values?)
    }
}

/// A number over several restarts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub least: f64,
    pub mean: f64,
    pub worst: f64,
    pub restarts: usize,
}

impl Spread {
    pub fn of(values: &[f64]) -> Option<Self> {
        let Summary { min, avg, max, .. } = Summary::of(values)?;
        Some(Self { least: min, mean: avg, worst: max, restarts: values.len() })
    }
}
