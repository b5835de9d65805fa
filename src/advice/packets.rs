//! Where a trace's packets are processed: the basis of all advice.

use std::collections::BTreeMap;

use crate::base::cpulist::CpuList;
use crate::gtp::Stage;
use crate::trace::counts::Context;
use crate::trace::rows::Row;

/// The rows where packets enter the data plane: each packet counts once.
pub fn entries(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.stage == Stage::Entry && row.packets > 0)
}

/// How many packets each CPU has processed.
#[derive(Debug, Default)]
pub struct PacketsByCpu {
    /// Packets processed for a task.
    pub tasks: BTreeMap<u32, u64>,
    /// Packets processed for no task, in softirq.
    pub softirq: BTreeMap<u32, u64>,
}

impl PacketsByCpu {
    pub fn of(rows: &[Row]) -> Self {
        let mut all = Self::default();
        for row in entries(rows) {
            let cpus = match row.context {
                Context::Task => &mut all.tasks,
                Context::Softirq | Context::Idle => &mut all.softirq,
            };
            *cpus.entry(row.cpu as u32).or_default() += row.packets;
        }
        all
    }

    pub fn total(&self) -> u64 {
        self.tasks.values().chain(self.softirq.values()).sum()
    }
}

/// The CPUs that have processed at least `packets` packets.
pub fn with_at_least(packets: f64, cpus: &BTreeMap<u32, u64>) -> CpuList {
    cpus.iter().filter(|(_, n)| **n as f64 >= packets).map(|(cpu, _)| *cpu).collect()
}
