//! Which interrupts there are, whose they are and which CPUs take them.
//!
//! Nothing here changes anything.

/// What /proc/interrupts has counted.
pub mod interrupts;
#[cfg(test)]
mod tree;
