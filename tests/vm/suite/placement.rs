//! Policies that place interrupts: `irq` in the policy file.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::gthctl::{self, NO_RULES, notes, policy, report};
use crate::support::kernel;
use crate::support::nic::{
    self, Pair, Restore, SAVED, affinities, affinity, hold_irq_lock, irq_of, on, taken,
};
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

pub const SOON: Duration = Duration::from_secs(10);

pub fn with(irq: &str) -> String {
    format!("strategies: []\nirq: [{irq}]\n")
}

/// True if the NIC has IRQs and all of them may come in only on these CPUs.
pub fn all_on(nic: &str, cpus: &str) -> bool {
    let lists: BTreeSet<String> = affinities(nic).into_values().collect();
    lists == [cpus.to_owned()].into()
}

#[test]
fn placed_followed_and_put_back() {
    let _restore = Restore;
    let before = affinities("eth0");
    let mut gthctl = shared::scheduler(&with("{nic: eth0, cpus: 2, rps: match}"));
    let path = gthctl.policy();
    assert!(all_on("eth0", "2"));
    let placed_once = "0 rules, interrupts of eth0 on CPUs 2";
    assert!(gthctl.says(placed_once, 1), "{}", gthctl.stderr());
    let generation = || report(&["status"])["generation"].as_u64().unwrap();
    let before_it = generation();
    let status = report(&["status"])["irqs"].clone();
    // The IRQs and a mask for each receive queue.
    let placed = before.len() + kernel::cpus();
    assert_eq!(status, json!({"in_place": placed, "away": 0, "placed_again": 0, "waiting": []}));
    let shown = report(&["show"])["irq"].clone();
    assert_eq!(shown, json!([{"nic": "eth0", "cpus": "2", "rps": "match"}]));

    // gthctl refuses a wrong policy as a whole.
    let wrong = with("{nic: eth0, cpus: 3}, {nic: eth9, cpus: 1}");
    gthctl.expect_errors();
    gthctl.refuses(|| fs::write(&path, &wrong).unwrap());
    let refused_once = "policy.yaml:2:30: \"eth9\": no such network device";
    assert!(gthctl.says(refused_once, 1), "{}", gthctl.stderr());
    assert!(gthctl.says("the previous settings stay in force", 1));
    assert!(all_on("eth0", "2"));
    let file = path.with_file_name("new.yaml");
    let new = file.to_str().unwrap();
    fs::write(&file, &wrong).unwrap();
    for args in [["apply", new, "--dry-run"], ["apply", new, "--yes"]] {
        let refused = policy(&args);
        assert_eq!((refused.code(), refused.stderr.lines().count()), (1, 1), "{}", refused.stderr);
        assert!(refused.stderr.contains("new.yaml:2:30: \"eth9\": no such"), "{}", refused.stderr);
    }
    fs::write(&file, with("{nic: eth0, cpus: 900}")).unwrap();
    let refused = policy(&["apply", new, "--yes"]);
    assert_eq!(refused.code(), 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("CPUs 900: this machine has CPUs"), "{}", refused.stderr);
    assert_eq!(generation(), before_it);
    // No new generation followed, and gthctl did not refuse the same file again.
    for once in [placed_once, refused_once] {
        assert_eq!(gthctl.has_said(once), 1, "{once}: {}", gthctl.stderr());
    }

    // Apply: first a dry run, then the change.
    fs::write(&file, with("{nic: eth0, cpus: 3, queues: 1}")).unwrap();
    let moves = report(&["apply", new, "--dry-run"])["irqs"].clone();
    let queue = ["input.1", "output.1"].map(|name| irq_of("eth0", name));
    let goal = |irq: u32| if queue.contains(&irq) { "3" } else { &before[&irq] };
    for (&irq, _) in before.iter().filter(|(irq, _)| goal(**irq) != "2") {
        let what = format!("IRQ {irq}");
        let moved = moves.as_array().unwrap().iter().find(|one| one["what"] == what.as_str());
        assert_eq!(moved.unwrap()["wanted"], goal(irq), "{moves}");
    }
    assert!(all_on("eth0", "2"));
    let table = policy(&["apply", new, "--yes"]);
    assert_eq!(table.code(), 0, "{}", table.stderr);
    assert!(table.stdout.contains("| 2 -> 3"), "{}", table.stdout);
    for &irq in before.keys() {
        assert_eq!(affinity(irq), goal(irq), "IRQ {irq}");
    }
    assert_eq!(kernel::read("/sys/class/net/eth0/queues/rx-0/rps_cpus"), "0");

    // Hot-reloaded, and rolled back.
    gthctl.changes(|| fs::write(&path, with("{nic: eth0, cpus: \"0-1\"}")).unwrap());
    assert!(all_on("eth0", "0-1"));
    assert_eq!(policy(&["rollback", "--yes"]).code(), 0);
    assert_eq!(affinity(irq_of("eth0", "input.1")), "3");
    gthctl.changes(|| fs::write(&path, "strategies: []").unwrap());
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));
    assert_eq!(report(&["status"]).get("irqs"), None);
    gthctl.changes(|| fs::write(&path, with("{nic: eth0, cpus: 1}")).unwrap());
    assert!(all_on("eth0", "1"));
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

