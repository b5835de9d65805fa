//! What gthctl finds when it starts, and what changes during the start.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde_json::json;

use crate::files::set_mode;
use crate::placement::{all_on, with};
use crate::support::gthctl::{self, Gthctl, LOADED, notes, report};
use crate::support::kernel::{self, runs_on};
use crate::support::nic::{Restore, SAVED, affinities, affinity, irq_of};
use crate::support::plane::succeeds;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const SOON: Duration = Duration::from_secs(10);

fn policy(rule: u32, irq: &str) -> String {
    format!(
        "strategies: [{{name: r{rule}, command_regex: ^none{rule}$, priority: 1}}]\nirq: [{irq}]"
    )
}

#[test]
fn files_that_others_can_change_are_named() {
    let files = gthctl::files("", "strategies: []");
    let (config, live) = (files.path().join("config.yaml"), files.path().join("policy.yaml"));
    set_mode(&config, 0o666);
    set_mode(&live, 0o664);
    let of = |path: &Path, mode| {
        format!(
            "{0}: other users can change it: {0} has the mode {mode}; to prevent that: \
             chmod go-w {0}",
            path.display()
        )
    };
    let told = [of(&config, "0666"), of(&live, "0664")];
    let gthctl = Gthctl::start_on(files, &[]);
    for note in &told {
        assert_eq!(gthctl.has_said(&format!("gthctl: note: {note}\n")), 1, "{}", gthctl.stderr());
    }
    assert_eq!(notes(&report(&["status"])), told);
    assert_eq!(report(&["check", live.to_str().unwrap()])["notes"], json!([told[1]]));
    set_mode(&config, 0o600);
    set_mode(&live, 0o640);
    assert_eq!(notes(&report(&["status"])), [""; 0]);
    gthctl.stop();
}

/// Sets a limit of inotify until dropped.
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
            gthctl.changes(|| fs::write(gthctl.policy(), policy(times, "")).unwrap());
            println!("{name}: in force after {:?}", begin.elapsed());
            assert!(begin.elapsed() < Duration::from_secs(3));
        }
        drop(limit);
        assert!(kernel::wait(SOON, || !noted()), "{}", report(&["status"]));
        gthctl.stop();
    }
}

/// Saved settings that gthctl does not recognise as its own, until dropped.
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
    assert_eq!(gthctl.has_said("gthctl did not write this"), 1, "{}", gthctl.stderr());
    let waiting = report(&["status"])["irqs"]["waiting"][0].as_str().unwrap().to_owned();
    assert!(waiting.contains("gthctl did not write this"), "{waiting}");
    drop(nonsense);
    let placed = || affinities("eth0").values().all(|cpus| cpus == "2");
    assert!(kernel::wait(2 * SOON, placed), "{}", gthctl.stderr());
    gthctl.stop();
}

/// Returns while a gthctl loads its scheduler: it has read what it needs to know about the machine and
/// made its maps. The verifier has yet to check its programs, which takes seconds.
#[track_caller]
fn wait_for_the_load(pid: i32) {
    assert!(kernel::wait(LOADED, || !gthctl::maps_of(pid).is_empty()), "it makes no maps");
    assert_eq!(kernel::state(), "disabled", "loaded already");
}

/// Calls `act` while the gthctl that the test starts next loads its scheduler.
fn during_the_load<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    const SOCKET: &str = "/run/gthctl/control.sock";
    shared::unload();
    let _ = fs::remove_file(SOCKET);
    std::thread::spawn(move || {
        let mut listener = None;
        assert!(kernel::wait(Duration::from_secs(20), || {
            listener = UnixStream::connect(SOCKET).ok();
            listener.is_some()
        }));
        wait_for_the_load(getsockopt(&listener.unwrap(), PeerCredentials).unwrap().pid());
        act()
    })
}

/// Names that appear while the scheduler is being loaded.
#[test]
fn what_appears_during_the_start_is_seen() {
    let of_netns = Task::fork("of-netns", |shared| {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        task::spin(shared)
    });
    let name = Path::new("/run/netns/early");
    fs::create_dir_all("/run/netns").unwrap();
    let ns = format!("/proc/{}/ns/net", of_netns.pid);
    let appears = during_the_load(move || {
        fs::write(name, "").unwrap();
        mount(Some(ns.as_str()), name, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    });
    let gthctl = Gthctl::start("strategies: [{netns: early, cpus: 2, exclusive: true}]");
    appears.join().unwrap();
    assert!(runs_on(of_netns.pid, 2));
    gthctl.stop();
    umount2(name, MntFlags::MNT_DETACH).unwrap();
    fs::remove_file(name).unwrap();
}

/// A CPU that is offline until this is dropped.
struct Offline(usize);

impl Offline {
    fn new(cpu: usize) -> Self {
        Self::write(cpu, "0");
        Self(cpu)
    }

    fn write(cpu: usize, online: &str) {
        fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), online).unwrap();
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        Self::write(self.0, "1");
    }
}

/// A CPU goes offline while gthctl loads, after it has read the topology.
#[test]
fn a_cpu_that_goes_during_the_load() {
    let goes = during_the_load(|| Offline::new(3));
    let files = gthctl::files("", "strategies: [{command_regex: ^hot, priority: true}]");
    let command = gthctl::command(&files, &[]);
    // It loads twice.
    let gthctl = Gthctl::spawn_until(files, command, "gthctl: scheduling 3 CPUs");
    let offline = goes.join().unwrap();
    assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
    gthctl.stop();
    drop(offline);
}

/// eth1 under another name, until dropped.
struct Renamed(&'static str);

impl Renamed {
    fn to(name: &'static str) -> Self {
        succeeds(Command::new("ip").args(["link", "set", "eth1", "name", name]));
        Self(name)
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "set", self.0, "name", "eth1"]).status();
    }
}

#[test]
fn a_nic_that_comes_later_and_goes() {
    let _restore = Restore;
    let input = irq_of("eth1", "input.0");
    let before = affinity(input);
    let mask = |nic: &str| kernel::read(&format!("/sys/class/net/{nic}/queues/rx-0/rps_cpus"));
    let gthctl = Gthctl::start(&with("{nic: later, cpus: 3, rps: match}, {nic: eth0, cpus: 1}"));
    let missing = "\"later\": no such network device";
    assert!(gthctl.says(missing, 1), "{}", gthctl.stderr());
    assert!(all_on("eth0", "1"));
    let waiting = || report(&["status"])["irqs"]["waiting"].as_array().unwrap().len();
    assert_eq!((waiting(), affinity(input)), (1, before.clone()));
    let renamed = Renamed::to("later");
    let said = format!("later IRQ {input} (new) on CPUs 3");
    assert!(kernel::wait(2 * SOON, || gthctl.has_said(&said) == 1 || before == "3"));
    assert!(kernel::wait(SOON, || waiting() == 0));
    // The device is there, so gthctl no longer misses it.
    assert_eq!(gthctl.has_said(missing), 1, "{}", gthctl.stderr());
    assert_eq!((affinity(input), mask("later")), ("3".into(), "8".into()));
    drop(renamed);
    assert!(kernel::wait(2 * SOON, || waiting() == 1));
    assert!(kernel::wait(SOON, || (affinity(input), mask("eth1")) == (before.clone(), "0".into())));
    assert!(all_on("eth0", "1"));
    gthctl.stop();
}
