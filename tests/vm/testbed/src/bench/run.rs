//! Runs a plan's steps in one virtual machine.
//!
//! Virtual time has no noise, so processes keep the phase and placement of their start. So each
//! measurement is repeated after several restarts, each with another phase and placement.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::cgroups::Pods;
use crate::load::Load;
use crate::scheduler::Engaged;
use crate::{boost, ping, plane, scx};

use super::plan::{Candidate, Plan, Step, amount};
use super::record::{Key, Log, Measure, Part, Record};
use super::{figure, ops, overhead, path, throughput, usable, wakeup, work};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Restarts of the data plane's processes, for each candidate and load.
    pub restarts: usize,
    /// Probes of ping after each restart, besides those that [stand apart](figure::APART).
    pub probes: usize,
    /// The time between probes.
    pub interval: Duration,
    /// The duration of a measurement that runs for a set time.
    pub duration: Duration,
}

/// One virtual machine's run of a plan.
pub struct Run<'a> {
    pub plan: Plan,
    pub extent: Extent,
    /// Which machine, from 1.
    pub boot: usize,
    pub cpus: usize,
    /// The cgroups in which the load's tasks and the data plane run, if not in the root.
    pub pods: Option<Pods>,
    /// Runs only the steps whose names, such as `Rtt/2x/EEVDF`, contain one of these; all if it is
    /// empty.
    pub only: &'a [String],
}

/// How long the load's tasks take to settle, in virtual time.
const SPREAD: Duration = Duration::from_millis(400);
/// Probes sent before the measured ones: they fill neighbour tables.
const WARM_UP: usize = 5;

impl Run<'_> {
    /// Takes every measurement. If one fails, its record holds the error.
    pub fn all(&self, candidates: &[Candidate], path: &Path) -> Result<()> {
        // This process only sleeps and starts others, which are normal tasks. It must get its turn
        // whatever the load.
        boost::only_this_process().context("cannot become a real-time task")?;
        let mut log = Log::create(path)?;
        for candidate in candidates {
            Turn { run: self, candidate, engaged: None, lost: None, for_good: false }
                .take(&mut log)?;
        }
        Ok(())
    }

    /// The steps of one candidate.
    pub fn steps(&self, candidate: &str) -> Vec<&'static Step> {
        let is_meant = |step: &&Step| {
            let setting = self.plan.setting(step, self.cpus);
            let name = format!("{:?}/{setting}/{candidate}", step.measure);
            let is_only =
                self.only.is_empty() || self.only.iter().any(|o| name.contains(o.as_str()));
            step.is_of(candidate) && step.is_in(self.boot, candidate) && is_only
        };
        self.plan.steps().iter().filter(is_meant).collect()
    }
}

/// One candidate's part of a run.
struct Turn<'a> {
    run: &'a Run<'a>,
    candidate: &'a Candidate,
    engaged: Option<Engaged>,
    /// Why the candidate can no longer be measured with the current load.
    lost: Option<String>,
    /// Whether that holds for every load.
    for_good: bool,
}

