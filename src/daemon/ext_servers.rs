//! Starts the kernel's ext servers that have stopped though tasks wait for their CPUs
//! (bpf/sched/server.bpf.h). The kernel itself starts one only when a CPU that had no task of sched_ext
//! gets one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::kernel::ext_server::{self, EXT_SERVERS};
use crate::sched::Scheduler;

/// How often to look. The kernel takes 0.95 s more before a server gives its part.
const LOOK: Duration = Duration::from_secs(1);

/// When to look for servers to start.
#[derive(Default)]
pub struct ExtServers {
    /// The next look; `None`: now.
    due: Option<Instant>,
    /// Why the last look failed. The same until one succeeds, whichever CPUs it is about.
    failed: Option<Error>,
}

impl ExtServers {
    /// Starts those that have stopped, when it is time to. Returns the time until the next look.
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

/// Starts each of them; the first error.
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
