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
    // These files change with each commit. The index changes more often and would cause needless rebuilds. In
    // a linked work tree (git-worktree(1)), .git is a file.
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]).unwrap_or_default();
    for file in ["HEAD", "logs/HEAD", branch.as_str(), "packed-refs"] {
        if let Some(path) =
            git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists())
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// Git's output; `None` if git fails or there is no git.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The short commit id, with `+` when tracked files differ from it.
fn commit() -> String {
    let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let dirty = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|s| !s.is_empty());
    if dirty { id + "+" } else { id }
}
