//! Interrupts: which exist, which NICs have them and which CPUs take them; and how to move
//! those of NICs, safely and reversibly.
//!
//! A [`host::Host`] is the machine that all of this works on.

pub mod banned;
pub mod host;
pub mod inventory;
pub mod irqbalance;
pub mod place;
pub mod show;
#[cfg(test)]
pub(crate) mod tree;
