//! Which interrupts there are, whose they are and which CPUs take them; and moving those
//! of NICs, safely and reversibly.
//!
//! Those are for any caller; the machine that they work on is a [`host::Host`].

/// The machine that all this is about.
pub mod host;
/// What there is.
pub mod inventory;
/// The irqbalance daemon.
pub mod irqbalance;
/// What goes where.
pub mod place;
/// How it is shown.
pub mod show;
#[cfg(test)]
pub(crate) mod tree;
