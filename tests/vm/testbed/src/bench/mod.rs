//! The benchmark: gthctl, the kernel's own means and other sched_ext schedulers, side by side.
//!
//! Every measure is taken of every candidate in turn, round after round, so that whatever
//! slows the machine down for a while slows them all. What was measured is kept in a file as
//! it comes ([`record`]), so that another VM goes on where one ended.

pub mod crowd;
pub mod cyclictest;
pub mod ops;
pub mod overhead;
pub mod page;
pub mod plan;
pub mod plot;
pub mod quick;
pub mod ratios;
pub mod record;
pub mod run;
pub mod summary;
pub mod throughput;
pub mod usable;
pub mod wakeup;
