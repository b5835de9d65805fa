//! What the tests build on: the gthctl under test, tasks, data planes, the kernel's view.

pub mod cgroup;
pub mod cluster;
pub mod gthctl;
pub mod halt;
pub mod host;
pub mod hot;
pub mod kernel;
pub mod mix;
pub mod nic;
pub mod plane;
pub mod sender;
pub mod shared;
pub mod task;
#[path = "../../../../src/net/test_server.rs"]
#[allow(dead_code)]
pub mod test_server;
pub mod trace;
pub mod vm;
