//! The GTP data plane of gthctl's test VM, and the measurements on it.
//!
//! ```text
//!  netns ran                      netns upf                    netns dn
//!  uesimtun0 ─ nr-gnb ─ n3 ═════ n3 ─ gtp0 ─ (routing) ─ n6 ═══ n6
//!  10.60.0.1   UDP 2152  10.100.0.0/24  kernel gtp  10.200.0.0/24
//! ```
//!
//! With the module tests/vm/modules/gtp5g.c instead of the kernel's driver, gtp0 is upfgtp.

pub mod alias;
pub mod arguments;
pub mod bench;
pub mod boost;
pub mod cgroups;
pub mod gtp;
pub mod host;
pub mod instructions;
pub mod isolation;
pub mod load;
pub mod netns;
pub mod pdp;
pub mod ping;
pub mod pinning;
pub mod plane;
pub mod process;
pub mod profile;
pub mod programs;
pub mod report;
pub mod rtt;
pub mod scheduler;
pub mod scx;
pub mod stats;
pub mod trace;
