//! The adviser: what to do about the findings of a trace and of the interrupts.
//!
//! `gthctl trace --suggest` prints a policy, `gthctl irq advise` prints placements, and
//! `gthctl policy init` writes a first policy without a trace.

pub mod first_policy;
mod packets;
pub mod placement;
pub mod suggested_policy;
pub mod user_plane;
