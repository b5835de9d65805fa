//! How fast counts of packets go up, and which row is the busiest.

use std::cmp::Ordering;

/// The rate per second. The kernel may have begun to count anew: if the count is lower than before,
/// the rate is 0.
pub fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds.max(1e-9)
}

/// The order of two rows by their packets per second, and then by all of their packets: more comes
/// first.
pub fn busiest_first(a: (f64, u64), b: (f64, u64)) -> Ordering {
    b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_never_negative_and_always_finite() {
        assert_eq!((rate(9, 1, 2.0), rate(1, 9, 2.0)), (4.0, 0.0));
        assert!(rate(u64::MAX, 0, 0.0).is_finite());
    }

    #[test]
    fn what_is_busy_now_comes_before_what_has_been() {
        let mut rows = [(0.0, 9), (2.0, 3), (0.0, 10), (5.0, 1)];
        rows.sort_by(|a, b| busiest_first(*a, *b));
        assert_eq!(rows, [(5.0, 1), (2.0, 3), (0.0, 10), (0.0, 9)]);
    }
}
