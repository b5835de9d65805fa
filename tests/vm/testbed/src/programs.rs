//! What BPF programs cost (kernel.bpf_stats_enabled, Documentation/admin-guide/sysctl/kernel.rst).

use std::fs;

use anyhow::{Context, Result};
use libbpf_rs::query::ProgInfoIter;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The kernel counts runs and times of programs until this is dropped.
pub struct Counting;

impl Counting {
    pub fn start() -> Result<Self> {
        fs::write(SWITCH, "1").context(SWITCH)?;
        Ok(Self)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, "0");
    }
}

/// A loaded program and its counts so far.
#[derive(Clone, Debug)]
pub struct Program {
    pub id: u32,
    pub name: String,
    pub runs: u64,
    pub ns: u64,
    /// Instructions that the verifier followed.
    pub verified: u32,
}

pub fn all() -> Vec<Program> {
    let program = |info: libbpf_rs::query::ProgramInfo| Program {
        id: info.id,
        name: info.name.to_string_lossy().into_owned(),
        runs: info.run_cnt,
        ns: info.run_time_ns,
        verified: info.verified_insns,
    };
    ProgInfoIter::default().map(program).collect()
}

/// How much each program has run since `before`, the most time first. Programs that did not run are
/// left out.
pub fn since(before: &[Program]) -> Vec<Program> {
    let mut programs = all();
    for program in &mut programs {
        if let Some(before) = before.iter().find(|before| before.id == program.id) {
            program.runs -= before.runs;
            program.ns -= before.ns;
        }
    }
    programs.retain(|program| program.runs > 0);
    programs.sort_by_key(|program| std::cmp::Reverse(program.ns));
    programs
}
