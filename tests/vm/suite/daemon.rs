//! `gthctl run` on a machine where others are slow, silent, gone, or take all there is.

use std::fs::{self, File, OpenOptions};
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
use ::gthctl::daemon::reports::Status;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tempfile::TempDir;

use crate::gthctl::{self, Gthctl, notes, report};
use crate::irq::{Restore, SAVED, affinities, irq_of};
use crate::kernel;
use crate::sender::{self, send, sender};

const IN_FORCE: &str = "in force as generation";
const SOON: Duration = Duration::from_secs(10);

fn policy(rule: u32, irq: &str) -> String {
    format!(
        "strategies: [{{name: r{rule}, command_regex: ^none{rule}$, priority: 1}}]\nirq: [{irq}]"
    )
}

fn status() -> Option<Status> {
    match ask(Path::new(SOCKET), &Request::Status) {
        Ok(Reply::Status(status)) => Some(*status),
        _ => None,
    }
}

fn has_generation(generation: u32) -> bool {
    status().is_some_and(|status| status.generation == generation)
}

/// A `gthctl run` whose output is the test's affair. Killed when dropped.
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
        // Its ends of the pipes are the child's alone.
        drop(command);
        let up = kernel::wait(Duration::from_secs(60), || has_generation(1));
        assert!(up && kernel::ops() == "gthctl");
        run
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Gives its policy file another content, all at once.
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

/// Another gthctl that moves interrupts and does not come to an end, until dropped.
fn hold_irq_lock() -> Flock<File> {
    fs::create_dir_all("/run/gthctl/irq").unwrap();
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600);
    let lock = lock.open("/run/gthctl/irq/lock").unwrap();
    Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap()
}

/// A byte now and then, for ever.
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
    // SAFETY: just made, and nobody else's.
    ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

/// Runs it on that terminal, which hangs up for it.
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

