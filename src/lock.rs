//! One scheduler a machine: a lock file that holds its owner's PID.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{Error, ExitCode, Result};

/// The lock file of `gthctl run`.
pub const RUN_LOCK: &str = "/run/gthctl.lock";

/// Held until dropped, or until the process ends in whatever way (flock(2)).
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] Flock<File>);

impl Lock {
    /// Takes the lock at `path`.
    ///
    /// Fails with [`ExitCode::AlreadyRunning`] and the owner's PID when another
    /// process holds it.
    pub fn take(path: &Path) -> Result<Self> {
        let failed = |e: &dyn std::fmt::Display| Error::failure(format!("{}: {e}", path.display()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| failed(&e))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                lock.set_len(0)
                    .and_then(|()| writeln!(lock, "{}", std::process::id()))
                    .map_err(|e| failed(&e))?;
                Ok(Self(lock))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                let owner = match owner.trim() {
                    "" => "another process".to_owned(),
                    pid => format!("PID {pid}"),
                };
                let what = format!("gthctl is running already ({owner})");
                Err(Error::new(ExitCode::AlreadyRunning, what).help("stop it first"))
            }
            Err((_, e)) => Err(failed(&e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path).unwrap();
        let e = Lock::take(&path).unwrap_err();
        assert_eq!(e.code, ExitCode::AlreadyRunning);
        assert!(e.what.contains(&format!("PID {}", std::process::id())), "{e}");
        drop(held);
        assert!(Lock::take(&path).is_ok());
    }
}
