//! Which interrupts there are, whose they are and which CPUs take them; and moving those
//! of NICs, safely and reversibly.
//!
//! Those are for any caller; the directories that they work on are [`roots::Roots`].

/// What there is.
pub mod inventory;
/// The irqbalance daemon.
pub mod irqbalance;
/// What goes where.
pub mod place;
/// The directories that all this is about.
pub mod roots;
/// How it is shown.
pub mod show;
#[cfg(test)]
pub(crate) mod tree;
