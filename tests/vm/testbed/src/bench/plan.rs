//! What is measured, of whom.

use crate::boost::Boost;
use crate::load::Amount;
use crate::scheduler::Scheduler;

use super::record::Measure;

/// One of those that are compared.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    /// Or why it is not there.
    pub scheduler: Result<Scheduler, String>,
}

/// The kernel's own scheduler, without and with what an administrator does today.
pub const EEVDF: &str = "EEVDF";
pub const FIFO: &str = "EEVDF, SCHED_FIFO";
pub const NICE: &str = "EEVDF, nice -20";
pub const CPUSET: &str = "EEVDF, cpuset";
/// gthctl's, by its configuration.
pub const NO_POLICY: &str = "gthctl, no policy";
pub const POLICY: &str = "gthctl, policy";
pub const TRAFFIC: &str = "gthctl, policy by gtp";
pub const DEDICATED: &str = "gthctl, dedicated CPU";
/// The same policy, and a weight for when a burst of priority is used up.
pub const WEIGHT: &str = "gthctl, policy with weight";

/// Whose ratios matter most. They take their measurements of round trips in [`TURNS`] short
/// turns in each round, one after the other, before, between and after the others: the host may
/// be half as fast for minutes.
pub const CLOSEST: [&str; 4] = [EEVDF, FIFO, POLICY, DEDICATED];
pub const TURNS: usize = 4;

/// Those that are compared most closely run one after the other, and the others after them.
/// `gthctl` makes one of a policy's name.
pub fn candidates(
    gthctl: impl Fn(Option<&str>) -> anyhow::Result<Scheduler>,
    others: Vec<Candidate>,
) -> anyhow::Result<Vec<Candidate>> {
    let of = |name: &str, scheduler| Candidate { name: name.into(), scheduler: Ok(scheduler) };
    let mut candidates = vec![
        of(NO_POLICY, gthctl(None)?),
        of(EEVDF, Scheduler::Eevdf(Boost::None)),
        of(FIFO, Scheduler::Eevdf(Boost::Fifo)),
        of(POLICY, gthctl(Some("policy"))?),
        of(DEDICATED, gthctl(Some("dedicated"))?),
        of(TRAFFIC, gthctl(Some("gtp"))?),
        of(WEIGHT, gthctl(Some("weight"))?),
        of(NICE, Scheduler::Eevdf(Boost::Nice)),
        of(CPUSET, Scheduler::Isolated),
    ];
    candidates.extend(others);
    Ok(candidates)
}

/// What the machine does while something is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: String,
    pub amount: Amount,
    /// For [`Measure::Crowd`] and [`Measure::Many`]: how many tasks.
    pub tasks: usize,
}

/// A measure of some candidates, in turn.
#[derive(Clone, Debug)]
pub struct Group {
    pub measure: Measure,
    pub setting: Setting,
    pub candidates: Vec<String>,
}

impl Group {
    /// In how many turns a candidate takes its measurement.
    pub fn turns(&self, candidate: &str) -> usize {
        let is_close = self.measure == Measure::Rtt && CLOSEST.contains(&candidate);
        if is_close { TURNS } else { 1 }
    }
}

/// Names of the settings of [`Measure::Rtt`].
pub const IDLE: &str = "idle";
pub const LOADS: [&str; 4] = ["1x", "2x", "4x", "mixed"];
/// The load of every measure that takes one only.
pub const LOAD: &str = "2x";
pub const CROWDS: [usize; 4] = [10, 100, 1_000, 10_000];
pub const MANY: [usize; 3] = [1, 10, 100];

fn setting(name: &str, cpus: usize) -> Setting {
    let amount = |spinners, pipes, forks| Amount { spinners, pipes, forks };
    let amount = match name {
        "1x" => amount(cpus, 0, 0),
        "2x" => amount(2 * cpus, 0, 0),
        "4x" => amount(4 * cpus, 0, 0),
        "mixed" => amount(2 * cpus, cpus, cpus),
        _ => Amount::default(),
    };
    Setting { name: name.into(), amount, tasks: 0 }
}

/// Groups that follow each other without an end of the scheduler: some take long to load.
pub type Block = Vec<Group>;

/// Everything, on a machine of `cpus` CPUs.
pub fn all(candidates: &[Candidate], cpus: usize) -> Vec<Block> {
    let names = |keep: &dyn Fn(&str) -> bool| -> Vec<String> {
        let names = candidates.iter().map(|candidate| candidate.name.clone());
        names.filter(|name| keep(name)).collect()
    };
    let everyone = names(&|_| true);
    // A weight makes no difference to who sleeps often.
    let unweighted = names(&|name| name != WEIGHT);
    // Without anything for priority tasks, of which there are none.
    let schedulers =
        names(&|name| ![FIFO, NICE, CPUSET, TRAFFIC, DEDICATED, WEIGHT].contains(&name));
    let few = |few: &[&str]| names(&|name| few.contains(&name));
    let group = |measure, setting, candidates: &[String]| Group {
        measure,
        setting,
        candidates: candidates.to_vec(),
    };
    let of_tasks =
        |tasks, load| Setting { name: format!("{tasks} tasks"), tasks, ..setting(load, cpus) };

    // Also of those that have one CPU for the data plane: what that alone costs.
    let idle = names(&|name| CLOSEST.contains(&name) || name == CPUSET);
    let idle = group(Measure::Rtt, setting(IDLE, cpus), &idle);
    let loaded = LOADS.map(|load| group(Measure::Rtt, setting(load, cpus), &unweighted));
    let of_load = [Measure::Throughput, Measure::WakeUp]
        .map(|measure| group(measure, setting(LOAD, cpus), &everyone));
    let data_plane = [idle].into_iter().chain(loaded).chain(of_load).collect();
    let overhead = [Measure::Pipe, Measure::Hackbench, Measure::Build]
        .map(|measure| group(measure, setting(IDLE, cpus), &schedulers));
    let pair = few(&[FIFO, POLICY]);
    let crowds = CROWDS.map(|tasks| group(Measure::Crowd, of_tasks(tasks, IDLE), &pair));
    let many = MANY.map(|tasks| group(Measure::Many, of_tasks(tasks, LOAD), &pair));
    let usable = group(Measure::Usable, setting(IDLE, cpus), &few(&[EEVDF, FIFO, POLICY, WEIGHT]));
    let sched_ext = names(&|name| !name.starts_with(EEVDF) && name != WEIGHT);
    let ops = group(Measure::Ops, setting(LOAD, cpus), &sched_ext);
    let scaling = crowds.into_iter().chain(many).chain([usable]).collect();
    vec![data_plane, overhead.to_vec(), scaling, vec![ops]]
}

/// What more CPUs do: round-trip times of a few.
pub fn of_more_cpus(cpus: usize) -> Vec<Block> {
    let group = |load: &str, candidates: &[&str]| Group {
        measure: Measure::Rtt,
        setting: Setting { name: on_cpus(load, cpus), ..setting(load, cpus) },
        candidates: candidates.iter().map(|&name| name.into()).collect(),
    };
    vec![vec![group(IDLE, &[EEVDF]), group(LOAD, &CLOSEST)]]
}

/// The name of a setting on a larger machine.
fn on_cpus(load: &str, cpus: usize) -> String {
    format!("{load}, {cpus} CPUs")
}
