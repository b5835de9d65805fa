//! Packets that end in the data plane or near it (bpf/trace/drops.bpf.h), by reason.

use std::collections::HashMap;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;
use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use super::attach::Tracer;
use super::rates::{busiest_first, rate};
use super::screen;
use super::sections::{Interval, Section, json_line};
use super::verdicts::{Why, verdict};
use crate::base::error::{Error, Result};
use crate::base::escape;
use crate::gtp::{Direction, Function};
use crate::kernel::kallsyms::{self, KALLSYMS, Place};
use crate::kernel::skeletons::tracer::types::{
    gth_drop_count, gth_drop_key, gth_packet_end as End,
};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Dropped,
    /// Handed to the process that reads the socket, if any does.
    LeftToSocket,
    /// Copied to user space, which keeps it for later.
    Buffered,
}

/// Where a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Stretch {
    /// Within the data plane's entry function.
    DataPlane,
    /// Elsewhere in the kernel, while it belonged to the data plane's network device.
    Device,
    /// Elsewhere in the kernel, on its way to the UDP port of GTP-U, or the traced one.
    Port,
}

/// What distinguishes one row from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
struct Kind {
    direction: Direction,
    outcome: Outcome,
    stretch: Stretch,
    why: Why,
    /// From enum skb_drop_reason, without its prefix.
    kernel_reason: Option<String>,
    /// The code that freed the packet, as function+offset and its module.
    at: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// The packets of a kind.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    kind: Kind,
    /// Since the trace began.
    packets: u64,
    bytes: u64,
    /// In this interval.
    packets_per_second: f64,
    bytes_per_second: f64,
}

/// Turns counts into rows, each time with the rates since the last time.
pub struct Drops {
    module: Option<&'static str>,
    /// The names of enum skb_drop_reason by value.
    reasons: HashMap<u32, String>,
    places: HashMap<u64, Option<Place>>,
    before: HashMap<Kind, Count>,
    /// What was counted before a module was loaded again, under the names of that time.
    gone: HashMap<Kind, Count>,
}

impl Drops {
    pub fn new(module: Option<&'static str>) -> Self {
        let (places, before, gone) = Default::default();
        Self { module, reasons: reasons(), places, before, gone }
    }

    /// The packets counted so far will not be in any rate.
    pub fn begin(&mut self, interval: &Interval<'_>) -> Result<()> {
        self.look(interval).map(drop)
    }

    pub fn section(&mut self, interval: &Interval<'_>) -> Result<Section> {
        let rows = self.look(interval)?;
        let mut section = Section { table: table(&rows), ..Section::default() };
        for row in &rows {
            if row.packets_per_second > 0.0 {
                section.lines.push(line(row));
                section.json.push(json_line("drop", row)?);
            }
        }
        Ok(section)
    }

    /// The rows, for the CPUs that the interval wants.
    fn look(&mut self, interval: &Interval<'_>) -> Result<Vec<Row>> {
        let counts = read(interval.tracer, interval.is_wanted)?;
        self.look_up(counts.iter().map(|(key, _)| key.location))?;
        Ok(self.rows(&counts, interval.functions, interval.seconds))
    }

    /// Forgets where functions are, because a module was loaded. What has been counted keeps its
    /// names.
    pub fn forget_places(&mut self, interval: &Interval<'_>) -> Result<()> {
        let drops = &interval.tracer.drops;
        self.keep(&read(interval.tracer, interval.is_wanted)?, interval.functions);
        // A key that is gone already has nothing to forget.
        drops.keys().for_each(|key| drop(drops.delete(&key)));
        Ok(())
    }

    fn keep(&mut self, counts: &[(gth_drop_key, Count)], functions: &[Function]) {
        self.gone = self.by_kind(counts, functions);
        self.places.clear();
    }

