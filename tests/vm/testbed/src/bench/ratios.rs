//! The ratios that gthctl must keep to, and ceilings for them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::figure::{
    BUILD, BYTES, CROWD, Figure, HACKBENCH, LOADING, MANY, NORMAL, NORMAL_P99, PIPE, PRIORITY,
    PRIORITY_P99, RTT, RTT_P99, SHARE, Spread, WORK,
};
use super::plan::{
    BPFLAND, CPUSET, DEDICATED, EEVDF, FIFO, LOADS, NO_POLICY, PINNED, POLICY, TRAFFIC, is_gthctl,
    is_named, is_peer,
};
use super::record::{Key, Measure, Record};
use super::{figure, path};

/// Instead of a candidate: the other sched_ext scheduler with the lowest mean.
const BEST_PEER: &str = "the best other sched_ext scheduler";

/// A figure that may be at most `most` times another.
struct Bar {
    of: (Figure, &'static str),
    than: (Figure, &'static str),
    most: f64,
}

const fn bar(figure: Figure, of: &'static str, than: &'static str, most: f64) -> Bar {
    Bar { of: (figure, of), than: (figure, than), most }
}

fn bars() -> Vec<Bar> {
    [round_trips(), more_cpus(), wake_ups(), data_plane_and_load(), overhead(), paths()]
        .into_iter()
        .flatten()
        .collect()
}

fn round_trips() -> Vec<Bar> {
    let of_load = |load| {
        [RTT.beside(load), RTT_P99.beside(load)].into_iter().flat_map(|rtt| {
            [
                bar(rtt, POLICY, FIFO, 1.0),
                bar(rtt, POLICY, BEST_PEER, 0.95),
                bar(rtt, TRAFFIC, POLICY, 1.05),
                bar(rtt, DEDICATED, CPUSET, 1.0),
                bar(rtt, DEDICATED, PINNED, 1.0),
            ]
        })
    };
    LOADS.into_iter().flat_map(of_load).collect()
}

fn more_cpus() -> Vec<Bar> {
    let mut bars = Vec::new();
    for rtt in [RTT.beside("4 CPUs"), RTT_P99.beside("4 CPUs")] {
        bars.push(bar(rtt, POLICY, FIFO, 1.0));
        bars.push(bar(rtt, DEDICATED, CPUSET, 1.0));
        bars.push(bar(rtt, DEDICATED, PINNED, 1.0));
    }
    for rtt in [RTT.beside("8 CPUs"), RTT_P99.beside("8 CPUs")] {
        bars.push(bar(rtt, POLICY, FIFO, 1.0));
    }
    bars
}

fn wake_ups() -> Vec<Bar> {
    let among = |figure: Figure, many, few| Bar {
        of: (figure.beside(many), POLICY),
        than: (figure.beside(few), POLICY),
        most: 1.1,
    };
    vec![
        bar(PRIORITY, POLICY, FIFO, 1.2),
        bar(PRIORITY_P99, POLICY, FIFO, 1.2),
        among(CROWD, "100 tasks", "10 tasks"),
        among(CROWD, "1000 tasks", "10 tasks"),
        among(CROWD, "10000 tasks", "10 tasks"),
        among(MANY, "10 tasks", "1 task"),
        among(MANY, "100 tasks", "1 task"),
        bar(NORMAL, POLICY, EEVDF, 1.5),
        bar(NORMAL_P99, POLICY, EEVDF, 1.0),
        bar(NORMAL, NO_POLICY, EEVDF, 1.5),
        bar(NORMAL_P99, NO_POLICY, EEVDF, 1.0),
    ]
}

fn data_plane_and_load() -> Vec<Bar> {
    vec![
        bar(BYTES, POLICY, FIFO, 1.0),
        bar(WORK, NO_POLICY, EEVDF, 1.0 / 0.97),
        bar(WORK, POLICY, EEVDF, 1.0 / 0.97),
        bar(SHARE, POLICY, EEVDF, 1.0 / 0.9),
    ]
}

fn overhead() -> Vec<Bar> {
    vec![
        bar(PIPE, NO_POLICY, EEVDF, 1.05),
        bar(PIPE, POLICY, EEVDF, 1.05),
        bar(HACKBENCH, NO_POLICY, EEVDF, 0.97),
        bar(HACKBENCH, POLICY, EEVDF, 0.97),
        bar(BUILD, NO_POLICY, EEVDF, 1.0),
        bar(BUILD, POLICY, EEVDF, 1.0),
        bar(LOADING, NO_POLICY, BPFLAND, 1.0),
    ]
}

/// Bars for the choice of a CPU, by the number of CPUs.
fn paths() -> Vec<Bar> {
    let bar = |case| Bar {
        of: (figure::path(case).beside("1024 CPUs"), NO_POLICY),
        than: (figure::path(case).beside("64 CPUs"), NO_POLICY),
        most: 1.5,
    };
    path::cases().map(bar).collect()
}

impl Bar {
    /// Names both figures, if they differ.
    fn name(&self) -> String {
        let ((figure, of), (other, than)) = (self.of, self.than);
        if figure == other {
            format!("{}: {of} / {than}", figure.name())
        } else {
            format!("{}: {of} / {}", figure.name(), other.setting)
        }
    }

    fn ratio(&self, records: &[Record]) -> Ratio {
        let ((figure, of), (other, than)) = (self.of, self.than);
        let of = side(records, figure, of);
        let than = side(records, other, than);
        let measured = of.best.zip(than.best).map(|((of, _), (than, _))| Measured {
            mean: of.mean / than.mean,
            worst: of.worst / than.worst,
        });
        let best = than.best.map(|(_, name)| name.to_owned());
        Ratio {
            name: self.name(),
            best: best.filter(|_| self.than.1 == BEST_PEER),
            most: self.most,
            is_planned: of.is_planned && than.is_planned,
            measured,
        }
    }
}

/// The results of the candidates that a bar names.
struct Side<'a> {
    is_planned: bool,
    /// The candidate among them with the lowest mean.
    best: Option<(Spread, &'a str)>,
}

fn side<'a>(records: &'a [Record], figure: Figure, name: &str) -> Side<'a> {
    let is_meant = |candidate: &str| match name {
        BEST_PEER => is_peer(candidate),
        _ => is_named(candidate, name),
    };
    let mut candidates: Vec<&str> = Vec::new();
    for record in records.iter().filter(|record| figure.is_in(record)) {
        let candidate = record.key.candidate.as_str();
        if is_meant(candidate) && !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    let spreads = candidates.iter().filter_map(|&name| Some((figure.spread(records, name)?, name)));
    Side {
        is_planned: !candidates.is_empty(),
        best: spreads.min_by(|(one, _), (other, _)| one.mean.total_cmp(&other.mean)),
    }
}

/// A ratio of two candidates, or of two settings of one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub name: String,
    /// Which candidate the other one is, if the bar allows several.
    pub best: Option<String>,
    /// The bar.
    pub most: f64,
    /// Whether both have a result or an error.
    #[serde(skip)]
    pub is_planned: bool,
    /// `None` if something failed.
    pub measured: Option<Measured>,
}

