//! The counters in the form in which sched_ext's tools, such as scxtop, ask schedulers for them: JSON
//! lines, `stats` and `stats_meta` (rust/scx_stats of <https://github.com/sched-ext/scx>).

use std::collections::BTreeMap;

use nix::errno::Errno;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::text;
use crate::base::error::Result;
use crate::daemon::reports::{GtpTraffic, Metrics, RuleCounters};
use crate::sched::rule_stats::RuleStats;
use crate::sched::stats::{Stats, quantile};

/// A request. Arguments of a client's own are ignored.
#[derive(Deserialize)]
struct Request {
    req: String,
    #[serde(default)]
    args: BTreeMap<String, Value>,
}

/// A number of a rule: its name, its description, and its value.
type RuleField = (&'static str, &'static str, fn(&RuleStats) -> u64);

const RULE_FIELDS: [RuleField; 11] = [
    ("run_ns", "The time that they ran, ns", |rule| rule.did.run_ns),
    ("wait_ns", "The time that they waited for CPUs, ns; 0 if the kernel counts none", |rule| {
        rule.did.wait_ns
    }),
    ("voluntary_switches", "Turns that ended by a sleep", |rule| rule.did.slept),
    ("involuntary_switches", "Turns that ended otherwise", |rule| rule.did.involuntary()),
    ("preemptions", "Turns that another task ended", |rule| rule.did.preempted),
    ("llc_migrations", "Moves to another last-level cache", |rule| rule.did.llc_migrations),
    ("numa_migrations", "Moves to another NUMA node", |rule| rule.did.node_migrations),
    ("wakeups", "Wake-ups", |rule| rule.wakeups.iter().sum()),
    ("wakeup_sum_ns", "The time from the wake-ups until the tasks ran, ns", |rule| {
        rule.wakeup_sum_ns
    }),
    ("wakeup_p50_ns", "Half of the wake-ups took less, ns", |rule| bound(rule, 0.5)),
    ("wakeup_p99_ns", "99 % of the wake-ups took less, ns", |rule| bound(rule, 0.99)),
];

/// A quantile of the rule's wake-up latencies; 0 if there were no wake-ups.
fn bound(rule: &RuleStats, part: f64) -> u64 {
    quantile(&rule.wakeups, part).unwrap_or_default()
}

/// The answer to a line; `metrics` asks the running gthctl.
pub fn answer(line: &str, metrics: impl FnOnce() -> Result<Metrics>) -> String {
    let (errno, resp) = match respond(line, metrics) {
        Ok(resp) => (0, resp),
        Err((errno, why)) => (errno as i32, Value::String(why)),
    };
    json!({"errno": errno, "args": {"resp": resp}}).to_string()
}

fn respond(
    line: &str,
    metrics: impl FnOnce() -> Result<Metrics>,
) -> std::result::Result<Value, (Errno, String)> {
    let request: Request =
        serde_json::from_str(line).map_err(|e| (Errno::EINVAL, e.to_string()))?;
    let target = request.args.get("target").and_then(Value::as_str).unwrap_or("top");
    match (request.req.as_str(), target) {
        ("stats", "top") => {
            metrics().map(|all| stats(&all)).map_err(|e| (Errno::EIO, e.to_string()))
        }
        ("stats", other) => Err((Errno::EINVAL, format!("unknown target {other:?}; there is top"))),
        ("stats_meta", _) => Ok(meta()),
        (other, _) => Err((Errno::EINVAL, format!("unknown request {other:?}"))),
    }
}

fn stats(metrics: &Metrics) -> Value {
    let mut top = Map::new();
    top.insert("generation".into(), metrics.status.generation.into());
    top.insert("tasks".into(), metrics.status.tasks.into());
    top.insert("tasks_under_rules".into(), metrics.status.tasks_matched.into());
    let counters = &metrics.counters;
    top.extend(counters.paths.iter().map(|(path, count)| (by(path), (*count).into())));
    top.extend(counters.counts.iter().map(|(name, count)| (name.clone(), (*count).into())));
    let rule = |rule: &RuleCounters| {
        let fields =
            RULE_FIELDS.map(|(name, _, value)| (name.to_owned(), value(&rule.stats).into()));
        (rule.rule.clone().unwrap_or_default(), Value::Object(Map::from_iter(fields)))
    };
    top.insert(
        "rules".into(),
        metrics.rule_counters.iter().map(rule).collect::<Map<_, _>>().into(),
    );
    let way = |way: &GtpTraffic| {
        let time_ns = way.time_ns.unwrap_or_default();
        let counts = json!({"packets": way.packets, "bytes": way.bytes, "time_ns": time_ns});
        (format!("{} {}", way.plane, way.direction), counts)
    };
    top.insert("gtp".into(), metrics.gtp.iter().map(way).collect::<Map<_, _>>().into());
    Value::Object(top)
}

