// SPDX-License-Identifier: GPL-2.0-or-later
//! Compiles a BPF program and generates its skeleton: for the build scripts of gthctl and of
//! what tests it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Writes `NAME.skel.rs` for `NAME.bpf.c` of the folder `dir`. The shared headers are in `headers`.
pub fn skeleton(dir: &str, name: &str, headers: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = Path::new(dir).join(format!("{name}.bpf.c"));
    SkeletonBuilder::new()
        .source(&source)
        .obj(out.join(format!("{name}.bpf.o")))
        .clang(clang())
        // v3: 32-bit atomics and jumps (kernel 5.11 and later).
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", &format!("-I{headers}"), &here()])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|e| panic!("{}: {e:?}", source.display()));
    for path in [dir, headers] {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// The same program, wherever the checkout is: BTF names the source files.
fn here() -> String {
    let here = env::current_dir().expect("cargo sets the directory");
    format!("-ffile-prefix-map={}=.", here.display())
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
