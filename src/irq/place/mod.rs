//! Moving NICs' interrupts, safely and reversibly.
//!
//! [`plan::Plan::of`] finds what a [`wanted::Placement`] changes. [`pin::apply`] saves what is
//! there and makes the changes. [`drift::look`] shows what has been moved since.
//! [`restore::restore`] puts everything back. [`keep::Keeper`] does all of this for a policy.

/// Keeping interrupts away from CPUs.
mod avoid;
/// What gthctl tells irqbalance.
mod ban;
/// Exclusive CPUs that take interrupts.
pub mod collide;
/// What is no longer where it was put.
pub mod drift;
/// Keeping them where a policy wants them.
pub mod keep;
/// What is kept there.
pub mod kept;
/// Putting interrupts where a plan says.
pub mod pin;
/// What goes where.
pub mod plan;
/// Putting back what was there.
pub mod restore;
/// What was there before.
pub mod saved;
/// Which IRQs a placement selects.
mod selection;
/// Which CPUs each IRQ gets.
mod share;
/// What CPUs are set for.
pub mod target;
/// What a user wants.
pub mod wanted;
/// Keeping them in a separate thread.
pub mod worker;
