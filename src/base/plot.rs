//! A histogram as lines of text.

use std::fmt::{Display, Write};

/// The length of the longest bar, in characters.
const WIDTH: u64 = 40;

/// A line for each bucket, from the first to the last that is not empty: its bounds, its count and
/// a bar. Bucket `b` counts values that are at least `bound(b)` and below `bound(b + 1)`. Empty if
/// all buckets are.
pub fn histogram<B: Display>(buckets: &[u64], bound: impl Fn(usize) -> B) -> String {
    let mut text = String::new();
    let filled = |count: &u64| *count > 0;
    let ends = buckets.iter().position(filled).zip(buckets.iter().rposition(filled));
    let most = buckets.iter().max().copied().unwrap_or_default();
    for bucket in ends.map(|(first, last)| first..=last).into_iter().flatten() {
        let count = buckets[bucket];
        let bar =
            "#".repeat((u128::from(count) * u128::from(WIDTH)).div_ceil(most.into()) as usize);
        let [from, to] = [bucket, bucket + 1].map(|at| bound(at).to_string());
        let line = format!("{from:>8} .. {to:>8} {count:>10} {bar}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_ends_are_cut() {
        let plot = histogram(&[0, 1, 0, 80, 40, 0], |bucket| 1 << bucket);
        let full = "#".repeat(40);
        let lines: Vec<String> = [
            "       2 ..        4          1 #",
            "       4 ..        8          0",
            &format!("       8 ..       16         80 {full}"),
            &format!("      16 ..       32         40 {}", &full[..20]),
        ]
        .map(String::from)
        .to_vec();
        assert_eq!(plot.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn nothing_counted_draws_nothing() {
        assert_eq!(histogram(&[0, 0], |bucket| bucket), "");
        assert_eq!(histogram(&[], |bucket| bucket), "");
    }

    #[test]
    fn counts_may_be_as_large_as_they_get() {
        let plot = histogram(&[u64::MAX], |bucket| bucket);
        assert_eq!(plot.matches('#').count(), 40);
    }
}
