//! Compiles the benchmark's BPF program with the scheduler's headers, and generates its skeleton.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const BPF: &str = "../../../bpf";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source("bpf/wakeup.bpf.c")
        .obj(out.join("wakeup.bpf.o"))
        .clang(clang())
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", &format!("-I{BPF}")])
        .build_and_generate(out.join("wakeup.skel.rs"))
        .unwrap_or_else(|e| panic!("wakeup.bpf.c: {e:?}"));
    for path in ["bpf", BPF] {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// As the build.rs of gthctl.
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
