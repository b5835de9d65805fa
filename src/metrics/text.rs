//! The metrics in Prometheus' text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>): base units, `_total` at the
//! end of a counter, and no metric per PID, whose number would have no bound.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::base::error::{Error, Result};
use crate::daemon::reports::{Counters, GtpTraffic, Metrics, RuleCounters, ThrottledCgroup};
use crate::sched::rule_stats::RuleStats;

/// What each of the scheduler's counters counts, by its name.
pub(super) const COUNTERS: [(&str, &str); 13] = [
    ("priority_wakeups", "Wake-ups of priority tasks"),
    ("preemptions", "Tasks that a priority task has preempted"),
    ("preemption_looks", "CPUs looked at to preempt"),
    ("demotions", "Priority tasks that used up their burst and shared fairly from then on"),
    ("guarded_turns", "Turns that normal tasks got before priority tasks"),
    ("matches", "Tasks matched with the rules"),
    ("exclusive_kept_off", "Wake-ups of tasks that were kept off an exclusive CPU"),
    ("exclusive_kthreads", "Per-CPU kernel threads let onto an exclusive CPU"),
    ("exclusive_pinned", "Tasks let onto an exclusive CPU because they may use no other"),
    ("exclusive_missed", "Wake-ups of tasks that may use none of their rule's exclusive CPUs"),
    ("traffic_marks", "Tasks marked for the packets that they process"),
    ("traffic_marks_ended", "Marks that have ended"),
    ("traffic_marks_refused", "Tasks not marked because max_tasks were"),
];

/// The text. Fails only if the running gthctl, perhaps of another version, sent nonsense.
pub fn write(metrics: Metrics) -> Result<String> {
    let mut registry = Registry::with_prefix("gthctl");
    registry.register_collector(Box::new(Exported(metrics)));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)
        .map_err(|e| Error::failure(format!("writing the metrics: {e}")))?;
    Ok(text)
}

#[derive(Debug)]
struct Exported(Metrics);

impl Collector for Exported {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        let metrics = &self.0;
        process(&mut out, metrics)?;
        policy(&mut out, metrics)?;
        scheduler(&mut out, &metrics.counters)?;
        rules(&mut out, &metrics.rule_counters)?;
        gtp(&mut out, &metrics.gtp)?;
        cgroups(&mut out, &metrics.status.throttled_cgroups)?;
        if let Some(irqs) = &metrics.status.irqs {
            let help = "Interrupts that are where the policy puts them";
            out.gauge("irqs_in_place", help, irqs.in_place as f64)?;
            let help = "Interrupts that something else has moved away";
            out.gauge("irqs_away", help, irqs.away as f64)?;
            let help = "Interrupts placed again since the policy came into force";
            out.counter("irqs_placed_again", help, irqs.placed_again as f64)?;
        }
        Ok(())
    }
}

fn process(out: &mut Out<'_>, metrics: &Metrics) -> fmt::Result {
    let labels = [("version", metrics.version.as_str())];
    out.info("build", "The version of the running gthctl", &labels)?;
    out.gauge("start_time_seconds", "When gthctl was started, in Unix time", metrics.started)?;
    let help = "When gthctl loaded its scheduler, in Unix time; the counters begin there";
    out.gauge("scheduler_start_time_seconds", help, metrics.scheduler_started)
}

