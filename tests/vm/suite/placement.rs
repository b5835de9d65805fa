//! Policies that place interrupts: `irq` in the policy file.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::gthctl::{self, Gthctl, policy, report};
use crate::irq::{
    self, Irqbalance, Pair, Restore, SAVED, affinities, affinity, irq_of, irqs_of, on, taken,
};
use crate::kernel;
use crate::plane::succeeds;

const IN_FORCE: &str = "in force as generation";
const SOON: Duration = Duration::from_secs(10);

fn with(irq: &str) -> String {
    format!("strategies: []\nirq: [{irq}]\n")
}

/// True when all IRQs of a NIC, of which there are some, may come in on these CPUs only.
fn all_on(nic: &str, cpus: &str) -> bool {
    let lists: BTreeSet<String> = affinities(nic).into_values().collect();
    lists == [cpus.to_owned()].into()
}

#[test]
fn placed_followed_and_put_back() {
    let _restore = Restore;
    let before = affinities("eth0");
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2, rps: match}"));
    let path = gthctl.policy();
    assert!(all_on("eth0", "2"));
    assert_eq!(gthctl.has_said("0 rules, interrupts of eth0 on CPUs 2"), 1, "{}", gthctl.stderr());
    let status = report(&["status"])["irqs"].clone();
    // The IRQs and a mask for each receive queue.
    let placed = before.len() + kernel::cpus();
    assert_eq!(status, json!({"in_place": placed, "away": 0, "placed_again": 0, "waiting": []}));
    let shown = report(&["show"])["irq"].clone();
    assert_eq!(shown, json!([{"nic": "eth0", "cpus": "2", "rps": "match"}]));

    // What is wrong is refused as a whole.
    let wrong = with("{nic: eth0, cpus: 3}, {nic: eth9, cpus: 1}");
    fs::write(&path, &wrong).unwrap();
    assert!(gthctl.says("what was in force before stays", 1));
    assert_eq!(gthctl.has_said("policy.yaml:2:30: \"eth9\": no such network device"), 1);
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
    assert_eq!(report(&["status"])["generation"], 1);

    // Applied: first shown, then done.
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
    fs::write(&path, with("{nic: eth0, cpus: \"0-1\"}")).unwrap();
    assert!(gthctl.says(IN_FORCE, 2));
    assert!(all_on("eth0", "0-1"));
    assert_eq!(policy(&["rollback", "--yes"]).code(), 0);
    assert_eq!(affinity(irq_of("eth0", "input.1")), "3");
    fs::write(&path, "strategies: []").unwrap();
    assert!(gthctl.says(IN_FORCE, 4));
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));
    assert_eq!(report(&["status"]).get("irqs"), None);
    fs::write(&path, with("{nic: eth0, cpus: 1}")).unwrap();
    assert!(gthctl.says(IN_FORCE, 5));
    assert!(all_on("eth0", "1"));
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

#[test]
fn traffic_comes_in_where_the_policy_says_though_others_move_it() {
    let pair = Pair::up();
    let _restore = Restore;
    let input = irq_of("eth1", "input.0");
    let gthctl = Gthctl::start(&with("{nic: eth1, cpus: 3}"));
    let counts = taken(input, || pair.ping(100));
    assert!(on(&counts, 3), "{counts:?}");
    let file = format!("/proc/irq/{input}/smp_affinity_list");
    for times in 1..=3 {
        fs::write(&file, "0").unwrap();
        let said =
            format!("gthctl: placed eth1 IRQ {input} (had been moved to CPUs 0) to CPUs 3; ");
        assert!(gthctl.says(&said, times), "{}", gthctl.stderr());
        assert_eq!(affinity(input), "3");
    }
    assert_eq!(report(&["status"])["irqs"]["placed_again"], 3);
    assert_eq!(gthctl.has_said("the next time in 4 s at the earliest"), 1, "{}", gthctl.stderr());
    // Not again before those are over.
    fs::write(&file, "0").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(affinity(input), "0");
    assert_eq!(report(&["status"])["irqs"]["away"], 1);
    assert!(kernel::wait(SOON, || affinity(input) == "3"));
    let counts = taken(input, || pair.ping(100));
    assert!(on(&counts, 3), "{counts:?}");
    gthctl.stop();
}

#[test]
fn killed_it_leaves_them_until_somebody_cares() {
    let _restore = Restore;
    let before = affinities("eth0");
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    gthctl.signal(Signal::SIGKILL);
    gthctl.wait();
    assert!(kernel::wait(SOON, || kernel::state() == "disabled"));
    assert!(all_on("eth0", "2"));
    assert_eq!(irq::report(&["drift"])["placed"][0]["by"], "policy");
    irq::report(&["restore"]);
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));

    // Or the next one does.
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    gthctl.signal(Signal::SIGKILL);
    gthctl.wait();
    assert!(kernel::wait(SOON, || kernel::state() == "disabled"));
    let gthctl = Gthctl::start("strategies: []");
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));
    gthctl.stop();

    // Also one that ends against its will.
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let output = gthctl.wait();
    assert_eq!(output.code(), 9, "{}", output.stderr);
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

