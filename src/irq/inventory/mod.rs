//! Which interrupts exist, which NICs have them and which CPUs take them.

/// The CPUs of an IRQ.
pub mod affinity;
/// The NICs under a network device.
pub mod device;
/// The counts in /proc/interrupts.
pub mod interrupts;
pub(super) mod kind;
/// NICs and their IRQs, with everything known about them.
pub mod list;
/// The NICs under a virtual network device.
pub mod lower;
pub(super) mod mask;
/// The IRQs of a NIC.
pub mod nic;
/// The queue of an IRQ.
pub mod queue;
/// The device of an IRQ.
pub mod source;
/// RPS and XPS.
pub mod steering;
