//! Which tasks, on which CPUs, run the kernel's data-plane functions.

pub mod attach;
pub mod counts;
mod drops;
pub mod events;
pub mod feed;
pub mod functions;
pub mod histogram;
mod latency;
mod pace;
mod rates;
pub mod rows;
mod screen;
mod sections;
pub mod session;
pub mod target;
mod teids;
mod times;
pub mod udp;
mod verdicts;
pub mod xdp;
mod xdp_runs;
mod xdp_screen;
mod xdp_tracer;
