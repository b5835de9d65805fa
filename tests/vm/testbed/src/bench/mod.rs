//! The benchmark: gthctl, the kernel's own means and other sched_ext schedulers, side by side.
//!
//! It runs in virtual time (docs/performance.md). It writes results to a file as they come
//! ([`record`]), one file for each virtual machine.

pub mod compare;
pub mod crowd;
pub mod cyclictest;
pub mod figure;
pub mod ops;
pub mod overhead;
pub mod page;
pub mod path;
pub mod plan;
pub mod plot;
pub mod ratios;
pub mod record;
pub mod run;
pub mod table;
pub mod throughput;
pub mod usable;
pub mod wakeup;
pub mod work;
