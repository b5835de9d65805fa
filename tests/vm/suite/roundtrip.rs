//! `gthctl test`: round trips to the testbed's gNB, which answers echo requests in user space.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CloneFlags, setns};
use serde_json::Value;

use crate::support::gthctl::{self, NO_RULES, Output};
use crate::support::kernel;
use crate::support::plane::{GNB, Plane, UPF};
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

/// `gthctl test` in the UPF's network namespace.
fn test(args: &[&str]) -> Output {
    let netns = File::open("/run/netns/upf").unwrap();
    let mut command = Command::new(gthctl::binary());
    command.args(["test", "--duration=1s"]).args(args);
    // SAFETY: setns(2) may be called between fork and exec.
    unsafe { command.pre_exec(move || Ok(setns(&netns, CloneFlags::CLONE_NEWNET)?)) };
    gthctl::output(&mut command)
}

#[test]
fn idle_then_under_load_then_with_a_policy() {
    shared::unload();
    let _plane = Plane::on_gtp();
    let policy = "strategies: [{command_regex: ^nr-gnb$, priority: 10}]";
    let files = gthctl::files("", policy);
    let policy = files.path().join("policy.yaml");
    let policy = policy.to_str().unwrap();
    let gnb = GNB.to_string();
    let measured = test(&[&gnb, "--load=2", "--policy", policy, "-o", "json"]);
    assert_eq!(measured.code(), 0, "{}", measured.stderr);
    assert!(measured.stderr.contains("sends 100 echo requests a second"), "{}", measured.stderr);
    assert!(measured.stderr.contains("keeps every CPU busy for 2 s"), "{}", measured.stderr);
    let report: Value = serde_json::from_str(&measured.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let of = |key: &str| -> Vec<&Value> { rows.iter().map(|row| &row[key]).collect() };
    assert_eq!(of("name"), ["idle", "under load", "under load, policy.yaml"]);
    assert_eq!(of("scheduler"), ["kernel", "kernel", "gthctl"]);
    assert_eq!(report["threads"], 2 * kernel::cpus());
    for row in rows {
        let number = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(number("sent"), 100, "{row}");
        assert!(number("lost") < 50, "{row}");
        assert!(number("p50_ns") > 0 && number("p50_ns") <= number("p99_ns"), "{row}");
        assert!(number("p99_ns") <= number("worst_ns"), "{row}");
    }
    assert_eq!(kernel::state(), "disabled");

    // What was measured before the error is shown, and the exit code is that of `gthctl run`.
    let wrong = files.path().join("wrong.yaml");
    fs::write(&wrong, "nonsense: 1").unwrap();
    let failed = test(&[&gnb, "--policy", wrong.to_str().unwrap()]);
    assert_eq!(failed.code(), 2, "{}", failed.stderr);
    assert!(failed.stdout.contains(" idle "), "{}", failed.stdout);
    assert!(failed.stderr.contains("wrong.yaml:1:1: "), "{}", failed.stderr);
}

#[test]
fn nobody_there_is_one_line() {
    let _plane = Plane::on_gtp();
    let upf = UPF.to_string();
    for (args, why) in [
        (vec![&*upf, "--port=9"], "10.100.0.2:9: no program has this UDP port open"),
        (vec![&*upf], "10.100.0.2:2152: none of 100 echo requests was answered"),
    ] {
        let failed = test(&args);
        assert_eq!((failed.code(), &*failed.stdout), (1, ""), "{}", failed.stderr);
        let last = failed.stderr.lines().last().unwrap();
        assert!(last.starts_with(&format!("gthctl: error: {why}")), "{}", failed.stderr);
    }
}

/// The last test of its module, as the next module uses this scheduler, too.
#[test]
fn the_gthctl_that_runs_is_measured_as_it_is() {
    let _plane = Plane::on_gtp();
    let gthctl = shared::scheduler(NO_RULES);
    let gnb = GNB.to_string();
    let measured = test(&[&gnb]);
    assert_eq!(measured.code(), 0, "{}", measured.stderr);
    let row = measured.stdout.lines().nth(2).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[..3], ["idle", "gthctl", "100"], "{}", measured.stdout);
    let refused = test(&[&gnb, "--policy", gthctl.policy().to_str().unwrap()]);
    assert_eq!(refused.code(), 6);
    assert!(refused.stderr.contains("a gthctl run is active already"), "{}", refused.stderr);
    gthctl.stop();
}
