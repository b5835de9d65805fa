//! Packets by tunnel (bpf/trace/teids.bpf.h): who sends and receives most.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use libbpf_rs::{MapCore, MapFlags};
use serde::{Serialize, Serializer};

use super::attach::Tracer;
use super::rates::{busiest_first, rate};
use super::screen;
use super::sections::{Interval, Section, json_line};
use crate::base::error::{Error, Result};
use crate::gtp::{Direction, Function};
use crate::kernel::skeletons::tracer::types::{gth_teid_count, gth_teid_key};

/// How many rows the table has.
const TOP: usize = 20;

/// A tunnel end point identifier (3GPP TS 29.281, 5.1), in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
struct Tunnel {
    direction: Direction,
    /// `None`: the packet ended before it got one, or its header was unreadable or of GTPv0.
    #[serde(serialize_with = "in_hex")]
    teid: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    packets: u64,
    bytes: u64,
    drops: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    tunnel: Tunnel,
    /// Since the trace began.
    packets: u64,
    bytes: u64,
    /// Packets that were dropped in the data plane, or left to the socket.
    drops: u64,
    /// In this interval.
    packets_per_second: f64,
    bytes_per_second: f64,
}

/// Turns counts into rows, each time with the rates since the last time.
#[derive(Default)]
pub struct Teids {
    before: HashMap<Tunnel, Count>,
}

impl Teids {
    /// The packets counted so far will not be in any rate.
    pub fn begin(&mut self, interval: &Interval<'_>) -> Result<()> {
        self.look(interval).map(drop)
    }

    pub fn section(&mut self, interval: &Interval<'_>) -> Result<Section> {
        let rows = self.look(interval)?;
        let mut section = Section { table: table(&rows), ..Section::default() };
        for row in rows.iter().filter(|row| row.packets_per_second > 0.0) {
            section.lines.push(line(row));
            section.json.push(json_line("teid", row)?);
        }
        Ok(section)
    }

    /// The tunnels with packets on the CPUs that the interval wants.
    fn look(&mut self, interval: &Interval<'_>) -> Result<Vec<Row>> {
        let Interval { tracer, functions, seconds, is_wanted, .. } = *interval;
        Ok(self.rows(read(tracer, functions, is_wanted)?, seconds))
    }

    /// The rows, the busiest first.
    fn rows(&mut self, now: HashMap<Tunnel, Count>, seconds: f64) -> Vec<Row> {
        let row = |(tunnel, count): (&Tunnel, &Count)| {
            // The kernel may have forgotten a tunnel meanwhile, and counts it anew.
            let before = self.before.get(tunnel).filter(|old| old.packets <= count.packets);
            let before = before.copied().unwrap_or_default();
            Row {
                tunnel: *tunnel,
                packets: count.packets,
                bytes: count.bytes,
                drops: count.drops,
                packets_per_second: rate(count.packets, before.packets, seconds),
                bytes_per_second: rate(count.bytes, before.bytes, seconds),
            }
        };
        let mut rows: Vec<Row> = now.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let busy = |row: &Row| (row.packets_per_second, row.packets);
            busiest_first(busy(a), busy(b)).then(a.tunnel.cmp(&b.tunnel))
        });
        self.before = now;
        rows
    }
}

fn read(
    tracer: &Tracer,
    functions: &[Function],
    is_wanted: &dyn Fn(usize) -> bool,
) -> Result<HashMap<Tunnel, Count>> {
    let failed = |e| Error::failure(format!("reading the tunnels: {e}"));
    let mut counts: HashMap<Tunnel, Count> = HashMap::new();
    let most = 2 * tracer.teids.max_entries() as usize;
    for bytes in each_once(tracer.teids.keys(), most) {
        // SAFETY: the map's keys are of this type, all integers.
        let key = unsafe { bytes.as_ptr().cast::<gth_teid_key>().read_unaligned() };
        let entry = (key.entry as usize).checked_sub(1).and_then(|index| functions.get(index));
        let direction = entry.map_or(Direction::Both, |entry| entry.direction);
        let tunnel = Tunnel { direction, teid: (key.has_teid != 0).then_some(key.teid) };
        // The tunnel may be gone already.
        let values = tracer.teids.lookup_percpu(&bytes, MapFlags::ANY).map_err(failed)?;
        let count = counts.entry(tunnel).or_default();
        for (cpu, value) in values.into_iter().flatten().enumerate() {
            if is_wanted(cpu) {
                // SAFETY: the map's values are of this type, all integers.
                let value = unsafe { value.as_ptr().cast::<gth_teid_count>().read_unaligned() };
                count.packets += value.packets;
                count.bytes += value.bytes;
                count.drops += value.drops;
            }
        }
    }
    counts.retain(|_, count| count.packets > 0);
    Ok(counts)
}