fn policy(out: &mut Out<'_>, metrics: &Metrics) -> fmt::Result {
    let status = &metrics.status;
    let generation = f64::from(status.generation);
    out.gauge("policy_generation", "The generation of the policy in force", generation)?;
    let help = "When the policy came into force, in Unix time";
    out.gauge("policy_start_time_seconds", help, metrics.in_force)?;
    let help = "Whether the kernel's tables hold what the policy in force says";
    out.flag("policy_in_step", help, status.kernel_in_step)?;
    let help = "Whether the policy file on disk is not in force because of a mistake";
    out.flag("policy_rejected", help, status.rejected.is_some())?;
    let help = "Policies that came into force after the first";
    out.counter("policy_changes", help, metrics.policy_changes as f64)?;
    let help = "Policy files with a mistake, which did not come into force";
    out.counter("policy_rejections", help, metrics.policy_rejections as f64)?;
    let help = "CPUs that only the tasks of their rules may use";
    out.gauge("exclusive_cpus", help, metrics.exclusive_cpus as f64)?;
    out.gauge("tasks", "Threads that the scheduler knows", status.tasks as f64)?;
    let tasks = metrics.rules.iter().map(|rule| ([("rule", &*rule.rule)], rule.tasks as f64));
    out.gauges("rule_tasks", "Threads under each rule", tasks)?;
    if let Some(api) = &status.api {
        let help = "Rules in force that come from the API";
        out.gauge("api_rules", help, api.rules as f64)?;
        if let Some(age) = api.answer_age_ms {
            let help = "The time since the API's last good answer";
            out.gauge("api_answer_age_seconds", help, age as f64 / 1e3)?;
        }
    }
    Ok(())
}

fn scheduler(out: &mut Out<'_>, counters: &Counters) -> fmt::Result {
    let paths = counters.paths.iter().map(|(path, count)| ([("path", &**path)], *count as f64));
    out.counters("dispatches", "Tasks that got a CPU, by the way they took", paths)?;
    for (name, help) in COUNTERS {
        if let Some(count) = counters.counts.get(name) {
            out.counter(name, help, *count as f64)?;
        }
    }
    out.wakeups(counters)
}

/// The value of a label, and the count that it stands for.
type Kind = (&'static str, fn(&RuleStats) -> u64);

/// The label of tasks without a rule is empty, which no rule's name is.
fn rules(out: &mut Out<'_>, rules: &[RuleCounters]) -> fmt::Result {
    fn name(rule: &RuleCounters) -> &str {
        rule.rule.as_deref().unwrap_or_default()
    }
    let each = |value: fn(&RuleStats) -> f64| {
        rules.iter().map(move |rule| ([("rule", name(rule))], value(&rule.stats)))
    };
    let by = |label: &'static str, kinds: [Kind; 2]| {
        rules.iter().flat_map(move |rule| {
            kinds.map(|(kind, value)| {
                ([("rule", name(rule)), (label, kind)], value(&rule.stats) as f64)
            })
        })
    };
    out.rule_wakeups(rules.iter().map(|rule| ([("rule", name(rule))], &rule.stats)))?;
    let help = "The time that the tasks of each rule ran";
    out.counters("rule_run_seconds", help, each(|rule| seconds(rule.run_ns)))?;
    if rules.iter().any(|rule| rule.stats.wait_ns > 0) {
        let help = "The time that the tasks of each rule waited for a CPU";
        out.counters("rule_wait_seconds", help, each(|rule| seconds(rule.wait_ns)))?;
    }
    let help = "Turns of each rule's tasks that another task ended before their slice did";
    out.counters("rule_preemptions", help, each(|rule| rule.preempted as f64))?;
    let help = "Moves of each rule's tasks to a CPU of another last-level cache or NUMA node";
    let scopes =
        by("scope", [("llc", |rule| rule.llc_migrations), ("numa", |rule| rule.node_migrations)]);
    out.counters("rule_migrations", help, scopes)?;
    let help = "Turns of each rule's tasks that ended by their sleep, or against their will";
    let kinds = by(
        "kind",
        [("voluntary", |rule| rule.slept), ("involuntary", |rule| rule.expired + rule.preempted)],
    );
    out.counters("rule_switches", help, kinds)
}

fn gtp(out: &mut Out<'_>, planes: &[GtpTraffic]) -> fmt::Result {
    let each = |value: fn(&GtpTraffic) -> Option<f64>| {
        planes.iter().filter_map(move |one| {
            Some(([("plane", &*one.plane), ("direction", &*one.direction)], value(one)?))
        })
    };
    let help = "GTP packets that have come into a data plane that the policy asks about";
    out.counters("gtp_packets", help, each(|one| Some(one.packets as f64)))?;
    let help = "The bytes of these packets, as the data plane gets them";
    out.counters("gtp_bytes", help, each(|one| Some(one.bytes as f64)))?;
    let help = "How long these packets took in the data plane";
    out.counters("gtp_seconds", help, each(|one| one.time_ns.map(seconds)))
}

