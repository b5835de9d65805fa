//! gthctl: CPU scheduling for network data planes.
//!
//! The modules hold the logic and can be called without root; `main` and the
//! files under `cmd/` only parse and call.
//!
//! They are listed in layers: each uses only those above it (tests/layers.rs).

pub mod base;
pub mod kernel;

pub mod gtp;
pub mod net;

pub mod irq;
pub mod pods;

pub mod policy;

pub mod decision_maker;
pub mod sched;
pub mod trace;

pub mod advice;
pub mod daemon;

pub mod doctor;
pub mod metrics;
pub mod roundtrip;
pub mod top;

pub mod overview;

pub mod cli;
pub mod cmd;
