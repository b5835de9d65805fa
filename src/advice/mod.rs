//! What to do about what a trace and the interrupts show.

pub mod placement;
pub mod suggested_policy;
