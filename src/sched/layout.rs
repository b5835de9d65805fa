//! The layout of the scheduler's tables, from bpf/intf.h. Policies are compiled for this layout.
//!
//! It is a layer below `policy`: it uses the BPF program's types and nothing else of `sched`.

use crate::kernel::skeletons::scheduler::types::{gth_limit, gth_mask};

/// A set of rules, one bit each.
pub type RuleSet = u128;

/// Sizes of the tables.
pub struct Limits;

impl Limits {
    pub const CPUS: usize = gth_limit::GTH_MAX_CPUS.0 as usize;
    pub const LLCS: usize = gth_limit::GTH_MAX_LLCS.0 as usize;
    pub const RULES: usize = gth_limit::GTH_MAX_RULES.0 as usize;
    /// Rows of the rules' counters.
    pub const RULE_ROWS: usize = gth_limit::GTH_RULE_ROWS.0 as usize;
    /// Rows of the pods' counters.
    pub const POD_ROWS: usize = gth_limit::GTH_POD_ROWS.0 as usize;
    /// Sets of exclusive CPUs.
    pub const RESERVED: usize = gth_limit::GTH_MAX_RESERVED.0 as usize;
    /// Cgroups with the cpu controller, including the root.
    pub const GROUPS: usize = gth_limit::GTH_MAX_GROUPS.0 as usize;
    pub const DFAS: usize = gth_limit::GTH_MAX_DFAS.0 as usize;
    pub const STATES: usize = gth_limit::GTH_MAX_STATES.0 as usize;
    pub const TRANS: usize = gth_limit::GTH_MAX_TRANS.0 as usize;
    /// Per policy, as is the next one.
    pub const TRAFFIC_CONDITIONS: usize = gth_limit::GTH_MAX_TRAFFIC.0 as usize;
    pub const FUNCTIONS: usize = gth_limit::GTH_MAX_FUNCTIONS.0 as usize / 2;
}

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