/// The name of the counter of one way to a CPU.
fn by(path: &str) -> String {
    format!("by_{path}")
}

/// What the numbers are. Attributes that begin with `_om_` are for a translation to OpenMetrics.
fn meta() -> Value {
    let number = |desc: &str| json!({"datum": "u64", "desc": desc});
    let mut top = BTreeMap::from([
        ("generation".to_owned(), number("The generation of the policy in force")),
        ("tasks".to_owned(), number("Threads that the scheduler knows")),
        ("tasks_under_rules".to_owned(), number("Threads under some rule")),
    ]);
    let path = |(path, _): (&str, u64)| {
        (by(path), number(&format!("Tasks that got a CPU this way: {}", path.replace('_', " "))))
    };
    top.extend(Stats::default().paths().map(path));
    top.extend(text::COUNTERS.map(|(name, help)| (name.to_owned(), number(help))));
    let rules = json!({
        "dict": {"key": "string", "datum": {"struct": "Rule"}},
        "desc": "The tasks of each rule; an empty name stands for those without one",
    });
    top.insert("rules".to_owned(), rules);
    let gtp = json!({
        "dict": {"key": "string", "datum": {"struct": "Gtp"}},
        "desc": "What has come into each data plane in each direction",
    });
    top.insert("gtp".to_owned(), gtp);
    let rule: BTreeMap<_, _> =
        RULE_FIELDS.iter().map(|(name, desc, _)| (*name, number(desc))).collect();
    json!({
        "Gthctl": {
            "name": "Gthctl", "top": "true", "desc": "gthctl's scheduler", "fields": top,
            "user": {"_om_prefix": "gthctl_"},
        },
        "Rule": {
            "name": "Rule", "desc": "The tasks of a rule", "fields": rule,
            "user": {"_om_prefix": "gthctl_rule_", "_om_label": "rule"},
        },
        "Gtp": {
            "name": "Gtp", "desc": "GTP packets of a data plane and a direction",
            "fields": {
                "packets": number("Packets"), "bytes": number("Their bytes"),
                "time_ns": number("How long they took, ns; 0 unless gthctl run has --gtp-time"),
            },
            "user": {"_om_prefix": "gthctl_gtp_", "_om_label": "way"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_metrics::metrics;
    use super::*;
    use crate::base::error::Error;

    fn ask(line: &str) -> (i64, Value) {
        let mut answer: Value = serde_json::from_str(&answer(line, || Ok(metrics()))).unwrap();
        (answer["errno"].as_i64().unwrap(), answer["args"]["resp"].take())
    }

    #[test]
    fn stats_are_those_of_the_metrics() {
        for line in [r#"{"req":"stats"}"#, r#"{"req":"stats","args":{"target":"top"}}"#] {
            let (errno, stats) = ask(line);
            assert_eq!(errno, 0, "{stats}");
            assert_eq!(stats["generation"], 3);
            assert_eq!(stats["by_idle"], 5);
            assert_eq!(stats["preemptions"], 8);
            assert_eq!(stats["rules"]["upf"]["run_ns"], 1_500_000_000);
            assert_eq!(stats["rules"]["upf"]["wakeups"], 15);
            assert_eq!(stats["gtp"]["udp:2152 sent"]["bytes"], 90);
            assert_eq!(stats["gtp"]["gtp uplink"]["time_ns"], 500_000);
            assert_eq!(stats["rules"][""]["involuntary_switches"], 5);
        }
    }

    /// Every number is described, and what is described is there.
    #[test]
    fn the_meta_data_describe_the_stats() {
        let none = Stats::default();
        let mut metrics = metrics();
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        metrics.counters.paths = none.paths().map(named).collect();
        metrics.counters.counts = none.counters().map(named).collect();
        let (stats, meta) = (stats(&metrics), meta());
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&meta["Gthctl"]["fields"]), names(&stats));
        assert_eq!(names(&meta["Rule"]["fields"]), names(&stats["rules"]["upf"]));
        assert_eq!(names(&meta["Gtp"]["fields"]), names(&stats["gtp"]["gtp uplink"]));
        assert_eq!(meta["Gthctl"]["top"], "true");
        assert_eq!(meta["Gthctl"]["fields"]["rules"]["dict"]["datum"]["struct"], "Rule");
    }

    #[test]
    fn mistakes_and_failures_have_an_errno() {
        for line in ["{", "{}", r#"{"req":"x"}"#, r#"{"req":"stats","args":{"target":"x"}}"#] {
            let (errno, why) = ask(line);
            assert_eq!(errno, i64::from(Errno::EINVAL as i32), "{line}: {why}");
        }
        let failed = answer(r#"{"req":"stats"}"#, || Err(Error::failure("it hangs")));
        assert_eq!(failed, r#"{"args":{"resp":"it hangs"},"errno":5}"#);
    }
}
