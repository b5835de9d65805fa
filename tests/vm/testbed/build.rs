//! Compiles the benchmark's BPF program with the scheduler's headers.

#[path = "../../../bpf/build.rs"]
mod bpf;

fn main() {
    bpf::skeleton("bpf", "wakeup", "../../../bpf");
}
