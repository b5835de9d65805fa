//! A machine has one scheduler, and one gthctl that manages it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lifecycle::mount_over;
use crate::support::gthctl::{self, NO_RULES, output};
use crate::support::kernel;
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const NOBODY: u32 = 65_534;

/// The files that a process has locked with flock(2), found by their inodes in /proc/locks.
fn locked_by(pid: i32) -> Vec<PathBuf> {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let rows = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let flocks = rows.filter(|row| row[1] == "FLOCK" && row[4] == pid.to_string());
    let inodes: Vec<u64> =
        flocks.map(|row| row[5].rsplit(':').next().unwrap().parse().unwrap()).collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let is_locked =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| inodes.contains(&metadata.ino()));
    open.filter(is_locked).collect()
}

#[test]
fn nobody_can_hold_the_lock() {
    let gthctl = shared::scheduler(NO_RULES);
    let locks = locked_by(gthctl.pid());
    assert_eq!(locks.len(), 1, "{locks:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let read =
        output(Command::new("/bin/busybox").arg("cat").arg(&locks[0]).uid(NOBODY).gid(NOBODY));
    assert!(read.stderr.contains("Permission denied"), "{locks:?}: {}", read.stdout);
    assert_eq!((mode(&locks[0]), mode(locks[0].parent().unwrap())), (0o600, 0o700));
    let second = output(&mut gthctl::command(&gthctl::files("", NO_RULES), &[]));
    assert_eq!(second.code(), 6, "{}", second.stderr);
    gthctl.stop();
}

#[test]
fn a_second_one_is_told_of_the_first() {
    let first = shared::scheduler(NO_RULES);
    let files = gthctl::files("", NO_RULES);
    // Also if it would serve metrics at a port that is already in use, as by the first one.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    for options in [&[][..], &["--metrics", &address]] {
        let second = gthctl::output(&mut gthctl::command(&files, options));
        assert_eq!(second.code(), 6, "{}", second.stderr);
        assert!(second.stderr.contains(&format!("PID {}", first.pid())), "{}", second.stderr);
    }
    assert_eq!(kernel::ops(), "gthctl");
    first.stop();
}

#[test]
fn another_scheduler_is_named() {
    // With a /run of its own the second gthctl does not see the first one's
    // lock; to it, that is just another scheduler.
    let first = shared::scheduler(NO_RULES);
    // It would report eth9 as soon as it placed interrupts.
    let files = gthctl::files("", &format!("{NO_RULES}\nirq: {{nic: eth9, cpus: 1}}"));
    let mut second = gthctl::command(&files, &[]);
    mount_over(&mut second, Some("tmpfs"), "/run");
    let second = gthctl::output(&mut second);
    assert_eq!(second.code(), 5, "{}", second.stderr);
    assert!(second.stderr.contains("`gthctl` is loaded"), "{}", second.stderr);
    assert!(!second.stderr.contains("eth9"), "{}", second.stderr);
    first.stop();
}
