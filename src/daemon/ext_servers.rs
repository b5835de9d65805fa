//! Starts the kernel's ext servers that have stopped although tasks wait for their CPUs
//! (bpf/sched/server.bpf.h). The kernel itself starts a server only when a CPU without sched_ext tasks
//! gets its first one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::kernel::ext_server::{self, EXT_SERVERS};
use crate::sched::Scheduler;

/// How often to look for stopped servers. After a start, the kernel takes another 0.95 s before the
/// server gives tasks their share.
const LOOK: Duration = Duration::from_secs(1);

/// When to look for servers to start.
#[derive(Default)]
pub struct ExtServers {
    /// The next look; `None`: now.
    due: Option<Instant>,
    /// Why the last look failed. Until a look succeeds, this stays the first error, even if later
    /// errors concern other CPUs.
    failed: Option<Error>,
}

impl ExtServers {
    /// Starts the servers that have stopped, if it is time to look. Returns the time until the next
    /// look.
    pub fn follow(&mut self, scheduler: &mut Scheduler<'_>) -> Result<Duration> {
        let now = Instant::now();
        if let Some(due) = self.due.filter(|&due| due > now) {
            return self.failed.clone().map_or(Ok(due - now), Err);
        }
        self.due = Some(now + LOOK);
        let done =
            scheduler.stopped_servers().and_then(|cpus| start_all(Path::new(EXT_SERVERS), cpus));
        self.failed = done.err().map(|e| self.failed.take().unwrap_or(e));
        self.failed.clone().map_or(Ok(LOOK), Err)
    }
}

/// Starts the servers of all these CPUs. Returns the first error.
fn start_all(root: &Path, cpus: impl IntoIterator<Item = u32>) -> Result<()> {
    let started: Vec<Result<()>> =
        cpus.into_iter().map(|cpu| ext_server::start(root, cpu)).collect();
    started.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_that_cannot_be_started_keeps_no_other_from_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("cpu1")).unwrap();
        let runtime = dir.path().join("cpu1/runtime");
        fs::write(&runtime, "50000000\n").unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        fs::File::open(&runtime).unwrap().set_modified(long_ago).unwrap();
        let e = start_all(dir.path(), [0, 1]).unwrap_err();
        assert!(e.what.starts_with("CPU 0: "), "{e}");
        assert!(fs::metadata(&runtime).unwrap().modified().unwrap() != long_ago);
    }
}
