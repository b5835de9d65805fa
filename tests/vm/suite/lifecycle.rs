//! Start, end, and every reason not to start.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use crate::metrics::STATS;
use crate::placement::{all_on, with};
use crate::policy::{HOT_ON_1, SOCKET, assert_fails};
use crate::support::gthctl::{self, Gthctl, LOADED, NO_RULES, report};
use crate::support::kernel;
use crate::support::nic::{self, Restore, SAVED, affinities};
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const SOON: Duration = Duration::from_secs(10);

/// What is known about the end of the last run: the level and the text.
fn last_end() -> (String, String) {
    let output = gthctl::output(Command::new(gthctl::binary()).args(["status", "-o", "json"]));
    let overview: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = overview["findings"].as_array().unwrap();
    let last = findings.iter().find(|finding| finding["check"] == "last-end").unwrap();
    (last["level"].as_str().unwrap().to_owned(), last["what"].as_str().unwrap().to_owned())
}

/// Here, a policy with a mistake.
#[test]
fn a_start_that_fails_is_known_as_the_last_end() {
    shared::unload();
    let file = "/tmp/mistaken.yaml";
    fs::write(file, "strategies:\n- {pid: 1, priority: 21}\n").unwrap();
    let output = gthctl::output(Command::new(gthctl::binary()).args(["run", "-p", file]));
    assert_eq!(output.code(), 2, "{}", output.stderr);
    let (level, what) = last_end();
    assert!(level == "error" && what.contains("exit code 2"), "{level}: {what}");
    assert!(what.contains("mistaken.yaml:2:22: rule 1: priority: "), "{what}");
}

/// With a policy and no config file.
#[test]
fn takes_over_every_task_prints_counters_as_asked_and_ends_well_by_sigterm() {
    shared::unload();
    let task = Task::spinner("some-task");
    assert!(!kernel::is_ext(task.pid));
    let policy = "strategies: [{command_regex: ^some-task$, cpus: 1, exclusive: true}, \
                  {command_regex: ^prio$, priority: true}]";
    let files = gthctl::files("", policy);
    let mut command = gthctl::run();
    command.arg("-p").arg(files.path().join("policy.yaml")).args(["--stats", "1"]);
    let gthctl = Gthctl::spawn(files, command);
    let begin = Instant::now();
    let _prio = Task::fork("prio", task::wake_often(10_000_000));
    let note = "gthctl: note: there is no /etc/gthctl/config.yaml: every setting has its default\n";
    assert_eq!(gthctl.has_said(note), 1, "{}", gthctl.stderr());
    assert!(kernel::is_ext(task.pid));
    assert!(kernel::runs_on(task.pid, 1), "it falls under the rule from the start");
    let newborn = Task::spinner("newborn");
    assert!(kernel::is_ext(newborn.pid));
    let before = newborn.cpu_time();
    let runs = || newborn.cpu_time() > before + Duration::from_millis(50);
    assert!(kernel::wait(SOON, runs));
    std::thread::sleep(Duration::from_millis(3500).saturating_sub(begin.elapsed()));

    let pid = gthctl.pid();
    gthctl.signal(Signal::SIGTERM);
    let elapsed = begin.elapsed();
    let output = gthctl.wait();
    assert_eq!((output.code(), kernel::state()), (0, "disabled".into()), "{}", output.stderr);
    assert!(!kernel::is_ext(task.pid));
    assert!(output.counter("tasks matched") > 1, "{}", output.stdout);
    assert!(output.counter("idle CPU") > 1, "{}", output.stdout);
    assert!(output.counter("priority wake-ups") > 0, "{}", output.stdout);
    assert!(output.stdout.contains("priority wake-up latency: half under"), "{}", output.stdout);
    // One a second, and one at the end.
    let tables = output.stdout.matches("dispatched by").count();
    let seconds = elapsed.as_secs() as usize;
    let wanted = seconds..=seconds + 2;
    assert!(wanted.contains(&tables), "{tables} tables in {elapsed:?}:\n{}", output.stdout);
    let (level, what) = last_end();
    assert_eq!(level, "ok");
    assert!(what.starts_with(&format!("PID {pid} at 2")), "{what}");
    assert!(what.ends_with(": stopped by SIGTERM (exit code 0)"), "{what}");
}

