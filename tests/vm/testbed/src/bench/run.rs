//! Runs the plan's measurements.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::host::Usage;
use crate::load::{Done, Load};
use crate::scheduler::Engaged;
use crate::{boost, ping};

use super::plan::{Block, Candidate, Group, Setting};
use super::record::{Key, Log, Measure, Part, Record};
use super::throughput::Transfer;
use super::{ops, overhead, throughput, usable, wakeup};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rounds: usize,
    /// Of ping, in each round.
    pub probes: usize,
    /// Between them.
    pub interval: Duration,
    /// Of a measurement that takes a time.
    pub duration: Duration,
    /// The share of its time, in percent, that the VM may wait for the host's CPUs in a
    /// measurement; one that is disturbed more is taken again.
    pub calm: Option<f64>,
}

impl Extent {
    /// What iperf3 transfers: its shortest time is a second.
    fn transfer(&self) -> Transfer {
        match self.duration.as_secs() {
            0 => Transfer::Mebibytes(4),
            seconds => Transfer::Seconds(seconds),
        }
    }
}

/// How often a measurement is taken while the host disturbs it.
const ATTEMPTS: usize = 3;

/// Takes every measurement that `path` has no record of, and adds it there. Every other
/// round goes through the candidates backwards: what gets slower or faster from one to the
/// next does so once each way.
pub fn run(blocks: &[Block], candidates: &[Candidate], extent: Extent, path: &Path) -> Result<()> {
    // This process only sleeps and starts others, which are normal tasks: it must get its
    // turn whatever the load.
    boost::only_this_process().context("cannot become a real-time task")?;
    let (mut log, kept) = Log::open(path)?;
    let mut done: BTreeSet<Key> = kept.into_iter().map(|record| record.key).collect();
    // What is being measured: if the VM ends meanwhile, it is not tried again.
    let now = path.with_extension("now");
    let died: Option<Key> = fs::read(&now).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(key) = died.filter(|key| !done.contains(key)) {
        done.insert(key.clone());
        let error = Some("the virtual machine ended meanwhile".into());
        log.add(&Record { key, parts: Vec::new(), error, waited_percent: None })?;
    }
    for round in 1..=extent.rounds {
        let mut order: Vec<&Candidate> = candidates.iter().collect();
        if round % 2 == 0 {
            order.reverse();
        }
        for block in blocks {
            for (candidate, turn) in turns(block, &order) {
                let mut engaged = None;
                for group in block {
                    let key = Key {
                        measure: group.measure,
                        setting: group.setting.name.clone(),
                        candidate: candidate.name.clone(),
                        round,
                        turn,
                    };
                    let turns = group.turns(&candidate.name);
                    if !group.candidates.contains(&candidate.name)
                        || turn > turns
                        || done.contains(&key)
                    {
                        continue;
                    }
                    eprintln!(
                        "bench: round {round}.{turn}: {:?}, {}: {}",
                        key.measure, key.setting, key.candidate
                    );
                    fs::write(&now, serde_json::to_vec(&key)?)?;
                    let extent = Extent { probes: extent.probes.div_ceil(turns), ..extent };
                    log.add(&calmest(&key, group, candidate, &mut engaged, extent))?;
                }
                if let Some(Err(error)) = engaged.map(Engaged::end) {
                    eprintln!("bench: {}: {error:#}", candidate.name);
                }
            }
        }
    }
    Ok(())
}

/// Who is measured in one round, in which turn. Who takes several turns takes them before,
/// between and after the others, every other time backwards.
fn turns<'a>(block: &Block, order: &[&'a Candidate]) -> Vec<(&'a Candidate, usize)> {
    let of = |candidate: &Candidate| {
        block.iter().map(|group| group.turns(&candidate.name)).max().unwrap_or(1)
    };
    let most = order.iter().map(|candidate| of(candidate)).max().unwrap_or(1);
    let (mut several, once): (Vec<&Candidate>, Vec<&Candidate>) =
        order.iter().copied().partition(|candidate| of(candidate) > 1);
    let between = once.len().div_ceil((most - 1).max(1)).max(1);
    let mut once = once.chunks(between);
    let mut turns = Vec::new();
    for turn in 1..=most {
        turns.extend(several.iter().map(|&candidate| (candidate, turn)));
        several.reverse();
        turns.extend(once.next().into_iter().flatten().map(|&candidate| (candidate, 1)));
    }
    turns
}

/// One measurement: the one that the host disturbed least, if it disturbed the first.
fn calmest(
    key: &Key,
    group: &Group,
    candidate: &Candidate,
    engaged: &mut Option<Engaged>,
    extent: Extent,
) -> Record {
    let limit = extent.calm.unwrap_or(f64::INFINITY);
    let waited = |record: &Record| record.waited_percent.unwrap_or_default();
    let mut calmest = measure(key.clone(), group, candidate, engaged, extent);
    for _ in 1..ATTEMPTS {
        if calmest.error.is_some() || waited(&calmest) <= limit {
            break;
        }
        eprintln!("bench: the host was busy for {:.0} % of that; again", waited(&calmest));
        let again = measure(key.clone(), group, candidate, engaged, extent);
        if again.error.is_none() && waited(&again) < waited(&calmest) {
            calmest = again;
        }
    }
    calmest
}

