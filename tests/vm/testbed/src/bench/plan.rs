//! The candidates, and the measurements of each.

use clap::ValueEnum;

use crate::boost::Boost;
use crate::load::Amount;
use crate::scheduler::Scheduler;

use super::record::Measure;

/// One candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    /// The scheduler, or why it is missing.
    pub scheduler: Result<Scheduler, String>,
}

/// The kernel's own scheduler, without and with an administrator's means of today.
pub const EEVDF: &str = "EEVDF";
pub const FIFO: &str = "EEVDF, SCHED_FIFO";
pub const PINNED: &str = "EEVDF, SCHED_FIFO pinned";
pub const NICE: &str = "EEVDF, nice -20";
pub const CPUSET: &str = "EEVDF, cpuset";
/// gthctl's scheduler, by its configuration.
pub const NO_POLICY: &str = "gthctl, no policy";
pub const POLICY: &str = "gthctl, policy";
pub const TRAFFIC: &str = "gthctl, policy by gtp";
pub const DEDICATED: &str = "gthctl, dedicated CPU";
/// The same policy, with a weight for when a burst of priority is used up.
pub const WEIGHT: &str = "gthctl, policy with weight";
/// Other schedulers; a version follows their names.
pub const BPFLAND: &str = "scx_bpfland";
pub const PEERS: [&str; 7] = [
    BPFLAND,
    "scx_lavd",
    "scx_cosmos",
    "scx_flash",
    "scx_p2dq",
    "Gthulhu",
    // Must be the last one, which `LASTING` leaves out: the kernel's watchdog may end it.
    "scx_rustland",
];
/// The verifier takes 17 s of virtual time for this scheduler's programs, which is three minutes on
/// the host, so it is measured in the first boot only.
const SLOW_TO_LOAD: &str = "scx_lavd";
const LASTING: &[&str] = PEERS.split_last().expect("it is not empty").1;

/// All candidates. `gthctl` turns a policy's name into a scheduler.
pub fn candidates(
    gthctl: impl Fn(Option<&str>) -> anyhow::Result<Scheduler>,
    peers: Vec<Candidate>,
) -> anyhow::Result<Vec<Candidate>> {
    let of = |name: &str, scheduler| Candidate { name: name.into(), scheduler: Ok(scheduler) };
    let mut candidates = vec![
        of(EEVDF, Scheduler::Eevdf(Boost::None)),
        of(FIFO, Scheduler::Eevdf(Boost::Fifo)),
        of(PINNED, Scheduler::Pinned(Boost::Fifo)),
        of(NICE, Scheduler::Eevdf(Boost::Nice)),
        of(CPUSET, Scheduler::Isolated),
        of(NO_POLICY, gthctl(None)?),
        of(POLICY, gthctl(Some("policy"))?),
        of(TRAFFIC, gthctl(Some("gtp"))?),
        of(DEDICATED, gthctl(Some("dedicated"))?),
        of(WEIGHT, gthctl(Some("weight"))?),
    ];
    candidates.extend(peers);
    Ok(candidates)
}

/// True when `candidate` has this name, without or with a version.
pub fn is_named(candidate: &str, name: &str) -> bool {
    candidate.strip_prefix(name).is_some_and(|rest| {
        let version = rest.strip_prefix(' ').and_then(|version| version.chars().next());
        rest.is_empty() || version.is_some_and(|digit| digit.is_ascii_digit())
    })
}

pub fn is_peer(candidate: &str) -> bool {
    PEERS.iter().any(|peer| is_named(candidate, peer))
}

pub fn is_gthctl(candidate: &str) -> bool {
    [NO_POLICY, POLICY, TRAFFIC, DEDICATED, WEIGHT].iter().any(|own| is_named(candidate, own))
}

/// What runs beside a measurement.
pub const IDLE: &str = "idle";
pub const LOAD: &str = "2x";
pub const LOADS: [&str; 4] = ["1x", LOAD, "4x", "mixed"];

