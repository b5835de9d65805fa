//! `gthctl run`: the service that keeps a policy in force, and how others talk to it.

mod again;
mod allocations;
mod api_config;
pub mod config;
pub mod control;
mod explain;
mod ext_servers;
pub mod last_run;
pub mod live;
mod manager;
pub mod marker;
mod marker_udp;
mod missed;
mod node_pods;
mod outcome;
mod pod_counters;
mod pod_nic_looks;
pub mod report_tables;
pub mod reports;
mod rule_tasks;
pub mod service;
mod strategies;
mod throttled;
pub mod watch;
