//! Two runs of one commit: how far their ratios are apart.

use std::fmt::Write;

use super::ratios::{Ratio, ratios};
use super::record::Record;

/// How far two runs of one commit may differ, in percent.
pub const MOST_PERCENT: f64 = 3.0;

/// Each ratio of the means in both runs, and how many are too far apart.
pub fn compare(first: &[Record], second: &[Record]) -> (String, usize) {
    let mut table =
        String::from("| ratio | first | second | apart | |\n|---|---:|---:|---:|---|\n");
    let mut apart = 0;
    let mut worst = 0.0_f64;
    for (one, other) in ratios(first).iter().zip(&ratios(second)) {
        if !one.is_planned && !other.is_planned {
            continue;
        }
        let percent = percent(one, other);
        let is_apart = percent.is_none_or(|percent| percent.abs() > MOST_PERCENT);
        apart += usize::from(is_apart);
        worst = worst.max(percent.unwrap_or_default().abs());
        let mean = |ratio: &Ratio| {
            ratio.measured.map_or("failed".into(), |measured| format!("{:.3}", measured.mean))
        };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            one.name,
            mean(one),
            mean(other),
            percent.map_or(String::new(), |percent| format!("{percent:+.1} %")),
            if is_apart { "**too far**" } else { "" }
        );
    }
    let _ = writeln!(table, "\n{apart} ratios are too far apart; the most is {worst:.1} %.");
    (table, apart)
}

/// By how much the second ratio is above the first; `None` when either failed.
fn percent(first: &Ratio, second: &Ratio) -> Option<f64> {
    let (first, second) = first.measured.zip(second.measured)?;
    Some((second.mean / first.mean - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{FIFO, POLICY};

    fn run(policy: f64) -> Vec<Record> {
        let record = |candidate, ms| Record::of_round_trips("2x", candidate, 1, &[ms]);
        vec![record(POLICY, policy), record(FIFO, 10.0)]
    }

    #[test]
    fn three_percent_either_way() {
        assert_eq!(compare(&run(10.0), &run(10.2)).1, 0);
        let (table, apart) = compare(&run(10.0), &run(9.5));
        // The average and the p99.
        assert_eq!(apart, 2, "{table}");
        assert!(table.contains("SCHED_FIFO | 1.000 | 0.950 | -5.0 % | **too far** |"), "{table}");
    }

    #[test]
    fn what_only_one_run_has_is_too_far() {
        assert_eq!(compare(&run(10.0), &[]).1, 2);
    }
}
