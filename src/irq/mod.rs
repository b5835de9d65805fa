//! Interrupts: which exist, which NICs have them and which CPUs take them; and how to move
//! those of NICs, safely and reversibly.
//!
//! A [`host::Host`] is the machine that all of this works on.

/// The CPUs that nobody wants interrupts on.
pub mod banned;
/// The machine.
pub mod host;
/// Which interrupts exist.
pub mod inventory;
/// The irqbalance daemon.
pub mod irqbalance;
/// What goes where.
pub mod place;
/// Interrupts as tables.
pub mod show;
#[cfg(test)]
pub(crate) mod tree;
