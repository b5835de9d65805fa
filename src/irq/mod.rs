//! Which interrupts there are, whose they are and which CPUs take them.
//!
//! Nothing here changes anything.

/// The CPUs that an IRQ may go to.
pub mod affinity;
/// What /proc/interrupts has counted.
pub mod interrupts;
/// The NICs under a virtual network device.
pub mod lower;
/// The IRQs of a NIC.
pub mod nic;
/// The queue that an IRQ's name tells.
pub mod queue;
#[cfg(test)]
mod tree;
