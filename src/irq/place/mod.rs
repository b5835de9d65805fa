//! Moving NICs' interrupts, safely and reversibly.
//!
//! [`plan::Plan::of`] finds what a [`plan::Placement`] changes, [`pin::apply`] does it and
//! saves what was there, [`drift::look`] tells what has been moved since, and
//! [`restore::restore`] puts everything back. [`keep::Keeper`] does so for a policy.

/// What irqbalance is told about them.
mod ban;
/// CPUs that exclusive rules share with interrupts.
pub mod collide;
/// What is no longer where it was put.
pub mod drift;
/// Keeping them where a policy wants them.
pub mod keep;
/// Putting interrupts where a plan says.
pub mod pin;
/// What is to go where.
pub mod plan;
/// Putting back what was there.
pub mod restore;
/// What was there before.
pub mod saved;
/// One thing with a set of CPUs.
pub mod target;
/// Keeping them in a thread of its own.
pub mod worker;
