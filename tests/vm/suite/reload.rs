//! Files that change while the scheduler runs.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::gthctl::{Gthctl, NO_RULES, notes, replace_file, report, status};
use crate::support::kernel::{self, runs_elsewhere, runs_on};
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const HOT_ON_1: &str = "strategies: [{command_regex: ^hot$, cpus: 1, exclusive: true}]";
const HOT_ON_2: &str = "strategies: [{command_regex: ^hot$, cpus: 2, exclusive: true}]";
const IN_FORCE: &str = "in force as generation";
const REFUSED: &str = "the previous settings stay in force";
const SOON: Duration = Duration::from_secs(5);
/// How long a storm of rewrites may last until some contents have come into force during it.
const LONGEST_STORM: Duration = Duration::from_secs(60);

/// The task has the CPU to itself: it runs there, and the other task does not.
fn is_on(hot: &Task, cold: &Task, cpu: usize) -> bool {
    kernel::wait(SOON, || {
        kernel::cpu_of(hot.pid) == Some(cpu) && kernel::cpu_of(cold.pid) != Some(cpu)
    })
}

#[test]
fn a_policy_is_followed_however_it_is_replaced() {
    let gthctl = shared::scheduler(NO_RULES);
    let path = gthctl.policy();
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    gthctl.changes(|| fs::write(&path, HOT_ON_1).unwrap());
    assert!(is_on(&hot, &cold, 1));
    gthctl.changes(|| replace_file(&path, HOT_ON_2));
    assert!(is_on(&hot, &cold, 2));
    gthctl.changes(|| {
        fs::remove_file(&path).unwrap();
        fs::write(&path, HOT_ON_1).unwrap();
    });
    assert!(is_on(&hot, &cold, 1));
    let elsewhere = path.with_file_name("elsewhere.yaml");
    fs::write(&elsewhere, HOT_ON_2).unwrap();
    gthctl.changes(|| {
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
    });
    assert!(is_on(&hot, &cold, 2));
    assert_eq!(gthctl.has_said(IN_FORCE), 4, "{}", gthctl.stderr());
    gthctl.stop();
}

#[test]
fn a_bad_policy_changes_nothing() {
    let mut gthctl = shared::scheduler(HOT_ON_1);
    gthctl.expect_errors();
    let path = gthctl.policy();
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    assert!(is_on(&hot, &cold, 1));
    for bad in ["strategies: [", "strategies: [{pid: 0}]", "strategies: [{pid: 1, cpus: 99}]", ""] {
        gthctl.refuses(|| replace_file(&path, bad));
        assert!(is_on(&hot, &cold, 1), "after {bad:?}");
    }
    gthctl.refuses(|| fs::remove_file(&path).unwrap());
    assert!(is_on(&hot, &cold, 1));
    assert!(gthctl.says(REFUSED, 5), "{}", gthctl.stderr());
    gthctl.replace(HOT_ON_2);
    assert!(is_on(&hot, &cold, 2));
    assert!(gthctl.has_said("policy.yaml:1:") > 0, "{}", gthctl.stderr());
    gthctl.stop();
}

/// Tasks wait in the queue of exclusive CPUs, then of a whole last-level cache, when a policy takes
/// those queues' CPUs away. No task is left behind.
#[test]
fn nobody_is_left_in_a_queue_without_cpus() {
    let gthctl = shared::scheduler(HOT_ON_1);
    let mut tasks = task::spinners(4, "hot");
    tasks.extend(task::spinners(kernel::cpus() * 2, "cold"));
    let second_llc = "strategies: [{command_regex: ^none$, cpus: 2-3, exclusive: true}]";
    let policies = [NO_RULES, HOT_ON_2, second_llc, HOT_ON_1, second_llc, NO_RULES];
    for policy in policies {
        gthctl.replace(policy);
        let before: Vec<_> = tasks.iter().map(Task::cpu_time).collect();
        let all_run = || {
            let times = tasks.iter().map(Task::cpu_time);
            times.zip(&before).all(|(now, before)| now > *before + Duration::from_millis(5))
        };
        assert!(kernel::wait(SOON, all_run), "after {policy}");
    }
    gthctl.stop();
}

