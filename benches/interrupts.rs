//! /proc/interrupts of a large machine.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gthctl::irq::inventory::interrupts::Interrupts;

/// CPUs and IRQs: for each CPU, a queue of each of two NICs, and some more IRQs.
const MACHINES: [(u32, u32); 2] = [(64, 160), (512, 1_100)];

fn text(cpus: u32, irqs: u32) -> String {
    let mut text = " ".repeat(12);
    (0..cpus).for_each(|cpu| write!(text, "CPU{cpu:<8}").expect("room"));
    for irq in 0..irqs {
        write!(text, "\n{irq:>4}:").expect("room");
        (0..cpus).for_each(|cpu| write!(text, " {:>10}", irq * cpu % 99_991).expect("room"));
        write!(text, "  IR-PCI-MSIX-0000:07:00.0 {irq:>4}-edge      eth0-TxRx-{irq}")
            .expect("room");
    }
    text + "\n"
}

fn parsing(c: &mut Criterion) {
    let mut group = c.benchmark_group("/proc/interrupts");
    for (cpus, irqs) in MACHINES {
        let text = text(cpus, irqs);
        group.throughput(Throughput::Bytes(text.len() as u64));
        let name = format!("{cpus} CPUs, {irqs} IRQs");
        group.bench_with_input(BenchmarkId::from_parameter(name), &text, |b, text| {
            b.iter(|| {
                Interrupts::parse(black_box(text.as_bytes())).expect("as the kernel writes it")
            });
        });
    }
    // What `gthctl irq --watch` adds at each look.
    let (cpus, irqs) = MACHINES[1];
    let reading = Interrupts::parse(text(cpus, irqs).as_bytes()).expect("as the kernel writes it");
    group.throughput(Throughput::Elements(irqs.into()));
    group.bench_function("the difference of two", |b| {
        b.iter(|| black_box(&reading).since(black_box(&reading)));
    });
}

criterion_group!(benches, parsing);
criterion_main!(benches);
