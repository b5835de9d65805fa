//! Start, end, and every reason not to start.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use crate::gthctl::{self, Gthctl};
use crate::kernel;
use crate::task::{self, Task};

const NO_RULES: &str = "strategies: []";

#[test]
fn takes_over_every_task_and_gives_them_back() {
    let task = Task::spinner("some-task");
    assert!(!kernel::is_ext(task.pid));
    let gthctl = Gthctl::start(NO_RULES);
    assert!(kernel::is_ext(task.pid));
    let newborn = Task::spinner("newborn");
    assert!(kernel::is_ext(newborn.pid));
    let before = newborn.cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    assert!(newborn.cpu_time() > before + Duration::from_millis(50));
    let output = gthctl.stop();
    assert!(!kernel::is_ext(task.pid));
    assert!(output.counter("tasks matched") > 1, "{}", output.stdout);
    assert!(output.counter("idle CPU") > 1, "{}", output.stdout);
}

#[test]
fn sigterm_ends_it_well() {
    let gthctl = Gthctl::start(NO_RULES);
    gthctl.signal(Signal::SIGTERM);
    assert_eq!(gthctl.wait().code(), 0);
    assert_eq!(kernel::state(), "disabled");
}

#[test]
fn kill_9_gives_the_machine_back() {
    let mut gthctl = Gthctl::start(NO_RULES);
    let spinners = task::spinners(kernel::cpus() * 2, "load");
    gthctl.signal(Signal::SIGKILL);
    assert!(kernel::wait(Duration::from_secs(10), || kernel::state() == "disabled"));
    assert!(kernel::wait(Duration::from_secs(10), || gthctl.has_ended()));
    assert!(spinners.iter().all(|task| !kernel::is_ext(task.pid)));
    let before: Vec<_> = spinners.iter().map(Task::cpu_time).collect();
    std::thread::sleep(Duration::from_secs(1));
    assert!(spinners.iter().zip(before).all(|(task, before)| task.cpu_time() > before));
    // And it can be started again at once.
    drop(spinners);
    Gthctl::start(NO_RULES).stop();
}

#[test]
fn prints_counters_as_asked() {
    let gthctl = Gthctl::start_with("", NO_RULES, &["--stats", "1"]);
    std::thread::sleep(Duration::from_millis(3500));
    let output = gthctl.stop();
    let tables = output.stdout.matches("dispatched by").count();
    assert!((3..=5).contains(&tables), "{tables} tables in 3.5 s:\n{}", output.stdout);
}

#[test]
fn a_second_one_is_told_of_the_first() {
    let first = Gthctl::start(NO_RULES);
    let files = gthctl::files("", NO_RULES);
    let second = gthctl::output(&mut gthctl::command(&files, &[]));
    assert_eq!(second.code(), 6, "{}", second.stderr);
    assert!(second.stderr.contains(&format!("PID {}", first.pid())), "{}", second.stderr);
    assert_eq!(kernel::ops(), "gthctl");
    first.stop();
}

#[test]
fn another_scheduler_is_named() {
    // With a /run of its own the second gthctl does not see the first one's
    // lock; to it, that is just another scheduler.
    let first = Gthctl::start(NO_RULES);
    let files = gthctl::files("", NO_RULES);
    let mut second = gthctl::command(&files, &[]);
    mount_over(&mut second, Some("tmpfs"), "/run");
    let second = gthctl::output(&mut second);
    assert_eq!(second.code(), 5, "{}", second.stderr);
    assert!(second.stderr.contains("`gthctl` is loaded"), "{}", second.stderr);
    first.stop();
}

#[test]
fn a_kernel_without_sched_ext_is_named() {
    let files = gthctl::files("", NO_RULES);
    let mut command = gthctl::command(&files, &[]);
    mount_over(&mut command, Some("tmpfs"), "/sys/kernel/sched_ext");
    let output = gthctl::output(&mut command);
    assert_eq!(output.code(), 4, "{}", output.stderr);
    let release = kernel::read("/proc/sys/kernel/osrelease");
    assert!(output.stderr.contains(&release), "{}", output.stderr);
}

#[test]
fn a_kernel_without_btf_is_named() {
    let files = gthctl::files("", NO_RULES);
    let mut command = gthctl::command(&files, &[]);
    mount_over(&mut command, Some("tmpfs"), "/sys/kernel/btf");
    let output = gthctl::output(&mut command);
    assert_eq!(output.code(), 7, "{}", output.stderr);
    assert!(output.stderr.contains("CONFIG_DEBUG_INFO_BTF"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
}

/// Runs the command with something else mounted over a directory.
fn mount_over(command: &mut Command, fstype: Option<&'static str>, target: &'static str) {
    // SAFETY: system calls only, after the fork.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
            mount(fstype, target, fstype, MsFlags::empty(), None::<&str>)?;
            Ok(())
        });
    }
}

#[test]
fn a_missing_capability_is_named() {
    let files = gthctl::files("", NO_RULES);
    for (bounding, named) in
        [("-bpf,-sys_admin", "CAP_BPF"), ("-perfmon,-sys_admin", "CAP_PERFMON")]
    {
        let output = Command::new("setpriv")
            .args(["--bounding-set", bounding, "--inh-caps", bounding])
            .arg(gthctl::binary())
            .arg("run")
            .arg("-c")
            .arg(files.path().join("config.yaml"))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains(&format!("needs {named};")), "{stderr}");
    }
    assert_eq!(kernel::state(), "disabled");
}

#[test]
fn the_two_capabilities_it_names_are_enough() {
    let files = gthctl::files("", NO_RULES);
    let only = "-all,+bpf,+perfmon";
    let mut child = Command::new("setpriv")
        .args(["--bounding-set", only, "--inh-caps", only])
        .arg(gthctl::binary())
        .arg("run")
        .arg("-c")
        .arg(files.path().join("config.yaml"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let up = kernel::wait(Duration::from_secs(20), || {
        kernel::state() == "enabled" || child.try_wait().unwrap().is_some()
    });
    let enabled = kernel::state() == "enabled";
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    assert!(up && enabled, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(kernel::wait(Duration::from_secs(10), || kernel::state() == "disabled"));
}

#[test]
fn a_bad_policy_loads_nothing() {
    let last = kernel::cpus() - 1;
    let files = gthctl::files(
        "",
        &format!("strategies: [{{command_regex: a, cpus: 0-{last}, exclusive: true}}]"),
    );
    let output = gthctl::output(&mut gthctl::command(&files, &[]));
    assert_eq!(output.code(), 2, "{}", output.stderr);
    assert!(output.stderr.contains("no CPU would be left"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
}

#[test]
fn sysrq_s_evicts_it() {
    let gthctl = Gthctl::start(NO_RULES);
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let output = gthctl.wait();
    assert_eq!(output.code(), 9, "{}", output.stderr);
    assert!(output.stderr.to_lowercase().contains("sysrq"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
}
