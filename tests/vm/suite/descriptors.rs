//! `gthctl run` while it cannot open any more files.

use std::fs;
use std::time::Duration;

use crate::support::gthctl::report;
use crate::support::kernel;
use crate::support::sender::{self, send, sender};
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const IN_FORCE: &str = "in force as generation";
const SOON: Duration = Duration::from_secs(10);

/// Limits how many descriptors a process may have.
fn limit_descriptors(pid: i32, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: 65536 };
    // SAFETY: a valid limit; the old one is not requested.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

const PASSWD: &str = "/etc/passwd";
const CHANGED: &str = "what the policy refers to has changed";

#[test]
fn short_of_descriptors_for_a_while() {
    let _plane = sender::plane();
    let rule = "{name: traffic, gtp: {module: gtp, hold: 3600s}, priority: 1}";
    let mut gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
    gthctl.expect_errors();
    gthctl.sees_packets();
    let sender = sender("sender");
    send(&sender, 3);
    assert!(kernel::wait(SOON, || {
        report(&["status"])["traffic"]["tasks"].as_array().unwrap().len() == 1
    }));
    limit_descriptors(gthctl.pid(), 3);
    let before = gthctl.has_said(IN_FORCE);
    fs::write(gthctl.policy(), format!("strategies: [{rule}, {{command_regex: ^x$, weight: 50}}]"))
        .unwrap();
    assert!(gthctl.says("Too many open files", 1), "{}", gthctl.stderr());
    // gthctl retries and keeps running.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!gthctl.has_ended(), "{}", gthctl.stderr());
    assert_eq!((gthctl.has_said(IN_FORCE), kernel::ops()), (before, "gthctl".into()));
    limit_descriptors(gthctl.pid(), 1024);
    assert!(gthctl.says(IN_FORCE, before + 1), "{}", gthctl.stderr());
    let status = report(&["status"]);
    assert_eq!((&status["kernel_in_step"], status.get("rejected")), (&true.into(), None));
    gthctl.stop();
}

/// gthctl looks up the names of a policy again and fails: the policy in force stays, and a user in
/// /etc/passwd does not count as missing.
#[test]
fn users_change_while_descriptors_are_short() {
    let users = fs::read_to_string(PASSWD).unwrap();
    let upf = |uid: u32| {
        let text = format!("{users}upf:x:{uid}:{uid}::/:/bin/false\n");
        fs::write("/etc/passwd.new", text).unwrap();
        fs::rename("/etc/passwd.new", PASSWD).unwrap();
    };
    upf(4711);
    let mut gthctl = shared::scheduler("strategies: [{user: upf, priority: 1}]");
    gthctl.expect_errors();
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
