//! Modules that every other module may use: errors, text, numbers, files. Nothing here knows what
//! gthctl is for.

pub mod atomic_file;
pub mod columns;
pub mod cpulist;
pub mod did_you_mean;
pub mod error;
pub mod escape;
pub mod excerpt;
pub mod finding;
pub mod lock;
pub mod log;
pub mod mistakes;
pub mod output;
pub mod ownership;
pub mod plot;
pub mod root;
pub mod signals;
pub mod symlinks;
pub mod time;
pub mod units;
pub mod yaml;
