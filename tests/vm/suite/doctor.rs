//! What `gthctl doctor` finds on a real kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::lifecycle::mount_over;
use crate::support::gthctl::{self, Output};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

/// The findings, and the command's output.
pub struct Doctor {
    pub report: Value,
    pub output: Output,
}

impl Doctor {
    pub fn new(args: &[&str]) -> Self {
        Self::of(Command::new(gthctl::binary()).arg("doctor").args(args))
    }

    /// Runs `doctor` with this command.
    fn of(command: &mut Command) -> Self {
        let output = gthctl::output(command.args(["-o", "json"]));
        let report = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}\n{}", output.stdout, output.stderr));
        Self { report, output }
    }

    /// The level and the text of the first finding of that check, which must exist.
    #[track_caller]
    pub fn finding(&self, check: &str) -> (&str, &str) {
        let findings = self.report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["check"] == check);
        let finding = finding.unwrap_or_else(|| panic!("no {check}: {}", self.report));
        (finding["level"].as_str().unwrap(), finding["what"].as_str().unwrap())
    }

    /// Asserts that it failed and found an error in that check whose text contains `part`.
    #[track_caller]
    fn finds_error(&self, check: &str, part: &str) {
        let (level, what) = self.finding(check);
        assert_eq!(level, "error", "{what}");
        assert!(what.contains(part), "{what}");
        assert_eq!(self.output.code(), 1, "{}", self.output.stderr);
    }
}

/// Sets a kernel file to another value until dropped.
struct Set(&'static str, String);

impl Set {
    fn to(path: &'static str, value: &str) -> Self {
        let before = kernel::read(path);
        fs::write(path, value).unwrap_or_else(|e| panic!("{path}: {e}"));
        Self(path, before)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = fs::write(self.0, &self.1);
    }
}

#[test]
fn the_test_kernel_is_fit() {
    shared::unload();
    let features = tempfile::tempdir().unwrap();
    let file = features.path().join("features.d/gthctl");
    let doctor = Doctor::new(&[&format!("--nfd={}", file.display())]);
    println!("{}", gthctl::output(Command::new(gthctl::binary()).arg("doctor")).stdout);
    assert_eq!(doctor.output.code(), 0, "{}", doctor.report);
    assert_eq!(doctor.finding("sched_ext"), ("ok", "there, and no scheduler is loaded"));
    for check in [
        "kernel",
        "CONFIG_SCHED_CLASS_EXT",
        "CONFIG_BPF_JIT",
        "CONFIG_DEBUG_INFO_BTF",
        "CONFIG_EXT_GROUP_SCHED",
        "CONFIG_KPROBE_EVENTS",
        "bpf-jit",
        "scheduler-services",
        "tuned",
        "capabilities",
        "lockdown",
        "isolcpus",
        "irqbalance",
        "data-plane",
    ] {
        assert_eq!(doctor.finding(check).0, "ok", "{check}: {}", doctor.report);
    }
    assert!(doctor.finding("kernel").1.contains(&kernel::read("/proc/sys/kernel/osrelease")));
    assert!(doctor.finding("data-plane").1.starts_with("gtp is loaded; gtp_encap_recv and "));
    let text = fs::read_to_string(file).unwrap();
    let sound = doctor.finding("btf").0 == "ok";
    for feature in ["sched_ext=true", "gtp=true", "ready=true", "cgroup_v2=true"] {
        assert!(text.contains(&format!("gthctl.{feature}\n")), "{feature} in {text}");
    }
    assert!(text.contains(&format!("gthctl.btf_sound={sound}\n")), "{text}");
}

#[test]
fn what_keeps_a_scheduler_out_is_an_error() {
    let over = |directory: &'static str| {
        let mut command = Command::new(gthctl::binary());
        command.arg("doctor");
        mount_over(&mut command, Some("tmpfs"), directory);
        Doctor::of(&mut command)
    };
    over("/sys/kernel/sched_ext").finds_error("sched_ext", "the kernel has none");
    over("/sys/kernel/btf").finds_error("btf", "/sys/kernel/btf/vmlinux");
    let only = "-bpf,-sys_admin";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", only, "--inh-caps", only]).arg(gthctl::binary()).arg("doctor");
    Doctor::of(&mut command).finds_error("capabilities", "needs CAP_BPF");
}

/// There is no other scheduler to load here, so the test fakes the kernel's files about it.
#[test]
fn another_scheduler_is_an_error() {
    let files = tempfile::tempdir().unwrap();
    let ops = files.path().join("root");
    fs::create_dir(&ops).unwrap();
    fs::write(files.path().join("state"), "enabled\n").unwrap();
    fs::write(ops.join("ops"), "other_1.0\n").unwrap();
    let source = files.path().to_owned();
    let mut command = Command::new(gthctl::binary());
    command.arg("doctor");
    // SAFETY: system calls only, after the fork.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some(&source), "/sys/kernel/sched_ext", none, MsFlags::MS_BIND, none)?;
            Ok(())
        });
    }
    Doctor::of(&mut command).finds_error("sched_ext", "`other_1.0` is loaded (enabled)");
}

#[test]
fn real_time_tasks_that_nothing_limits() {
    let realtime = Task::fork("realtime", |_| {
        task::become_realtime();
        loop {
            task::sleep_until(task::now() + 1_000_000_000);
        }
    });
    let is_there = || Doctor::new(&[]).finding("real-time").1.contains("realtime");
    assert!(kernel::wait(std::time::Duration::from_secs(60), is_there));
    let server = "/sys/kernel/debug/sched/ext_server/cpu0/runtime";
    let is_served = fs::exists(server).unwrap();
    // Elsewhere nothing limits such tasks: these kernels are built without CONFIG_RT_GROUP_SCHED.
    let level = if is_served { "note" } else { "warning" };
    assert_eq!(Doctor::new(&[]).finding("real-time").0, level);
    let unserved = is_served.then(|| Set::to(server, "0"));
    let unlimited = Set::to("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    let doctor = Doctor::new(&[]);
    let (level, what) = doctor.finding("real-time");
    assert_eq!(level, "warning", "{what}");
    assert!(what.contains("(realtime)"), "{what}");
    drop((unserved, unlimited, realtime));
    assert_eq!(Doctor::new(&[]).finding("real-time").0, "ok");
}
