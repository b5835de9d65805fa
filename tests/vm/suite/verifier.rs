//! The verifier's work before the kernel loads gthctl's programs. It takes most of a start.

use libbpf_rs::query::ProgInfoIter;

use crate::support::gthctl::NO_RULES;
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

/// How many instructions the verifier may process for all of the scheduler's programs together. Linux 7.2
/// takes 42,000, Linux 6.12 60,000.
const CEILING: u32 = 65_000;

#[test]
fn the_scheduler_takes_few_instructions_to_verify() {
    let gthctl = shared::scheduler(NO_RULES);
    // Nobody else has programs in this VM.
    let mut programs: Vec<(u32, String)> = ProgInfoIter::default()
        .map(|program| (program.verified_insns, program.name.to_string_lossy().into_owned()))
        .collect();
    programs.sort_unstable_by(|a, b| b.cmp(a));
    for (instructions, name) in &programs {
        println!("{instructions:9} {name}");
    }
    let sum: u32 = programs.iter().map(|(instructions, _)| instructions).sum();
    println!("{sum:9} in all");
    // Where kicks are malformed, another program is loaded; the kernel truncates its name.
    let cannot_kick = gthctl.has_ever_said("scx_bpf_kick_cpu");
    let dispatch = if cannot_kick { "gth_dispatch_wi" } else { "gth_dispatch" };
    assert!(programs.iter().any(|(_, name)| name == dispatch), "{programs:?}");
    assert!(sum < CEILING, "{sum} instructions");
    gthctl.stop();
}