    fn look_up(&mut self, locations: impl Iterator<Item = u64>) -> Result<()> {
        let mut new: Vec<u64> = locations.filter(|at| !self.places.contains_key(at)).collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let places = kallsyms::places(Path::new(KALLSYMS), &new)?;
            self.places.extend(new.into_iter().zip(places));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        counts: &[(gth_drop_key, Count)],
        functions: &[Function],
        seconds: f64,
    ) -> Vec<Row> {
        let now = self.by_kind(counts, functions);
        let row = |(kind, count): (&Kind, &Count)| {
            let before = self.before.get(kind).copied().unwrap_or_default();
            Row {
                kind: kind.clone(),
                packets: count.packets,
                bytes: count.bytes,
                packets_per_second: rate(count.packets, before.packets, seconds),
                bytes_per_second: rate(count.bytes, before.bytes, seconds),
            }
        };
        let mut rows: Vec<Row> = now.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let busy = |row: &Row| (row.packets_per_second, row.packets);
            busiest_first(busy(a), busy(b)).then_with(|| a.kind.cmp(&b.kind))
        });
        self.before = now;
        rows
    }

    /// All counts since the trace began.
    fn by_kind(
        &self,
        counts: &[(gth_drop_key, Count)],
        functions: &[Function],
    ) -> HashMap<Kind, Count> {
        let mut all = self.gone.clone();
        for (key, count) in counts {
            if let Some(kind) = self.kind(key, functions) {
                let of_kind = all.entry(kind).or_default();
                of_kind.packets += count.packets;
                of_kind.bytes += count.bytes;
            }
        }
        all
    }

    /// `None`: the packet was not dropped after all.
    fn kind(&self, key: &gth_drop_key, functions: &[Function]) -> Option<Kind> {
        let function = |number: u32| functions.get((number as usize).checked_sub(1)?);
        let entry = function(key.entry);
        let place = self.places.get(&key.location).and_then(Option::as_ref);
        let is_in_entry = entry.zip(place).is_some_and(|(entry, at)| at.is_in(&entry.symbol));
        let is_in_module = place.is_some_and(|at| at.is_of(self.module));
        // If the kernel hides its addresses, only a refusal tells whose drop it is.
        let is_refused = key.location > 0 && place.is_none() && key.refused > 0;
        let is_ours = self.module.is_some() && (is_in_entry || is_in_module || is_refused);
        let direction = entry.map_or(Direction::Both, |entry| entry.direction);
        let (outcome, stretch, direction) = match key.end {
            End::GTH_END_DROPPED => (Outcome::Dropped, Stretch::DataPlane, direction),
            End::GTH_END_LEFT => (Outcome::LeftToSocket, Stretch::DataPlane, direction),
            // The packet was sent, or consumed in some other way.
            End::GTH_END_CONSUMED if !is_ours => return None,
            End::GTH_END_CONSUMED => {
                // A transmit function that fails frees the packet itself. One that has passed the
                // packet on does not.
                let is_drop = key.refused > 0 || (is_in_entry && direction == Direction::Downlink);
                let outcome = if is_drop { Outcome::Dropped } else { Outcome::Buffered };
                (outcome, Stretch::DataPlane, direction)
            }
            End::GTH_END_AT_DEVICE if key.received > 0 => {
                (Outcome::Dropped, Stretch::Device, Direction::Uplink)
            }
            End::GTH_END_AT_DEVICE => (Outcome::Dropped, Stretch::Device, Direction::Downlink),
            _ => (Outcome::Dropped, Stretch::Port, Direction::Both),
        };
        let is_by_kfree = !matches!(key.end, End::GTH_END_LEFT | End::GTH_END_CONSUMED);
        let kernel_reason = is_by_kfree.then(|| self.reason(key.reason));
        let kernels = kernel_reason.as_deref().and_then(Why::of_kernel);
        let why = match outcome {
            Outcome::Buffered => Why::Buffered,
            _ => kernels.unwrap_or_else(|| {
                let verdict_of = |number| verdict(self.module, &function(number)?.symbol);
                let refused = verdict_of(key.refused).map(|verdict| verdict.why(key.returned));
                let passed = verdict_of(key.passed).map(|verdict| verdict.past());
                refused.unwrap_or_else(|| untold(outcome, stretch, direction, key.message, passed))
            }),
        };
        let at = place.map(Place::to_string);
        let at = at.or_else(|| (key.location > 0).then(|| format!("{:#x}", key.location)));
        Some(Kind { direction, outcome, stretch, why, kernel_reason, at })
    }

    fn reason(&self, value: u32) -> String {
        /// Where other subsystems' reasons begin (include/net/dropreason.h).
        const SUBSYSTEM_SHIFT: u32 = 16;
        match self.reasons.get(&value) {
            Some(name) => name.clone(),
            None if value >> SUBSYSTEM_SHIFT > 0 => {
                let (subsystem, value) = (value >> SUBSYSTEM_SHIFT, value & 0xffff);
                format!("{value} of subsystem {subsystem}")
            }
            None => value.to_string(),
        }
    }
}

