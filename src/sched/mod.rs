//! The scheduler in the kernel: load, attach, feed, watch, unload.

pub mod activity;
pub mod counter_rows;
pub mod exit;
mod groups;
mod hooks;
pub mod kernel_types;
pub mod layout;
pub mod limited;
pub mod passed;
pub mod policy_tables;
pub mod rule_stats;
pub mod scheduler;
pub mod stats;
#[cfg(test)]
pub(crate) mod test_btf;
pub mod traffic;
pub mod verdict;
pub mod watchdog;

pub use scheduler::{Rules, Scheduler, Settings};
