//! How many calls or packets took how long.

use serde::{Serialize, Serializer};

use super::screen::time;
use crate::base::plot;
use crate::kernel::skeletons::tracer::types::gth_trace_limit;

/// Two buckets per power of two of ns (bucket_of() in bpf/trace.bpf.c).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

pub const BUCKETS: usize = gth_trace_limit::GTH_TRACE_BUCKETS.0 as usize;

/// The upper end of the last bucket, which has all calls that took more than 3.2 s.
pub const ENDLESS: u64 = u64::MAX;

/// Serializes an upper bound in ns: null for [`ENDLESS`], too.
pub fn bound<S: Serializer>(ns: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    ns.filter(|&ns| ns != ENDLESS).serialize(serializer)
}

/// The times from `from_ns` to just below `to_ns`, a power of two each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    pub from_ns: u64,
    /// `None` for the longest times.
    pub to_ns: Option<u64>,
    pub packets: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl From<[u64; BUCKETS]> for Histogram {
    fn from(buckets: [u64; BUCKETS]) -> Self {
        Self(buckets)
    }
}

impl Histogram {
    /// The time in ns that `share` of the packets, from 0 to 1, did not exceed: the upper end of
    /// its bucket, at most 50% too high, or [`ENDLESS`]. `None` without packets.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.packets() as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.0.iter().position(|&n| {
            so_far += n;
            so_far >= wanted
        })?;
        Some(upper_end(bucket))
    }

    pub fn packets(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }

    /// Like [`Histogram::since`], for counts that the kernel keeps in 32 bits and that wrap around.
    pub fn since_in_32_bits(&self, earlier: &Self) -> Self {
        let new = |i: usize| (self.0[i] as u32).wrapping_sub(earlier.0[i] as u32);
        Self(std::array::from_fn(|i| new(i).into()))
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// A line for each power of two, from the shortest time to the longest; none without packets.
    pub fn plot(&self) -> Vec<String> {
        let end = |power: usize| (power < BUCKETS / 2).then(|| time(Some(start(power))));
        let bound = |power: usize| end(power).unwrap_or_default();
        plot::histogram(&self.powers(), bound).lines().map(Into::into).collect()
    }

    /// One bar for each power of two, from the shortest time to the longest; empty ones between
    /// them included.
    pub fn bars(&self) -> Vec<Bar> {
        let end = |power: usize| (power + 1 < BUCKETS / 2).then(|| start(power + 1));
        let bar = |(power, packets)| Bar { from_ns: start(power), to_ns: end(power), packets };
        let bars: Vec<Bar> = self.powers().into_iter().enumerate().map(bar).collect();
        let is_used = |bar: &Bar| bar.packets > 0;
        let first = bars.iter().position(is_used).unwrap_or(bars.len());
        let end = bars.iter().rposition(is_used).map_or(first, |last| last + 1);
        bars[first..end].to_vec()
    }

    /// How many packets for each power of two.
    fn powers(&self) -> Vec<u64> {
        self.0.chunks(2).map(|halves| halves.iter().sum()).collect()
    }
}

/// The first ns of a power of two; what takes less than 2 ns belongs to the first.
fn start(power: usize) -> u64 {
    if power == 0 { 0 } else { 1 << power }
}

/// The first ns above the bucket.
fn upper_end(bucket: usize) -> u64 {
    let (power, half) = (bucket / 2, bucket as u64 % 2);
    match power {
        0 => 2,
        _ if bucket == BUCKETS - 1 => ENDLESS,
        _ => (1 << power) + (half + 1) * (1 << (power - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> Histogram {
        // 98 packets of 64 to 95 ns, two of 1536 to 2047 ns.
        let mut buckets = [0; BUCKETS];
        buckets[12] = 98;
        buckets[21] = 2;
        buckets.into()
    }

    #[test]
    fn percentiles_are_the_upper_ends_of_buckets() {
        assert_eq!(Histogram::default().percentile(0.5), None);
        let times = histogram();
        assert_eq!(times.percentile(0.0), Some(96));
        assert_eq!(times.percentile(0.5), Some(96));
        assert_eq!(times.percentile(0.98), Some(96));
        assert_eq!(times.percentile(0.99), Some(2048));
        assert_eq!(times.percentile(1.0), Some(2048));
    }

    #[test]
    fn a_bar_for_each_power_of_two_between_the_first_and_the_last() {
        let bars = histogram().bars();
        let (first, last) = (bars[0], bars[bars.len() - 1]);
        assert_eq!(bars.len(), 5);
        assert_eq!((first.from_ns, first.to_ns, first.packets), (64, Some(128), 98));
        assert_eq!((last.from_ns, last.to_ns, last.packets), (1024, Some(2048), 2));
        assert_eq!(bars.iter().map(|bar| bar.packets).sum::<u64>(), histogram().packets());
        assert_eq!(Histogram::default().bars(), []);
        let plot = histogram().plot();
        assert_eq!(plot.len(), 5, "{plot:#?}");
        assert!(plot[0].starts_with("    64ns ..    128ns         98 ###"), "{plot:#?}");
    }

    #[test]
    fn the_longest_times_have_no_bound() {
        let mut buckets = [0; BUCKETS];
        buckets[BUCKETS - 1] = 2;
        let times = Histogram::from(buckets);
        assert_eq!(times.percentile(0.5), Some(ENDLESS));
        assert_eq!(time(times.percentile(0.5)), ">3s");
        let bars = times.bars();
        assert_eq!((bars.len(), bars[0].from_ns, bars[0].to_ns), (1, 1 << 31, None));
        assert!(times.plot()[0].starts_with("  2147ms ..                   2 ###"), "{bars:?}");
    }

    #[test]
    fn counts_of_32_bits_begin_anew() {
        let of = |packets: u32| {
            let mut buckets = [0; BUCKETS];
            buckets[20] = packets.into();
            Histogram::from(buckets)
        };
        assert_eq!(of(8).since_in_32_bits(&of(u32::MAX - 1)), of(10));
        assert_eq!(of(8).since_in_32_bits(&of(8)), of(0));
    }
}