/// A load of [`LOADS`] for `cpus` CPUs, or none.
pub fn amount(load: &str, cpus: usize) -> Amount {
    let amount = |spinners, pipes, forks| Amount { spinners, pipes, forks };
    match load {
        "1x" => amount(cpus, 0, 0),
        LOAD => amount(2 * cpus, 0, 0),
        "4x" => amount(4 * cpus, 0, 0),
        "mixed" => amount(2 * cpus, cpus, cpus),
        _ => Amount::default(),
    }
}

/// A measurement, with its candidates and the restarts after which it is taken.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub measure: Measure,
    /// Distinguishes it from the measure's other steps.
    setting: &'static str,
    /// The load that runs meanwhile, besides what the measure starts itself.
    pub load: &'static str,
    /// The number of tasks of [`Measure::Crowd`] and [`Measure::Many`].
    pub tasks: usize,
    candidates: &'static [&'static [&'static str]],
    /// It is measured once in this many restarts.
    every: usize,
    /// The one boot in which it is measured, if not in each.
    boot: Option<usize>,
}

impl Step {
    const fn of(
        measure: Measure,
        load: &'static str,
        candidates: &'static [&'static [&'static str]],
        every: usize,
    ) -> Self {
        Self { measure, setting: load, load, tasks: 0, candidates, every, boot: None }
    }

    /// The step with as many tasks as the setting's name says.
    const fn tasks(self, setting: &'static str, tasks: usize) -> Self {
        Self { setting, tasks, ..self }
    }

    /// The step, measured in this boot only.
    const fn in_boot(self, boot: usize) -> Self {
        Self { boot: Some(boot), ..self }
    }

    /// The step for a measure that starts its load itself.
    const fn unloaded(self) -> Self {
        Self { load: IDLE, ..self }
    }

    pub fn is_of(&self, candidate: &str) -> bool {
        self.candidates.iter().copied().flatten().any(|name| is_named(candidate, name))
    }

    /// Whether it is measured in this boot, the first being 1.
    pub fn is_in(&self, boot: usize, candidate: &str) -> bool {
        let is_slow = is_named(candidate, SLOW_TO_LOAD);
        self.boot.is_none_or(|only| only == boot) && (boot == 1 || !is_slow)
    }

    pub fn is_due(&self, restart: usize) -> bool {
        restart.is_multiple_of(self.every)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plan {
    /// What the closest bars are about
    Quick,
    /// Of that, what the ceilings are about
    Check,
    /// Everything, on a machine of 2 CPUs
    Full,
    /// Round-trip times of a few on a larger one
    MoreCpus,
    /// Those that have a bar on a still larger one
    ManyCpus,
    /// What a wake-up costs where the kernel knows of many CPUs
    Path,
}

impl Plan {
    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::Quick => &QUICK,
            Self::Check => &CHECK,
            Self::Full => &FULL,
            Self::MoreCpus => &MORE_CPUS,
            Self::ManyCpus => &MANY_CPUS,
            Self::Path => &PATH,
        }
    }

    /// A step's setting on `cpus` CPUs.
    pub fn setting(self, step: &Step, cpus: usize) -> String {
        match self {
            Self::MoreCpus | Self::ManyCpus | Self::Path => format!("{cpus} CPUs"),
            Self::Quick | Self::Check | Self::Full => step.setting.into(),
        }
    }
}

/// Candidates that share a list of steps.
const QUICK_ONES: &[&[&str]] = &[&[EEVDF, FIFO, CPUSET, NO_POLICY, POLICY, TRAFFIC, DEDICATED]];
/// For measures in which each of the other candidates behaves like one of these.
const SCHEDULERS: &[&[&str]] = &[&[EEVDF, NO_POLICY, POLICY]];
/// Candidates with close bars.
const CLOSE: &[&[&str]] = &[&[EEVDF, FIFO, PINNED, CPUSET, NO_POLICY, POLICY, TRAFFIC, DEDICATED]];
const OTHERS: &[&[&str]] = &[&[NICE], &PEERS];
/// Without PINNED: its stream waits for the kernel's own tasks on that CPU, which do not run.
const SENDERS: &[&[&str]] = &[&[EEVDF, FIFO, CPUSET, NO_POLICY, POLICY, TRAFFIC, DEDICATED]];
const OTHER_SENDERS: &[&[&str]] = &[&[NICE], &PEERS];
const WEIGHTED: &[&[&str]] = &[&[WEIGHT]];
/// Candidates whose round trips are compared with every load.
const LOADED: &[&[&str]] = &[&[FIFO, PINNED, CPUSET, POLICY, TRAFFIC, DEDICATED]];
const LOADED_OTHERS: &[&[&str]] = &[&[EEVDF], LASTING];
/// These also show what one CPU alone costs.
const UNLOADED: &[&[&str]] = &[&[EEVDF, FIFO, PINNED, CPUSET, POLICY, DEDICATED]];
const ALL_PEERS: &[&[&str]] = &[&PEERS];
const OTHER_WORKERS: &[&[&str]] = &[&[FIFO], &PEERS];
const BOOSTED: &[&[&str]] = &[&[POLICY]];
const REAL_TIME: &[&[&str]] = &[&[FIFO]];
const PAIR: &[&[&str]] = &[&[FIFO, POLICY]];
const USABLE: &[&[&str]] = &[&[EEVDF, FIFO, POLICY, WEIGHT]];
const SCHED_EXT: &[&[&str]] = &[&[NO_POLICY, POLICY, TRAFFIC, DEDICATED], &PEERS];
const ONE: &[&[&str]] = &[&[NO_POLICY]];
/// Candidates that have a bar on more CPUs.
const FEW: &[&[&str]] = &[&[FIFO, PINNED, CPUSET, POLICY, DEDICATED]];
/// Candidates that a ceiling compares.
const CHECKED_TRIPS: &[&[&str]] = &[&[FIFO, CPUSET, POLICY, TRAFFIC, DEDICATED]];
const CHECKED_WAKE_UPS: &[&[&str]] = &[&[EEVDF, FIFO, NO_POLICY, POLICY]];

/// Steps of more than one plan.
const PIPE: Step = Step::of(Measure::Pipe, IDLE, SCHEDULERS, 1);
const HACKBENCH: Step = Step::of(Measure::Hackbench, IDLE, SCHEDULERS, 2);

const QUICK: [Step; 5] = [
    Step::of(Measure::Rtt, LOAD, QUICK_ONES, 1),
    Step::of(Measure::WakeUp, LOAD, QUICK_ONES, 1),
    Step::of(Measure::Throughput, LOAD, QUICK_ONES, 2),
    PIPE,
    HACKBENCH,
];

/// benches/vm/ceilings.json has the ceilings.
const CHECK: [Step; 5] = [
    Step::of(Measure::Rtt, LOAD, CHECKED_TRIPS, 1),
    Step::of(Measure::WakeUp, LOAD, CHECKED_WAKE_UPS, 1),
    Step::of(Measure::Throughput, LOAD, PAIR, 2),
    PIPE,
    HACKBENCH,
];

/// Steps with the same load follow each other. Measures that have no bar or take long are taken
/// after fewer restarts or in one boot.
const FULL: [Step; 35] = [
    Step::of(Measure::Rtt, LOAD, CLOSE, 1),
    Step::of(Measure::Rtt, LOAD, OTHERS, 2),
    Step::of(Measure::WakeUp, LOAD, CLOSE, 1),
    Step::of(Measure::WakeUp, LOAD, OTHERS, 2),
    Step::of(Measure::Throughput, LOAD, SENDERS, 2),
    Step::of(Measure::Throughput, LOAD, OTHER_SENDERS, 4).in_boot(1),
    Step::of(Measure::Throughput, LOAD, WEIGHTED, 2).in_boot(2),
    Step::of(Measure::Many, LOAD, PAIR, 2).tasks("1 task", 1).in_boot(2),
    Step::of(Measure::Many, LOAD, PAIR, 2).tasks("10 tasks", 10).in_boot(2),
    Step::of(Measure::Many, LOAD, PAIR, 2).tasks("100 tasks", 100).in_boot(2),
    Step::of(Measure::Ops, LOAD, SCHED_EXT, 4).in_boot(1),
    Step::of(Measure::Rtt, "1x", LOADED, 2),
    Step::of(Measure::Rtt, "1x", LOADED_OTHERS, 4),
    Step::of(Measure::Rtt, "4x", LOADED, 2),
    Step::of(Measure::Rtt, "4x", LOADED_OTHERS, 4),
    Step::of(Measure::Rtt, "mixed", LOADED, 2),
    Step::of(Measure::Rtt, "mixed", LOADED_OTHERS, 4),
    Step::of(Measure::Rtt, IDLE, UNLOADED, 1),
    Step::of(Measure::Work, LOAD, SCHEDULERS, 2).unloaded(),
    Step::of(Measure::Work, LOAD, OTHER_WORKERS, 4).unloaded().in_boot(1),
    Step::of(Measure::Pipe, IDLE, SCHEDULERS, 2),
    Step::of(Measure::Pipe, IDLE, ALL_PEERS, 4).in_boot(1),
    HACKBENCH,
    Step::of(Measure::Hackbench, IDLE, ALL_PEERS, 4).in_boot(1),
    Step::of(Measure::Build, IDLE, SCHEDULERS, 2),
    Step::of(Measure::Build, IDLE, ALL_PEERS, 4).in_boot(1),
    Step::of(Measure::Crowd, IDLE, BOOSTED, 2).tasks("10 tasks", 10).in_boot(2),
    Step::of(Measure::Crowd, IDLE, BOOSTED, 2).tasks("100 tasks", 100).in_boot(2),
    Step::of(Measure::Crowd, IDLE, BOOSTED, 2).tasks("1000 tasks", 1_000).in_boot(2),
    Step::of(Measure::Crowd, IDLE, BOOSTED, 2).tasks("10000 tasks", 10_000).in_boot(2),
    Step::of(Measure::Crowd, IDLE, REAL_TIME, 4).tasks("10 tasks", 10).in_boot(2),
    Step::of(Measure::Crowd, IDLE, REAL_TIME, 4).tasks("100 tasks", 100).in_boot(2),
    Step::of(Measure::Crowd, IDLE, REAL_TIME, 4).tasks("1000 tasks", 1_000).in_boot(2),
    Step::of(Measure::Crowd, IDLE, REAL_TIME, 4).tasks("10000 tasks", 10_000).in_boot(2),
    Step::of(Measure::Usable, IDLE, USABLE, 4).in_boot(2),
];

const MORE_CPUS: [Step; 1] = [Step::of(Measure::Rtt, LOAD, FEW, 1)];
const MANY_CPUS: [Step; 1] = [Step::of(Measure::Rtt, LOAD, PAIR, 1)];

const PATH: [Step; 1] = [Step::of(Measure::Path, IDLE, ONE, 1)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_or_without_a_version() {
        assert!(is_named("scx_bpfland 1.1.4", BPFLAND));
        assert!(is_named("Gthulhu", "Gthulhu"));
        assert!(is_named(POLICY, POLICY));
        for other in [TRAFFIC, WEIGHT] {
            assert!(!is_named(other, POLICY));
        }
        assert!(!is_named(FIFO, EEVDF) && !is_named(PINNED, FIFO));
        assert!(is_gthctl(DEDICATED) && !is_gthctl(CPUSET) && !is_gthctl("Gthulhu"));
    }

    #[test]
    fn lavd_loads_in_the_first_boot_only() {
        let boots = |candidate| -> Vec<usize> {
            let mut steps = FULL.iter().filter(|step| step.is_of(candidate) && step.boot.is_none());
            let step = steps.next().unwrap();
            (1..=2).filter(|&boot| step.is_in(boot, candidate)).collect()
        };
        assert_eq!(boots("scx_lavd 1.1.4"), [1]);
        assert_eq!(boots("scx_bpfland 1.1.4"), [1, 2]);
    }

    #[test]
    fn rustland_takes_part_beside_one_load_only() {
        let loads = |candidate| -> Vec<&str> {
            let steps = FULL.iter().filter(|step| step.measure == Measure::Rtt);
            steps.filter(|step| step.is_of(candidate)).map(|step| step.load).collect()
        };
        assert_eq!(loads("scx_rustland 1.1.4"), [LOAD]);
        assert_eq!(loads("scx_lavd 1.1.4"), [LOAD, "1x", "4x", "mixed"]);
    }
}
