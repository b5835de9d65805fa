//! The kernel's interfaces: sysfs, procfs, BTF, kallsyms, modules, and the compiled BPF
//! programs.

pub mod btf;
pub mod capabilities;
pub mod cgroupfs;
pub mod comm;
pub mod cpusets;
pub mod ext_server;
pub mod isolation;
pub mod kallsyms;
pub mod kconfig;
pub mod kprobes;
pub mod libbpf_log;
pub mod links;
pub mod modules;
pub mod procfs;
pub mod realtime;
pub mod release;
pub mod sched_ext;
pub mod skeletons;
pub mod sysfs;
pub mod topology;
pub mod udp_sockets;
pub mod uevents;
pub mod xdp;
