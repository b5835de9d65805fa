//! The metrics of pods by the names that Gthulhu gives them (monitor/collector/prometheus.go there),
//! so that its dashboards and its manager keep working.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::out::Out;
use crate::daemon::reports::{Metrics, PodCounters};
use crate::sched::activity::Activity;

/// The prefix of every name.
pub const PREFIX: &str = "gthulhu_pod";

/// A name without its suffix `_total`, its help text, and what it counts.
type Counter = (&'static str, &'static str, fn(&Activity) -> u64);

/// As in Gthulhu, each migration counts as one of the three kinds. The counters are read while the
/// kernel writes them, so the counter of a part may be ahead of the counter of the whole.
const COUNTERS: [Counter; 9] = [
    ("voluntary_ctx_switches", "Turns on a CPU that ended by a sleep", |did| did.slept),
    ("involuntary_ctx_switches", "Turns on a CPU that ended otherwise", Activity::involuntary),
    ("cpu_time_nanoseconds", "The time that the pod's tasks ran", |did| did.run_ns),
    ("wait_time_nanoseconds", "The time that they waited for a CPU", |did| did.wait_ns),
    ("run_count", "Turns on a CPU that have ended", |did| did.slept + did.involuntary()),
    ("cpu_migrations", "Moves to another CPU", |did| did.migrations),
    ("smt_migrations", "Moves within a core", |did| {
        did.migrations.saturating_sub(did.core_migrations)
    }),
    ("l3_migrations", "Moves to another core of a NUMA node", |did| {
        did.core_migrations.saturating_sub(did.node_migrations)
    }),
    ("numa_migrations", "Moves to another NUMA node", |did| did.node_migrations),
];

#[derive(Debug)]
pub struct Exported {
    pods: Vec<PodCounters>,
    node: String,
}

impl Exported {
    pub fn of(metrics: &Metrics) -> Self {
        let node = metrics.node.clone().unwrap_or_default();
        Self { pods: metrics.pods.clone(), node }
    }

    fn labels<'s>(&'s self, pod: &'s PodCounters) -> [(&'static str, &'s str); 4] {
        let (namespace, node) = (("namespace", &*pod.namespace), ("node_name", &*self.node));
        [("pod_name", &pod.pod), ("pod_uid", &pod.uid), namespace, node]
    }
}

impl Collector for Exported {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        for (name, help, value) in COUNTERS {
            let pods = self.pods.iter().map(|pod| (self.labels(pod), value(&pod.did) as f64));
            out.counters(name, help, pods)?;
        }
        let tasks = self.pods.iter().map(|pod| (self.labels(pod), pod.tasks as f64));
        out.gauges("process_count", "The pod's threads, each of which counts as a process", tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_metrics::metrics;
    use super::super::text::{self, Compat};

    #[test]
    fn the_names_and_labels_are_gthulhus() {
        let text = text::write(metrics(), Some(Compat::Gthulhu)).unwrap();
        let labels = "pod_name=\"upf-0\",pod_uid=\"u1\",namespace=\"core\",node_name=\"edge-1\"";
        for (name, value) in [
            ("voluntary_ctx_switches_total", "10.0"),
            ("involuntary_ctx_switches_total", "5.0"),
            ("cpu_time_nanoseconds_total", "1500000000.0"),
            ("wait_time_nanoseconds_total", "250000000.0"),
            ("run_count_total", "15.0"),
            ("cpu_migrations_total", "12.0"),
            ("smt_migrations_total", "3.0"),
            ("l3_migrations_total", "4.0"),
            ("numa_migrations_total", "5.0"),
            ("process_count", "3.0"),
        ] {
            let line = format!("gthulhu_pod_{name}{{{labels}}} {value}");
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("# TYPE gthctl_policy_changes_total counter"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
        assert!(!text::write(metrics(), None).unwrap().contains("gthulhu"));
    }

    #[test]
    fn a_part_that_is_ahead_of_the_whole_leaves_nothing() {
        let mut metrics = metrics();
        let did = &mut metrics.pods[0].did;
        (did.migrations, did.core_migrations, did.node_migrations) = (1, 2, 3);
        let text = text::write(metrics, Some(Compat::Gthulhu)).unwrap();
        for (name, value) in [("smt", "0.0"), ("l3", "0.0"), ("numa", "3.0")] {
            let start = format!("gthulhu_pod_{name}_migrations_total{{");
            let line = text.lines().find(|line| line.starts_with(&start)).unwrap();
            assert!(line.ends_with(&format!("}} {value}")), "{line}");
        }
    }
}
