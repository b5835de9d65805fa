//! A kernel that was booted with `isolcpus=`: it loads no sched_ext scheduler.

use std::process::Command;

use crate::support::gthctl::{self, NO_RULES};
use crate::support::kernel;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::ISOLATED;

#[test]
fn run_and_doctor_name_what_is_in_the_way() {
    let files = gthctl::files("", NO_RULES);
    let run = gthctl::output(&mut gthctl::command(&files, &[]));
    assert_eq!(run.code(), 7, "{}", run.stderr);
    let last = run.stderr.lines().last().unwrap();
    assert!(last.starts_with("gthctl: error: the kernel refused the scheduler: "), "{last}");
    assert!(last.contains("; boot without isolcpus=: "), "{last}");
    assert_eq!(kernel::state(), "disabled");
    let doctor = gthctl::output(Command::new(gthctl::binary()).arg("doctor"));
    assert_eq!(doctor.code(), 1);
    let error = doctor.stdout.lines().find(|line| line.starts_with(" ERROR ")).unwrap();
    assert!(error.contains("isolcpus= isolates the CPUs 1"), "{}", doctor.stdout);
}