fn cgroups(out: &mut Out<'_>, cgroups: &[ThrottledCgroup]) -> fmt::Result {
    let each = |value: fn(&ThrottledCgroup) -> f64| {
        cgroups.iter().map(move |cgroup| ([("cgroup", &*cgroup.cgroup)], value(cgroup)))
    };
    let help = "The CPUs that a cgroup may use on average, of those ever held back by it (cpu.max)";
    out.gauges("cgroup_limit_cpus", help, each(|cgroup| cgroup.limit_cpus))?;
    let help = "Whether the cgroup's tasks wait for its next period";
    out.gauges("cgroup_throttled", help, each(|cgroup| f64::from(u8::from(cgroup.throttled))))?;
    let help = "Periods in which the cgroup ran";
    out.counters("cgroup_periods", help, each(|cgroup| cgroup.nr_periods as f64))?;
    let help = "How often the cgroup used up its quota";
    out.counters("cgroup_throttled_periods", help, each(|cgroup| cgroup.nr_throttled as f64))?;
    let help = "How long the cgroup had no quota left";
    let throttled = each(|cgroup| cgroup.throttled_usec as f64 / 1e6);
    out.counters("cgroup_throttled_seconds", help, throttled)
}

/// A value, and the labels that tell it from others of its metric.
type Labelled<'s, const N: usize, V = f64> = ([(&'s str, &'s str); N], V);