#[test]
fn traffic_comes_in_where_the_policy_says_though_others_move_it() {
    let pair = Pair::up();
    let _restore = Restore;
    let input = irq_of("eth1", "input.0");
    let gthctl = shared::scheduler(&with("{nic: eth1, cpus: 3}"));
    let counts = taken(input, || pair.ping(100));
    assert!(on(&counts, 3), "{counts:?}");
    let file = format!("/proc/irq/{input}/smp_affinity_list");
    let mut last = Instant::now();
    for times in 1..=3 {
        last = Instant::now();
        fs::write(&file, "0").unwrap();
        let said =
            format!("gthctl: placed eth1 IRQ {input} (had been moved to CPUs 0) on CPUs 3; ");
        assert!(gthctl.says(&said, times), "{}", gthctl.stderr());
        assert_eq!(affinity(input), "3");
    }
    assert_eq!(report(&["status"])["irqs"]["placed_again"], 3);
    assert_eq!(gthctl.has_said("the next time in 4 s at the earliest"), 1, "{}", gthctl.stderr());
    // gthctl does not place it again before those 4 s are over. They count from the beginning of a check,
    // which may be before the write.
    fs::write(&file, "0").unwrap();
    assert_eq!(report(&["status"])["irqs"]["away"], 1);
    assert!(kernel::wait(SOON, || affinity(input) == "3"));
    assert!(last.elapsed() > Duration::from_millis(3500), "{:?}", last.elapsed());
    let counts = taken(input, || pair.ping(100));
    assert!(on(&counts, 3), "{counts:?}");
    gthctl.stop();
}

#[test]
fn an_exclusive_cpu_that_interrupts_come_in_on() {
    let _restore = Restore;
    let policy = |cpus: u32| {
        format!(
            "strategies: [{{name: hot, command_regex: ^hot$, cpus: 3, exclusive: true}}]
irq: [{{nic: eth0, cpus: {cpus}}}, {{nic: eth1, cpus: {cpus}}}, {{nic: eth2, cpus: {cpus}}}]"
        )
    };
    let gthctl = shared::scheduler(&policy(3));
    let note = "CPUs 3 are exclusive and take interrupts of eth1";
    assert!(gthctl.says(note, 1), "{}", gthctl.stderr());
    let notes = || {
        let status = report(&["status"]);
        let notes = status["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
        // Anybody can name a task hot and come under the rule.
        let others = notes.filter(|note| !note.contains(": any user can "));
        others.collect::<Vec<_>>().join("\n")
    };
    assert!(notes().contains(note));
    gthctl.replace(&policy(2));
    assert_eq!(notes(), "");
    fs::write(gthctl.policy(), policy(3)).unwrap();
    assert!(gthctl.says(note, 2), "{}", gthctl.stderr());
    assert!(notes().contains(note));
    gthctl.stop();
}

#[test]
fn a_policy_is_checked_without_root() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, with("{nic: eth0, cpus: 1, spread: true}, {nic: eth9, cpus: 2}")).unwrap();
    fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new(gthctl::binary());
    command.args(["policy", "check"]).arg(file.path()).args(["-o", "json"]);
    let checked = gthctl::output(command.uid(65534).gid(65534));
    assert_eq!(checked.code(), 0, "{}", checked.stderr);
    let shown: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(shown["irq"][0], json!({"nic": "eth0", "cpus": "1", "spread": true}));
    assert!(checked.stderr.contains("\"eth9\": no such network device"), "{}", checked.stderr);

    // Only root may read what is saved about interrupts.
    let lease = shared::scheduler(NO_RULES);
    let rule = "strategies: [{command_regex: ^hot$, cpus: 3, exclusive: true}]";
    fs::write(&file, format!("{rule}\nirq: {{avoid: exclusive}}\n")).unwrap();
    assert_eq!(fs::metadata("/run/gthctl").unwrap().permissions().mode() & 0o77, 0);
    let checked = gthctl::output(command.uid(65534).gid(65534));
    assert_eq!(checked.code(), 0, "{}", checked.stderr);
    lease.stop();
}

