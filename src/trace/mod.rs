//! Which tasks, on which CPUs, run the kernel's data-plane functions.

pub mod attach;
pub mod counts;
pub mod events;
pub mod feed;
pub mod functions;
pub mod rows;
mod screen;
pub mod session;
pub mod udp;