/// Why a packet ended if no function has refused it.
fn untold(
    outcome: Outcome,
    stretch: Stretch,
    direction: Direction,
    message: u32,
    passed: Option<Why>,
) -> Why {
    /// The message type of a G-PDU, in the lower eight bits (3GPP TS 29.281, 7.1).
    const G_PDU: u32 = 255;
    match (outcome, stretch, direction) {
        (Outcome::LeftToSocket, ..) if message == 0 => Why::Other,
        (Outcome::LeftToSocket, ..) if message & 0xff == G_PDU => Why::UnknownTeid,
        (Outcome::LeftToSocket, ..) => Why::NotAGPdu,
        (_, Stretch::DataPlane, Direction::Uplink) => passed.unwrap_or(Why::BadHeader),
        (_, Stretch::DataPlane, Direction::Downlink) => passed.unwrap_or(Why::NotIp),
        _ => Why::Other,
    }
}

/// The names of enum skb_drop_reason by value; empty if the kernel does not tell them.
fn reasons() -> HashMap<u32, String> {
    const PREFIX: &str = "SKB_DROP_REASON_";
    // `SKB_NOT_DROPPED_YET` has another prefix.
    const SHORT_PREFIX: &str = "SKB_";
    let Ok(btf) = Btf::from_vmlinux() else { return HashMap::new() };
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
        return HashMap::new();
    };
    let named = reasons.iter().filter_map(|member| {
        let name = member.name?.to_str()?;
        let name = name.strip_prefix(PREFIX).or_else(|| name.strip_prefix(SHORT_PREFIX))?;
        Some((u32::try_from(member.value).ok()?, name.to_owned()))
    });
    named.collect()
}

fn read(tracer: &Tracer, is_wanted: &dyn Fn(usize) -> bool) -> Result<Vec<(gth_drop_key, Count)>> {
    let failed = |e| Error::failure(format!("reading the drops: {e}"));
    let mut counts = Vec::new();
    for bytes in tracer.drops.keys() {
        let values = tracer.drops.lookup_percpu(&bytes, MapFlags::ANY).map_err(failed)?;
        // SAFETY: the map's keys are of this type, all integers.
        let key = unsafe { bytes.as_ptr().cast::<gth_drop_key>().read_unaligned() };
        let mut all = Count::default();
        for (cpu, value) in values.into_iter().flatten().enumerate() {
            if is_wanted(cpu) {
                // SAFETY: the map's values are of this type, all integers.
                let value = unsafe { value.as_ptr().cast::<gth_drop_count>().read_unaligned() };
                all.packets += value.packets;
                all.bytes += value.bytes;
            }
        }
        if all.packets > 0 {
            counts.push((key, all));
        }
    }
    Ok(counts)
}

const HEAD: [&str; 8] = ["dir", "end", "why", "kernel's reason", "packets", "per s", "bytes", "at"];

fn table(rows: &[Row]) -> Vec<String> {
    let dropped = |row: &&Row| row.kind.outcome == Outcome::Dropped;
    let packets: u64 = rows.iter().filter(dropped).map(|row| row.packets).sum();
    let rate: f64 = rows.iter().filter(dropped).map(|row| row.packets_per_second).sum();
    let mut lines = vec![format!("drops: {packets} packets, {rate:.0} per s")];
    if !rows.is_empty() {
        lines.extend(screen::table(&HEAD, rows.iter().map(|row| cells(row).to_vec())));
    }
    lines
}

fn cells(row: &Row) -> [String; 8] {
    let Kind { direction, outcome, stretch, why, kernel_reason, at } = &row.kind;
    let end = match (outcome, stretch) {
        (Outcome::Dropped, Stretch::DataPlane) => "dropped",
        (Outcome::Dropped, Stretch::Device) => "dropped at its device",
        (Outcome::Dropped, Stretch::Port) => "dropped at the UDP port",
        (Outcome::LeftToSocket, _) => "left to the socket",
        (Outcome::Buffered, _) => "buffered",
    };
    [
        screen::direction(*direction).into(),
        end.into(),
        why.words().into(),
        kernel_reason.clone().unwrap_or_else(|| "-".into()),
        row.packets.to_string(),
        format!("{:.0}", row.packets_per_second),
        screen::bytes(row.bytes),
        at.clone().unwrap_or_else(|| "-".into()),
    ]
}

