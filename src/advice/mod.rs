//! The adviser: what to do about the findings of a trace and of the interrupts.
//!
//! `gthctl trace --suggest` prints a policy, `gthctl irq advise` prints placements.

mod packets;
pub mod placement;
pub mod suggested_policy;
