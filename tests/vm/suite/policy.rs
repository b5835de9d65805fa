//! `gthctl policy`: what a second gthctl shows of the running one and changes in it.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::gthctl::{Gthctl, Output, policy, policy_from, report};
use crate::support::kernel::{self, runs_elsewhere, runs_on};
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

pub const SOCKET: &str = "/run/gthctl/control.sock";
pub const SOON: Duration = Duration::from_secs(5);

pub const HOT_ON_1: &str =
    "strategies: [{name: hot, command_regex: ^hot$, cpus: 1, exclusive: true}]";
pub const HOT_ON_2: &str =
    "strategies: [{name: hot, command_regex: ^hot$, cpus: 2, exclusive: true}]";

fn generation() -> u64 {
    report(&["status"])["generation"].as_u64().unwrap()
}

/// Everything that a failing command must leave unchanged.
#[derive(Debug, PartialEq)]
pub struct InForce {
    pub generation: u64,
    since: Value,
    file: String,
    rules: Value,
}

pub fn in_force(gthctl: &Gthctl) -> InForce {
    let status = report(&["status"]);
    assert_eq!(status["kernel_in_step"], true);
    InForce {
        generation: status["generation"].as_u64().unwrap(),
        since: status["in_force_since"].clone(),
        file: fs::read_to_string(gthctl.policy()).unwrap(),
        rules: report(&["show"])["rules"].clone(),
    }
}

