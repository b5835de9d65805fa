//! Metrics of the running gthctl for Prometheus: as text, and over HTTP.

pub mod server;
pub mod text;
