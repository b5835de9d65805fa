//! Compiles the BPF programs, generates their skeletons, and names the commit.

use std::path::Path;
use std::process::Command;

#[path = "bpf/build.rs"]
mod bpf;

fn main() {
    for name in ["sched", "mark", "mark_udp", "trace", "trace_xdp"] {
        bpf::skeleton("bpf", name, "bpf");
    }
    println!("cargo:rustc-env=GTHCTL_COMMIT={}", commit());
    // Both change with each commit. The index changes more often, and everything would be built anew.
    for file in ["HEAD", "logs/HEAD"] {
        if Path::new(".git").join(file).exists() {
            println!("cargo:rerun-if-changed=.git/{file}");
        }
    }
}

/// The short commit id, with `+` when tracked files differ from it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let dirty = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|s| !s.is_empty());
    if dirty { id + "+" } else { id }
}