/// A ratio of the means over all restarts, and one of the worst restarts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub mean: f64,
    pub worst: f64,
}

impl Ratio {
    pub fn is_met(&self) -> bool {
        self.measured
            .is_some_and(|Measured { mean, worst }| mean <= self.most && worst <= self.most)
    }
}

/// Every ratio with a bar.
pub fn ratios(records: &[Record]) -> Vec<Ratio> {
    bars().iter().map(|bar| bar.ratio(records)).collect()
}

/// The ceiling of each ratio of the means, by its name.
pub type Ceilings = BTreeMap<String, f64>;

/// Describes the ratios that exceed their ceiling or were not measured, and the records in which
/// gthctl lost probes, which no mean shows.
pub fn exceeded(records: &[Record], ceilings: &Ceilings) -> Result<Vec<String>> {
    let ratios = ratios(records);
    let mut exceeded: Vec<String> = records.iter().filter_map(lost).collect();
    for (name, ceiling) in ceilings {
        let ratio = ratios.iter().find(|ratio| ratio.name == *name);
        let ratio = ratio.with_context(|| format!("there is no ratio {name:?}"))?;
        ensure!(ceiling.is_finite(), "{name}: {ceiling} is no ceiling");
        match ratio.measured {
            Some(Measured { mean, .. }) if mean <= *ceiling => {}
            Some(Measured { mean, .. }) => {
                exceeded.push(format!("{name}: {mean:.3} exceeds {ceiling}"));
            }
            None => exceeded.push(format!("{name}: not measured")),
        }
    }
    Ok(exceeded)
}

