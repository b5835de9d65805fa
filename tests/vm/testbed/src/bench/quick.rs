//! The quick benchmark: what the bars are about, in virtual time.
//!
//! Virtual time has no noise, so whatever the processes have come to at their start stays: each
//! measurement is taken after several restarts, with another phase and another placement each.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::boost;
use crate::load::{Amount, Load};
use crate::scheduler::Engaged;

use super::plan::{
    CPUSET, Candidate, DEDICATED, EEVDF, FIFO, Group, NO_POLICY, POLICY, Setting, TRAFFIC,
};
use super::record::{Key, Log, Measure};
use super::run::{Extent, engage, measure};

/// Who is measured.
pub const CANDIDATES: [&str; 7] = [EEVDF, FIFO, CPUSET, NO_POLICY, POLICY, TRAFFIC, DEDICATED];
/// In what none of the others differs from one of these.
const SCHEDULERS: [&str; 3] = [EEVDF, NO_POLICY, POLICY];
/// Names of the settings: two spinning tasks a CPU, and nothing.
pub const LOADED: &str = "2x";
const IDLE: &str = "idle";
/// In virtual time the load is where it stays by then.
const SPREAD: Duration = Duration::from_millis(400);

/// What is measured where, and the restarts of which one that is.
struct Step {
    measure: Measure,
    setting: &'static str,
    candidates: &'static [&'static str],
    /// Every this many restarts.
    every: usize,
}

const STEPS: [Step; 5] = [
    Step { measure: Measure::Rtt, setting: LOADED, candidates: &CANDIDATES, every: 1 },
    Step { measure: Measure::WakeUp, setting: LOADED, candidates: &CANDIDATES, every: 1 },
    Step { measure: Measure::Throughput, setting: LOADED, candidates: &CANDIDATES, every: 2 },
    Step { measure: Measure::Pipe, setting: IDLE, candidates: &SCHEDULERS, every: 2 },
    Step { measure: Measure::Hackbench, setting: IDLE, candidates: &SCHEDULERS, every: 2 },
];

/// Measures everyone in the boot `boot`, from 1, with the restarts of `extent.rounds`.
pub fn run(candidates: &[Candidate], extent: Extent, boot: usize, path: &Path) -> Result<()> {
    boost::only_this_process().context("cannot become a real-time task")?;
    let (mut log, _) = Log::open(path)?;
    for candidate in candidates.iter().filter(|other| CANDIDATES.contains(&other.name.as_str())) {
        for setting in [LOADED, IDLE] {
            restarts(candidate, setting, extent, boot, &mut log)?;
        }
    }
    Ok(())
}

/// All restarts of one candidate beside one load.
fn restarts(
    candidate: &Candidate,
    setting: &'static str,
    extent: Extent,
    boot: usize,
    log: &mut Log,
) -> Result<()> {
    let is_due = |step: &&Step| {
        step.setting == setting && step.candidates.contains(&candidate.name.as_str())
    };
    let steps: Vec<&Step> = STEPS.iter().filter(is_due).collect();
    if steps.is_empty() {
        return Ok(());
    }
    let mut engaged = Some(engage(candidate, None)?);
    let load = (setting == LOADED).then(load).transpose()?;
    for restart in 1..=extent.rounds {
        let place = (boot - 1) * extent.rounds + restart;
        engaged = Some(engage(candidate, engaged)?.restarted(place)?);
        for step in steps.iter().filter(|step| restart % step.every == 0) {
            eprintln!("bench: boot {boot}.{restart}: {:?}: {}", step.measure, candidate.name);
            let key = Key {
                measure: step.measure,
                setting: setting.into(),
                candidate: candidate.name.clone(),
                round: boot,
                turn: restart,
            };
            log.add(&measure(key, &group(step), candidate, &mut engaged, extent))?;
        }
    }
    load.map(Load::stop).transpose()?;
    engaged.map(Engaged::end).transpose()?;
    Ok(())
}

fn load() -> Result<Load> {
    let cpus = thread::available_parallelism()?.get();
    Load::spread(Amount { spinners: 2 * cpus, pipes: 0, forks: 0 }, SPREAD)
}

/// As a part of the plan; the load is there already.
fn group(step: &Step) -> Group {
    let setting = Setting { name: step.setting.into(), amount: Amount::default(), tasks: 0 };
    Group { measure: step.measure, setting, candidates: Vec::new() }
}
