//! The time of packets in each function, as plots.

use serde::Serialize;

use super::histogram::{Bar, Histogram, bound};
use super::rows::Row;
use super::screen;
use super::sections::{Section, json_line};
use crate::base::error::Result;
use crate::gtp::Direction;

/// The calls of one function in an interval, by all tasks.
#[derive(Debug, Serialize)]
struct Times<'a> {
    direction: Direction,
    function: &'a str,
    /// Packets whose time is known.
    packets: u64,
    /// Upper bounds of buckets, at most 50% too high.
    #[serde(serialize_with = "bound")]
    p50_ns: Option<u64>,
    #[serde(serialize_with = "bound")]
    p99_ns: Option<u64>,
    #[serde(serialize_with = "bound")]
    max_ns: Option<u64>,
    buckets: Vec<Bar>,
}

/// A plot for each function with a call that ended in the interval.
pub fn section(rows: &[Row]) -> Result<Section> {
    let mut functions: Vec<(&Row, Histogram)> = Vec::new();
    for row in rows.iter().filter(|row| row.times.packets() > 0) {
        match functions.iter_mut().find(|(known, _)| known.function == row.function) {
            Some((_, times)) => times.add(&row.times),
            None => functions.push((row, row.times.clone())),
        }
    }
    let mut section = Section::default();
    for (row, histogram) in &functions {
        let times = Times {
            direction: row.direction,
            function: &row.function,
            packets: histogram.packets(),
            p50_ns: histogram.percentile(0.5),
            p99_ns: histogram.percentile(0.99),
            max_ns: histogram.percentile(1.0),
            buckets: histogram.bars(),
        };
        let ns = [times.p50_ns, times.p99_ns, times.max_ns].map(screen::time);
        let [p50, p99, max] = ns;
        let (function, packets) = (times.function, times.packets);
        section.table.push(format!(
            "{function}: {packets} packets: p50 {p50}, p99 {p99}, longest below {max}"
        ));
        section.table.extend(histogram.plot());
        section.lines.push(format!(
            "times dir={} function={function} packets={packets} p50={p50} p99={p99} max={max}",
            screen::direction(times.direction)
        ));
        section.json.push(json_line("times", &times)?);
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::counts::Context;
    use crate::trace::histogram::BUCKETS;

    #[test]
    fn a_function_has_one_plot_for_all_tasks() {
        let row = |function: &str, cpu: usize, bucket: usize, calls: u64| {
            let mut times = [0; BUCKETS];
            times[bucket] = calls;
            let row = Row::of_packets("nr-gnb", cpu, Context::Task, 3);
            Row { function: function.into(), times: times.into(), ..row }
        };
        let rows = [row("xmit", 0, 20, 3), row("xmit", 1, 24, 3), row("recv", 2, 30, 0)];
        let section = section(&rows).unwrap();
        assert_eq!(section.lines.len(), 1, "{section:?}");
        assert!(section.lines[0].contains(" packets=6 "), "{section:?}");
        assert_eq!(section.table.len(), 4, "{section:?}");
        assert!(section.json[0].contains("{\"from_ns\":4096,\"to_ns\":8192,\"packets\":3}"));
    }
}