fn line(row: &Row) -> String {
    let [direction, end, why, reason, packets, per_second, bytes, at] = cells(row);
    let line = format!(
        "drop dir={direction} end=\"{end}\" why=\"{why}\" kernel={reason} packets={packets} \
         per_s={per_second} bytes={bytes} at=\"{at}\""
    );
    escape::line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::Module;
    use crate::trace::functions::Target;
    use crate::trace::verdicts;

    const AT: u64 = 0x1234;

    /// The drops of packets that were freed within `symbol`, and gtp5g's functions.
    fn drops(symbol: &str, module: Option<&str>) -> (Drops, Vec<Function>) {
        let mut drops = Drops {
            module: Some("gtp5g"),
            reasons: [(2, "NOT_SPECIFIED".into()), (5, "NETFILTER_DROP".into())].into(),
            places: HashMap::new(),
            before: HashMap::new(),
            gone: HashMap::new(),
        };
        let module = module.map(str::to_owned);
        let place = Place { symbol: symbol.into(), offset: 16, module };
        drops.places.insert(AT, Some(place));
        let mut functions = Target::of_module(Module::Gtp5g).functions;
        functions.extend(verdicts::functions(Some("gtp5g")));
        (drops, functions)
    }

    fn number(functions: &[Function], symbol: &str) -> u32 {
        functions.iter().position(|f| f.symbol == symbol).unwrap() as u32 + 1
    }

    fn key(end: End, functions: &[Function], entry: &str) -> gth_drop_key {
        let entry = if entry.is_empty() { 0 } else { number(functions, entry) };
        gth_drop_key { location: AT, reason: 2, end, entry, ..Default::default() }
    }

    #[test]
    fn the_first_refusal_says_why_unless_the_kernel_does() {
        let (drops, functions) = drops("gtp5g_encap_recv", Some("gtp5g"));
        let key = key(End::GTH_END_DROPPED, &functions, "gtp5g_encap_recv");
        let why = |key: &gth_drop_key| drops.kind(key, &functions).unwrap().why;
        let by = |symbol| number(&functions, symbol);
        let refused = gth_drop_key { refused: by("pdr_find_by_gtp1u"), ..key };
        assert_eq!(why(&refused), Why::NoPdr);
        let passed = gth_drop_key { passed: by("pdr_find_by_gtp1u"), ..key };
        assert_eq!(why(&passed), Why::PdrActions);
        assert_eq!(why(&key), Why::BadHeader);
        let filtered = gth_drop_key { reason: 5, ..passed };
        assert_eq!(why(&filtered), Why::Firewall);
        let kind = drops.kind(&filtered, &functions).unwrap();
        assert_eq!(kind.kernel_reason.as_deref(), Some("NETFILTER_DROP"));
        assert_eq!(kind.at.as_deref(), Some("gtp5g_encap_recv+0x10 [gtp5g]"));
        assert_eq!(kind.direction, Direction::Uplink);
    }

    /// The module is then at other addresses, and something else is where it was.
    #[test]
    fn what_was_counted_before_a_module_is_loaded_again_keeps_its_name() {
        let (mut drops, functions) = drops("gtp5g_encap_recv", Some("gtp5g"));
        let mut counts = [End::GTH_END_DROPPED, End::GTH_END_CONSUMED].map(|end| {
            let key = gth_drop_key { refused: 1, ..key(end, &functions, "gtp5g_encap_recv") };
            (key, Count { packets: 1_000, bytes: 9_000 })
        });
        let mut before = drops.rows(&counts, &functions, 1.0);
        drops.keep(&counts, &functions);
        let place = Place { symbol: "other".into(), offset: 0x3f21, module: Some("other".into()) };
        drops.places.insert(AT, Some(place));
        let mut after = drops.rows(&[], &functions, 1.0);
        assert!(after.iter().all(|row| row.packets_per_second == 0.0), "{after:#?}");
        let kinds = |rows: &mut Vec<Row>| {
            rows.sort_by(|a, b| a.kind.cmp(&b.kind));
            let kinds = rows.iter().map(|row| (row.kind.clone(), row.packets));
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(kinds(&mut after), kinds(&mut before));
        counts[0].1.packets = 5;
        let rows = drops.rows(&counts[..1], &functions, 1.0);
        let new: Vec<&Row> = rows.iter().filter(|row| row.packets_per_second > 0.0).collect();
        assert_eq!((new.len(), new[0].packets), (1, 5), "{rows:#?}");
    }

    #[test]
    fn what_is_consumed_is_dropped_buffered_or_sent() {
        let outcome = |symbol, module, refused| {
            let (drops, functions) = drops(symbol, module);
            let key = gth_drop_key {
                refused,
                ..key(End::GTH_END_CONSUMED, &functions, "gtp5g_dev_xmit")
            };
            drops.kind(&key, &functions).map(|kind| (kind.outcome, kind.why))
        };
        let gtp5g = Some("gtp5g");
        assert_eq!(outcome("gtp5g_dev_xmit", gtp5g, 0), Some((Outcome::Dropped, Why::NotIp)),);
        assert_eq!(
            outcome("gtp5g_handle_skb_ipv4", gtp5g, 0),
            Some((Outcome::Buffered, Why::Buffered)),
        );
        assert_eq!(outcome("napi_consume_skb", None, 0), None);
    }

    #[test]
    fn what_is_refused_and_consumed_is_dropped_where_addresses_are_hidden() {
        let (mut drops, functions) = drops("gtp5g_dev_xmit", Some("gtp5g"));
        drops.places.insert(AT, None);
        let outcome = |refused| {
            let key = gth_drop_key {
                refused,
                ..key(End::GTH_END_CONSUMED, &functions, "gtp5g_dev_xmit")
            };
            drops.kind(&key, &functions).map(|kind| (kind.outcome, kind.why))
        };
        let refused = number(&functions, "pdr_find_by_ipv4");
        assert_eq!(outcome(refused), Some((Outcome::Dropped, Why::NoPdr)));
        assert_eq!(outcome(0), None);
    }

    #[test]
    fn beside_the_data_plane_only_the_kernel_tells() {
        let (drops, functions) = drops("ip_rcv_finish", None);
        let kind = |end, received, reason| {
            let key = gth_drop_key { received, reason, ..key(end, &functions, "") };
            let kind = drops.kind(&key, &functions).unwrap();
            (kind.direction, kind.stretch, kind.why)
        };
        let (up, down) = (Direction::Uplink, Direction::Downlink);
        let device = End::GTH_END_AT_DEVICE;
        assert_eq!(kind(device, 1, 2), (up, Stretch::Device, Why::Other));
        assert_eq!(kind(device, 0, 5), (down, Stretch::Device, Why::Firewall));
        let port = (Direction::Both, Stretch::Port, Why::Firewall);
        assert_eq!(kind(End::GTH_END_AT_PORT, 0, 5), port);
        let names = [2, 77, 3 << 16 | 9].map(|value| drops.reason(value));
        assert_eq!(names, ["NOT_SPECIFIED", "77", "9 of subsystem 3"]);
    }

    #[test]
    fn a_socket_gets_what_the_data_plane_leaves() {
        let untold = |message| {
            untold(Outcome::LeftToSocket, Stretch::DataPlane, Direction::Uplink, message, None)
        };
        assert_eq!(untold(1 << 8 | 255), Why::UnknownTeid);
        assert_eq!(untold(1 << 8 | 1), Why::NotAGPdu, "an echo request");
        assert_eq!(untold(0), Why::Other, "unreadable");
    }

    #[test]
    fn rows_add_up_and_have_rates() {
        let (mut drops, functions) = drops("gtp5g_encap_recv", Some("gtp5g"));
        let key = key(End::GTH_END_DROPPED, &functions, "gtp5g_encap_recv");
        let count = |packets| Count { packets, bytes: 100 * packets };
        // The same kind by another key.
        let same = gth_drop_key { message: 511, ..key };
        drops.rows(&[(key, count(4))], &functions, 1.0);
        let rows = drops.rows(&[(key, count(4)), (same, count(6))], &functions, 2.0);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!((rows[0].packets, rows[0].bytes), (10, 1000));
        assert_eq!((rows[0].packets_per_second, rows[0].bytes_per_second), (3.0, 300.0));
        let table = table(&rows);
        assert_eq!(table[0], "drops: 10 packets, 3 per s");
        assert_eq!(table.len(), 4, "{table:#?}");
        assert_eq!(
            line(&rows[0]),
            "drop dir=up end=\"dropped\" why=\"bad header\" kernel=NOT_SPECIFIED packets=10 \
             per_s=3 bytes=1000 at=\"gtp5g_encap_recv+0x10 [gtp5g]\""
        );
    }
}
