//! One look at the machine: what the running gthctl says, and what /proc counts.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use super::proc::{self, CpuTimes, TaskTimes};
use crate::base::error::Result;
use crate::base::time;
use crate::daemon::control::{Reply, Request, client};
use crate::daemon::reports::{Explanation, Metrics, RuleTask};

/// How long the running gthctl may take to answer: it does so between two of its steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where samples come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The running gthctl's socket.
    pub socket: PathBuf,
    /// /proc except in tests.
    pub proc_root: PathBuf,
}

/// Counters at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time since boot.
    pub at: Duration,
    pub cpus: BTreeMap<u32, CpuTimes>,
    /// What the running gthctl says, or why it says nothing.
    pub gthctl: Result<Answers>,
}

/// What the running gthctl says, with the times of the tasks that it names.
#[derive(Clone, Debug)]
pub struct Answers {
    pub metrics: Metrics,
    pub tasks: Vec<RuleTask>,
    /// By TID.
    pub times: HashMap<u32, TaskTimes>,
}

impl Source {
    /// Looks once. Fails only without /proc.
    pub fn sample(&self) -> Result<Sample> {
        let gthctl = self.answers();
        let cpus = proc::cpus(&self.proc_root)?;
        Ok(Sample { at: Duration::from_nanos(time::monotonic()?), cpus, gthctl })
    }

    /// Which rule a thread falls under, and why.
    pub fn explain(&self, tid: u32) -> Result<Explanation> {
        match self.ask(&Request::Explain { tid })? {
            Reply::Explain(explanation) => Ok(explanation),
            _ => Err(client::puzzled()),
        }
    }

    fn answers(&self) -> Result<Answers> {
        let Reply::Metrics(metrics) = self.ask(&Request::Metrics)? else {
            return Err(client::puzzled());
        };
        let Reply::Tasks(tasks) = self.ask(&Request::Tasks)? else {
            return Err(client::puzzled());
        };
        let tasks = tasks.tasks;
        let times =
            |task: &RuleTask| Some((task.tid, proc::task(&self.proc_root, task.pid, task.tid)?));
        let times = tasks.iter().filter_map(times).collect();
        Ok(Answers { metrics: *metrics, tasks, times })
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        client::ask_within(&self.socket, request, PATIENCE)
    }
}
