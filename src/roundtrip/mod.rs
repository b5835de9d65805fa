//! Round trips to a user plane, idle and under load: what `gthctl test` measures.

mod echo;
mod load;
mod own_scheduler;
mod probe;
mod table;
mod times;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signalfd::SignalFd;
use serde::Serialize;

use self::load::Load;
use self::own_scheduler::OwnScheduler;
use self::probe::Prober;
pub use self::table::table;
use self::times::Times;
use crate::base::error::Result;
use crate::base::signals::{catch_signals, sleep};
use crate::kernel::sched_ext::{SCHED_EXT, State};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address that answers.
    pub to: SocketAddr,
    /// How long each row takes.
    pub duration: Duration,
    /// The time from one probe to the next.
    pub interval: Duration,
    /// Spinning threads for each CPU; none if absent.
    pub load: Option<u32>,
    /// Also measure while gthctl schedules by this policy.
    pub policy: Option<PathBuf>,
}

/// What was measured, in the form that `-o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub to: SocketAddr,
    pub cpus: usize,
    /// The spinning threads of the rows under load.
    pub threads: usize,
    pub rows: Vec<Row>,
}

/// One situation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    pub loaded: bool,
    /// The sched_ext scheduler in the kernel, such as gthctl; `kernel` for the kernel's own.
    pub scheduler: String,
    #[serde(flatten)]
    pub times: Times,
}

impl Plan {
    /// How many rows there will be.
    pub fn rows(&self) -> u32 {
        1 + u32::from(self.load.is_some()) + u32::from(self.policy.is_some())
    }

    /// A report without a row yet.
    ///
    /// Fails if another gthctl runs, as the policy could not come into force then.
    pub fn begin(&self) -> Result<Report> {
        if self.policy.is_some() {
            OwnScheduler::may_start()?;
        }
        let cpus = load::cpus()?;
        let threads = cpus * self.load.unwrap_or(0) as usize;
        Ok(Report { to: self.to, cpus, threads, rows: Vec::new() })
    }

    /// Measures idle, under the load, and under the load with the policy. SIGINT and SIGTERM end
    /// the measurement. What has been measured by then, or up to an error, is in the report.
    ///
    /// Fails if a probe cannot be sent or a row has no answer, or if the policy does not come into
    /// force.
    pub fn measure(&self, report: &mut Report) -> Result<()> {
        let signals = catch_signals()?;
        let threads = report.threads;
        let is_stopped = || sleep(&signals, None, Duration::ZERO);
        report.rows.extend(self.row("idle".into(), 0, &signals)?);
        if threads > 0 && !is_stopped()? {
            report.rows.extend(self.row("under load".into(), threads, &signals)?);
        }
        if let Some(policy) = &self.policy
            && !is_stopped()?
            && let Some(own) = OwnScheduler::start(policy, &signals)?
        {
            let name = policy.file_name().unwrap_or_default().to_string_lossy();
            let under = if threads > 0 { "under load, " } else { "" };
            report.rows.extend(self.row(format!("{under}{name}"), threads, &signals)?);
            own.stop()?;
        }
        Ok(())
    }

    /// `None` if a signal came before a probe was answered or lost.
    fn row(&self, name: String, threads: usize, signals: &SignalFd) -> Result<Option<Row>> {
        let mut prober = Prober::new(self.to, signals)?;
        let scheduler = match State::read(Path::new(SCHED_EXT)) {
            State::InUse { name, .. } => name,
            State::Missing | State::Disabled => "kernel".into(),
        };
        let load = Load::start(threads)?;
        let times = prober.run(self.duration, self.interval)?;
        drop(load);
        Ok(times.map(|times| Row { name, loaded: threads > 0, scheduler, times }))
    }
}
