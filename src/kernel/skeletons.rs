//! The BPF programs of bpf/, compiled by build.rs.

/// The skeleton of bpf/sched.bpf.c: its maps, programs and shared types.
pub mod scheduler {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, dead_code, missing_docs)]

    include!(concat!(env!("OUT_DIR"), "/sched.skel.rs"));
}

/// bpf/trace.bpf.c: its object file, and its shared types from its skeleton.
pub mod tracer {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, dead_code, missing_docs)]

    include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));

    /// The object file; the skeleton would tie each load to borrowed storage.
    pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));
}

/// bpf/trace_xdp.bpf.c: its object file, and its shared types from its skeleton.
pub mod xdp_tracer {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, dead_code, missing_docs)]

    include!(concat!(env!("OUT_DIR"), "/trace_xdp.skel.rs"));

    /// The object file, for the same reason as the tracer's.
    pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace_xdp.bpf.o"));
}

/// The object file of bpf/mark.bpf.c. Its maps are the scheduler's.
pub const MARK_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mark.bpf.o"));

/// The object file of bpf/mark_udp.bpf.c, with the same maps.
pub const MARK_UDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mark_udp.bpf.o"));
