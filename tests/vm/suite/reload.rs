//! Files that change while the scheduler runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::gthctl::Gthctl;
use crate::kernel;
use crate::task::{self, Task};

const NOBODY: &str = "strategies: []";
const HOT_ON_1: &str = "strategies: [{command_regex: ^hot$, cpus: 1, exclusive: true}]";
const HOT_ON_2: &str = "strategies: [{command_regex: ^hot$, cpus: 2, exclusive: true}]";
const IN_FORCE: &str = "in force as generation";
const REFUSED: &str = "what was in force before stays";
const SOON: Duration = Duration::from_secs(5);

/// The CPU is the task's alone: it runs there, and the other one does not.
fn is_on(hot: &Task, cold: &Task, cpu: usize) -> bool {
    kernel::wait(SOON, || {
        kernel::cpu_of(hot.pid) == Some(cpu) && kernel::cpu_of(cold.pid) != Some(cpu)
    })
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_policy_is_followed_however_it_is_replaced() {
    let gthctl = Gthctl::start(NOBODY);
    let path = gthctl.policy();
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    fs::write(&path, HOT_ON_1).unwrap();
    assert!(gthctl.says(IN_FORCE, 1));
    assert!(is_on(&hot, &cold, 1));
    replace(&path, HOT_ON_2);
    assert!(gthctl.says(IN_FORCE, 2));
    assert!(is_on(&hot, &cold, 2));
    fs::remove_file(&path).unwrap();
    fs::write(&path, HOT_ON_1).unwrap();
    assert!(gthctl.says(IN_FORCE, 3));
    assert!(is_on(&hot, &cold, 1));
    let elsewhere = path.with_file_name("elsewhere.yaml");
    fs::write(&elsewhere, HOT_ON_2).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(gthctl.says(IN_FORCE, 4));
    assert!(is_on(&hot, &cold, 2));
    gthctl.stop();
}

#[test]
fn a_bad_policy_changes_nothing() {
    let gthctl = Gthctl::start(HOT_ON_1);
    let path = gthctl.policy();
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    assert!(is_on(&hot, &cold, 1));
    let bad = ["strategies: [", "strategies: [{pid: 0}]", "strategies: [{pid: 1, cpus: 99}]", ""];
    for (i, bad) in bad.iter().enumerate() {
        replace(&path, bad);
        assert!(gthctl.says(REFUSED, i + 1), "of {bad:?}");
        assert!(is_on(&hot, &cold, 1), "after {bad:?}");
    }
    fs::remove_file(&path).unwrap();
    assert!(gthctl.says(REFUSED, 5));
    assert!(is_on(&hot, &cold, 1));
    replace(&path, HOT_ON_2);
    assert!(is_on(&hot, &cold, 2));
    let output = gthctl.stop();
    assert!(output.stderr.contains("policy.yaml:1:"), "{}", output.stderr);
}

/// Tasks wait in the queue of exclusive CPUs, then of a whole last-level cache,
/// when a policy takes those queues' CPUs away: nobody is left behind.
#[test]
fn nobody_is_left_in_a_queue_without_cpus() {
    let gthctl = Gthctl::start(HOT_ON_1);
    let path = gthctl.policy();
    let mut tasks = task::spinners(4, "hot");
    tasks.extend(task::spinners(kernel::cpus() * 2, "cold"));
    let second_llc = "strategies: [{command_regex: ^none$, cpus: 2-3, exclusive: true}]";
    let policies = [NOBODY, HOT_ON_2, second_llc, HOT_ON_1, second_llc, NOBODY];
    for (i, policy) in policies.iter().enumerate() {
        replace(&path, policy);
        assert!(gthctl.says(IN_FORCE, i + 1), "of {policy}");
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
fn slices_are_followed() {
    let gthctl = Gthctl::start_with("scheduler: {slice_ns_default: 1ms}", NOBODY, &[]);
    let pair = [(); 2].map(|()| Task::fork_on("pair", Some(&[0]), task::spin));
    let turns = || {
        std::thread::sleep(Duration::from_millis(300));
        let before = kernel::involuntary_switches(pair[0].pid);
        std::thread::sleep(Duration::from_secs(2));
        kernel::involuntary_switches(pair[0].pid) - before
    };
    let short = turns();
    let config = gthctl.policy().with_file_name("config.yaml");
    replace(
        &config,
        "scheduler: {slice_ns_default: 100ms, slice_ns_min: 100ms}\npolicy: policy.yaml",
    );
    assert!(gthctl.says("slices are in force", 1));
    let long = turns();
    println!("{short} turns, {long} with long slices");
    assert!(long * 4 < short, "{long} against {short}");
    replace(&config, "scheduler: {slice_ns_default: 0}\npolicy: policy.yaml");
    assert!(gthctl.says(REFUSED, 1));
    let still_long = turns();
    assert!(still_long * 4 < short, "{still_long} against {short}");
    gthctl.stop();
}

#[test]
fn a_storm_of_rewrites_ends_in_what_the_last_one_says() {
    let mut gthctl = Gthctl::start(NOBODY);
    let path = gthctl.policy();
    let mut forks = Command::new("stress-ng")
        .args(["--fork", "4", "--timeout", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for i in 0..300 {
        match i % 3 {
            0 => replace(&path, HOT_ON_1),
            1 => fs::write(&path, "strategies: [{").unwrap(),
            _ => fs::write(&path, HOT_ON_2).unwrap(),
        }
        std::thread::sleep(Duration::from_millis(i % 7 * 5));
    }
    replace(&path, HOT_ON_1);
    let (hot, cold) = (Task::spinner("hot"), Task::fork_on("cold", Some(&[1, 2]), task::spin));
    assert!(is_on(&hot, &cold, 1));
    let _ = forks.kill();
    let _ = forks.wait();
    assert!(!gthctl.has_ended());
    let output = gthctl.stop();
    let generations = output.stderr.matches(IN_FORCE).count();
    println!("{generations} generations");
    assert!(generations > 20, "{}", output.stderr);
}
