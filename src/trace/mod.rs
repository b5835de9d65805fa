//! Which tasks, on which CPUs, run the kernel's data-plane functions.

pub mod attach;
pub mod counts;
mod drops;
pub mod events;
pub mod feed;
pub mod functions;
pub mod histogram;
mod latency;
mod messages;
mod pace;
mod rates;
pub mod rows;
mod screen;
mod sections;
pub mod session;
mod teids;
mod time_plots;
pub mod traced;
pub mod udp;
mod verdicts;
mod xdp_runs;
mod xdp_screen;
pub mod xdp_session;
mod xdp_tracer;
