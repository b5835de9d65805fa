//! Busy tasks that halt their CPUs (tests/vm/modules/halt.c). The scheduler sees tasks that never
//! sleep, and the emulator's host has nothing to do.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::OnceLock;

use crate::support::plane;

const DEVICE: &str = "/dev/halt";

/// Whether busy tasks can halt their CPUs. Inserts the module where it could be built.
pub fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let insert = || std::env::var_os("TEST_MODULES").is_some() && plane::insert("no-btf", "halt");
    *THERE.get_or_init(|| Path::new(DEVICE).exists() || insert())
}

/// About how long it takes to halt a CPU and resume after an interrupt, ns.
const INTERRUPT: u64 = 50_000;
/// The shortest time for which halting a CPU is worthwhile, ns.
pub const LEAST: u64 = 2 * INTERRUPT;

/// Lets a busy task halt its CPU again and again.
pub struct Halt(Option<File>);

impl Halt {
    pub fn new() -> Self {
        Self(File::options().read(true).write(true).open(DEVICE).ok())
    }

    /// Halts the CPU until the next interrupt, or until another task needs the CPU. Spins where halting is
    /// not possible.
    pub fn rest(&mut self) {
        match &mut self.0 {
            Some(device) => drop(device.read(&mut [0])),
            None => std::hint::spin_loop(),
        }
    }

    /// Like [`Halt::rest`], for at most `ns`, which must not be less than [`LEAST`]. Returns at once where
    /// halting is not possible.
    pub fn rest_for(&mut self, ns: u64) {
        if let Some(device) = &mut self.0 {
            let _ = device.write(&(ns - INTERRUPT).to_ne_bytes());
        }
    }
}