/// A directory that is removed when dropped.
struct Etc(&'static Path);

impl Drop for Etc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

/// A first start on a machine without any of gthctl's files; they appear while it runs.
#[test]
fn without_a_config_file_it_schedules_fairly_and_waits_for_one() {
    let etc = Etc(Path::new("/etc/gthctl"));
    assert!(!etc.0.exists());
    let mut gthctl = Gthctl::spawn(gthctl::files("", NO_RULES), gthctl::run());
    let hot = Task::spinner("hot");
    assert!(kernel::is_ext(hot.pid));
    let note =
        "gthctl: note: there is no /etc/gthctl/config.yaml: all tasks are scheduled fairly; for a";
    assert_eq!(gthctl.has_said(note), 1, "{}", gthctl.stderr());
    let status = report(&["status"]);
    assert_eq!((&status["rules"], status.get("policy_file")), (&0.into(), None));
    let applied = gthctl::policy_from(HOT_ON_1, &["apply", "-", "--yes"]);
    assert_fails(&applied, 1, "has no policy file");
    let diff = gthctl::policy_from(HOT_ON_1, &["diff", "-"]);
    assert_eq!(diff.code(), 11, "{}", diff.stderr);
    assert!(diff.stdout.contains("exclusive CPUs: none -> 1"), "{}", diff.stdout);
    // Reading files again that do not exist is no mistake.
    gthctl.signal(Signal::SIGHUP);
    assert!(gthctl.says("reading config and policy again", 1));

    let policy = etc.0.join("policy.yaml");
    fs::create_dir(etc.0).unwrap();
    fs::write(&policy, "strategies: [{command_regex: ^hot$, cpus: 1, exclusive: true}]").unwrap();
    let config = "policy: policy.yaml\nscheduler: {slice_ns_default: 3ms}\n";
    gthctl.changes(|| fs::write(etc.0.join("config.yaml"), config).unwrap());
    assert!(kernel::runs_on(hot.pid, 1), "{}", gthctl.stderr());
    assert_eq!(gthctl.has_said("slices are in force"), 1, "{}", gthctl.stderr());
    gthctl.changes(|| fs::write(&policy, NO_RULES).unwrap());
    assert_eq!(gthctl.has_said("error"), 0, "{}", gthctl.stderr());

    // Now it has a config file, and removing that is a mistake.
    gthctl.begin_to_hear();
    fs::remove_file(etc.0.join("config.yaml")).unwrap();
    assert!(gthctl.says("config.yaml: cannot read the config file: no such file", 1));
    gthctl.stop();
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
pub fn mount_over(command: &mut Command, fstype: Option<&'static str>, target: &'static str) {
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
    shared::unload();
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
    shared::unload();
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
    let up = kernel::wait(LOADED, || {
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

/// `gthctl status`: before a run, with a policy, a rejected one, during a hang, after an eviction.
#[test]
fn the_probe_tells_whether_it_works() {
    let status =
        |args: &[&str]| gthctl::output(Command::new(gthctl::binary()).arg("status").args(args));
    let ready = || status(&["--ready"]);
    shared::unload();
    let none = "gthctl: error: no gthctl run is active; start one with: sudo gthctl run\n";
    let before = ready();
    assert_eq!((before.code(), &*before.stdout, &*before.stderr), (10, "", none));

    let _restore = Restore;
    let interrupts = affinities("eth0");
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    let running = ready();
    assert_eq!((running.code(), &*running.stdout), (0, "generation 1 is in force\n"));
    gthctl.refuses(|| gthctl::replace_file(&gthctl.policy(), "strategies: [{nonsense: 1}]"));
    let rejected = ready();
    assert_eq!((rejected.code(), &*rejected.stdout), (0, "generation 1 is in force\n"));
    let screen = status(&[]);
    assert_eq!(screen.code(), 12, "{}", screen.stderr);
    let why = format!("{}:1:15: ", gthctl.policy().display());
    let loaded = format!("by PID {}", gthctl.pid());
    for (level, check, what) in [
        ("OK", "scheduler", &*loaded),
        ("OK", "policy", "generation 1 of"),
        ("warning", "policy-file", &*why),
        ("note", "rules", "there are none"),
    ] {
        let is_it = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells.len() > 2 && cells[..2] == [level, check] && cells[2].contains(what)
        };
        assert!(screen.stdout.lines().any(is_it), "{check} in {}", screen.stdout);
    }
    let json = status(&["-o", "json"]);
    assert_eq!(json.code(), 12);
    let overview: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&overview["kernel_in_step"], &overview["generation"]), (&true.into(), &1.into()));
    assert!(overview["rejected"]["why"].as_str().unwrap().starts_with(&why), "{overview}");

    gthctl.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    let hung = ready();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(hung.code(), 1);
    assert!(hung.stderr.contains("did not answer within 3s"), "{}", hung.stderr);
    gthctl.signal(Signal::SIGCONT);
    assert_eq!(ready().code(), 0);

    sysrq_s_evicts_it(gthctl, interrupts);
    let evicted = ready();
    assert_eq!((evicted.code(), &*evicted.stderr), (10, none));
    let last = status(&[]);
    assert_eq!((last.code(), &*last.stderr), (10, none));
    let line = last.stdout.lines().find(|line| line.contains("last-end")).unwrap();
    assert!(line.starts_with(" ERROR ") && line.contains("exit code 9"), "{line}");
}

/// Even when it is evicted, gthctl puts its interrupts back before it ends.
fn sysrq_s_evicts_it(gthctl: Gthctl, interrupts: BTreeMap<u32, String>) {
    assert!(kernel::wait(SOON, || all_on("eth0", "2")));
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let output = gthctl.wait();
    assert_eq!(output.code(), 9, "{}", output.stderr);
    assert!(output.stderr.to_lowercase().contains("sysrq"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (interrupts, false));
}

/// Asserts that all of them run, scheduled by the kernel.
fn are_the_kernels(tasks: &[Task]) {
    assert!(tasks.iter().all(|task| !kernel::is_ext(task.pid)));
    let before: Vec<_> = tasks.iter().map(Task::cpu_time).collect();
    let ran = kernel::wait(SOON, || {
        tasks.iter().zip(&before).all(|(task, before)| task.cpu_time() > *before)
    });
    assert!(ran, "some task does not run");
}

/// The interrupts stay where they are until the next run or `gthctl irq restore` puts them back. How it
/// ended is known while no gthctl runs and during the next run.
#[test]
fn kill_9_gives_tasks_back_leaves_interrupts_and_is_known_as_the_last_end() {
    shared::unload();
    let _restore = Restore;
    let before = affinities("eth0");
    let place = with("{nic: eth0, cpus: 2}");
    let kill = |gthctl: Gthctl| {
        gthctl.signal(Signal::SIGKILL);
        gthctl.wait();
        assert!(kernel::wait(SOON, || kernel::state() == "disabled"));
        assert!(all_on("eth0", "2"));
    };
    let first = Gthctl::start(&place);
    let killed = format!("PID {} was killed, or crashed", first.pid());
    let spinners = task::spinners(kernel::cpus() * 2, "load");
    assert!(kernel::wait(SOON, || Path::new(STATS).exists()), "{}", first.stderr());
    kill(first);
    // Its sockets are still there, and do not keep the next one from its own.
    assert!(Path::new(SOCKET).exists() && Path::new(STATS).exists());
    assert_fails(&gthctl::policy(&["show"]), 10, "no gthctl run is active");
    assert_eq!(last_end(), ("error".into(), killed.clone()));
    are_the_kernels(&spinners);
    drop(spinners);
    assert_eq!(nic::report(&["drift"])["placed"][0]["by"], "policy");

    let waiting = Command::new(gthctl::binary())
        .args(["status", "--ready", "--wait=300"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let second = Gthctl::start(NO_RULES);
    let waited = waiting.wait_with_output().unwrap();
    assert!(waited.status.success());
    assert_eq!(String::from_utf8_lossy(&waited.stdout), "generation 1 is in force\n");
    assert!(kernel::wait(SOON, || UnixStream::connect(STATS).is_ok()));
    assert_eq!(last_end(), ("note".into(), killed));
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));

    second.replace(&place);
    assert!(kernel::wait(SOON, || all_on("eth0", "2")));
    kill(second);
    nic::report(&["restore"]);
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

#[test]
fn what_was_pinned_by_hand_comes_back() {
    let _restore = Restore;
    let before = affinities("eth0");
    nic::report(&["pin", "eth0", "--cpus", "1"]);
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    assert!(all_on("eth0", "2"));
    let refused = nic::irq(&["pin", "eth0", "--cpus", "3"]);
    let why =
        format!("gthctl: error: eth0: the policy of the running gthctl (PID {})", gthctl.pid());
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.starts_with(&why), "{}", refused.stderr);
    assert_eq!(nic::irq(&["drift"]).code(), 0);
    gthctl.stop();
    assert!(all_on("eth0", "1"));
    nic::report(&["restore"]);
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

/// A real-time task takes a CPU for good, so a task that may only run there
/// waits until the kernel's watchdog ends the scheduler. gthctl reports this with
/// a separate exit code, the kernel's reason and the name of the task that waited.
#[test]
fn the_watchdog_is_reported() {
    // The kernel would give the others 5 %, through RT throttling or, in newer kernels,
    // a deadline server (kernel/sched/rt.c, kernel/sched/deadline.c).
    let runtime = "/proc/sys/kernel/sched_rt_runtime_us";
    let throttle = kernel::read(runtime);
    let servers = ["ext_server", "fair_server"]
        .map(|server| format!("/sys/kernel/debug/sched/{server}/cpu1/runtime"));
    let saved = servers.each_ref().map(|path| kernel::read(path));
    let _ = fs::write(runtime, "-1");
    for path in &servers {
        let _ = fs::write(path, "0");
    }
    // A kernel worker runs the watchdog. It must not wait for that CPU, too.
    let workers = "/sys/devices/virtual/workqueue/cpumask";
    let all = kernel::read(workers);
    fs::write(workers, "1").unwrap();
    let gthctl = Gthctl::start_watched(gthctl::files("", "strategies: []"), Duration::from_secs(3));
    let spinner = Task::fork_on("realtime", Some(&[1]), |shared| {
        task::become_realtime();
        task::spin(shared)
    });
    std::thread::sleep(Duration::from_millis(200));
    // This task cannot even name itself. Task::fork is no use, as it waits for the name.
    let waiting = Command::new("taskset").args(["-c", "1", "sleep", "60"]).spawn();
    let stalled = kernel::wait(Duration::from_secs(60), || kernel::state() != "enabled");
    // The scheduler's end waits for tasks that the spinner keeps from running: rcu_preempt, and on
    // 6.12 those in functions from which gthctl's BPF programs are detached (RCU tasks).
    drop(spinner);
    assert!(stalled, "the watchdog did nothing");
    let output = gthctl.wait();
    let _ = waiting.map(|mut child| child.kill());
    fs::write(workers, all).unwrap();
    let _ = fs::write(runtime, throttle);
    for (path, value) in servers.iter().zip(saved) {
        let _ = fs::write(path, value);
    }
    assert_eq!(output.code(), 8, "{}", output.stderr);
    assert!(output.stderr.contains("stall"), "{}", output.stderr);
    assert!(output.stderr.contains("failed to run for"), "{}", output.stderr);
    assert_eq!(kernel::state(), "disabled");
}
