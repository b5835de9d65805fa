//! Which interrupts there are, whose they are and which CPUs take them.
//!
//! Nothing here changes anything.

/// The CPUs that an IRQ may go to.
pub mod affinity;
/// What /proc/interrupts has counted.
pub mod interrupts;
#[cfg(test)]
mod tree;
