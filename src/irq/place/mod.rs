//! Moving NICs' interrupts, safely and reversibly.
//!
//! [`plan::Plan::of`] finds what a [`wanted::Placement`] changes. [`pin::apply`] saves what is
//! there and makes the changes. [`drift::look`] shows what has been moved since.
//! [`restore::restore`] puts everything back. [`keep::Keeper`] does all of this for a policy.

mod avoid;
mod ban;
pub mod collide;
pub mod drift;
pub mod keep;
pub mod kept;
pub mod pin;
pub mod plan;
pub mod restore;
pub mod saved;
mod selection;
mod share;
pub mod target;
pub mod wanted;
pub mod worker;
