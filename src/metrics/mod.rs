//! Metrics of the running gthctl: for Prometheus as text and over HTTP, for sched_ext's tools at a socket.

mod background;
mod gthulhu_names;
pub mod http_server;
mod out;
mod scx_stats;
pub mod stats_socket;
#[cfg(test)]
mod test_metrics;
pub mod text;
