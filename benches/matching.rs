//! Policies: reading and compiling one, and matching tasks' names by its tables.
//!
//! The kernel walks the same tables; what matching costs there is measured in the VM.

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gthctl::base::root::Root;
use gthctl::kernel::topology::Topology;
use gthctl::policy::Policy;
use gthctl::policy::compile::{Compiled, Condition, Machine, compile};

const RULES: [usize; 4] = [1, 8, 32, 128];
const TASKS: usize = 1_000;

/// A policy with a pattern for each rule, as for a program and its numbered threads.
fn text(rules: usize) -> String {
    let rule =
        |i| format!("- {{command_regex: \"^worker{i:03}(-[0-9]+)?$\", priority: {}}}\n", i % 10);
    format!("strategies:\n{}", (0..rules).map(rule).collect::<String>())
}

fn compiled(text: &str) -> Compiled {
    let (policy, _) = Policy::parse(text, Path::new("policy.yaml")).expect("a good policy");
    let topology = Topology {
        possible: (0..8).collect(),
        online: (0..8).collect(),
        llc: vec![0; 8],
        sibling: (0..8).collect(),
        node: vec![0; 8],
        tickless: Default::default(),
    };
    // A tree in which nothing exists.
    let root = &Root::at("/nonexistent");
    let (topology, allocated, slice_ns) = (&topology, &[], 2_000_000);
    let machine = Machine { topology, root, pods: &[], kubelets: &[], allocated, slice_ns };
    compile(&policy, &machine).expect("it fits").0
}

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("policy file to tables");
    for rules in RULES {
        let text = text(rules);
        group.bench_with_input(BenchmarkId::from_parameter(rules), &text, |b, text| {
            b.iter(|| compiled(black_box(text)));
        });
    }
}

fn matching(c: &mut Criterion) {
    // No longer than the kernel allows. Every tenth has the form that the rules match.
    let comms: Vec<String> = (0..TASKS)
        .map(|i| match i % 10 {
            0 => format!("worker{:03}-{i}", i % 128),
            _ => format!("kworker/u8:{i}"),
        })
        .collect();
    let mut group = c.benchmark_group("1,000 comms by rules");
    group.throughput(Throughput::Elements(TASKS as u64));
    for rules in RULES {
        let compiled = compiled(&text(rules));
        let dfas = &compiled.dfas[Condition::Comm as usize];
        group.bench_function(BenchmarkId::from_parameter(rules), |b| {
            b.iter(|| {
                let found = |comm: &String| {
                    dfas.iter().fold(0, |rules, dfa| rules | dfa.find(comm.as_bytes()))
                };
                comms.iter().filter(|comm| found(black_box(comm)) != 0).count()
            });
        });
    }
}

criterion_group!(benches, reading, matching);
criterion_main!(benches);
