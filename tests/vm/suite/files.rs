//! What other users can influence: the files that gthctl follows, the names of their tasks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::support::gthctl::{self, NO_RULES, output, policy, report};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::Task;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const BUSYBOX: &str = "/bin/busybox";
const NOBODY: u32 = 65_534;

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_fifo_in_the_policys_place_is_refused() {
    let mut gthctl = shared::scheduler(NO_RULES);
    gthctl.expect_errors();
    let (live, fifo) = (gthctl.policy(), gthctl.policy().with_file_name("fifo"));
    mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
    fs::rename(&fifo, &live).unwrap();
    assert!(gthctl.says("cannot read the policy file: it is not a regular file", 1));
    let why = report(&["status"])["rejected"]["why"].clone();
    assert!(why.as_str().unwrap().ends_with("it is not a regular file"), "{why}");
    fs::remove_file(&live).unwrap();
    fs::write(&live, "strategies: [{pid: 1, weight: 200}]").unwrap();
    assert!(kernel::wait(Duration::from_secs(10), || report(&["status"])["rules"] == 1));
    gthctl.stop();
}

#[test]
fn a_tasks_name_moves_no_cursor() {
    let nasty = "a\u{1b}[2J\nb";
    let gthctl = shared::scheduler("strategies: [{command_regex: \"^a\", weight: 200}]");
    let task = Task::spinner(nasty);
    let tid = task.pid.to_string();
    let table = policy(&["explain", &tid]).stdout;
    assert!(table.contains("a\\u{1b}[2J\\nb") && !table.contains('\u{1b}'), "{table:?}");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('b')).collect();
    assert_eq!(rows, [""; 0], "{table:?}");
    assert_eq!(report(&["explain", &tid])["task"]["comm"], nasty);
    gthctl.stop();
}

#[test]
fn a_users_irqbalance_is_none() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    let program = dir.path().join("irqbalance");
    fs::copy(BUSYBOX, &program).unwrap();
    set_mode(&program, 0o755);
    let start = |uid| {
        let mut command = Command::new(&program);
        let command = command.arg0("sleep").arg("60").uid(uid).gid(uid);
        Running(command.stdin(Stdio::null()).spawn().unwrap())
    };
    let listed = || {
        let list = output(Command::new(gthctl::binary()).args(["irq", "list", "-o", "json"]));
        assert_eq!(list.code(), 0, "{}", list.stderr);
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        list["irqbalance"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["pid"].clone())
            .collect::<Vec<_>>()
    };
    let users = start(NOBODY);
    assert_eq!(fs::read_to_string(format!("/proc/{}/comm", users.0.id())).unwrap(), "irqbalance\n");
    assert_eq!(listed(), [json!(null); 0]);
    let roots = start(0);
    assert_eq!(listed(), [json!(roots.0.id())]);
    // Whoever can write to the program decides what it does.
    set_mode(&program, 0o757);
    assert_eq!(listed(), [json!(null); 0]);
}

#[test]
fn a_trace_into_a_file_is_plain_text() {
    let trace = |args: &[&str]| {
        let function = ["trace", "--function", "vfs_write", "--function", "no_such_function"];
        let mut command = Command::new(gthctl::binary());
        let trace = output(command.args(function).args(["-o", "table", "--once"]).args(args));
        assert_eq!(trace.code(), 0, "{}", trace.stderr);
        trace
    };
    let brief = trace(&[]);
    assert!(!brief.stdout.contains('\u{1b}'), "{:?}", brief.stdout);
    assert!(brief.stdout.contains("packets"), "{:?}", brief.stdout);
    assert_eq!(
        brief.stderr,
        "gthctl: tracing: vfs_write (fentry, fexit)\n\
         gthctl: not traced: no_such_function (not in this kernel, or inlined)\n"
    );
    let verbose = trace(&["--verbose"]);
    let why = "gthctl: no_such_function: not traced: not in this kernel, or inlined; \
               what it does counts in its caller\n";
    assert_eq!(verbose.stderr, format!("gthctl: vfs_write: fentry, fexit\n{why}"));
}
