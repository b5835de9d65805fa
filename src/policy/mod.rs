//! Policies: which tasks get special treatment, which kind, and where interrupts go.
//!
//! `parse` reads a policy file into the types of `model`; `compile` turns them into the
//! contents of the scheduler's tables.

pub mod allocated;
pub mod cgroups;
pub mod compile;
pub mod diff;
pub mod forgery;
pub(crate) mod globs;
mod model;
mod parse;
pub mod patterns;
pub mod pod_nics;
mod reserve;
pub mod resolve;

pub use model::{
    Conditions, CpuLimit, Cpus, Effects, Gtp, IrqEntry, MAX_RULES, NO_POD, Policy, Priority, Rule,
    SLICE_RANGE, regex_syntax_config,
};
pub use parse::placements::KEYS as IRQ_KEYS;
pub use parse::rule::{GTP_KEYS, KEYS, MAX_NAME};
