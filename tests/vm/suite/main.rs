//! Tests on a real kernel: gthctl is driven as a user would, and what it did is
//! read from the kernel (sysfs, /proc), not from gthctl's words alone.
//!
//! Run as root in the test VM by tests/vm/test, one at a time: there is only one
//! scheduler a machine.

mod conditions;
mod cost;
mod daemon;
mod exclusive;
mod fairness;
mod files;
mod gthctl;
mod gtp5g;
mod hot;
mod identity;
mod irq;
mod kernel;
mod kubernetes;
mod lifecycle;
mod matching;
mod mix;
mod placement;
mod plane;
mod policy;
mod priority;
mod reload;
mod robustness;
mod sender;
mod shares;
mod stalls;
mod task;
mod tickless;
mod timing;
mod trace;
mod traffic;
mod verifier;
