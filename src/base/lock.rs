//! One process at a time: a lock file that holds its owner's PID.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::{Error, ExitCode, Result};

/// How often to check whether a lock is free.
const RETRY: Duration = Duration::from_millis(20);

/// Held until dropped or until the process ends, however that happens (flock(2)).
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] Flock<File>);

impl Lock {
    /// Takes the lock at `path`, in a directory that becomes this user's alone.
    ///
    /// Fails with [`ExitCode::AlreadyRunning`] and the owner's PID when another
    /// process holds it.
    pub fn take(path: &Path) -> Result<Self> {
        Self::attempt(path)?.map_err(|owner| {
            let what = format!("gthctl is already running ({owner})");
            Error::new(ExitCode::AlreadyRunning, what).help("stop it first")
        })
    }

    /// Takes the lock at `path` once it is free. Calls `patience` repeatedly, because the time to
    /// wait may change during the wait.
    ///
    /// Fails with the owner's PID when another process still holds the lock after that time.
    pub fn wait(path: &Path, patience: impl Fn() -> Duration) -> Result<Self> {
        let begin = Instant::now();
        loop {
            match Self::attempt(path)? {
                Ok(lock) => return Ok(lock),
                Err(_) if begin.elapsed() < patience() => std::thread::sleep(RETRY),
                Err(owner) => {
                    let what = format!("{}: held by {owner}", path.display());
                    return Err(Error::failure(what).help("try again after it has ended"));
                }
            }
        }
    }

    /// The lock, or its holder.
    fn attempt(path: &Path) -> Result<std::result::Result<Self, Owner>> {
        let failed = |e: &dyn std::fmt::Display| Error::failure(format!("{}: {e}", path.display()));
        make_private_dir(path.parent().unwrap_or(Path::new("/"))).map_err(|e| failed(&e))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|e| failed(&e))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                lock.set_len(0)
                    .and_then(|()| writeln!(lock, "{}", std::process::id()))
                    .map_err(|e| failed(&e))?;
                Ok(Ok(Self(lock)))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                Ok(Err(Owner { pid: owner.trim().parse().ok() }))
            }
            Err((_, e)) => Err(failed(&e)),
        }
    }
}

/// The holder of a lock.
struct Owner {
    /// `None` if the lock file does not contain it.
    pid: Option<u32>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "PID {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// Makes the directory `dir` and those above it, if they are missing; afterwards only
/// this user may enter it.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that can open the file for reading can lock it, so no one else may open it.
    #[test]
    fn nobody_else_comes_near_it() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = dir.path().join("run/lock");
        drop(Lock::take(&path).unwrap());
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        drop(Lock::take(&path).unwrap());
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }

    #[test]
    fn only_one_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path).unwrap();
        let e = Lock::take(&path).unwrap_err();
        assert_eq!(e.code, ExitCode::AlreadyRunning);
        assert!(e.what.contains(&format!("PID {}", std::process::id())), "{e}");
        let e = Lock::wait(&path, || Duration::from_millis(50)).unwrap_err();
        assert!(e.what.ends_with(&format!("held by PID {}", std::process::id())), "{e}");
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || Lock::wait(&path, || Duration::from_secs(30)).is_ok()
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(held);
        assert!(waiting.join().unwrap());
        assert!(Lock::take(&path).is_ok());
    }
}
