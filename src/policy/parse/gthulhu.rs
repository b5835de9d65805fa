//! Gthulhu's own format. It differs from ours in what a number means as priority.
//!
//! It is JSON, and its strategies have few keys. Its scheduler puts a task first if `priority`
//! is above 0, whatever the number; if that is 0 or missing, the task gets only its slice
//! (`applySchedulingStrategy` in plugin/gthulhu of github.com/Gthulhu/plugin). An
//! `execution_time` of 0 means none.

use serde::de::IgnoredAny;

use crate::base::yaml::{Node, Place, Source, Value};

/// Which meaning the numbers of a policy file have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Ours,
    Gthulhus,
}

/// The keys of a Gthulhu strategy.
const KEYS: [&str; 6] =
    ["priority", "execution_time", "pid", "selectors", "command_regex", "k8s_namespace"];

/// The list of strategies in an answer of Gthulhu's API.
pub(super) const SCHEDULING: &str = "scheduling";

/// The other keys of such an answer.
pub(super) const ANSWER: [&str; 3] = ["success", "message", "timestamp"];

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The format of a file with these rules, and a note if it is ambiguous: every key is one
/// of Gthulhu's and the meaning of a priority's number depends on the format.
pub(super) fn format(source: Source, is_json: bool, rules: &[Node]) -> (Format, Option<String>) {
    if !rules.iter().all(is_strategy) {
        return (Format::Ours, None);
    }
    let at = |(rule, place)| format!("{}: rule {rule}: priority: ", source.location(place));
    if is_json {
        let note = number(rules, |_| true).map(|found| {
            at(found)
                + "read as in Gthulhu's files, because this is JSON with only Gthulhu's keys: 0 means \
                   none, any other number the strongest"
        });
        return (Format::Gthulhus, note);
    }
    let note = number(rules, |number| number == 0).map(|found| {
        at(found)
            + "0 is the strongest here but means none in Gthulhu's JSON files; write true or \
               false instead"
    });
    (Format::Ours, note)
}

fn is_strategy(rule: &Node) -> bool {
    let Value::Map(entries) = &rule.value else { return false };
    entries
        .iter()
        .all(|(key, _)| matches!(&key.value, Value::Text(name) if KEYS.contains(&&**name)))
}

/// The first rule, from 1, with such a number as priority, and the number's place.
fn number(rules: &[Node], is_meant: impl Fn(i128) -> bool) -> Option<(usize, Place)> {
    let of = |(i, rule): (usize, &Node)| {
        let Value::Map(entries) = &rule.value else { return None };
        let is_priority =
            |key: &Node| matches!(&key.value, Value::Text(name) if name == "priority");
        let (key, value) = entries.iter().find(|(key, _)| is_priority(key))?;
        match value.value {
            Value::Integer(number) if is_meant(number) => {
                Some((i + 1, value.place_or(key.place_or(Place::START))))
            }
            _ => None,
        }
    };
    rules.iter().enumerate().find_map(of)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::policy::{Policy, Priority};

    fn read(text: &str) -> (Policy, Vec<String>) {
        Policy::parse(text, Path::new("p")).expect(text)
    }

    /// The level of each rule's priority.
    fn levels(policy: &Policy) -> Vec<Option<u8>> {
        policy.rules.iter().map(|rule| rule.effects.priority.map(Priority::level)).collect()
    }

    const STRATEGIES: &str = r#"[
  {"priority": 0, "execution_time": 20000000, "selectors": [], "command_regex": "a"},
  {"execution_time": 20000000, "pid": 7},
  {"priority": 1, "execution_time": 0, "pid": 8},
  {"priority": 100, "pid": 9},
  {"priority": -1, "pid": 9},
  {"priority": true, "pid": 10},
  {"priority": false, "pid": 11}
]"#;
    const MEANT: [Option<u8>; 7] = [None, None, Some(0), Some(0), None, Some(0), None];

    #[test]
    fn files_and_answers_of_gthulhus() {
        for (text, line) in [
            (format!(r#"{{"strategies": {STRATEGIES}}}"#), 2),
            (format!("{{\"strategies\": {{\"default\":\n{STRATEGIES}}}}}"), 3),
            (
                format!(
                    "{{\"success\": true, \"message\": \"ok\", \"timestamp\": \"now\",\n\"scheduling\": {STRATEGIES}}}"
                ),
                3,
            ),
        ] {
            let (policy, notes) = read(&text);
            assert_eq!(levels(&policy), MEANT, "{text}");
            let slices = policy.rules.iter().map(|rule| rule.effects.execution_time_ns);
            let slice = Some(20_000_000);
            assert_eq!(slices.collect::<Vec<_>>(), [slice, slice, None, None, None, None, None]);
            let note = "rule 1: priority: read as in Gthulhu's files, because this is JSON with only \
                        Gthulhu's keys: 0 means none, any other number the strongest";
            assert_eq!(notes, [format!("p:{line}:16: {note}")]);
        }
        let plain = r#"{"strategies": [{"priority": true, "pid": 1}, {"pid": 2, "execution_time": 20000}]}"#;
        assert_eq!(read(plain).1, [""; 0]);
    }

    #[test]
    fn our_own_files_are_read_as_ever() {
        // YAML with Gthulhu's keys only: ambiguous.
        let (policy, notes) =
            read("strategies:\n- {pid: 1, priority: 5}\n- {pid: 1, priority: 0}\n");
        assert_eq!(levels(&policy), [Some(5), Some(0)]);
        let note = "p:3:22: rule 2: priority: 0 is the strongest here but means none in Gthulhu's JSON \
                    files; write true or false instead";
        assert_eq!(notes, [note]);
        for ours in [
            // Keys that only we have: in the rule, in another, beside them.
            "strategies: [{pid: 1, priority: 0, name: a}]",
            "strategies: [{pid: 1, priority: 0}, {user: root, priority: 5}]",
            r#"{"strategies": [{"pid": 1, "priority": 0, "weight": 10}]}"#,
            r#"{"strategies": [{"pid": 1, "priority": 0}, {"user": "root", "priority": 5}]}"#,
            r#"{"strategies": [{"pid": 1, "priority": 0}], "irq": []}"#,
        ] {
            let (policy, notes) = read(ours);
            assert_eq!(levels(&policy)[0], Some(0), "{ours}");
            assert_eq!(notes, [""; 0], "{ours}");
        }
        assert_eq!(read("strategies: [{pid: 1, priority: 5}]").1, [""; 0]);
    }

    #[test]
    fn answers_are_json_and_have_one_list() {
        let error = |text| Policy::parse(text, Path::new("p")).unwrap_err().to_string();
        assert!(error("scheduling: []").contains("scheduling: unknown key"));
        let both = r#"{"strategies": [], "scheduling": []}"#;
        assert_eq!(error(both), "p:1:20: scheduling: given beside strategies; only one is allowed");
    }
}
