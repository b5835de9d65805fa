//! Policies: which tasks are treated specially, and how; and where interrupts go.
//!
//! `parse` reads a policy file into the types of `model`; `compile` makes of them what the
//! scheduler's tables hold.

pub mod cgroups;
pub mod compile;
pub mod diff;
pub mod forgery;
pub(crate) mod globs;
mod model;
mod parse;
pub mod patterns;
pub mod resolve;

pub use model::{
    Conditions, Effects, Gtp, MAX_RULES, Policy, Priority, Rule, SLICE_RANGE, regex_syntax_config,
};
pub use parse::placements::KEYS as IRQ_KEYS;
pub use parse::rule::{GTP_KEYS, KEYS, MAX_NAME};
