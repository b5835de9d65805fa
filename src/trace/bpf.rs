//! bpf/trace.bpf.c: its object file, and its shared types from its skeleton.

#![allow(clippy::all, dead_code, missing_docs)]

include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));

/// The object file; the skeleton would tie each load to borrowed storage.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));