/// Each of `keys` once, from at most `most` steps of a walk over the map. The kernel restarts the
/// walk if it has forgotten the key that the walk is at.
fn each_once<K: Clone + Eq + Hash>(
    keys: impl Iterator<Item = K>,
    most: usize,
) -> impl Iterator<Item = K> {
    let mut seen = HashSet::new();
    keys.take(most).filter(move |key| seen.insert(key.clone()))
}

fn hex(teid: Option<u32>) -> String {
    teid.map_or_else(|| "-".into(), |teid| format!("{teid:#010x}"))
}

fn in_hex<S: Serializer>(
    teid: &Option<u32>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    teid.map(|teid| hex(Some(teid))).serialize(serializer)
}

const HEAD: [&str; 6] = ["dir", "TEID", "packets", "per s", "bytes", "drops"];

fn table(rows: &[Row]) -> Vec<String> {
    let mut lines = vec![format!("tunnels: {}", rows.len())];
    if !rows.is_empty() {
        lines.extend(screen::table(&HEAD, rows.iter().take(TOP).map(|row| cells(row).to_vec())));
    }
    if rows.len() > TOP {
        lines.push(format!("and {} more", rows.len() - TOP));
    }
    lines
}

fn cells(row: &Row) -> [String; 6] {
    [
        screen::direction(row.tunnel.direction).into(),
        hex(row.tunnel.teid),
        row.packets.to_string(),
        format!("{:.0}", row.packets_per_second),
        screen::bytes(row.bytes),
        row.drops.to_string(),
    ]
}

fn line(row: &Row) -> String {
    let [direction, teid, packets, per_second, bytes, drops] = cells(row);
    format!(
        "teid dir={direction} teid={teid} packets={packets} per_s={per_second} bytes={bytes} \
         drops={drops}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_tunnel_is_first_whatever_it_had_before() {
        let tunnel = |teid| Tunnel { direction: Direction::Uplink, teid };
        let count = |packets| Count { packets, bytes: 100 * packets, drops: 1 };
        let (old, new) = (tunnel(Some(0x101)), tunnel(None));
        let mut teids = Teids::default();
        teids.rows([(old, count(1_000))].into(), 1.0);
        let rows = teids.rows([(old, count(1_001)), (new, count(8))].into(), 2.0);
        assert_eq!(line(&rows[0]), "teid dir=up teid=- packets=8 per_s=4 bytes=800 drops=1");
        assert_eq!((rows[1].packets, rows[1].packets_per_second), (1_001, 0.5));
        assert_eq!(cells(&rows[1])[1], "0x00000101");
        // The kernel has forgotten the tunnel and counts it anew.
        let rows = teids.rows([(old, count(6))].into(), 1.0);
        assert_eq!(rows[0].packets_per_second, 6.0);
    }

    #[test]
    fn a_walk_that_begins_again_yields_each_key_once_and_ends() {
        assert_eq!(each_once(["a", "b", "a"].into_iter(), 6).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(each_once(["a", "b"].into_iter().cycle(), 6).count(), 2);
    }

    #[test]
    fn a_table_has_the_top_tunnels() {
        let count = Count { packets: 1, bytes: 1, drops: 0 };
        let tunnel = |teid| Tunnel { direction: Direction::Downlink, teid: Some(teid) };
        let all = (0..25).map(|teid| (tunnel(teid), count)).collect();
        let table = table(&Teids::default().rows(all, 1.0));
        // A line above, the head, the line under it, and one below.
        assert_eq!(table.len(), TOP + 4, "{table:#?}");
        assert_eq!(table.last().unwrap(), "and 5 more");
    }
}
