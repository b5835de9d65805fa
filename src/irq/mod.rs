//! Which interrupts there are, whose they are and which CPUs take them.
//!
//! Nothing here changes anything.

/// The CPUs that an IRQ may go to.
pub mod affinity;
/// The NICs under a network device.
pub mod device;
/// What /proc/interrupts has counted.
pub mod interrupts;
/// The irqbalance daemon.
pub mod irqbalance;
mod kind;
/// All that is known of NICs' interrupts.
pub mod list;
/// The NICs under a virtual network device.
pub mod lower;
mod mask;
/// The IRQs of a NIC.
pub mod nic;
/// The queue that an IRQ's name tells.
pub mod queue;
/// RPS and XPS.
pub mod queues;
/// The directories that all this is about.
pub mod roots;
#[cfg(test)]
mod tree;
