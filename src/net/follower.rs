//! A thread that follows a server and hands over what it knows.

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::select;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::runtime;
use tokio::sync::oneshot;

use crate::base::error::{Error, Result};
use crate::base::signals;

/// Runs in its own thread, until dropped.
///
/// The descriptor is readable when [`Follower::state`] has something new.
pub struct Follower<T> {
    pub(crate) known: Arc<Known<T>>,
    /// Dropping it tells the thread to end.
    _stop: oneshot::Sender<()>,
}

/// What the thread knows.
pub struct Known<T> {
    state: Mutex<T>,
    wake: EventFd,
}

impl<T: Clone + Default + PartialEq + Send + 'static> Follower<T> {
    /// Starts a thread called `name` with a runtime, which runs what `follow` returns.
    ///
    /// Fails only when the process can get no more descriptors or threads; `what` says in
    /// the error what the thread was for.
    pub fn start<F: Future>(
        name: &str,
        what: &str,
        follow: impl FnOnce(Arc<Known<T>>) -> F + Send + 'static,
    ) -> Result<Self> {
        let failed = |e: std::io::Error| Error::failure(format!("{what}: {e}"));
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| failed(e.into()))?;
        let known = Arc::new(Known { state: Mutex::default(), wake });
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let told = Arc::clone(&known);
        // The thread takes no signals. Writing to a closed connection is an error to report there,
        // not the end of the process (SIGPIPE).
        let run = move || {
            runtime.block_on(async {
                let follow = pin!(follow(told));
                select(stopped, follow).await;
            });
        };
        signals::spawn(name, run).map_err(failed)?;
        Ok(Self { known, _stop: stop })
    }

    /// What is known now; the descriptor is not readable until that changes.
    pub fn state(&self) -> T {
        let state = self.known.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.known.wake.read();
        state.clone()
    }
}

impl<T> AsFd for Follower<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.known.wake.as_fd()
    }
}

impl<T: Clone + PartialEq> Known<T> {
    /// Updates what is known and wakes the reader if that changed it.
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.clone();
        change(&mut state);
        if *state != before {
            let _ = self.wake.write(1);
        }
    }
}
