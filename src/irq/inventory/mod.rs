//! Which interrupts there are, whose they are and which CPUs take them.

/// The CPUs that an IRQ may go to.
pub mod affinity;
/// The NICs under a network device.
pub mod device;
/// What /proc/interrupts has counted.
pub mod interrupts;
pub(super) mod kind;
/// All that is known of NICs' interrupts.
pub mod list;
/// The NICs under a virtual network device.
pub mod lower;
pub(super) mod mask;
/// The IRQs of a NIC.
pub mod nic;
/// The queue that an IRQ's name tells.
pub mod queue;
/// RPS and XPS.
pub mod steering;