#[test]
fn a_storm_of_rewrites_ends_in_what_the_last_one_says() {
    let mut gthctl = shared::scheduler(NO_RULES);
    gthctl.expect_errors();
    let path = gthctl.policy();
    let data = [1, 2].map(|i| path.with_file_name(format!("data-{i}.yaml")));
    let swap_link = |to: &Path| {
        let new = path.with_extension("link");
        symlink(to, &new).unwrap();
        fs::rename(new, &path).unwrap();
    };
    let mut forks = Command::new("stress-ng")
        .args(["--fork", "4", "--timeout", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let mut i = 0;
    // One of the contents comes into force about once a second, and one in three is a mistake.
    while i < 1000 || gthctl.has_said(IN_FORCE) < 2 && begin.elapsed() < LONGEST_STORM {
        let text = [HOT_ON_1, "strategies: [{", HOT_ON_2][i % 3];
        match i / 3 % 3 {
            0 => fs::write(&path, text).unwrap(),
            1 => replace_file(&path, text),
            _ => {
                fs::write(&data[i % 2], text).unwrap();
                swap_link(&data[i % 2]);
            }
        }
        std::thread::sleep(Duration::from_millis(i as u64 % 7));
        i += 1;
    }
    fs::write(&data[0], HOT_ON_1).unwrap();
    swap_link(&data[0]);
    println!("{i} rewrites in {:?}", begin.elapsed());
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    let written = report(&["check", path.to_str().unwrap()]);
    let in_force = || {
        let mut shown = report(&["show"]);
        let rules = shown["rules"].as_array_mut().unwrap();
        rules.iter_mut().for_each(|rule| drop(rule.as_object_mut().unwrap().remove("tasks")));
        shown["rules"].take()
    };
    assert!(kernel::wait(SOON, || in_force() == written["rules"]), "{}", in_force());
    assert!(is_on(&hot, &cold, 1));
    let status = report(&["status"]);
    assert_eq!(status["kernel_in_step"], true);
    assert_eq!(status.get("rejected"), None);
    let tasks = status["tasks_matched"].as_u64().unwrap();
    assert_eq!(tasks, 1, "{status}");
    let _ = forks.kill();
    let _ = forks.wait();
    assert!(!gthctl.has_ended());
    let generations = gthctl.has_said(IN_FORCE);
    println!("{generations} generations, {} refused", gthctl.has_said(REFUSED));
    // How many come into force during the storm depends on the host's speed, but some do.
    assert!(generations >= 2, "{}", gthctl.stderr());
    gthctl.stop();
}

/// A user and a network namespace that the policy names, and that appear later.
#[test]
fn what_a_policy_names_is_followed() {
    const PASSWD: &str = "/etc/passwd";
    let users = fs::read_to_string(PASSWD).unwrap();
    let victim = Task::spinner("by-pid");
    let policy = format!(
        "strategies:
- {{name: user, user: upf, cpus: 1, exclusive: true}}
- {{name: netns, netns: later, cpus: 2, exclusive: true}}
- {{name: pid, pid: {}, cpus: 3, exclusive: true}}",
        victim.pid
    );
    let gthctl = shared::scheduler(&policy);
    let of_user = Task::fork("of-user", |shared| {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::setuid(1001) }, 0);
        task::spin(shared)
    });
    let of_netns = Task::fork("of-netns", |shared| {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        task::spin(shared)
    });
    assert!(runs_on(victim.pid, 3));
    assert!(runs_elsewhere(of_user.pid, 1) && runs_elsewhere(of_netns.pid, 2));
    assert_eq!(notes(&report(&["status"])).len(), 2);

    fs::write(PASSWD, format!("{users}upf:x:1001:1001::/:/bin/false\n")).unwrap();
    assert!(runs_on(of_user.pid, 1));
    // ip-netns makes the file first, and mounts the namespace over it some time later.
    let name = Path::new("/run/netns/later");
    fs::create_dir_all("/run/netns").unwrap();
    fs::write(name, "").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let ns = format!("/proc/{}/ns/net", of_netns.pid);
    mount(Some(ns.as_str()), name, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    assert!(runs_on(of_netns.pid, 2));
    let status = report(&["status"]);
    assert_eq!((notes(&status), &status["tasks_matched"]), (Vec::new(), &json!(3)));

    // A later process with the same id does not match, even after gthctl has reread the policy.
    let pid = victim.pid;
    drop(victim);
    let heir = Task::spinner_with_pid("heir", pid);
    umount2(name, MntFlags::MNT_DETACH).unwrap();
    fs::remove_file(name).unwrap();
    fs::write(PASSWD, &users).unwrap();
    assert!(runs_elsewhere(of_user.pid, 1) && runs_elsewhere(of_netns.pid, 2));
    assert!(runs_elsewhere(heir.pid, 3));
    assert_eq!(report(&["status"])["tasks_matched"], 0);
    gthctl.stop();
}

#[test]
fn sighup_has_both_files_read_again() {
    let rule = |name: &str| format!("strategies: [{{command_regex: ^{name}$, priority: 1}}]");
    let gthctl = shared::scheduler(&rule("none0"));
    let path = gthctl.policy();
    let other = path.with_file_name("other.yaml");
    fs::write(&other, rule("none1")).unwrap();
    let generation = || status().map(|status| status.generation);
    let before = generation();
    // inotify does not report mounts.
    mount(Some(&other), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let early = generation();
    gthctl.signal(Signal::SIGHUP);
    let changed = kernel::wait(SOON, || generation() > before);
    umount2(&path, MntFlags::MNT_DETACH).unwrap();
    assert_eq!((early, changed), (before, true), "{}", gthctl.stderr());
    let config = gthctl.config();
    fs::write(&other, "policy: policy.yaml\nscheduler: {slice_ns_default: 9000000}").unwrap();
    mount(Some(&other), &config, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    gthctl.signal(Signal::SIGHUP);
    let said = gthctl.says("slices are in force", 1);
    umount2(&config, MntFlags::MNT_DETACH).unwrap();
    assert!(said, "{}", gthctl.stderr());
    gthctl.signal(Signal::SIGHUP);
    assert!(gthctl.says("slices are in force", 2), "{}", gthctl.stderr());
    gthctl.stop();
}

/// The same text then has another meaning.
#[test]
fn sighup_finds_a_process_that_has_come_since() {
    let ended = Task::spinner("any");
    let pid = ended.pid;
    drop(ended);
    let gthctl =
        shared::scheduler(&format!("strategies: [{{pid: {pid}, cpus: 1, exclusive: true}}]"));
    let heir = Task::spinner_with_pid("any", pid);
    let cold = Task::fork_on("cold", Some(&[1, 2]), task::spin);
    gthctl.changes(|| gthctl.signal(Signal::SIGHUP));
    assert!(is_on(&heir, &cold, 1));
    gthctl.stop();
}

/// A slow writer brings back a file that was removed. gthctl tries to read it again each second.
#[test]
fn a_file_that_comes_back_slowly_is_read_when_it_is_closed() {
    let mut gthctl = shared::scheduler(NO_RULES);
    gthctl.expect_errors();
    let path = gthctl.policy();
    gthctl.refuses(|| fs::remove_file(&path).unwrap());
    let generation = || status().map(|status| status.generation);
    let before = generation();
    let mut file = File::create(&path).unwrap();
    file.write_all(b"strategies:\n- {command_regex: ^none1$, priority: 1}\n").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(generation(), before);
    gthctl.changes(|| {
        file.write_all(b"- {command_regex: ^none2$, priority: 1}\n").unwrap();
        drop(file);
    });
    assert_eq!(report(&["show"])["rules"].as_array().unwrap().len(), 2);
    gthctl.stop();
}

/// Rewrites the file in place and makes gthctl read it while it is half written.
fn read_half_written(gthctl: &Gthctl, path: &Path, text: &str) {
    let times = gthctl.has_said("reading config and policy again");
    let mut file = File::create(path).unwrap();
    file.write_all(b"[").unwrap();
    gthctl.signal(Signal::SIGHUP);
    assert!(gthctl.says("reading config and policy again", times + 1));
    assert_eq!(report(&["status"])["rejected"], Value::Null);
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_half_written_file_is_no_mistake() {
    let gthctl = shared::scheduler(NO_RULES);
    read_half_written(&gthctl, &gthctl.policy(), "strategies: [{pid: 1, weight: 200}]");
    assert!(kernel::wait(SOON, || report(&["status"])["rules"] == 1), "{}", gthctl.stderr());
    let config = gthctl.config();
    let before = fs::read_to_string(&config).unwrap();
    let other = "policy: policy.yaml\nscheduler: {slice_ns_default: 9000000}";
    read_half_written(&gthctl, &config, other);
    assert!(gthctl.says("slices are in force", 1), "{}", gthctl.stderr());
    read_half_written(&gthctl, &config, &before);
    assert!(gthctl.says("slices are in force", 2), "{}", gthctl.stderr());
    assert_eq!(gthctl.has_said("error"), 0, "{}", gthctl.stderr());
    gthctl.stop();
}