impl Turn<'_> {
    fn take(mut self, log: &mut Log) -> Result<()> {
        let steps = self.run.steps(&self.candidate.name);
        for steps in steps.chunk_by(|one, next| one.load == next.load) {
            self.beside_load(steps, log)?;
        }
        if let Some(Err(error)) = self.engaged.take().map(Engaged::end) {
            self.lose(&error);
        }
        Ok(())
    }

    /// All restarts with one load.
    fn beside_load(&mut self, steps: &[&Step], log: &mut Log) -> Result<()> {
        let (extent, boot) = (self.run.extent, self.run.boot);
        let mut load = None;
        if !self.for_good {
            self.lost = None;
            if let Err(error) = self.begin(steps[0].load, &mut load) {
                self.lose(&error);
            }
        }
        let is_due = |restart: &usize| steps.iter().any(|step| step.is_due(*restart));
        for restart in (1..=extent.restarts).filter(is_due) {
            let place = (boot - 1) * extent.restarts + restart;
            if let Err(error) = self.restart(place) {
                self.lose(&error);
            }
            for step in steps.iter().filter(|step| step.is_due(restart)) {
                log.add(&self.record(step, restart, load.as_mut()))?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, load: &mut Option<Load>) -> Result<()> {
        if self.engaged.is_none() {
            let scheduler = self.candidate.scheduler.as_ref().map_err(|why| anyhow!("{why}"));
            let engaged = scheduler.and_then(Engaged::new);
            self.for_good = engaged.is_err();
            self.engaged = Some(engaged?);
        }
        let amount = amount(name, self.run.cpus);
        if !amount.is_none() {
            let started = Load::spread(amount, SPREAD)?;
            if let Some(pods) = &self.run.pods {
                pods.spread_children(started.id())?;
            }
            *load = Some(started);
        }
        Ok(())
    }

    fn restart(&mut self, place: usize) -> Result<()> {
        if let Some(engaged) = self.engaged.take() {
            self.engaged = Some(engaged.restarted(place)?);
        }
        Ok(())
    }

    /// Continues without the scheduler, until the next load.
    fn lose(&mut self, error: &anyhow::Error) {
        eprintln!("bench: {}: {error:#}", self.candidate.name);
        self.lost.get_or_insert(format!("{error:#}"));
        self.engaged = None;
        if let Err(error) =
            plane::wait_until("the scheduler to end", || scx::check_disabled().is_ok())
        {
            eprintln!("bench: {}: {error:#}", self.candidate.name);
        }
    }

    fn record(&mut self, step: &Step, restart: usize, load: Option<&mut Load>) -> Record {
        let key = Key {
            measure: step.measure,
            setting: self.run.plan.setting(step, self.run.cpus),
            candidate: self.candidate.name.clone(),
            boot: self.run.boot,
            restart,
        };
        if let Some(engaged) = &self.engaged {
            eprintln!(
                "bench: restart {restart}: {:?}, {}: {}",
                key.measure, key.setting, key.candidate
            );
            let measured = parts(step, engaged, self.run.extent, self.run.cpus);
            // Why the scheduler or the load ended says more than the failures that followed from
            // it.
            if let Err(error) = engaged.check().and_then(|()| load.map_or(Ok(()), Load::check)) {
                self.lose(&error);
            } else {
                return Record::of(key, measured);
            }
        }
        Record { key, parts: Vec::new(), error: self.lost.clone() }
    }
}

fn parts(step: &Step, engaged: &Engaged, extent: Extent, cpus: usize) -> Result<Vec<Part>> {
    let duration = extent.duration;
    match step.measure {
        Measure::Rtt => round_trips(engaged, extent),
        Measure::Throughput => throughput::measure(engaged),
        Measure::WakeUp => wakeup::of_both(engaged, duration),
        Measure::Work => work::measure(engaged, 2 * duration),
        Measure::Crowd => wakeup::in_crowd(engaged, step.tasks, duration),
        Measure::Many => wakeup::of_many(engaged, step.tasks, 4 * duration),
        Measure::Pipe => overhead::pipe(),
        Measure::Hackbench => overhead::hackbench(),
        Measure::Build => overhead::build(),
        Measure::Usable => usable::measure(engaged),
        Measure::Ops => ops::measure(engaged, duration),
        Measure::Path => path::measure(cpus),
    }
}

/// The first two probes stand apart ([`figure::APART`]): ping's start makes them late, whatever the
/// scheduler does. ping uses about a tick of CPU time before the first one. Without priority, its
/// turn may end after it has taken the time and before it sends. During the second one, the kernel
/// may free what the start has left, in ping's own context (rcu_core(), kernel/rcu/tree.c).
fn round_trips(engaged: &Engaged, extent: Extent) -> Result<Vec<Part>> {
    let interval = extent.interval.as_millis() as u32;
    ping::run(WARM_UP, interval, engaged)?;
    let replies = ping::run(figure::APART.len() + extent.probes, interval, engaged)?;
    let mut rtt_ms = replies.rtt_ms.into_iter();
    let apart = figure::APART.into_iter().zip(rtt_ms.by_ref());
    let part = Part::of([("sent", extent.probes as f64)].into_iter().chain(apart));
    Ok(vec![Part { samples: rtt_ms.collect(), ..part }])
}