/// One measurement. Its scheduler is left in `engaged` for the next one, unless it failed.
pub fn measure(
    key: Key,
    group: &Group,
    candidate: &Candidate,
    engaged: &mut Option<Engaged>,
    extent: Extent,
) -> Record {
    let (result, waited) = Usage::during(|| {
        let scheduler = engage(candidate, engaged.take())?;
        let parts = parts(group, &scheduler, extent);
        // Why it ended says more than what failed without it.
        scheduler.check()?;
        let parts = parts?;
        *engaged = Some(scheduler);
        anyhow::Ok(parts)
    });
    let (parts, error) = match result {
        Ok(parts) => (parts, None),
        Err(error) => {
            eprintln!("bench: {}: {error:#}", candidate.name);
            (Vec::new(), Some(format!("{error:#}")))
        }
    };
    Record { key, parts, error, waited_percent: waited.and_then(Usage::waited_percent) }
}

pub fn engage(candidate: &Candidate, engaged: Option<Engaged>) -> Result<Engaged> {
    match (engaged, &candidate.scheduler) {
        (Some(engaged), _) => Ok(engaged),
        (None, Ok(scheduler)) => Engaged::new(scheduler),
        (None, Err(why)) => Err(anyhow!("{why}")),
    }
}

fn parts(group: &Group, engaged: &Engaged, extent: Extent) -> Result<Vec<Part>> {
    let Setting { amount, tasks, .. } = group.setting;
    let is_loaded = amount.spinners + amount.pipes + amount.forks > 0;
    let load = is_loaded.then(|| Load::start(amount)).transpose()?;
    let mut parts = match group.measure {
        Measure::Rtt => round_trips(engaged, extent)?,
        Measure::Throughput => throughput::measure(engaged, extent.transfer())?,
        Measure::WakeUp => wakeup::of_both(engaged, extent.duration)?,
        Measure::Crowd => wakeup::in_crowd(engaged, tasks, extent.duration)?,
        Measure::Many => wakeup::of_many(engaged, tasks, extent.duration)?,
        Measure::Pipe => overhead::pipe()?,
        Measure::Hackbench => overhead::hackbench()?,
        Measure::Build => overhead::build()?,
        Measure::Usable => usable::measure(engaged)?,
        Measure::Ops => ops::measure(engaged, extent.duration)?,
    };
    if let Some(load) = load {
        let Done { cpu, pipe, fork } = load.stop()?;
        let done = [("cpu bogo/s", cpu), ("pipe bogo/s", pipe), ("fork bogo/s", fork)];
        if let Some(part) = parts.first_mut() {
            part.values.extend(done.map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(parts)
}

fn round_trips(engaged: &Engaged, extent: Extent) -> Result<Vec<Part>> {
    let interval = extent.interval.as_millis() as u32;
    let (replies, _) = ping::measure(extent.probes, interval, engaged)?;
    let part = Part::of([("sent", replies.sent as f64)]);
    Ok(vec![Part { samples: replies.rtt_ms, ..part }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{CLOSEST, NICE, NO_POLICY, POLICY, TRAFFIC, WEIGHT, all};
    use crate::boost::Boost;
    use crate::scheduler::Scheduler;

    #[test]
    fn who_is_compared_most_closely_takes_turns_around_the_others() {
        let candidate = |name: &str| Candidate {
            name: name.into(),
            scheduler: Ok(Scheduler::Eevdf(Boost::None)),
        };
        let others = [NO_POLICY, TRAFFIC, WEIGHT, NICE];
        let candidates: Vec<Candidate> =
            CLOSEST.iter().chain(&others).map(|name| candidate(name)).collect();
        let order: Vec<&Candidate> = candidates.iter().collect();
        let blocks = all(&candidates, 2);
        let turns_of = |block| -> Vec<(&str, usize)> {
            turns(block, &order).into_iter().map(|(who, turn)| (who.name.as_str(), turn)).collect()
        };

        let first = turns_of(&blocks[0]);
        assert_eq!(first.len(), 4 * CLOSEST.len() + others.len());
        for other in others {
            assert_eq!(first.iter().filter(|(name, _)| *name == other).count(), 1, "{first:?}");
        }
        let of_policy: Vec<usize> =
            first.iter().filter(|(name, _)| *name == POLICY).map(|(_, turn)| *turn).collect();
        assert_eq!(of_policy, [1, 2, 3, 4]);
        let is_close = |(name, _): &(&str, usize)| CLOSEST.contains(name);
        assert!(first[..4].iter().all(is_close) && first[first.len() - 4..].iter().all(is_close));

        assert!(turns_of(&blocks[1]).iter().all(|(_, turn)| *turn == 1));
        assert_eq!(turns_of(&blocks[1]).len(), candidates.len());
    }
}
