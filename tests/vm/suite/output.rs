//! `gthctl run` whose output the test handles, and what happens when that output fails.

use std::fs::{self, OpenOptions};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::gthctl::daemon::control::client::ask;
use ::gthctl::daemon::control::{Reply, Request, SOCKET};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::gthctl::{self, LOADED};
use crate::support::kernel;
use crate::support::nic::{Restore, SAVED, affinities};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

pub const SOON: Duration = Duration::from_secs(10);

pub fn policy(rule: u32, irq: &str) -> String {
    format!(
        "strategies: [{{name: r{rule}, command_regex: ^none{rule}$, priority: 1}}]\nirq: [{irq}]"
    )
}

/// Sends a request that gthctl answers without looking at any task, as a test measures how soon this
/// becomes true.
pub fn has_generation(generation: u32) -> bool {
    let health = ask(Path::new(SOCKET), &Request::Health);
    matches!(health, Ok(Reply::Health(health)) if health.generation == generation)
}

/// A `gthctl run` whose output the test handles. Killed when dropped.
pub struct Run {
    child: Child,
    pub files: TempDir,
}

impl Run {
    /// Starts it and waits until it is in charge.
    pub fn start(policy: &str, with: impl FnOnce(&mut Command)) -> Self {
        let files = gthctl::files("", policy);
        let mut command = gthctl::command(&files, &[]);
        with(&mut command);
        let run = Self { child: command.spawn().unwrap(), files };
        // Only the child has its ends of the pipes.
        drop(command);
        let up = kernel::wait(LOADED, || has_generation(1));
        assert!(up && kernel::ops() == "gthctl");
        run
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Replaces the contents of its policy file in one step.
    pub fn save(&self, text: &str) {
        let new = self.files.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.files.path().join("policy.yaml")).unwrap();
    }

    /// Waits until it ends and returns how long that took; it must succeed.
    pub fn ends(&mut self) -> Duration {
        let begin = Instant::now();
        let ended =
            kernel::wait(Duration::from_secs(40), || self.child.try_wait().unwrap().is_some());
        let took = begin.elapsed();
        assert!(ended, "it goes on");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(kernel::state(), "disabled");
        took
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        kernel::wait(SOON, || kernel::state() == "disabled");
    }
}

pub fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

/// The reader of its output has gone, the disk is full, the terminal hangs up.
#[test]
fn interrupts_are_put_back_whatever_has_become_of_its_output() {
    let _restore = Restore;
    let before = affinities("eth0");
    let on_2 = policy(0, "{nic: eth0, cpus: 2}");
    let placed = || affinities("eth0").values().all(|cpus| cpus == "2");

    let (reader, writer) = pipe();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut run = Run::start(&on_2, |command| {
        command.stdout(writer).stderr(full);
    });
    assert!(placed());
    drop(reader);
    kill(run.pid(), Signal::SIGINT).unwrap();
    run.ends();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));

    let (ours, its) = terminal();
    let mut run = Run::start(&on_2, |command| on_terminal(command, its));
    assert!(placed());
    drop(ours);
    run.ends();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

/// Both ends of a new terminal.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    let [ours, its] = &mut ends;
    let none = std::ptr::null_mut();
    // SAFETY: room for two descriptors; neither name nor settings are requested.
    assert_eq!(unsafe { libc::openpty(ours, its, none, none.cast(), none.cast()) }, 0);
    // SAFETY: just created, and nothing else owns it.
    ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

/// Makes the command run on that terminal; only the command has this end open.
pub fn on_terminal(command: &mut Command, its: OwnedFd) {
    let copy = || Stdio::from(its.try_clone().unwrap());
    command.stdin(copy()).stdout(copy()).stderr(copy());
    // SAFETY: system calls only, after the fork.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            // Only the test has the other end.
            for fd in 3..64 {
                libc::close(fd);
            }
            Ok(())
        });
    }
}
