//! `gthctl top`: what the scheduler does, on a full screen, as text, in JSON.

pub mod model;
pub mod proc;
pub mod sample;
#[cfg(test)]
mod test_samples;
