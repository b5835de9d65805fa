//! What a service manager, such as systemd, hears from `gthctl run` (sd_notify(3)).

use std::collections::VecDeque;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::gthctl::{self, Gthctl, LOADED, NO_RULES};
use crate::support::kernel;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const SOON: Duration = Duration::from_secs(30);
const WATCHDOG: Duration = Duration::from_secs(1);

/// The manager's end.
struct Manager {
    socket: UnixDatagram,
    dir: TempDir,
    /// When each sign of life came.
    alive: Vec<Instant>,
    /// Other messages that no test has asked for yet.
    heard: VecDeque<String>,
}

impl Manager {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, dir, alive: Vec::new(), heard: VecDeque::new() }
    }

    /// Starts a gthctl that notifies this manager, and waits until it is in charge.
    fn start(&self, policy: &str) -> Gthctl {
        let files = gthctl::files("", policy);
        let mut command = gthctl::command(&files, &[]);
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        Gthctl::spawn(files, command)
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            match std::str::from_utf8(&buffer[..len]).unwrap() {
                "WATCHDOG=1" => self.alive.push(Instant::now()),
                message => self.heard.push_back(message.to_owned()),
            }
        }
    }

    /// The next message that is not a sign of life.
    #[track_caller]
    fn next(&mut self, limit: Duration) -> String {
        let heard = kernel::wait(limit, || {
            self.read();
            !self.heard.is_empty()
        });
        assert!(heard, "nothing was heard in {limit:?}");
        self.heard.pop_front().unwrap()
    }

    /// The next message; it must begin with `begin` and contain `part`.
    #[track_caller]
    fn hears(&mut self, begin: &str, part: &str) {
        let message = self.next(SOON);
        assert!(message.starts_with(begin) && message.contains(part), "{message:?}");
    }
}

#[test]
fn ready_means_that_the_kernel_schedules() {
    let mut manager = Manager::new();
    let socket = manager.dir.path().join("notify");
    let files = gthctl::files("", NO_RULES);
    let policy = files.path().join("policy.yaml");
    let mut command = gthctl::command(&files, &[]);
    command.env("NOTIFY_SOCKET", socket);
    assert_eq!(kernel::state(), "disabled");
    // Hears each message as soon as it comes.
    let listens = std::thread::spawn(move || {
        let loading = manager.next(LOADED);
        let ready = manager.next(LOADED);
        (manager, loading, ready, kernel::state())
    });
    let gthctl = Gthctl::spawn(files, command);
    let (mut manager, loading, ready, state) = listens.join().unwrap();
    assert_eq!(loading, "STATUS=Loading the scheduler");
    let says = format!("READY=1\nSTATUS=Scheduling by {}, generation 1: 0 rules", policy.display());
    assert_eq!((ready, state.as_str()), (says, "enabled"));
    a_start_that_fails_is_never_ready();
    gthctl.stop();
    assert_eq!(manager.next(SOON), "STOPPING=1");
    manager.read();
    assert!(manager.alive.is_empty(), "without a watchdog");
}

/// The start fails because another run is active.
fn a_start_that_fails_is_never_ready() {
    let mut manager = Manager::new();
    let files = gthctl::files("", NO_RULES);
    let mut command = gthctl::command(&files, &[]);
    command.env("NOTIFY_SOCKET", manager.dir.path().join("notify"));
    assert_eq!(gthctl::output(&mut command).code(), 6);
    manager.read();
    assert!(!manager.heard.iter().any(|message| message.contains("READY")), "{:?}", manager.heard);
}

/// All of it in one run: a start takes long.
#[test]
fn a_run_tells_its_manager_what_it_does() {
    let mut manager = Manager::new();
    let gthctl = manager.start(NO_RULES);
    manager.hears("STATUS=", "Loading");
    manager.hears("READY=1\nSTATUS=", "0 rules");
    signs_of_life_come_from_the_loop_that_works(&mut manager, &gthctl);
    the_status_says_what_is_in_force_and_what_is_not(&mut manager, &gthctl);
    a_reload_is_told_from_its_begin_to_its_end(&mut manager, &gthctl);
    gthctl.stop();
    assert_eq!(manager.next(SOON), "STOPPING=1");
}

fn signs_of_life_come_from_the_loop_that_works(manager: &mut Manager, gthctl: &Gthctl) {
    let begin = Instant::now();
    let has_come = kernel::wait(SOON, || {
        manager.read();
        manager.alive.len() >= 4
    });
    assert!(has_come, "{:?}", manager.alive);
    println!("4 signs of life in {:?}", begin.elapsed());
    // Stops its main thread alone: the others continue.
    let main = Pid::from_raw(gthctl.pid());
    ptrace::seize(main, Options::empty()).unwrap();
    ptrace::interrupt(main).unwrap();
    let stopped = waitpid(main, None).unwrap();
    assert!(matches!(stopped, WaitStatus::PtraceEvent(..)), "{stopped:?}");
    manager.read();
    let before = manager.alive.len();
    std::thread::sleep(2 * WATCHDOG);
    manager.read();
    assert_eq!(manager.alive.len(), before, "a stopped loop shows none");
    ptrace::detach(main, None::<Signal>).unwrap();
    let goes_on = kernel::wait(SOON, || {
        manager.read();
        manager.alive.len() > before
    });
    assert!(goes_on);
}

fn the_status_says_what_is_in_force_and_what_is_not(manager: &mut Manager, gthctl: &Gthctl) {
    gthctl.replace("strategies: [{command_regex: ^hot$, cpus: 1, exclusive: true}]");
    manager.hears("STATUS=", "generation 2: 1 rule, CPUs 1 exclusive");
    gthctl.refuses(|| fs::write(gthctl.policy(), "strategies: 1").unwrap());
    manager.hears("STATUS=", "1 rule, CPUs 1 exclusive; rejected: ");
    gthctl.replace(NO_RULES);
    let message = manager.next(SOON);
    assert!(message.ends_with("generation 3: 0 rules"), "{message:?}");
    let config = fs::read_to_string(gthctl.config()).unwrap();
    fs::write(gthctl.config(), "no: 1").unwrap();
    manager.hears("STATUS=", "0 rules; rejected: ");
    fs::write(gthctl.config(), config).unwrap();
    let message = manager.next(SOON);
    assert!(message.ends_with("generation 3: 0 rules"), "{message:?}");
}

fn a_reload_is_told_from_its_begin_to_its_end(manager: &mut Manager, gthctl: &Gthctl) {
    gthctl.signal(Signal::SIGHUP);
    manager.hears("RELOADING=1\nMONOTONIC_USEC=", "");
    manager.hears("READY=1\nSTATUS=", "0 rules");
    // A mistake ends the reload, too.
    fs::write(gthctl.policy(), "strategies: 1").unwrap();
    manager.hears("STATUS=", "rejected");
    gthctl.signal(Signal::SIGHUP);
    manager.hears("RELOADING=1\nMONOTONIC_USEC=", "");
    manager.hears("READY=1\nSTATUS=", "rejected");
}
