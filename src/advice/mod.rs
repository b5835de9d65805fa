//! The adviser: what to do about what a trace and the interrupts show.
//!
//! `gthctl trace --suggest` prints a policy, `gthctl irq advise` prints placements.

mod packets;
pub mod placement;
pub mod suggested_policy;
