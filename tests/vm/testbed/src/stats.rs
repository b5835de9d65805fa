//! The figures of a table row, from its samples.

use serde::Serialize;

/// The figures, in the samples' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub min: f64,
    pub avg: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Summary {
    /// `None` if there are no samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            min: *sorted.first()?,
            avg: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50: percentile(&sorted, 500)?,
            p99: percentile(&sorted, 990)?,
            p999: percentile(&sorted, 999)?,
            max: *sorted.last()?,
        })
    }
}

/// The median: the middle number, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let above = sorted.get(sorted.len() / 2)?;
    let below = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(below, *above))
}

/// The nearest-rank percentile: the smallest sample that `permille` of all samples do not exceed.
pub fn percentile(sorted: &[f64], permille: usize) -> Option<f64> {
    let rank = (sorted.len() * permille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 990), Some(99.0));
        assert_eq!(percentile(&hundred[..10], 990), Some(10.0));
        assert_eq!(percentile(&hundred[..1], 990), Some(1.0));
        assert_eq!(percentile(&[], 990), None);
    }

    #[test]
    fn order_does_not_matter() {
        let summary = Summary { min: 1.0, avg: 2.5, p50: 2.0, p99: 4.0, p999: 4.0, max: 4.0 };
        assert_eq!(Summary::of(&[3.0, 1.0, 4.0, 2.0]), Some(summary));
        assert_eq!(Summary::of(&[]), None);
    }
}
