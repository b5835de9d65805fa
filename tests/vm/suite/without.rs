//! The end of the scheduler that tests share, and tests that need it to have ended: these are the last
//! tests of their VM.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::doctor::Doctor;
use crate::gtp_metrics::{MODULE, PROBES, metric, of_gtp};
use crate::robustness::online;
use crate::support::gthctl::{Gthctl, NO_RULES};
use crate::support::kernel;
use crate::support::plane::succeeds;
use crate::support::sender;
use crate::support::shared;
use crate::support::vm::{self, Vm};
use crate::top::top;

pub const VM: Vm = vm::SHARED;

/// The doctor names the same kfuncs that the scheduler says it does without. Beside a running gthctl, the
/// doctor finds no error.
#[test]
fn a_running_gthctl_has_said_of_malformed_btf_what_the_doctor_says() {
    let gthctl = shared::scheduler(NO_RULES);
    let doctor = Doctor::new(&["-c", gthctl.config().to_str().unwrap()]);
    let (level, what) = doctor.finding("btf");
    let told = gthctl.all_stderr();
    let noted = told.lines().find(|line| line.contains("BTF is malformed for "));
    match noted {
        Some(note) => {
            let kfuncs = note.split("malformed for ").nth(1).unwrap().split(" (").next().unwrap();
            assert!(level == "warning" && what.contains(kfuncs), "{what}: {note}");
        }
        None => assert_eq!((level, what), ("ok", "there and sound")),
    }
    let (level, what) = doctor.finding("sched_ext");
    assert_eq!(level, "note", "{what}");
    assert!(what.contains("gthctl's scheduler is loaded (enabled)"), "{what}");
    assert_eq!((doctor.finding("config").0, doctor.finding("policy").0), ("ok", "ok"));
    assert_eq!(doctor.output.code(), 0, "{}", doctor.report);
    gthctl.stop();
}

/// When gthctl continues, both the signal and the kernel's end of the scheduler are pending.
#[test]
fn a_signal_ends_it_though_a_cpu_goes() {
    let mut gthctl = shared::take();
    gthctl.signal(Signal::SIGSTOP);
    online("0");
    let disabled = kernel::wait(Duration::from_secs(30), || kernel::state() == "disabled");
    gthctl.signal(Signal::SIGTERM);
    gthctl.signal(Signal::SIGCONT);
    let ended = kernel::wait(Duration::from_secs(30), || gthctl.has_ended());
    online("1");
    assert!(disabled && ended, "{disabled} {ended}\n{}", gthctl.stderr());
    let output = gthctl.wait();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert!(!output.stderr.contains("loading again"), "{}", output.stderr);
}

#[test]
fn once_needs_a_running_gthctl() {
    shared::unload();
    for args in [&["--once"][..], &["-o", "json"]] {
        let output = top(args);
        assert_eq!((output.code(), &*output.stdout), (10, ""));
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

/// The time is measured if requested, and the module can be unloaded then, too.
#[test]
fn the_time_in_the_driver() {
    shared::unload();
    let plane = sender::plane();
    let policy = "strategies: [{name: upf, gtp: gtp, priority: 1}]";
    let gthctl = Gthctl::start_with("", policy, &["--gtp-time"]);
    gthctl.sees_packets();
    let seconds = || ["uplink", "downlink"].map(|way| metric("seconds", "gtp", way).unwrap());
    assert_eq!(seconds(), [0.0; 2]);
    let begin = Instant::now();
    plane.ping_for_long(PROBES as usize);
    let [up, down] = seconds();
    assert_eq!(of_gtp().map(|passed| passed.unwrap()[0]), [PROBES; 2]);
    // The gNB's send carries an uplink packet through the driver, while ping waits.
    let least = PROBES as f64 * 1e-7;
    assert!(up > least && down > least, "{up} s, {down} s");
    assert!(up + down < begin.elapsed().as_secs_f64(), "{up} s, {down} s");
    drop(plane);
    if Path::new(MODULE).exists() {
        succeeds(Command::new("rmmod").arg("gtp"));
        succeeds(Command::new("insmod").arg(MODULE));
    }
    assert_eq!(seconds(), [up, down]);
    gthctl.stop();
}
