//! The scheduler in the kernel: load, attach, feed, watch, unload.

pub mod activity;
pub mod exit;
mod groups;
mod hooks;
pub mod kernel_types;
pub mod layout;
pub mod limited;
pub mod passed;
pub mod rows;
pub mod rule_stats;
pub mod scheduler;
pub mod stats;
pub mod tables;
#[cfg(test)]
pub(crate) mod test_btf;
pub mod traffic;
pub mod verdict;
pub mod watchdog;

pub use scheduler::{Scheduler, Settings};
