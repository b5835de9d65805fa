//! The skeleton of bpf/gthctl.bpf.c: its maps, programs and shared types.

#![allow(clippy::all, dead_code, missing_docs)]

include!(concat!(env!("OUT_DIR"), "/gthctl.skel.rs"));