/// A file beside the policy file.
pub fn beside(gthctl: &Gthctl, name: &str, text: &str) -> String {
    let path = gthctl.policy().with_file_name(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
pub fn assert_fails(output: &Output, code: i32, message: &str) {
    assert_eq!(output.code(), code, "{}", output.stderr);
    assert!(output.stderr.starts_with("gthctl: error: "), "{}", output.stderr);
    assert!(output.stderr.contains(message), "{message} in {}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

/// Kind, name and tasks before and after of every rule of a plan.
fn changes(plan: &Value) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |change: &Value| {
        let (before, after) = (&change["before"], &change["after"]);
        let name = if after.is_null() { &before["name"] } else { &after["name"] };
        let tasks = |rule: &Value| rule["tasks"].as_u64();
        (text(&change["kind"]), text(name), tasks(before), tasks(after))
    };
    plan["changes"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn planned_applied_and_rolled_back() {
    let before = "strategies:
- {name: gone, command_regex: ^gone$, priority: 12}
- {name: hot, command_regex: ^hot$, cpus: 1, exclusive: true}
- {name: first, command_regex: ^any, priority: 15}
- {name: second, command_regex: ^other$, priority: 15}";
    let after = "strategies:
- {name: second, command_regex: ^other$, priority: 15}
- {name: first, command_regex: ^any, priority: 15}
- {name: hot, command_regex: ^hot$, cpus: 2-3, exclusive: true}
- {name: new, command_regex: ^new$, priority: 12}";
    let gthctl = shared::scheduler(before);
    let path = gthctl.policy();
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    let _few = ["gone", "gone", "any-1", "any-2", "other", "new", "new", "new"]
        .map(|name| Task::fork(name, |_| task::sleep_until(u64::MAX / 2)));
    let is_on = |cpu| runs_on(hot.pid, cpu) && runs_elsewhere(cold.pid, cpu);
    assert!(is_on(1));
    let new = beside(&gthctl, "new.yaml", after);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    chown(&path, Some(7), Some(8)).unwrap();

    let untouched = in_force(&gthctl);
    let plan = report(&["apply", &new, "--dry-run"]);
    let change = |kind: &str, name: &str, before, after| (kind.into(), name.into(), before, after);
    assert_eq!(
        changes(&plan),
        [
            change("kept", "second", Some(1), Some(1)),
            change("moved", "first", Some(2), Some(2)),
            change("changed", "hot", Some(1), Some(1)),
            change("added", "new", None, Some(3)),
            change("removed", "gone", Some(2), None),
        ]
    );
    assert_eq!(
        (&plan["exclusive_cpus_before"], &plan["exclusive_cpus"]),
        (&json!("1"), &json!("2-3"))
    );
    let yaml = policy(&["apply", &new, "--dry-run", "-o", "yaml"]).stdout;
    assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), plan);
    let table = policy(&["apply", &new, "--dry-run"]).stdout;
    assert!(table.contains("+ added") && table.contains("exclusive CPUs: 1 -> 2-3"), "{table}");
    let (code, json) = diff(&["-o", "json", &new]);
    assert_eq!((code, serde_json::from_str::<Value>(&json).unwrap()), (11, plan.clone()));
    assert_eq!(diff(&[&new]), (11, table.trim_end().to_owned()));
    let (code, same) = diff(&[path.to_str().unwrap()]);
    assert_eq!((code, same.lines().next()), (0, Some("no rule changes")));
    assert_eq!(in_force(&gthctl), untouched);
    assert!(is_on(1));

    let applied = report(&["apply", &new, "--yes"]);
    let status = report(&["status"]);
    assert_eq!(applied["generation"], untouched.generation + 1);
    assert_eq!(
        (&status["generation"], &status["kernel_in_step"]),
        (&applied["generation"], &json!(true))
    );
    assert!(kernel::wait(SOON, || matches!(kernel::cpu_of(hot.pid), Some(2 | 3))));
    assert_eq!(changes(&applied["plan"]), changes(&plan));
    let took_ms = applied["took_ms"].as_f64().unwrap();
    println!("apply: {took_ms:.1} ms");
    assert!((0.1..5000.0).contains(&took_ms));
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
    let file = fs::metadata(&path).unwrap();
    assert_eq!((file.mode() & 0o777, file.uid(), file.gid()), (0o640, 7, 8));

    let applied = policy_from(HOT_ON_2, &["apply", "-", "--yes"]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert!(is_on(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), HOT_ON_2);
    for text in [after, HOT_ON_2] {
        let generation = generation();
        assert_eq!(report(&["rollback", "--dry-run"])["generation"], generation);
        let applied = report(&["rollback", "--yes"]);
        assert_eq!(applied["generation"], generation + 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert!(is_on(2));
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 3, "{left:?}");
    gthctl.stop();
}

/// The exit code and the output of `gthctl policy diff`.
fn diff(args: &[&str]) -> (i32, String) {
    let output = policy(&[&["diff"], args].concat());
    (output.code(), output.stdout.trim_end().to_owned())
}

/// Sends a request by hand and returns the reply.
pub fn ask(path: &Path, request: &Value) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(request.to_string().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

pub fn apply_request(text: &str, generation: u64) -> Value {
    let text = json!({"path": "by-hand", "text": text});
    json!({"Apply": {"proposal": {"Text": text}, "generation": generation}})
}

#[test]
fn what_is_refused_changes_nothing() {
    let gthctl = shared::scheduler(HOT_ON_1);
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    assert!(runs_on(hot.pid, 1) && runs_elsewhere(cold.pid, 1));
    let good = beside(&gthctl, "good.yaml", HOT_ON_2);
    let bad = beside(&gthctl, "bad.yaml", "strategies:\n- {pid: 1, priority: 21}\n");
    let all = format!("strategies: [{{pid: 1, cpus: 0-{}, exclusive: true}}]", kernel::cpus() - 1);
    let all = beside(&gthctl, "all.yaml", &all);
    let dir = gthctl.policy().parent().unwrap().to_owned();
    let untouched = in_force(&gthctl);
    let way_back = || changes(&report(&["rollback", "--dry-run"]));
    let before = way_back();

    let unasked = policy(&["apply", &good, "-o", "json"]);
    assert_fails(&unasked, 2, "there is no terminal to ask on; nothing changed");
    let piped = policy_from(HOT_ON_2, &["apply", "-"]);
    assert_eq!(piped.code(), 2, "{}", piped.stderr);
    assert_fails(&policy(&["apply", &bad, "--yes"]), 2, "bad.yaml:2:22: rule 1: priority: ");
    assert_fails(&policy(&["apply", &bad, "--dry-run"]), 2, "bad.yaml:2:22: ");
    assert_fails(&policy(&["diff", &bad]), 2, "bad.yaml:2:22: ");
    assert_fails(&policy(&["apply", &all, "--yes"]), 2, "all.yaml:1:");
    assert_fails(&policy(&["apply", &all, "--yes"]), 2, "no CPU would be left");
    let stale = apply_request(HOT_ON_2, untouched.generation - 1);
    let reply = ask(Path::new(SOCKET), &stale).unwrap();
    assert!(
        reply.contains("the policy in force, or what it refers to, has changed meanwhile"),
        "{reply}"
    );

    // gthctl cannot replace the file, so the kernel must not schedule by it either.
    mount(Some(&dir), &dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, &dir, None::<&str>, read_only, None::<&str>).unwrap();
    let refused = policy(&["apply", &good, "--yes", "-o", "json"]);
    umount2(&dir, MntFlags::MNT_DETACH).unwrap();
    assert_fails(&refused, 1, "Read-only file system");

    // The same if only the last step fails: rename(2) refuses a mount point.
    let file = gthctl.policy();
    mount(Some(&file), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let refused = policy(&["apply", &good, "--yes", "-o", "json"]);
    umount2(&file, MntFlags::MNT_DETACH).unwrap();
    assert_fails(&refused, 1, "busy");
    let now = in_force(&gthctl);
    assert_eq!((&now.file, &now.rules), (&untouched.file, &untouched.rules));
    assert!(runs_on(hot.pid, 1) && runs_elsewhere(cold.pid, 1));
    assert_eq!(way_back(), before);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 5);
    gthctl.stop();
}

/// The file is unchanged, so `status` still says that it is not in force.
#[test]
fn a_file_stays_rejected_when_another_policy_cannot_replace_it() {
    let mut gthctl = shared::scheduler(HOT_ON_1);
    gthctl.expect_errors();
    let good = beside(&gthctl, "good.yaml", HOT_ON_2);
    let file = gthctl.policy();
    gthctl.refuses(|| fs::write(&file, "strategies:\n- {pid: 1, priority: 21}\n").unwrap());
    let rejected = || report(&["status"])["rejected"].clone();
    let before = rejected();
    mount(Some(&file), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let refused = policy(&["apply", &good, "--yes", "-o", "json"]);
    umount2(&file, MntFlags::MNT_DETACH).unwrap();
    assert_fails(&refused, 1, "busy");
    assert!(before.is_object());
    assert_eq!(rejected(), before);
    gthctl.stop();
}

#[test]
fn a_policy_that_is_applied_again_hides_no_earlier_one() {
    let gthctl = shared::scheduler(HOT_ON_1);
    let second = beside(&gthctl, "second.yaml", HOT_ON_2);
    for _ in 0..2 {
        report(&["apply", &second, "--yes"]);
    }
    // Nor does a comment above its rules.
    let generation = in_force(&gthctl).generation;
    gthctl.replace(&format!("# no good\n{HOT_ON_2}"));
    assert!(kernel::wait(SOON, || in_force(&gthctl).generation > generation));
    report(&["rollback", "--yes"]);
    assert_eq!(fs::read_to_string(gthctl.policy()).unwrap(), HOT_ON_1);
    gthctl.stop();
}

/// How many files and directories a process watches with inotify(7).
fn watches(pid: i32) -> usize {
    let about = |entry: fs::DirEntry| fs::read_to_string(entry.path()).unwrap_or_default();
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let of = |text: String| text.lines().filter(|line| line.starts_with("inotify ")).count();
    files.map(|entry| of(about(entry.unwrap()))).sum()
}

#[test]
fn files_of_an_earlier_policy_are_not_watched() {
    let gthctl = shared::scheduler("strategies: []");
    let watched = || watches(gthctl.pid());
    let before = watched();
    gthctl.replace("strategies: [{command_regex: ^hot$, user: root, priority: true}]");
    assert!(kernel::wait(SOON, || watched() > before), "{before}");
    gthctl.replace("strategies: []");
    assert!(kernel::wait(SOON, || watched() == before), "{before}, now {}", watched());
    gthctl.stop();
}

#[test]
fn status_show_and_explain() {
    let mut gthctl = shared::scheduler(
        "strategies:
- {name: not-root, command_regex: ^worker, user: 4711, priority: 12}
- {name: rx, threads: ^rx$, priority: 11}
- {name: family, command_regex: ^parent$, include_children: true, cpus: 1, exclusive: true}",
    );
    let parent = Task::fork("parent", |shared| {
        // SAFETY: the child only spins.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            task::set_name("child");
        } else {
            shared.answer.store(child as u32, std::sync::atomic::Ordering::Relaxed);
        }
        task::spin(shared)
    });
    let worker = Task::fork("worker", |shared| {
        std::thread::spawn(|| {
            task::set_name("rx");
            task::sleep_until(u64::MAX / 2);
        });
        task::spin(shared)
    });
    let child = || parent.shared().answer.load(std::sync::atomic::Ordering::Relaxed);
    assert!(kernel::wait(SOON, || kernel::read(&format!("/proc/{}/comm", child())) == "child"));
    let child = child();
    assert!(runs_on(parent.pid, 1) && runs_on(child as i32, 1));
    let threads = format!("/proc/{}/task", worker.pid);
    let thread = || {
        let tids = fs::read_dir(&threads).unwrap().map(|entry| entry.unwrap().file_name());
        let mut tids = tids.map(|tid| tid.to_str().unwrap().parse().unwrap());
        tids.find(|&tid: &i32| kernel::read(&format!("{threads}/{tid}/comm")) == "rx")
    };
    assert!(kernel::wait(SOON, || thread().is_some()));
    let thread = thread().unwrap();

    let before = generation();
    let show = report(&["show"]);
    let tasks: Vec<u64> = show["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["tasks"].as_u64().unwrap())
        .collect();
    assert_eq!(tasks, [0, 1, 2]);
    assert_eq!((&show["generation"], &show["exclusive_cpus"]), (&json!(before), &json!("1")));
    let yaml = policy(&["show", "-o", "yaml"]).stdout;
    assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap()["rules"], show["rules"]);
    let status = report(&["status"]);
    assert_eq!((&status["tasks_matched"], &status["rules"]), (&json!(3), &json!(3)));
    assert!(status["tasks"].as_u64().unwrap() > 20, "{status}");
    assert_eq!(status["pid"], gthctl.pid());
    assert_eq!(status["policy_file"], gthctl.policy().to_str().unwrap());
    assert_eq!((&status["kernel_in_step"], status.get("rejected")), (&json!(true), None));

    let explain = |tid: i32| report(&["explain", &tid.to_string()]);
    let checks = |explanation: &Value| -> Vec<Value> {
        let rules = explanation["rules"].as_array().unwrap().iter();
        let check = |rule: &Value| {
            let conditions = rule["conditions"].as_array().unwrap().iter();
            let holds: Vec<&Value> = conditions.map(|condition| &condition["holds"]).collect();
            json!([rule["matches"], rule["inherited"], holds])
        };
        rules.map(check).collect()
    };
    let of_thread = explain(thread);
    assert_eq!((&of_thread["rule"], &of_thread["pid"]), (&json!("rx"), &json!(worker.pid)));
    assert_eq!(
        checks(&of_thread),
        [
            json!([false, false, [true, false]]),
            json!([true, false, [true]]),
            json!([false, false, [false]])
        ]
    );
    assert_eq!(of_thread["rules"][0]["conditions"][1]["asks"], json!({"user": "4711"}));
    assert_eq!(of_thread["threads"], json!([{"tid": worker.pid, "comm": "worker"}]));
    assert_eq!(of_thread["task"]["comm of the process"], "worker");
    let of_child = explain(child as i32);
    assert_eq!((&of_child["rule"], &of_child["in_force"]), (&json!("family"), &json!(true)));
    assert_eq!(checks(&of_child)[2], json!([true, true, [false]]));
    let of_worker = explain(worker.pid);
    assert_eq!((of_worker.get("rule"), &of_worker["in_force"]), (None, &json!(true)));
    assert_eq!(checks(&of_worker)[0], json!([false, false, [true, false]]));
    let table = policy(&["explain", &worker.pid.to_string()]).stdout;
    assert!(
        table.contains("none: scheduled fairly") && table.contains("no   user: 4711"),
        "{table}"
    );
    assert_fails(&policy(&["explain", "4194303"]), 1, "no thread 4194303");

    gthctl.expect_errors();
    let good = fs::read_to_string(gthctl.policy()).unwrap();
    fs::write(gthctl.policy(), "strategies: [{pid: 0, priority: 1}]").unwrap();
    let rejected = || report(&["status"]).get("rejected").cloned();
    assert!(kernel::wait(SOON, || rejected().is_some()));
    let why = rejected().unwrap();
    assert!(why["why"].as_str().unwrap().contains("policy.yaml:1:"), "{why}");
    assert!(why["since"].as_str().unwrap() >= status["running_since"].as_str().unwrap(), "{why}");
    let table = policy(&["status"]).stdout;
    assert!(table.contains("REJECTED since "), "{table}");
    assert_eq!(generation(), before);
    fs::write(gthctl.policy(), good).unwrap();
    assert!(kernel::wait(SOON, || rejected().is_none()));
    assert_eq!(generation(), before);
    gthctl.stop();
}

/// A thread keeps its record until it next runs: a stopped one has the old generation.
#[test]
fn the_tasks_under_each_rule() {
    let gthctl = shared::scheduler(
        "strategies:
- {name: stopped, command_regex: ^stopped$, priority: 12}
- {name: hot, command_regex: ^hot$, cpus: 1, exclusive: true}",
    );
    let (hot, stopped) = (Task::spinner("hot"), Task::spinner("stopped"));
    let tasks = || report(&["show", "--tasks"])["tasks"].as_array().unwrap().clone();
    let row = |task: &Task, rule: &str, generation: u64, in_force: bool| {
        json!({
            "tid": task.pid, "pid": task.pid, "comm": if task.pid == hot.pid { "hot" } else { "stopped" },
            "rule": rule, "generation": generation, "in_force": in_force,
        })
    };
    let before = generation();
    let both = [row(&stopped, "stopped", before, true), row(&hot, "hot", before, true)];
    assert!(kernel::wait(SOON, || tasks() == both), "{:?}", tasks());
    assert_eq!(report(&["show", "--tasks"])["generation"], before);

    let to = |signal| kill(Pid::from_raw(stopped.pid), signal).unwrap();
    to(Signal::SIGSTOP);
    let state = || kernel::read(&format!("/proc/{}/stat", stopped.pid));
    assert!(kernel::wait(SOON, || state().contains(") T ")));
    gthctl.replace(
        "strategies:
- {name: hot, command_regex: ^hot$, cpus: 2, exclusive: true}
- {name: halted, command_regex: ^stopped$, weight: 200}",
    );
    assert!(runs_on(hot.pid, 2));
    let waits = [row(&hot, "hot", before + 1, true), row(&stopped, "halted", before, false)];
    assert_eq!(tasks(), waits);
    let table = policy(&["show", "--tasks"]).stdout;
    assert!(table.contains(&format!("| {before}, the new rule when it next runs")), "{table}");
    to(Signal::SIGCONT);
    let all = [row(&hot, "hot", before + 1, true), row(&stopped, "halted", before + 1, true)];
    assert!(kernel::wait(SOON, || tasks() == all), "{:?}", tasks());

    gthctl.replace("strategies: []");
    let none = format!("no task falls under a rule of generation {}\n", before + 2);
    assert_eq!(policy(&["show", "--tasks"]).stdout, none);
    gthctl.stop();
}

/// The policy names the program that has the GTP-U port open, and can be applied unchanged.
#[test]
fn a_first_policy_for_what_runs_here() {
    let gthctl = shared::scheduler("strategies: []");
    let upf = Task::fork("my-upf", |_| {
        let _socket = UdpSocket::bind("0.0.0.0:2152").unwrap();
        task::sleep_until(u64::MAX / 2);
    });
    let other = Task::spinner("other");
    assert!(kernel::wait(SOON, || kernel::read("/proc/net/udp").contains(":0868 ")));
    let file = gthctl.policy().with_file_name("first.yaml");
    let file = file.to_str().unwrap();
    let written = policy(&["init", "-o", file]);
    assert_eq!(written.code(), 0, "{}", written.stderr);
    let text = fs::read_to_string(file).unwrap();
    let found = format!("  # PID {}, which has the GTP-U port (UDP 2152) open\n", upf.pid);
    assert!(text.contains(&found) && text.contains("# NIC: eth0 (virtio_net)"), "{text}");
    report(&["apply", file, "--yes"]);
    let tasks = report(&["show", "--tasks"])["tasks"].clone();
    let of = |task: &Task| tasks.as_array().unwrap().iter().find(|row| row["tid"] == task.pid);
    assert_eq!(of(&upf).unwrap()["rule"], "my-upf", "{tasks}");
    assert_eq!(of(&other), None);
    gthctl.stop();
}
