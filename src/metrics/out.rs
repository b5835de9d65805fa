//! Writes metrics one at a time, each with its description.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::daemon::reports::Counters;
use crate::sched::rule_stats::RuleStats;

/// Writes one metric with its description at a time.
pub(super) struct Out<'a>(pub DescriptorEncoder<'a>);

impl Out<'_> {
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub fn flag(&mut self, name: &str, help: &str, value: bool) -> fmt::Result {
        self.gauge(name, help, f64::from(u8::from(value)))
    }

    /// The format's writer adds `_total` to the name.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    pub fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str); 1]) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    pub fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, name, help, values)
    }

    pub fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, name, help, values)
    }

    /// A gauge or counter with one value for each set of labels. Writes nothing if there are no
    /// values.
    fn family<L: EncodeLabelSet>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let is_counter = matches!(kind, MetricType::Counter);
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            let mut one = metric.encode_family(&labels)?;
            match is_counter {
                true => one.encode_counter::<NoLabelSet, f64, f64>(&value, None)?,
                false => one.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    /// Bucket b of the counters ends at `2^(b+1)` ns, except that the last one has no end.
    pub fn wakeups(&mut self, counters: &Counters) -> fmt::Result {
        let bound = |bucket: usize| match bucket + 1 == counters.wakeups.len() {
            true => f64::INFINITY,
            false => seconds(2 << bucket),
        };
        let buckets: Vec<(f64, u64)> =
            counters.wakeups.iter().enumerate().map(|(b, count)| (bound(b), *count)).collect();
        let count = counters.wakeups.iter().sum();
        let help = "The time from the wake-up of a priority task until it runs";
        let name = "priority_wakeup_latency_seconds";
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(
            seconds(counters.wakeup_sum_ns),
            count,
            &buckets,
            None,
        )
    }

    pub fn rule_wakeups<'s>(
        &mut self,
        rules: impl Iterator<Item = (impl EncodeLabelSet, &'s RuleStats)>,
    ) -> fmt::Result {
        let help = "The time from the wake-up of a rule's task until it runs";
        let name = "rule_wakeup_latency_seconds";
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, rule) in rules {
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                seconds(rule.wakeup_sum_ns),
                rule.wakeups.iter().sum(),
                &buckets(&rule.wakeups),
                None,
            )?;
        }
        Ok(())
    }
}

/// Upper bounds in seconds, each with the count of what lies below it and not below the bound
/// before. They go from 1 us to 1 s. Bucket `b` of the counters ends at `2^(b+1)` ns.
fn buckets(counts: &[u64; 32]) -> Vec<(f64, u64)> {
    const FIRST: usize = 9;
    const LAST: usize = 29;
    let sum = |counts: &[u64]| counts.iter().sum();
    let mut buckets = vec![(seconds(2 << FIRST), sum(&counts[..=FIRST]))];
    buckets.extend((FIRST + 1..=LAST).map(|bucket| (seconds(2 << bucket), counts[bucket])));
    buckets.push((f64::INFINITY, sum(&counts[LAST + 1..])));
    buckets
}

/// Converts nanoseconds to seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
