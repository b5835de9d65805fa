//! The RTT measurement: every row once in each round, its samples pooled.

use std::path::PathBuf;

use anyhow::Result;

use crate::gthctl::{self, Gthctl};
use crate::host::Usage;
use crate::load::{Amount, Load};
use crate::plane;
use crate::realtime::Realtime;
use crate::{ping, report};

/// Who schedules during a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    Eevdf,
    Fifo,
    Gthctl { binary: PathBuf, config: PathBuf },
}

/// What a row measures, and how it is called in the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub scheduler: Scheduler,
    pub load: bool,
}

/// How much is measured.
pub struct Plan {
    pub probes: usize,
    pub interval_ms: u32,
    pub rounds: usize,
    /// stress-ng's part.
    pub amount: Amount,
    /// Probes sent before the measured ones: they fill neighbour tables and caches.
    pub warm_up: usize,
}

/// Measures all rows. A failed row keeps its error and is not tried again.
pub fn measure(rows: &[Row], plan: &Plan) -> Vec<report::Row> {
    let mut results: Vec<report::Row> =
        rows.iter().map(|row| report::Row::new(row.name.clone())).collect();
    for round in 1..=plan.rounds {
        for (row, result) in rows.iter().zip(&mut results) {
            if result.error.is_some() {
                continue;
            }
            eprintln!("testbed: round {round} of {}: {}", plan.rounds, row.name);
            match measure_once(row, plan) {
                Ok((replies, host)) => {
                    result.host = host.map(|h| result.host.unwrap_or_default().plus(h));
                    result.sent += replies.sent;
                    result.rtt_ms.extend(replies.rtt_ms);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    eprintln!("testbed: {}: {error}", row.name);
                    result.error = Some(error);
                }
            }
        }
    }
    results
}

fn measure_once(row: &Row, plan: &Plan) -> Result<(ping::Replies, Option<Usage>)> {
    gthctl::check_disabled()?;
    let gthctl = match &row.scheduler {
        Scheduler::Gthctl { binary, config } => Some(Gthctl::start(binary, config)?),
        Scheduler::Eevdf | Scheduler::Fifo => None,
    };
    let realtime = row.scheduler == Scheduler::Fifo;
    let _fifo = realtime.then(|| Realtime::threads_of(plane::gnb_pid()?)).transpose()?;
    let load = row.load.then(|| Load::start(plan.amount)).transpose()?;

    ping::run(plan.warm_up, plan.interval_ms, realtime)?;
    let before = Usage::now();
    let replies = ping::run(plan.probes, plan.interval_ms, realtime)?;
    let host = before.zip(Usage::now()).map(|(before, after)| after.since(before));

    load.map(Load::stop).transpose()?;
    match gthctl {
        Some(gthctl) => gthctl.stop()?,
        None => gthctl::check_disabled()?,
    }
    Ok((replies, host))
}
