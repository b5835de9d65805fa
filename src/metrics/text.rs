//! The metrics in Prometheus' text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>): base units, `_total` at the
//! end of a counter, and no metric per PID, whose number would have no bound.

use std::fmt;

use clap::ValueEnum;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::registry::Registry;

use super::gthulhu_names;
use super::out::{Out, seconds};
use crate::base::error::{Error, Result};
use crate::daemon::reports::{
    Counters, GtpTraffic, Metrics, PodCounters, RuleCounters, ThrottledCgroup,
};
use crate::sched::activity::Activity;

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
    ("traffic_marks_refused", "Tasks not marked because max_tasks tasks already were"),
];

/// A program whose names for metrics are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// gthulhu_pod_..., as Gthulhu's monitor exports them
    Gthulhu,
}

/// The text; with `compat` also what another program exports. Fails only if the running gthctl,
/// perhaps of another version, sent nonsense.
pub fn write(metrics: Metrics, compat: Option<Compat>) -> Result<String> {
    let mut text = String::new();
    let mut encode = |prefix, collector| {
        let mut registry = Registry::with_prefix(prefix);
        registry.register_collector(collector);
        prometheus_text::encode(&mut text, &registry)
            .map_err(|e| Error::failure(format!("writing the metrics: {e}")))
    };
    if compat == Some(Compat::Gthulhu) {
        encode(gthulhu_names::PREFIX, Box::new(gthulhu_names::Exported::of(&metrics)))?;
    }
    encode("gthctl", Box::new(Exported(metrics)))?;
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
        pods(&mut out, &metrics.pods)?;
        gtp(&mut out, &metrics.gtp)?;
        cgroups(&mut out, &metrics.status.throttled_cgroups)?;
        if let Some(irqs) = &metrics.status.irqs {
            let help = "Interrupts, RPS masks and XPS masks that are as the policy wants them";
            out.gauge("irqs_in_place", help, irqs.in_place as f64)?;
            let help = "Interrupts, RPS masks and XPS masks that something else has changed";
            out.gauge("irqs_away", help, irqs.away as f64)?;
            let help = "Interrupts, RPS masks and XPS masks placed later than the policy: changed meanwhile, or new";
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
    out.counters("dispatches", "Tasks that got a CPU, by how they got it", paths)?;
    for (name, help) in COUNTERS {
        if let Some(count) = counters.counts.get(name) {
            out.counter(name, help, *count as f64)?;
        }
    }
    out.wakeups(counters)
}

/// What some tasks did, and the labels that say which ones.
type Labelled<'s> = (Vec<(&'s str, &'s str)>, &'s Activity);