#[test]
fn sighup_has_both_files_read_again() {
    let gthctl = Gthctl::start(&policy(0, ""));
    let path = gthctl.policy();
    let other = path.with_file_name("other.yaml");
    fs::write(&other, policy(1, "")).unwrap();
    // Of a mount, inotify tells nothing.
    mount(Some(&other), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let early = gthctl.has_said(IN_FORCE);
    gthctl.signal(Signal::SIGHUP);
    let said = gthctl.says(IN_FORCE, 1);
    umount2(&path, MntFlags::MNT_DETACH).unwrap();
    assert_eq!((early, said), (0, true), "{}", gthctl.stderr());
    let config = path.with_file_name("config.yaml");
    fs::write(&other, "policy: policy.yaml\nscheduler: {slice_ns_default: 9000000}").unwrap();
    mount(Some(&other), &config, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    gthctl.signal(Signal::SIGHUP);
    let said = gthctl.says("slices are in force", 1);
    umount2(&config, MntFlags::MNT_DETACH).unwrap();
    assert!(said, "{}", gthctl.stderr());
    gthctl.stop();
}

/// How many descriptors a process may have.
fn limit_descriptors(pid: i32, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: 65536 };
    // SAFETY: a valid limit; the old one is not asked for.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

const PASSWD: &str = "/etc/passwd";
const CHANGED: &str = "what the policy refers to has changed";

#[test]
fn short_of_descriptors_for_a_while() {
    let _plane = sender::plane();
    let rule = "{name: traffic, gtp: {module: gtp, hold: 3600s}, priority: 1}";
    let mut gthctl = Gthctl::start(&format!("strategies: [{rule}]"));
    assert!(gthctl.says("packets are seen by", 1), "{}", gthctl.stderr());
    let sender = sender("sender");
    send(&sender, 3);
    assert!(kernel::wait(SOON, || {
        report(&["status"])["traffic"]["tasks"].as_array().unwrap().len() == 1
    }));
    limit_descriptors(gthctl.pid(), 3);
    fs::write(gthctl.policy(), format!("strategies: [{rule}, {{command_regex: ^x$, weight: 50}}]"))
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(!gthctl.has_ended(), "{}", gthctl.wait().stderr);
    assert!(gthctl.has_said("Too many open files") > 0, "{}", gthctl.stderr());
    assert_eq!((gthctl.has_said(IN_FORCE), kernel::ops()), (0, "gthctl".into()));
    limit_descriptors(gthctl.pid(), 1024);
    assert!(gthctl.says(IN_FORCE, 1), "{}", gthctl.stderr());
    let status = report(&["status"]);
    assert_eq!((&status["kernel_in_step"], status.get("rejected")), (&true.into(), None));
    gthctl.stop();
}

/// The names of a policy are looked up again, and cannot be: what is in force stays, and the one
/// who is in /etc/passwd is not taken for nobody.
#[test]
fn users_change_while_descriptors_are_short() {
    let users = kernel::read(PASSWD);
    let upf = |uid: u32| {
        let text = format!("{users}\nupf:x:{uid}:{uid}::/:/bin/false\n");
        fs::write("/etc/passwd.new", text).unwrap();
        fs::rename("/etc/passwd.new", PASSWD).unwrap();
    };
    upf(4711);
    let mut gthctl = Gthctl::start("strategies: [{user: upf, priority: 1}]");
    limit_descriptors(gthctl.pid(), 3);
    upf(4712);
    assert!(gthctl.says("Too many open files", 1), "{}", gthctl.stderr());
    assert_eq!(gthctl.has_said(CHANGED), 0, "{}", gthctl.stderr());
    limit_descriptors(gthctl.pid(), 1024);
    assert!(gthctl.says(CHANGED, 1), "{}", gthctl.stderr());
    assert!(!gthctl.stderr().contains("no user upf"), "{}", gthctl.stderr());
    assert!(!gthctl.has_ended());
    gthctl.stop();
    fs::write(PASSWD, users).unwrap();
}

/// A limit of inotify, until dropped.
struct Limit(String, String);

impl Limit {
    fn of(name: &str, value: &str) -> Self {
        let path = format!("/proc/sys/fs/inotify/{name}");
        let before = kernel::read(&path);
        fs::write(&path, value).unwrap();
        Self(path, before)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        fs::write(&self.0, &self.1).unwrap();
    }
}

#[test]
fn no_inotify_left() {
    for (name, note) in [
        ("max_user_watches", "fs.inotify.max_user_watches (0) is reached"),
        ("max_user_instances", "fs.inotify.max_user_instances is 0"),
    ] {
        let limit = Limit::of(name, "0");
        let gthctl = Gthctl::start(&policy(0, ""));
        let noted = || notes(&report(&["status"])).iter().any(|one| one.contains(note));
        assert!(noted(), "{}", report(&["status"]));
        for times in 1..=3 {
            let begin = Instant::now();
            fs::write(gthctl.policy(), policy(times, "")).unwrap();
            assert!(gthctl.says(IN_FORCE, times as usize), "{}", gthctl.stderr());
            println!("{name}: in force after {:?}", begin.elapsed());
            assert!(begin.elapsed() < Duration::from_secs(3));
        }
        drop(limit);
        assert!(kernel::wait(SOON, || !noted()), "{}", report(&["status"]));
        gthctl.stop();
    }
}

/// What gthctl takes for no file of its own, until dropped.
struct Nonsense;

impl Nonsense {
    fn saved() -> Self {
        fs::create_dir_all(Path::new(SAVED).parent().unwrap()).unwrap();
        fs::write(SAVED, "nonsense").unwrap();
        Self
    }
}

impl Drop for Nonsense {
    fn drop(&mut self) {
        let _ = fs::remove_file(SAVED);
    }
}

#[test]
fn an_irq_failure_at_the_start_keeps_nothing_from_being_scheduled() {
    let _restore = Restore;
    let nonsense = Nonsense::saved();
    let gthctl = Gthctl::start(&policy(0, "{nic: eth0, cpus: 2}"));
    assert_eq!(gthctl.has_said("not what gthctl saved"), 1, "{}", gthctl.stderr());
    let waiting = report(&["status"])["irqs"]["waiting"][0].as_str().unwrap().to_owned();
    assert!(waiting.contains("not what gthctl saved"), "{waiting}");
    drop(nonsense);
    let placed = || affinities("eth0").values().all(|cpus| cpus == "2");
    assert!(kernel::wait(2 * SOON, placed), "{}", gthctl.stderr());
    gthctl.stop();
}

/// Everything else goes on while interrupts cannot be placed, and the last word counts.
#[test]
fn a_policy_waits_for_its_interrupts() {
    let _restore = Restore;
    let before = affinities("eth0");
    let placed = |cpu: &str| affinities("eth0").values().all(|cpus| cpus == cpu);
    let gthctl = Gthctl::start(&policy(0, ""));
    let lock = hold_irq_lock();
    fs::write(gthctl.policy(), policy(1, "{nic: eth0, cpus: 2}")).unwrap();
    let note = "the new content of the policy file waits for its interrupts to be placed";
    assert!(kernel::wait(SOON, || notes(&report(&["status"])) == [note]));
    fs::write(gthctl.policy(), policy(2, "")).unwrap();
    assert!(gthctl.says(IN_FORCE, 1), "{}", gthctl.stderr());
    assert_eq!(report(&["show"])["rules"][0]["name"], "r2");
    drop(lock);
    std::thread::sleep(Duration::from_millis(500));
    assert!(kernel::wait(SOON, || affinities("eth0") == before));

    // One that is applied waits as well.
    let lock = hold_irq_lock();
    let new = gthctl.policy().with_file_name("new.yaml");
    fs::write(&new, policy(3, "{nic: eth0, cpus: 3}")).unwrap();
    let mut apply = Command::new(gthctl::binary());
    let mut apply = apply.args(["policy", "apply", "--yes"]).arg(&new).spawn().unwrap();
    assert!(kernel::wait(SOON, || notes(&report(&["status"])).len() == 1));
    assert_eq!(gthctl.has_said(IN_FORCE), 1);
    drop(lock);
    assert!(apply.wait().unwrap().success());
    assert!(placed("3") && gthctl.has_said(IN_FORCE) == 2);
    assert_eq!(fs::read(gthctl.policy()).unwrap(), fs::read(&new).unwrap());
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}
