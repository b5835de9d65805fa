//! The layout of the scheduler's tables, from bpf/intf.h, and writing a
//! compiled policy into them.

use super::bpf::types::{self, gth_limit, gth_mask, gth_rank, gth_rule_flag};
use crate::policy::compile::{Compiled, Effect};

/// Sizes of the tables.
pub struct Limits;

impl Limits {
    pub const CPUS: usize = gth_limit::GTH_MAX_CPUS.0 as usize;
    pub const LLCS: usize = gth_limit::GTH_MAX_LLCS.0 as usize;
    pub const RULES: usize = gth_limit::GTH_MAX_RULES.0 as usize;
    pub const DFAS: usize = gth_limit::GTH_MAX_DFAS.0 as usize;
    pub const STATES: usize = gth_limit::GTH_MAX_STATES.0 as usize;
    pub const TRANS: usize = gth_limit::GTH_MAX_TRANS.0 as usize;
}

const _: () = assert!(Limits::RULES == crate::policy::MAX_RULES);
const _: () = assert!(Limits::CPUS == crate::cpulist::CpuList::MAX as usize);

/// Indices of the CPU masks (enum gth_mask).
pub struct MaskIndex;

impl MaskIndex {
    pub const NORMAL: u32 = gth_mask::GTH_MASK_NORMAL.0;

    pub fn llc(llc: usize) -> u32 {
        gth_mask::GTH_MASK_LLC.0 + llc as u32
    }

    pub fn rule(rule: usize) -> u32 {
        gth_mask::GTH_MASK_RULE.0 + rule as u32
    }

    /// The same mask in the set that `generation` uses.
    pub fn of_generation(index: u32, generation: u32) -> u32 {
        index + (generation & 1) * gth_mask::GTH_NR_MASKS.0
    }
}

/// Writes `policy` over the tables of `generation`, which no CPU may be reading.
///
/// The policy was held to [`Limits`] when it was compiled.
pub fn write(policy: &Compiled, nr_llcs: usize, generation: u32, tables: &mut types::gth_tables) {
    // Exclusive pools of odd generations have numbers of their own.
    let shift = (generation & 1) as usize * gth_limit::GTH_MAX_RESERVED.0 as usize;
    let number = |pool: usize| if pool < nr_llcs { pool } else { pool + shift };
    tables.nr_rules = policy.rules.len() as u32;
    tables.nr_dfas = policy.dfas.len() as u32;
    tables.nr_reserved = (policy.pool_cpus.len() - nr_llcs) as u32;
    tables.restricted = u32::from(!policy.reserved.is_empty());
    for (slot, effect) in tables.rules.iter_mut().zip(&policy.rules) {
        *slot = rule(effect);
        slot.pool = number(slot.pool.into()) as u16;
    }
    let (mut state_base, mut trans_base) = (0, 0);
    for (slot, dfa) in tables.dfas.iter_mut().zip(&policy.dfas) {
        slot.trans_base = trans_base as u32;
        slot.state_base = state_base as u32;
        slot.start = dfa.start;
        slot.stride = dfa.stride;
        slot.class = dfa.class;
        tables.trans[trans_base..][..dfa.trans.len()].copy_from_slice(&dfa.trans);
        for (accept, set) in tables.accept[state_base..].iter_mut().zip(&dfa.accept) {
            accept.word = [*set as u64, (*set >> 64) as u64];
        }
        trans_base += dfa.trans.len();
        state_base += dfa.accept.len();
    }
    for (slot, &pool) in tables.cpu_pool.iter_mut().zip(&policy.cpu_pool) {
        *slot = number(pool.into()) as u16;
    }
    tables.pool_cpus = [0; gth_limit::GTH_MAX_POOLS.0 as usize];
    for (pool, &cpus) in policy.pool_cpus.iter().enumerate() {
        tables.pool_cpus[number(pool)] = cpus;
    }
}

fn rule(effect: &Effect) -> types::gth_rule {
    let flag = |on: bool, flag: gth_rule_flag| if on { flag.0 as u8 } else { 0 };
    types::gth_rule {
        slice_ns: effect.slice_ns.unwrap_or(0),
        credit_ns: effect.credit_ns,
        // No task started at the end of time: a pid that is not there matches nothing.
        start_ticks: effect.by_pid.and_then(|process| process.start_ticks).unwrap_or(u64::MAX),
        pid: effect.by_pid.map_or(0, |process| process.pid),
        pool: effect.pool.unwrap_or(0),
        rank: effect.rank.unwrap_or(gth_rank::GTH_RANK_NORMAL.0 as u8),
        flags: flag(effect.by_comm, gth_rule_flag::GTH_RULE_COMM)
            | flag(effect.by_pid.is_some(), gth_rule_flag::GTH_RULE_PID)
            | flag(effect.has_cpus, gth_rule_flag::GTH_RULE_CPUS)
            | flag(effect.pool.is_some(), gth_rule_flag::GTH_RULE_EXCLUSIVE),
    }
}
