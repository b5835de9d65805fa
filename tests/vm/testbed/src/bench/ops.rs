//! What each BPF program costs (kernel.bpf_stats_enabled, Documentation/admin-guide/sysctl/kernel.rst).

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::query::ProgInfoIter;

use crate::scheduler::Engaged;

use super::cyclictest::{Cyclictest, Run};
use super::record::Part;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// A part for each program: calls, ns of each, and the instructions that the verifier
/// followed. A priority task wakes up meanwhile.
pub fn measure(engaged: &Engaged, duration: Duration) -> Result<Vec<Part>> {
    let interval = Duration::from_millis(1);
    let on = Stats::on()?;
    let run = Run { priority: true, tasks: 1, interval, duration };
    Cyclictest::start(run, engaged)?.latencies(0)?;
    let programs = ProgInfoIter::default();
    let parts = programs.map(|program| Part {
        part: program.name.to_string_lossy().into_owned(),
        ..Part::of([
            ("calls", program.run_cnt as f64),
            ("ns", program.run_time_ns as f64 / program.run_cnt.max(1) as f64),
            ("instructions", f64::from(program.verified_insns)),
        ])
    });
    let parts = parts.collect();
    drop(on);
    Ok(parts)
}

struct Stats;

impl Stats {
    fn on() -> Result<Self> {
        fs::write(SWITCH, "1").context(SWITCH)?;
        Ok(Self)
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, "0");
    }
}