/// The value of a label, and the count that it stands for.
type Kind = (&'static str, fn(&Activity) -> u64);

/// The label of tasks without a rule is empty, which no rule's name is.
fn rules(out: &mut Out<'_>, rules: &[RuleCounters]) -> fmt::Result {
    fn labels(rule: &RuleCounters) -> [(&'static str, &str); 1] {
        [("rule", rule.rule.as_deref().unwrap_or_default())]
    }
    out.rule_wakeups(rules.iter().map(|rule| (labels(rule), &rule.stats)))?;
    let all: Vec<Labelled<'_>> =
        rules.iter().map(|rule| (labels(rule).into(), &rule.stats.did)).collect();
    activities(out, "rule", &all)
}

fn pods(out: &mut Out<'_>, pods: &[PodCounters]) -> fmt::Result {
    fn labels(pod: &PodCounters) -> [(&'static str, &str); 3] {
        [("namespace", &pod.namespace), ("pod", &pod.pod), ("uid", &pod.uid)]
    }
    let tasks = pods.iter().map(|pod| (labels(pod), pod.tasks as f64));
    out.gauges("pod_tasks", "Threads of each pod", tasks)?;
    let all: Vec<Labelled<'_>> = pods.iter().map(|pod| (labels(pod).into(), &pod.did)).collect();
    activities(out, "pod", &all)
}

/// What the tasks of each `owner` did.
fn activities(out: &mut Out<'_>, owner: &str, all: &[Labelled<'_>]) -> fmt::Result {
    let name = |what: &str| format!("{owner}_{what}");
    let each = |value: fn(&Activity) -> f64| {
        all.iter().map(move |(labels, did)| (labels.clone(), value(did)))
    };
    let by = |label: &'static str, kinds: [Kind; 2]| {
        all.iter().flat_map(move |(labels, did)| {
            kinds.map(|(kind, value)| {
                let labels = labels.iter().copied().chain([(label, kind)]).collect::<Vec<_>>();
                (labels, value(did) as f64)
            })
        })
    };
    let help = format!("The time that the tasks of each {owner} ran");
    out.counters(&name("run_seconds"), &help, each(|did| seconds(did.run_ns)))?;
    if all.iter().any(|(_, did)| did.wait_ns > 0) {
        let help = format!("The time that the tasks of each {owner} waited for a CPU");
        out.counters(&name("wait_seconds"), &help, each(|did| seconds(did.wait_ns)))?;
    }
    let help =
        format!("Turns of each {owner}'s tasks that another task ended before their slice did");
    out.counters(&name("preemptions"), &help, each(|did| did.preempted as f64))?;
    let help =
        format!("Moves of each {owner}'s tasks to a CPU of another last-level cache or NUMA node");
    let scopes =
        by("scope", [("llc", |did| did.llc_migrations), ("numa", |did| did.node_migrations)]);
    out.counters(&name("migrations"), &help, scopes)?;
    let help =
        format!("Turns of each {owner}'s tasks that ended because the task slept, or otherwise");
    let kinds =
        by("kind", [("voluntary", |did| did.slept), ("involuntary", Activity::involuntary)]);
    out.counters(&name("switches"), &help, kinds)
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
    let help = "Periods in which the cgroup used up its quota";
    out.counters("cgroup_throttled_periods", help, each(|cgroup| cgroup.nr_throttled as f64))?;
    let help = "How long the cgroup had no quota left";
    let throttled = each(|cgroup| cgroup.throttled_usec as f64 / 1e6);
    out.counters("cgroup_throttled_seconds", help, throttled)
}

#[cfg(test)]
mod tests {
    use super::super::test_metrics::metrics;
    use super::*;

    #[test]
    fn names_units_labels_and_the_histogram() {
        let text = write(metrics(), None).unwrap();
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
            "gthctl_pod_tasks{namespace=\"core\",pod=\"upf-0\",uid=\"u1\"} 3.0",
            "gthctl_pod_run_seconds_total{namespace=\"core\",pod=\"upf-0\",uid=\"u1\"} 1.5",
            "gthctl_pod_wait_seconds_total{namespace=\"core\",pod=\"upf-0\",uid=\"u1\"} 0.25",
            "gthctl_pod_preemptions_total{namespace=\"core\",pod=\"upf-0\",uid=\"u1\"} 2.0",
            "gthctl_pod_migrations_total{namespace=\"core\",pod=\"upf-0\",uid=\"u1\",scope=\"numa\"} 5.0",
            "gthctl_pod_switches_total{namespace=\"core\",pod=\"upf-0\",uid=\"u1\",kind=\"involuntary\"} 5.0",
            "gthctl_gtp_packets_total{plane=\"gtp\",direction=\"uplink\"} 7.0",
            "gthctl_gtp_seconds_total{plane=\"gtp\",direction=\"uplink\"} 0.0005",
            "gthctl_gtp_bytes_total{plane=\"udp:2152\",direction=\"sent\"} 90.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let of_all = "gthctl_priority_wakeup_latency_seconds_bucket";
        let bounds = text.lines().filter(|line| line.starts_with(of_all));
        // The last one, from 2^31 ns on, has no end.
        assert_eq!((bounds.count(), text.contains("le=\"4.29")), (32, false), "{text}");
    }

    /// The dashboard and the alerting rules ask for metrics that exist.
    #[test]
    fn deployed_queries_name_exported_metrics() {
        let mut metrics = metrics();
        let stats = crate::sched::stats::Stats::default();
        metrics.counters.counts = stats.counters().map(|(name, n)| (name.to_owned(), n)).collect();
        let text = write(metrics, None).unwrap();
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

    /// `gthctl metrics --file` leaves the last file when gthctl has gone.
    #[test]
    fn a_file_that_is_not_replaced_is_an_alert() {
        let rules = include_str!("../../deploy/prometheus/gthctl.rules.yaml");
        let (_, gone) = rules.split_once("alert: GthctlGone").unwrap();
        let gone = gone.split("- alert:").next().unwrap();
        assert!(gone.contains("or time() - node_textfile_mtime_seconds{"), "{gone}");
    }

    /// A counter without a help text would not be exported.
    #[test]
    fn every_counter_of_the_scheduler_has_a_help_text() {
        let stats = crate::sched::stats::Stats::default();
        let names: Vec<_> = stats.counters().map(|(name, _)| name).collect();
        assert_eq!(names, COUNTERS.map(|(name, _)| name));
    }
}
