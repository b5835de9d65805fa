//! Which interrupts exist, which NICs have them and which CPUs take them.

pub mod affinity;
pub mod device;
pub mod interrupts;
pub(super) mod kind;
pub mod list;
pub mod lower;
pub(super) mod mask;
pub mod nic;
pub mod queue;
pub mod source;
pub mod steering;
