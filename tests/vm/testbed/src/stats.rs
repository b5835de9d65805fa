//! What a row of the table says about its samples.

/// Round-trip times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    pub avg: f64,
    pub p99: f64,
    pub max: f64,
}

impl Summary {
    /// `None` when there are no samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            min: *sorted.first()?,
            avg: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p99: percentile(&sorted, 99)?,
            max: *sorted.last()?,
        })
    }
}

/// The nearest-rank percentile: the smallest sample that `percent` of all samples do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 99), Some(99.0));
        assert_eq!(percentile(&hundred[..10], 99), Some(10.0));
        assert_eq!(percentile(&hundred[..1], 99), Some(1.0));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn order_does_not_matter() {
        let summary = Summary { min: 1.0, avg: 2.5, p99: 4.0, max: 4.0 };
        assert_eq!(Summary::of(&[3.0, 1.0, 4.0, 2.0]), Some(summary));
        assert_eq!(Summary::of(&[]), None);
    }
}
