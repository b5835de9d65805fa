//! Who schedules, and what that gives the data plane's tasks.

use std::process::Command;

use anyhow::Result;

use crate::boost::{Boost, Boosted};
use crate::isolation::Isolation;
use crate::pinning::Pinning;
use crate::plane;
use crate::scx::{self, Program, Scx};

/// Who schedules while something is measured, and what the data plane's tasks get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The kernel's own.
    Eevdf(Boost),
    /// The same, with the data plane's tasks on one CPU by their affinity.
    Pinned(Boost),
    /// The same, with a CPU for the data plane alone.
    Isolated,
    /// A sched_ext one.
    Scx(Program),
}

/// A scheduler in force, with nr-gnb among its priority tasks, until dropped.
pub struct Engaged {
    boost: Boost,
    boosted: Boosted,
    pinning: Option<Pinning>,
    isolation: Option<Isolation>,
    scx: Option<Scx>,
}

impl Engaged {
    /// Fails when another sched_ext scheduler is loaded, or this one does not load.
    pub fn new(scheduler: &Scheduler) -> Result<Self> {
        scx::check_disabled()?;
        let scx = match scheduler {
            Scheduler::Scx(program) => Some(Scx::start(program)?),
            Scheduler::Eevdf(_) | Scheduler::Pinned(_) | Scheduler::Isolated => None,
        };
        let boost = match scheduler {
            Scheduler::Eevdf(boost) | Scheduler::Pinned(boost) => *boost,
            Scheduler::Isolated | Scheduler::Scx(_) => Boost::None,
        };
        let gnb = plane::gnb_pid()?;
        let pinned = matches!(scheduler, Scheduler::Pinned(_));
        let isolated = *scheduler == Scheduler::Isolated;
        Ok(Self {
            boost,
            boosted: Boosted::threads_of(gnb, boost)?,
            pinning: pinned.then(|| Pinning::of(gnb, plane::CPU)).transpose()?,
            isolation: isolated.then(|| Isolation::of(gnb, plane::CPU)).transpose()?,
            scx,
        })
    }

    /// Restarts the data plane's processes under the same scheduler (see [`plane::restart`]).
    pub fn restarted(mut self, time: usize) -> Result<Self> {
        plane::restart(time)?;
        let gnb = plane::gnb_pid()?;
        self.boosted.forget();
        self.boosted = Boosted::threads_of(gnb, self.boost)?;
        if let Some(pinning) = &mut self.pinning {
            pinning.take_in(gnb)?;
        }
        if let Some(isolation) = &self.isolation {
            isolation.take_in(gnb)?;
        }
        Ok(self)
    }

    /// Makes `command` start as a priority task. A sched_ext scheduler finds its priority tasks
    /// itself.
    pub fn favour(&self, command: &mut Command) {
        if let Some(pinning) = &self.pinning {
            pinning.from_start(command);
        }
        if let Some(isolation) = &self.isolation {
            isolation.from_start(command);
        }
        self.boost.from_start(command);
    }

    pub fn boost(&self) -> Boost {
        self.boost
    }

    pub fn scx(&self) -> Option<&Scx> {
        self.scx.as_ref()
    }

    /// An error if it no longer schedules.
    pub fn check(&self) -> Result<()> {
        self.scx.as_ref().map_or_else(scx::check_disabled, Scx::check)
    }

    /// An error if it has not scheduled all the time.
    pub fn end(self) -> Result<()> {
        match self.scx {
            Some(scx) => scx.stop(),
            None => scx::check_disabled(),
        }
    }
}
