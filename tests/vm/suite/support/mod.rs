//! What the tests stand on: the gthctl under test, tasks, data planes, what the kernel says.

pub mod gthctl;
pub mod hot;
pub mod kernel;
pub mod mix;
pub mod nic;
pub mod plane;
pub mod sender;
pub mod shared;
pub mod task;
pub mod vm;