#[test]
fn what_a_policy_places_is_not_restored_by_hand() {
    let _restore = Restore;
    let before = affinities("eth0");
    nic::report(&["pin", "eth0", "--cpus", "1"]);
    let gthctl = shared::scheduler(&with("{nic: eth0, cpus: 2}"));
    let restored = nic::irq(&["restore"]);
    assert_eq!(restored.code(), 0, "{}", restored.stderr);
    assert!(restored.stdout.contains("stays: the policy places it"), "{}", restored.stdout);
    assert!(all_on("eth0", "2"));
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

fn with_rule(rule: u32, irq: &str) -> String {
    format!(
        "strategies: [{{name: r{rule}, command_regex: ^none{rule}$, priority: 1}}]\nirq: [{irq}]"
    )
}

/// Everything else continues while interrupts cannot be placed, and the last policy wins.
#[test]
fn a_policy_waits_for_its_interrupts() {
    let _restore = Restore;
    let before = affinities("eth0");
    let placed = |cpu: &str| affinities("eth0").values().all(|cpus| cpus == cpu);
    let mut gthctl = shared::scheduler(&with_rule(0, ""));
    gthctl.expect_errors();
    let lock = hold_irq_lock();
    fs::write(gthctl.policy(), with_rule(1, "{nic: eth0, cpus: 2}")).unwrap();
    let note = "the new content of the policy file waits for its interrupts to be placed";
    assert!(kernel::wait(SOON, || notes(&report(&["status"])) == [note]));
    gthctl.changes(|| fs::write(gthctl.policy(), with_rule(2, "")).unwrap());
    assert_eq!(report(&["show"])["rules"][0]["name"], "r2");
    drop(lock);
    std::thread::sleep(Duration::from_millis(500));
    assert!(kernel::wait(SOON, || affinities("eth0") == before));

    // An applied policy waits, too.
    let lock = hold_irq_lock();
    let new = gthctl.policy().with_file_name("new.yaml");
    let applying = || {
        let mut apply = Command::new(gthctl::binary());
        let apply = apply.args(["policy", "apply", "--yes"]).arg(&new).stderr(Stdio::piped());
        apply.spawn().unwrap()
    };
    fs::write(&new, with_rule(3, "{nic: eth0, cpus: 3}")).unwrap();
    let mut apply = applying();
    let generation = || report(&["status"])["generation"].as_u64().unwrap();
    let before_it = generation();
    assert!(kernel::wait(SOON, || notes(&report(&["status"])).len() == 1));
    assert_eq!(generation(), before_it);
    drop(lock);
    assert!(apply.wait().unwrap().success());
    assert!(placed("3") && generation() == before_it + 1);
    assert_eq!(fs::read(gthctl.policy()).unwrap(), fs::read(&new).unwrap());

    // A file that is refused meanwhile stays refused.
    let lock = hold_irq_lock();
    fs::write(gthctl.policy(), with_rule(4, "{nic: eth0, cpus: 2}")).unwrap();
    assert!(kernel::wait(SOON, || notes(&report(&["status"])) == [note]));
    gthctl.refuses(|| fs::write(gthctl.policy(), "nonsense: 1").unwrap());
    drop(lock);
    assert!(kernel::wait(SOON, || report(&["show"])["rules"][0]["name"] == "r4"));
    assert!(report(&["status"])["rejected"].is_object());

    // What somebody saves while a policy is applied is not lost.
    let lock = hold_irq_lock();
    let apply = applying();
    assert!(kernel::wait(SOON, || notes(&report(&["status"])).len() == 1));
    gthctl.refuses(|| fs::write(gthctl.policy(), "other: 2").unwrap());
    drop(lock);
    let apply = apply.wait_with_output().unwrap();
    let why = String::from_utf8(apply.stderr).unwrap();
    assert!(!apply.status.success() && why.contains("the policy file changed while"), "{why}");
    assert_eq!(fs::read_to_string(gthctl.policy()).unwrap(), "other: 2");
    gthctl.replace(&with_rule(3, "{nic: eth0, cpus: 3}"));
    assert!(kernel::wait(SOON, || placed("3")));

    // A policy is given up while its interrupts are being placed, and the next one is refused.
    let lock = hold_irq_lock();
    fs::write(&new, with_rule(4, "{nic: eth0, cpus: 2}")).unwrap();
    let mut apply = applying();
    assert!(kernel::wait(SOON, || notes(&report(&["status"])).len() == 1));
    fs::write(gthctl.policy(), with_rule(5, "{nic: eth9, cpus: 1}")).unwrap();
    assert!(!apply.wait().unwrap().success());
    drop(lock);
    assert!(kernel::wait(SOON, || report(&["status"])["rejected"].is_object()));
    assert!(kernel::wait(SOON, || placed("3")), "{:?}", affinities("eth0"));

    // A policy that places interrupts as before does not wait, whatever lines its entries are in.
    let lock = hold_irq_lock();
    let moved = format!("# Why it is so.\n{}", with_rule(3, "{nic: eth0, cpus: 3}"));
    gthctl.changes(|| fs::write(gthctl.policy(), &moved).unwrap());
    drop(lock);
    assert!(placed("3"));
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}
