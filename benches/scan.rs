//! Reads what gthctl needs about tasks from /proc, on a tree with as many tasks as a busy node has.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::symlink;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gthctl::kernel::procfs;
use tempfile::TempDir;

const TASKS: u32 = 1_000;

/// The files that gthctl reads, in the kernel's form.
fn tree() -> TempDir {
    let tree = tempfile::tempdir().expect("a directory");
    for tid in 1..=TASKS {
        let dir = tree.path().join(tid.to_string());
        fs::create_dir_all(dir.join("ns")).expect("a directory");
        let status = format!(
            "Name:\tupf-{tid}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{tid}\nNgid:\t0\n\
             Pid:\t{tid}\nPPid:\t1\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
        );
        let cgroup = format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{tid:032x}.slice/\
             cri-containerd-{tid:064x}.scope\n"
        );
        let fields = "0 ".repeat(18);
        let stat = format!("{tid} (upf-{tid}) S {fields}{tid} 0 0\n");
        for (file, text) in [
            ("status", status),
            ("cgroup", cgroup),
            ("comm", format!("upf-{tid}\n")),
            ("stat", stat),
        ] {
            fs::write(dir.join(file), text).expect("a file");
        }
        symlink("/usr/bin/upf", dir.join("exe")).expect("a link");
        fs::write(dir.join("ns/net"), "").expect("a file");
    }
    tree
}

fn each(root: &Path, read: impl Fn(&Path, u32) -> bool) -> usize {
    (1..=TASKS).filter(|&tid| read(black_box(root), tid)).count()
}

fn scan(c: &mut Criterion) {
    let tree = tree();
    let mut group = c.benchmark_group("1,000 tasks in /proc");
    group.throughput(Throughput::Elements(TASKS.into()));
    group.bench_function("cgroups", |b| {
        b.iter(|| each(tree.path(), |root, tid| procfs::cgroup(root, tid).is_some()));
    });
    group.bench_function("start times", |b| {
        b.iter(|| {
            each(tree.path(), |root, tid| {
                procfs::Process::find(root, tid).is_ok_and(|p| p.is_some())
            })
        });
    });
    group.bench_function("all that policies may ask", |b| {
        b.iter(|| each(tree.path(), |root, tid| procfs::facts(root, tid).is_some()));
    });
}

criterion_group!(benches, scan);
criterion_main!(benches);
