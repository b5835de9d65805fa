//! The subcommands: each file parses its arguments and calls the modules that do the work.

pub mod doctor;
pub mod irq;
pub mod metrics;
pub mod policy;
pub mod run;
pub mod status;
pub mod test;
pub mod top;
pub mod trace;
