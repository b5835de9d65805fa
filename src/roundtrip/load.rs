//! Threads that keep every CPU busy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::base::error::{Error, Result};
use crate::kernel::topology::{SYSFS, Topology};

/// Spinning threads, until dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `threads` threads. The scheduler decides where they run.
    pub fn start(threads: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self { stop, threads: Vec::new() };
        for _ in 0..threads {
            let stop = Arc::clone(&load.stop);
            let spin = move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(0);
                }
            };
            let thread = Builder::new().name("gthctl-load".into()).spawn(spin);
            load.threads.push(thread.map_err(|e| Error::because_of("a thread of the load", e))?);
        }
        Ok(load)
    }
}

/// How many CPUs are online.
pub fn cpus() -> Result<usize> {
    Ok(Topology::read(Path::new(SYSFS))?.online.len())
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn its_threads_run_until_it_is_dropped() {
        let named = || {
            let tasks =
                std::fs::read_dir("/proc/self/task").unwrap().map_while(std::result::Result::ok);
            let comm = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
            tasks.map(comm).filter(|comm| comm.as_ref().is_ok_and(|c| c == "gthctl-load\n")).count()
        };
        let load = Load::start(3).unwrap();
        while named() < 3 {
            std::thread::yield_now();
        }
        drop(load);
        // A thread that has been joined may still be listed.
        let begin = Instant::now();
        while named() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }
}