#[test]
fn what_was_pinned_by_hand_comes_back() {
    let _restore = Restore;
    let before = affinities("eth0");
    irq::report(&["pin", "eth0", "--cpus", "1"]);
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    assert!(all_on("eth0", "2"));
    let refused = irq::irq(&["pin", "eth0", "--cpus", "3"]);
    let why =
        format!("gthctl: error: eth0: the policy of the running gthctl (PID {})", gthctl.pid());
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.starts_with(&why), "{}", refused.stderr);
    assert_eq!(irq::irq(&["drift"]).code(), 0);
    gthctl.stop();
    assert!(all_on("eth0", "1"));

    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    let restored = irq::irq(&["restore"]);
    assert_eq!(restored.code(), 0, "{}", restored.stderr);
    assert!(restored.stdout.contains("stays: the policy places it"), "{}", restored.stdout);
    assert!(all_on("eth0", "2"));
    gthctl.stop();
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
}

/// eth1 under another name, until dropped.
struct Renamed(&'static str);

impl Renamed {
    fn to(name: &'static str) -> Self {
        succeeds(Command::new("ip").args(["link", "set", "eth1", "name", name]));
        Self(name)
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "set", self.0, "name", "eth1"]).status();
    }
}

#[test]
fn a_nic_that_comes_later_and_goes() {
    let _restore = Restore;
    let input = irq_of("eth1", "input.0");
    let before = affinity(input);
    let mask = |nic: &str| kernel::read(&format!("/sys/class/net/{nic}/queues/rx-0/rps_cpus"));
    let gthctl = Gthctl::start(&with("{nic: later, cpus: 3, rps: match}, {nic: eth0, cpus: 1}"));
    assert_eq!(gthctl.has_said("\"later\": no such network device"), 1, "{}", gthctl.stderr());
    assert!(all_on("eth0", "1"));
    let waiting = || report(&["status"])["irqs"]["waiting"].as_array().unwrap().len();
    assert_eq!((waiting(), affinity(input)), (1, before.clone()));
    let renamed = Renamed::to("later");
    let said = format!("later IRQ {input} (new) to CPUs 3");
    assert!(kernel::wait(2 * SOON, || gthctl.has_said(&said) == 1 || before == "3"));
    assert!(kernel::wait(SOON, || waiting() == 0));
    assert_eq!((affinity(input), mask("later")), ("3".into(), "8".into()));
    drop(renamed);
    assert!(kernel::wait(2 * SOON, || waiting() == 1));
    assert!(kernel::wait(SOON, || (affinity(input), mask("eth1")) == (before.clone(), "0".into())));
    assert!(all_on("eth0", "1"));
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
    let gthctl = Gthctl::start(&policy(3));
    let note = "CPUs 3 are exclusive, and interrupts of eth1 come in there";
    assert!(gthctl.says(note, 1), "{}", gthctl.stderr());
    let notes = || {
        let status = report(&["status"]);
        let notes = status["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
        // Whoever calls his task hot comes under the rule, too.
        let others = notes.filter(|note| !note.contains(": any user can "));
        others.collect::<Vec<_>>().join("\n")
    };
    assert!(notes().contains(note));
    fs::write(gthctl.policy(), policy(2)).unwrap();
    assert!(gthctl.says(IN_FORCE, 1));
    assert_eq!(notes(), "");
    fs::write(gthctl.policy(), policy(3)).unwrap();
    assert!(gthctl.says(note, 2), "{}", gthctl.stderr());
    assert!(notes().contains(note));
    gthctl.stop();
}

#[test]
fn irqbalance_in_the_way_of_a_policy() {
    let _restore = Restore;
    fs::create_dir_all("/run/irqbalance").unwrap();
    let daemon = Irqbalance::start(&[]);
    assert_eq!(daemon.banned(), [0_u64; 0]);
    // Told, and no reason not to schedule.
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2}"));
    let why = format!("irqbalance runs (PID {}) and would move IRQ ", daemon.0.id());
    assert!(gthctl.says(&format!("gthctl: error: {why}"), 1), "{}", gthctl.stderr());
    let waiting = report(&["status"])["irqs"]["waiting"][0].as_str().unwrap().to_owned();
    assert!(waiting.starts_with(&why) && waiting.contains("`irqbalance: ban`"), "{waiting}");
    assert!(!Path::new(SAVED).exists());
    // Once it is not in the way any more, they are placed.
    drop(daemon);
    assert!(kernel::wait(2 * SOON, || all_on("eth0", "2")), "{}", gthctl.stderr());
    assert!(kernel::wait(SOON, || report(&["status"])["irqs"]["waiting"] == json!([])));
    gthctl.stop();

    let daemon = Irqbalance::start(&[]);
    let gthctl = Gthctl::start(&with("{nic: eth0, cpus: 2, irqbalance: ban}"));
    assert!(kernel::wait(2 * SOON, || all_on("eth0", "2")), "{}", gthctl.stderr());
    let irqs: Vec<u64> = irqs_of("eth0").into_iter().map(|(irq, _)| irq.into()).collect();
    assert_eq!(daemon.banned(), irqs);
    gthctl.stop();
    // From here on it may move them again.
    assert_eq!((daemon.banned(), Path::new(SAVED).exists()), (vec![], false));
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
}
