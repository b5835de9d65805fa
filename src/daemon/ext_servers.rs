//! Starts the kernel's ext servers that have stopped though tasks wait for their CPUs
//! (bpf/sched/server.bpf.h). The kernel itself starts one only when a CPU that had no task of sched_ext
//! gets one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::kernel::ext_server::{self, EXT_SERVERS};
use crate::sched::Scheduler;

/// How often to look. The kernel takes 0.95 s more before a server gives its part.
const LOOK: Duration = Duration::from_secs(1);

/// When to look for servers to start.
#[derive(Default)]
pub struct ExtServers {
    /// The next look; `None`: now.
    due: Option<Instant>,
}

impl ExtServers {
    /// Starts those that have stopped, when it is time to. Returns the time until the next look.
    pub fn follow(&mut self, scheduler: &mut Scheduler<'_>) -> Result<Duration> {
        let now = Instant::now();
        if let Some(due) = self.due.filter(|&due| due > now) {
            return Ok(due - now);
        }
        self.due = Some(now + LOOK);
        for cpu in scheduler.stopped_servers()? {
            ext_server::start(Path::new(EXT_SERVERS), cpu)?;
        }
        Ok(LOOK)
    }
}
