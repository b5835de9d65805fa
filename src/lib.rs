//! gthctl: CPU scheduling for network data planes.
//!
//! The modules hold the logic and can be called without root; `main` and the
//! files under `cmd/` only parse and call.

pub mod cli;
mod clock;
pub mod cmd;
mod comm;
pub mod config;
pub mod control;
pub mod cpulist;
pub mod error;
mod escape;
mod explain;
pub mod irq;
mod libbpf_log;
pub mod live;
pub mod lock;
pub mod log;
pub mod pods;
pub mod policy;
pub mod proc;
mod replace;
pub mod sched;
pub mod service;
mod suggest;
pub mod topology;
pub mod trace;
pub mod trust;
pub mod units;
pub mod view;
mod wait;
pub mod watch;
mod yaml;
