//! The traffic that has passed through a data plane, as counted by the marking programs.

use std::ops::Add;

use libbpf_rs::{MapCore, MapFlags};

use super::traffic::Traced;
use crate::base::error::{Error, Result};
use crate::gtp::{Direction, Function, Module, Stage};
use crate::kernel::skeletons::scheduler::types::{gth_passed, gth_passed_key};

/// Counts since the marking program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub packets: u64,
    pub bytes: u64,
    /// Time spent in a module; 0 unless measured.
    pub time_ns: u64,
}

impl Add for Passed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            time_ns: self.time_ns + other.time_ns,
        }
    }
}

/// A function by which packets enter a module in one direction.
pub struct Way {
    pub direction: Direction,
    /// Its row in the map `passed`.
    pub row: u32,
}

impl Way {
    /// `None` if no packets enter by this function.
    pub fn of(traced: &Traced) -> Option<Self> {
        let function = function(traced).filter(|function| function.stage == Stage::Entry)?;
        let module = Module::ALL.iter().position(|module| *module == traced.module)?;
        let direction = u32::from(function.direction == Direction::Downlink);
        Some(Self { direction: function.direction, row: 2 * module as u32 + direction })
    }
}

fn function(traced: &Traced) -> Option<Function> {
    traced.module.functions().find(|function| function.symbol == traced.symbol)
}

/// The cookie that tells bpf/mark.bpf.c about the function with this number.
pub fn cookie(traced: &Traced, number: u32) -> u64 {
    let packet = function(traced).and_then(|function| function.packet).unwrap_or_default();
    let way = Way::of(traced).map_or(gth_passed_key::GTH_NO_WAY.0, |way| way.row);
    u64::from(number)
        | u64::from(packet) << gth_passed_key::GTH_COOKIE_PACKET.0
        | u64::from(way) << gth_passed_key::GTH_COOKIE_WAY.0
}

/// The key under which the datagrams received or sent on a UDP port are counted.
pub fn port_key(port: u16, direction: Direction) -> u32 {
    let sent = if direction == Direction::Sent { gth_passed_key::GTH_PASSED_SENT.0 } else { 0 };
    u32::from(port) | sent
}

/// Reads a row of a `passed` map, summed over the CPUs.
pub fn read(map: &impl MapCore, key: u32) -> Result<Passed> {
    let values = map
        .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::failure(format!("reading the counters of packets: {e}")))?;
    let values = values.unwrap_or_default();
    let whole = values.iter().filter(|bytes| bytes.len() >= size_of::<gth_passed>());
    let one = |bytes: &Vec<u8>| {
        // SAFETY: the map's value is a gth_passed, all integers; a map value need not be aligned.
        let one = unsafe { bytes.as_ptr().cast::<gth_passed>().read_unaligned() };
        Passed { packets: one.packets, bytes: one.bytes, time_ns: one.time_ns }
    };
    Ok(whole.map(one).fold(Passed::default(), Add::add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(module: Module, symbol: &str) -> Traced {
        Traced { module, symbol: symbol.to_owned() }
    }

    /// The ways of all modules have different rows in the map, and each entry function has a packet
    /// argument.
    #[test]
    fn packets_enter_by_each_way_once() {
        let entries = Module::ALL
            .into_iter()
            .flat_map(|module| module.entries().into_iter().map(move |symbol| at(module, &symbol)));
        let rows: Vec<u32> = entries.map(|entry| Way::of(&entry).unwrap().row).collect();
        assert_eq!(rows, (0..gth_passed_key::GTH_NR_WAYS.0).collect::<Vec<_>>());
        let mut entries = Module::ALL.into_iter().flat_map(Module::functions);
        assert!(entries.all(|one| one.stage != Stage::Entry || one.packet.is_some_and(|n| n < 2)));
        assert_eq!(cookie(&at(Module::Gtp5g, "gtp5g_encap_recv"), 7), 0x0001_0000_0007);
        assert_eq!(cookie(&at(Module::Gtp, "gtp_dev_xmit"), 63), 0x0300_0000_003f);
        for symbol in ["gtp_rx", "a_function_of_a_later_version"] {
            let way = cookie(&at(Module::Gtp, symbol), 0) >> gth_passed_key::GTH_COOKIE_WAY.0;
            assert_eq!(way, u64::from(gth_passed_key::GTH_NO_WAY.0), "{symbol}");
        }
    }

    #[test]
    fn a_port_has_a_key_for_each_direction() {
        assert_eq!(port_key(2152, Direction::Received), 2152);
        assert_eq!(port_key(65535, Direction::Sent), 0x1_ffff);
    }
}
