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

use serde::Serialize;

use self::load::Load;
use self::own_scheduler::OwnScheduler;
use self::probe::Prober;
pub use self::table::table;
use self::times::Times;
use crate::base::error::Result;
use crate::kernel::sched_ext::{SCHED_EXT, State};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who answers.
    pub to: SocketAddr,
    /// How long each row takes.
    pub duration: Duration,
    /// From one probe to the next.
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

    /// Measures idle, under the load, and under the load with the policy.
    ///
    /// Fails if a probe cannot be sent or a row has no answer, or if the policy does not come into
    /// force.
    pub fn measure(&self) -> Result<Report> {
        let cpus = load::cpus()?;
        let threads = cpus * self.load.unwrap_or(0) as usize;
        let mut rows = vec![self.row("idle".into(), 0)?];
        if threads > 0 {
            rows.push(self.row("under load".into(), threads)?);
        }
        if let Some(policy) = &self.policy {
            let own = OwnScheduler::start(policy)?;
            let name = policy.file_name().unwrap_or_default().to_string_lossy();
            let under = if threads > 0 { "under load, " } else { "" };
            rows.push(self.row(format!("{under}{name}"), threads)?);
            own.stop()?;
        }
        Ok(Report { to: self.to, cpus, threads, rows })
    }

    fn row(&self, name: String, threads: usize) -> Result<Row> {
        let mut prober = Prober::new(self.to)?;
        let scheduler = match State::read(Path::new(SCHED_EXT)) {
            State::InUse { name, .. } => name,
            State::Missing | State::Disabled => "kernel".into(),
        };
        let load = Load::start(threads)?;
        let times = prober.run(self.duration, self.interval)?;
        drop(load);
        Ok(Row { name, loaded: threads > 0, scheduler, times })
    }
}
