//! Which interrupts there are, whose they are and which CPUs take them; and moving those
//! of NICs, safely and reversibly.
//!
//! [`plan::Plan::of`] finds what a [`plan::Placement`] changes, [`pin::apply`] does it and
//! saves what was there, [`drift::look`] tells what has been moved since, and
//! [`restore::restore`] puts everything back. [`keep::Keeper`] does so for a policy. Those
//! are for any caller; the directories that they work on are [`roots::Roots`].

/// Where they had better go.
pub mod advise;
/// The CPUs that an IRQ may go to.
pub mod affinity;
/// What irqbalance is told about them.
mod ban;
/// CPUs that exclusive rules share with interrupts.
pub mod collide;
/// The NICs under a network device.
pub mod device;
/// What is no longer where it was put.
pub mod drift;
/// The file that irqbalance is started with.
mod environment;
/// What /proc/interrupts has counted.
pub mod interrupts;
/// The irqbalance daemon.
pub mod irqbalance;
/// Keeping them where a policy wants them.
pub mod keep;
mod kind;
/// All that is known of NICs' interrupts.
pub mod list;
/// The NICs under a virtual network device.
pub mod lower;
mod mask;
/// The IRQs of a NIC.
pub mod nic;
/// Putting interrupts where a plan says.
pub mod pin;
/// What is to go where.
pub mod plan;
/// The queue that an IRQ's name tells.
pub mod queue;
/// RPS and XPS.
pub mod queues;
/// Putting back what was there.
pub mod restore;
/// The directories that all this is about.
pub mod roots;
/// What was there before.
pub mod saved;
/// One thing with a set of CPUs.
pub mod target;
#[cfg(test)]
mod tree;
/// How it is shown.
pub mod view;
/// Keeping them in a thread of its own.
pub mod worker;
