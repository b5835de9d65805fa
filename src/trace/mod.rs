//! Which tasks, on which CPUs, run the kernel's data-plane functions.

pub mod attach;
mod bpf;
mod btf;
pub mod counts;
pub mod events;
pub mod feed;
pub mod home;
pub mod mark;
pub mod module;
pub mod report;
pub mod session;
pub mod suggest;
mod symbols;
pub mod target;
mod uevents;
mod view;