/// Writes one metric with its description at a time.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn flag(&mut self, name: &str, help: &str, value: bool) -> fmt::Result {
        self.gauge(name, help, f64::from(u8::from(value)))
    }

    /// The format's writer adds `_total` to the name.
    fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str); 1]) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    fn gauges<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = Labelled<'s, N>>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, name, help, values)
    }

    fn counters<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = Labelled<'s, N>>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, name, help, values)
    }

    /// A gauge or counter with a value for each set of labels; nothing without any.
    fn family<'s, const N: usize>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        values: impl Iterator<Item = Labelled<'s, N>>,
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

    /// Bucket b of the counters ends at `2^(b+1)` ns.
    fn wakeups(&mut self, counters: &Counters) -> fmt::Result {
        let bound = |bucket: usize| seconds(2 << bucket);
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

    fn rule_wakeups<'s>(
        &mut self,
        rules: impl Iterator<Item = Labelled<'s, 1, &'s RuleStats>>,
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

/// Bounds in seconds with the count of what lies below each and not below the one before: from 1 us
/// to 1 s, where bucket `b` of the counters ends at `2^(b+1)` ns.
fn buckets(counts: &[u64; 32]) -> Vec<(f64, u64)> {
    const FIRST: usize = 9;
    const LAST: usize = 29;
    let sum = |counts: &[u64]| counts.iter().sum();
    let mut buckets = vec![(seconds(2 << FIRST), sum(&counts[..=FIRST]))];
    buckets.extend((FIRST + 1..=LAST).map(|bucket| (seconds(2 << bucket), counts[bucket])));
    buckets.push((f64::INFINITY, sum(&counts[LAST + 1..])));
    buckets
}

/// Of nanoseconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::test_metrics::metrics;
    use super::*;

    #[test]
    fn names_units_labels_and_the_histogram() {
        let text = write(metrics()).unwrap();
        for line in [
            "# TYPE gthctl_policy_changes_total counter",
            "gthctl_policy_changes_total 2.0",
            "gthctl_policy_rejections_total 1.0",
            "gthctl_policy_rejected 1.0",
            "gthctl_policy_in_step 1.0",
            "gthctl_policy_generation 3.0",
            "gthctl_start_time_seconds 1700000000.5",
            "gthctl_build_info{version=\"1.2\"} 1",
            "gthctl_rule_tasks{rule=\"upf\"} 4.0",
            "gthctl_exclusive_cpus 2.0",
            "gthctl_dispatches_total{path=\"idle\"} 5.0",
            "gthctl_preemptions_total 8.0",
            "gthctl_cgroup_throttled_seconds_total{cgroup=\"/a\\\"b\\\\c\"} 1.5",
            "gthctl_irqs_away 1.0",
            "gthctl_priority_wakeup_latency_seconds_bucket{le=\"1.024e-06\"} 3",
            "gthctl_priority_wakeup_latency_seconds_bucket{le=\"2.048e-06\"} 7",
            "gthctl_priority_wakeup_latency_seconds_bucket{le=\"+Inf\"} 7",
            "gthctl_priority_wakeup_latency_seconds_count 7",
            "gthctl_rule_wakeup_latency_seconds_bucket{rule=\"upf\",le=\"1.024e-06\"} 3",
            "gthctl_rule_wakeup_latency_seconds_bucket{rule=\"upf\",le=\"4.096e-06\"} 7",
            "gthctl_rule_wakeup_latency_seconds_bucket{rule=\"upf\",le=\"1.073741824\"} 7",
            "gthctl_rule_wakeup_latency_seconds_bucket{rule=\"upf\",le=\"+Inf\"} 15",
            "gthctl_rule_wakeup_latency_seconds_count{rule=\"\"} 15",
            "gthctl_rule_wakeup_latency_seconds_sum{rule=\"upf\"} 0.5",
            "gthctl_rule_run_seconds_total{rule=\"upf\"} 1.5",
            "gthctl_rule_wait_seconds_total{rule=\"upf\"} 0.25",
            "gthctl_rule_preemptions_total{rule=\"upf\"} 2.0",
            "gthctl_rule_migrations_total{rule=\"upf\",scope=\"llc\"} 7.0",
            "gthctl_rule_migrations_total{rule=\"upf\",scope=\"numa\"} 5.0",
            "gthctl_rule_switches_total{rule=\"upf\",kind=\"voluntary\"} 10.0",
            "gthctl_rule_switches_total{rule=\"\",kind=\"involuntary\"} 5.0",
            "gthctl_gtp_packets_total{plane=\"gtp\",direction=\"uplink\"} 7.0",
            "gthctl_gtp_seconds_total{plane=\"gtp\",direction=\"uplink\"} 0.0005",
            "gthctl_gtp_bytes_total{plane=\"udp:2152\",direction=\"sent\"} 90.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    /// The dashboard and the alerting rules ask for metrics that exist.
    #[test]
    fn deployed_queries_name_exported_metrics() {
        let mut metrics = metrics();
        let stats = crate::sched::stats::Stats::default();
        metrics.counters.counts = stats.counters().map(|(name, n)| (name.to_owned(), n)).collect();
        let text = write(metrics).unwrap();
        let end = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let exported: Vec<&str> = text.lines().filter_map(|line| line.get(..end(line)?)).collect();
        for (file, queries) in [
            ("gthctl.rules.yaml", include_str!("../../deploy/prometheus/gthctl.rules.yaml")),
            ("gthctl.json", include_str!("../../deploy/grafana/gthctl.json")),
        ] {
            let asked: Vec<&str> = queries
                .match_indices("gthctl_")
                .map(|(at, _)| &queries[at..])
                .filter_map(|rest| rest.get(..end(rest)?))
                .collect();
            assert!(asked.len() > 5, "{file}: {asked:?}");
            for name in asked {
                assert!(exported.contains(&name), "{file}: nothing exports {name}");
            }
        }
    }

    /// A counter without a help text would not be exported.
    #[test]
    fn every_counter_of_the_scheduler_has_a_help_text() {
        let stats = crate::sched::stats::Stats::default();
        let names: Vec<_> = stats.counters().map(|(name, _)| name).collect();
        assert_eq!(names, COUNTERS.map(|(name, _)| name));
    }
}