/// Says how many of gthctl's probes came back, if any did not.
fn lost(record: &Record) -> Option<String> {
    let Key { measure, setting, candidate, boot, restart } = &record.key;
    if *measure != Measure::Rtt || !is_gthctl(candidate) {
        return None;
    }
    let part = record.parts.first()?;
    let (sent, back) = (*part.values.get("sent")?, part.samples.len());
    let told = || {
        let place = format!("RTT, {setting}, boot {boot}, restart {restart}");
        format!("{place}: {candidate}: {back} of {sent} probes came back")
    };
    ((back as f64) < sent).then(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{PEERS, Plan};

    fn record(setting: &str, candidate: &str, restart: usize, samples: &[f64]) -> Record {
        Record::of_round_trips(setting, candidate, restart, samples)
    }

    fn find(ratios: &[Ratio], name: &str) -> Ratio {
        ratios.iter().find(|ratio| ratio.name == name).expect(name).clone()
    }

    const QUICK: &str = "RTT avg: gthctl, policy / EEVDF, SCHED_FIFO";

    #[test]
    fn means_of_restarts_and_the_worst_ones() {
        let records = [
            record("2x", POLICY, 1, &[2.0, 4.0]),
            record("2x", POLICY, 2, &[6.0, 6.0]),
            record("2x", FIFO, 1, &[2.0]),
            record("2x", FIFO, 2, &[4.0]),
            record("4x", POLICY, 1, &[9.0]),
        ];
        let ratios = ratios(&records);
        assert_eq!(find(&ratios, QUICK).measured, Some(Measured { mean: 1.5, worst: 1.5 }));
        let unmeasured = find(&ratios, "RTT avg, 4x: gthctl, policy / EEVDF, SCHED_FIFO");
        assert_eq!((unmeasured.measured, unmeasured.is_planned), (None, false));
        let check =
            |name: &str, ceiling| exceeded(&records, &Ceilings::from([(name.into(), ceiling)]));
        assert!(check(QUICK, 1.5).unwrap().is_empty());
        assert_eq!(check(QUICK, 1.4).unwrap(), [format!("{QUICK}: 1.500 exceeds 1.4")]);
        let not_measured = format!("{}: not measured", unmeasured.name);
        assert_eq!(check(&unmeasured.name, 1.4).unwrap(), [not_measured]);
        assert!(check("RTT avg: nobody / nobody", 1.4).is_err());
    }

    #[test]
    fn a_lost_probe_of_gthctls_is_told() {
        let of = |candidate: &str, ms: &[f64]| {
            let mut record = record("2x", candidate, 1, ms);
            record.parts[0].values.insert("sent".into(), 2.0);
            record
        };
        let told = |records: &[Record]| {
            exceeded(records, &Ceilings::from([(QUICK.to_owned(), 1.0)])).unwrap()
        };
        let both = [2.0, 2.0];
        assert_eq!(told(&[of(POLICY, &both), of(FIFO, &both)]), [""; 0]);
        // Another's loss makes gthctl look no better than it is.
        assert_eq!(told(&[of(POLICY, &both), of(FIFO, &[2.0])]), [""; 0]);
        let lost = "RTT, 2x, boot 1, restart 1: gthctl, policy: 1 of 2 probes came back";
        assert_eq!(told(&[of(POLICY, &[2.0]), of(FIFO, &both)]), [lost]);
    }

    #[test]
    fn a_failed_restart_is_no_figure() {
        let mut records = vec![record("2x", POLICY, 1, &[2.0]), record("2x", FIFO, 1, &[2.0])];
        assert!(find(&ratios(&records), QUICK).is_met());
        records[0].parts.clear();
        let failed = find(&ratios(&records), QUICK);
        assert_eq!((failed.measured, failed.is_planned), (None, true));
        let ceilings = Ceilings::from([(QUICK.to_owned(), 9.0)]);
        assert_eq!(exceeded(&records, &ceilings).unwrap(), [format!("{QUICK}: not measured")]);
    }

    #[test]
    fn the_best_peer_is_one_that_lasted() {
        let mut records = vec![
            record("2x", POLICY, 1, &[2.0]),
            record("2x", EEVDF, 1, &[0.5]),
            record("2x", "scx_flash 1.1.4", 1, &[4.0]),
            record("2x", "scx_lavd 1.1.4", 1, &[8.0]),
            record("2x", "scx_rustland 1.1.4", 1, &[1.0]),
        ];
        records[4].parts.clear();
        let ratio = find(&ratios(&records), &format!("RTT avg: {POLICY} / {BEST_PEER}"));
        assert_eq!(ratio.best.as_deref(), Some("scx_flash 1.1.4"));
        assert_eq!(ratio.measured.map(|measured| measured.mean), Some(0.5));
    }

    /// Asserts that one of the plans, on so many CPUs, measures both sides of the bar.
    #[track_caller]
    fn assert_measured(plans: &[(Plan, usize)], bar: &Bar) {
        let is_measured = |(figure, name): (Figure, &str)| {
            let of = |plan: Plan, cpus, candidate: &str| {
                plan.steps().iter().any(|step| {
                    step.measure == figure.measure
                        && plan.setting(step, cpus) == figure.setting
                        && step.is_of(candidate)
                })
            };
            let any = |candidate| plans.iter().any(|&(plan, cpus)| of(plan, cpus, candidate));
            if name == BEST_PEER { PEERS.iter().any(|peer| any(*peer)) } else { any(name) }
        };
        assert!(is_measured(bar.of) && is_measured(bar.than), "{}", bar.name());
    }

    #[test]
    fn plans_measure_both_sides_of_every_bar() {
        let plans = [
            (Plan::Full, 2),
            (Plan::MoreCpus, 4),
            (Plan::ManyCpus, 8),
            (Plan::Path, 64),
            (Plan::Path, 1024),
        ];
        bars().iter().for_each(|bar| assert_measured(&plans, bar));
    }

    #[test]
    fn the_check_measures_both_sides_of_every_ceiling() {
        let ceilings = include_str!("../../../../../benches/vm/ceilings.json");
        let ceilings: Ceilings = serde_json::from_str(ceilings).unwrap();
        assert!(!ceilings.is_empty());
        let bars = bars();
        for name in ceilings.keys() {
            let bar = bars.iter().find(|bar| bar.name() == *name).expect(name);
            assert_measured(&[(Plan::Check, 2)], bar);
        }
    }
}
