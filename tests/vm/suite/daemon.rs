//! `gthctl run` beside others that are slow, silent, gone or use up everything.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::gthctl::daemon::control::client::ask;
use ::gthctl::daemon::control::{Reply, Request, SOCKET};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tempfile::TempDir;

use crate::support::gthctl::{self, LOADED};
use crate::support::kernel;
use crate::support::nic::{Restore, SAVED, affinities, hold_irq_lock, irq_of};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::STALLS;

const SOON: Duration = Duration::from_secs(10);

fn policy(rule: u32, irq: &str) -> String {
    format!(
        "strategies: [{{name: r{rule}, command_regex: ^none{rule}$, priority: 1}}]\nirq: [{irq}]"
    )
}

/// It asks for what is answered without a look at any task: a test measures how soon this is true.
fn has_generation(generation: u32) -> bool {
    let health = ask(Path::new(SOCKET), &Request::Health);
    matches!(health, Ok(Reply::Health(health)) if health.generation == generation)
}

/// A `gthctl run` whose output the test handles. Killed when dropped.
struct Run {
    child: Child,
    files: TempDir,
}

impl Run {
    /// Once it is in charge.
    fn start(policy: &str, with: impl FnOnce(&mut Command)) -> Self {
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

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Replaces the contents of its policy file in one step.
    fn save(&self, text: &str) {
        let new = self.files.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.files.path().join("policy.yaml")).unwrap();
    }

    /// How long it takes to end; it must end well.
    fn ends(&mut self) -> Duration {
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

fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

/// A byte now and then, forever.
fn drip() {
    let mut client = UnixStream::connect(SOCKET).unwrap();
    std::thread::spawn(move || {
        while client.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

/// Silent and dripping clients, the lock of the interrupts, a FIFO for a policy file and a
/// log that nobody reads, all at once.
#[test]
fn nobody_is_waited_for() {
    let _restore = Restore;
    let (reader, writer) = pipe();
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let on_2 = "{nic: eth0, cpus: 2}";
    let log = writer.try_clone().unwrap();
    let mut run = Run::start(&policy(0, on_2), |command| {
        command.stderr(log);
    });
    let mut log = OpenOptions::new();
    log.write(true).custom_flags(libc::O_NONBLOCK);
    let mut log = log.open(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
    while log.write(b"x\n").is_ok() {}

    let lock = hold_irq_lock();
    let file = format!("/proc/irq/{}/smp_affinity_list", irq_of("eth0", "input.0"));
    fs::write(&file, "0").unwrap();
    let fifo = run.files.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    fs::rename(&fifo, run.files.path().join("policy.yaml")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let _silent = [(); 4].map(|()| UnixStream::connect(SOCKET).unwrap());
    drip();
    std::thread::sleep(Duration::from_millis(100));

    let mut reloads = Vec::new();
    for generation in 2..=6 {
        let begin = Instant::now();
        run.save(&policy(generation, on_2));
        let soon = kernel::wait(SOON, || has_generation(generation));
        assert!(soon, "generation {generation} is not in force after {:?}", begin.elapsed());
        reloads.push(begin.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    reloads.sort();
    println!("reloads: {reloads:?}");
    assert!(reloads[2] < Duration::from_millis(100), "{reloads:?}");
    kill(run.pid(), Signal::SIGTERM).unwrap();
    let took = run.ends();
    println!("SIGTERM: {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(Path::new(SAVED).exists());
    drop((lock, reader));
}

/// The reader of its output has gone, the disk is full, the terminal hangs up.
#[test]
fn interrupts_are_put_back_whatever_has_become_of_its_output() {
    let _restore = Restore;
    let before = affinities("eth0");
    let on_2 = policy(0, "{nic: eth0, cpus: 2}");
    let placed = || affinities("eth0").values().all(|cpus| cpus == "2");

    let (reader, writer) = pipe();
    let stdout = writer.try_clone().unwrap();
    let mut run = Run::start(&on_2, |command| {
        command.stdout(stdout).stderr(writer);
    });
    assert!(placed());
    drop(reader);
    kill(run.pid(), Signal::SIGINT).unwrap();
    run.ends();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));

    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut run = Run::start(&on_2, |command| {
        command.stdout(full()).stderr(full());
    });
    assert!(placed());
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

/// Both ends of a new one.
fn terminal() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    let [ours, its] = &mut ends;
    let none = std::ptr::null_mut();
    // SAFETY: room for two descriptors; neither name nor settings are asked for.
    assert_eq!(unsafe { libc::openpty(ours, its, none, none.cast(), none.cast()) }, 0);
    // SAFETY: just created, and nothing else owns it.
    ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

/// Runs it on that terminal, which then hangs up.
fn on_terminal(command: &mut Command, its: OwnedFd) {
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
