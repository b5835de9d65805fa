//! A thread of its own for a server, which ends when the server is dropped.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::base::signals;

/// How many answers are made at a time. Each of their threads asks the running gthctl.
const ANSWERS: usize = 2;
/// How long the end waits for answers that are being made.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The running server. Dropping it ends the thread.
pub struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs what `serve` returns in a thread with this name.
    pub fn start<F: Future<Output = ()>>(
        name: &str,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(ANSWERS).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve() => {}
                }
            });
            runtime.shutdown_timeout(LAST_ANSWERS);
        };
        let thread = signals::spawn(name, run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that has panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
