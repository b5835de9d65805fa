//! The RTT measurement: every row once in each round, its samples pooled.

use anyhow::Result;

use crate::host::Usage;
use crate::load::{Amount, Load};
use crate::scheduler::{Engaged, Scheduler};
use crate::{ping, report};

/// What a row measures, and what it is called in the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub scheduler: Scheduler,
    pub load: bool,
}

/// How much to measure.
pub struct Plan {
    pub probes: usize,
    pub interval_ms: u32,
    pub rounds: usize,
    /// The load that stress-ng makes.
    pub amount: Amount,
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
    let engaged = Engaged::new(&row.scheduler)?;
    let load = row.load.then(|| Load::start(plan.amount)).transpose()?;

    let measured = ping::measure(plan.probes, plan.interval_ms, &engaged)?;
    load.map(Load::stop).transpose()?;
    engaged.end()?;
    Ok(measured)
}
