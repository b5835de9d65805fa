//! Compiles the BPF programs, generates their skeletons, and names the commit.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["sched", "mark", "trace"] {
        // v3: 32-bit atomics and jumps (kernel 5.11 and later).
        SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(clang())
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Ibpf"])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| panic!("bpf/{name}.bpf.c: {e:?}"));
    }
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rustc-env=GTHCTL_COMMIT={}", commit());
    for file in ["HEAD", "index"] {
        if Path::new(".git").join(file).exists() {
            println!("cargo:rerun-if-changed=.git/{file}");
        }
    }
}

/// The newest clang of Debian 12, or `$CLANG`, or whatever `clang` is.
fn clang() -> String {
    println!("cargo:rerun-if-env-changed=CLANG");
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let found = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success())
    };
    ["clang-19", "clang"].iter().find(|name| found(name)).unwrap_or(&"clang").to_string()
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
    let dirty =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    if dirty { id + "+" } else { id }
}
