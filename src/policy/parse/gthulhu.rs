//! Gthulhu's own format. It differs from ours in what a number means as priority.
//!
//! It is JSON, and its strategies have few keys. Its scheduler puts a task first if `priority`
//! is above 0, whatever the number; if that is 0 or missing, the task gets only its slice
//! (`applySchedulingStrategy` in plugin/gthulhu of github.com/Gthulhu/plugin). An
//! `execution_time` of 0 means none.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{EXPECTED, rules};
use crate::base::error::Result;
use crate::base::yaml::{Node, Place, Source, Value, quote};
use crate::policy::Rule;

/// The format that decides what the numbers in a policy file mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Ours,
    Gthulhus,
}

/// The keys of a Gthulhu strategy.
pub(super) const KEYS: [&str; 6] =
    ["priority", "execution_time", "pid", "selectors", "command_regex", "k8s_namespace"];

/// The list of strategies in an answer of Gthulhu's API.
pub(super) const SCHEDULING: &str = "scheduling";

/// The other keys of such an answer.
pub(super) const ANSWER: [&str; 3] = ["success", "message", "timestamp"];

pub(super) fn is_json(text: &str) -> bool {
    // YAML allows a byte order mark, serde_json does not.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The strategies in `text`, an answer of Gthulhu's API from `url`. They are read as in one of
/// Gthulhu's files, and are called `api rule N`.
///
/// A strategy with a `pid` is one whose selectors the server has looked up: it lists each
/// process that they select (`resolveSchedulingIntents` in api/decisionmaker/service of
/// github.com/Gthulhu/Gthulhu). They are not looked up again.
pub(super) fn answer(text: &str, url: &Path) -> Result<Vec<Rule>> {
    let source = Source::new(url);
    check_success(source, text)?;
    let root = source.document(text)?;
    let fields = root.fields(source, "", &[SCHEDULING], &ANSWER, &[])?;
    let Some(list) = fields.iter().find(|field| field.name == SCHEDULING) else {
        return Err(
            source.error(Place::START, format!("{SCHEDULING}: missing; expected {EXPECTED}"))
        );
    };
    let mut rules = rules(source, text, list, list.list(EXPECTED)?, Format::Gthulhus)?;
    for rule in &mut rules {
        rule.name.insert_str(0, "api ");
        if rule.conditions.pid.is_some() {
            rule.conditions.selectors.clear();
            rule.conditions.k8s_namespace.clear();
        }
    }
    Ok(rules)
}

/// What an answer says about itself.
#[derive(Deserialize)]
struct Outcome {
    success: bool,
    error: Option<String>,
    message: Option<String>,
}

/// Fails if `text` is not JSON or says that the server failed.
fn check_success(source: Source, text: &str) -> Result<()> {
    let outcome: Outcome = serde_json::from_str(text).map_err(|e| {
        let place = Place { line: e.line().max(1), column: e.column().max(1) };
        let what = e.to_string();
        let what = what.split(" at line ").next().unwrap_or(&what);
        source.error(place, format!("not an answer in JSON: {what}"))
    })?;
    if outcome.success {
        return Ok(());
    }
    let why = outcome.error.or(outcome.message);
    let why = why.map_or(String::new(), |why| format!(": {}", quote(&why)));
    Err(source.error(Place::START, format!("the server could not answer (success: false){why}")))
}

/// The format of a file with these rules, and a note if it is ambiguous: all keys of the rules are
/// Gthulhu's, and the meaning of a priority's number depends on the format. Gthulhu's files have no
/// `irq`.
pub(super) fn format(
    source: Source,
    is_json: bool,
    has_irq: bool,
    rules: &[Node],
) -> (Format, Option<String>) {
    if !rules.iter().all(is_strategy) || has_irq && !is_json {
        return (Format::Ours, None);
    }
    let at = |(rule, place)| format!("{}: rule {rule}: priority: ", source.location(place));
    if has_irq {
        let note = number(rules, |_| true).map(|found| {
            at(found)
                + "read as gthctl's own, because Gthulhu's files have no irq: 0 is the strongest; \
                   write true or false instead"
        });
        return (Format::Ours, note);
    }
    if is_json {
        let note = number(rules, |_| true).map(|found| {
            at(found)
                + "read as in Gthulhu's files, because this is JSON with only Gthulhu's keys: 0 or a \
                   negative number means none, any other the strongest"
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

/// The first rule, from 1, whose priority is such a number, and the number's place.
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

    use crate::policy::{Policy, Priority, Rule};

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
                        Gthulhu's keys: 0 or a negative number means none, any other the strongest";
            assert_eq!(notes, [format!("p:{line}:16: {note}")]);
        }
        let plain = r#"{"strategies": [{"priority": true, "pid": 1}, {"pid": 2, "execution_time": 20000}]}"#;
        assert_eq!(read(plain).1, [""; 0]);
    }

    #[test]
    fn a_byte_order_mark_changes_nothing() {
        let (policy, notes) = read(&format!("\u{feff}{{\"strategies\": {STRATEGIES}}}"));
        assert_eq!(levels(&policy), MEANT);
        assert!(notes[0].contains("read as in Gthulhu's files"), "{notes:?}");
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
            // Keys that only gthctl has: in the rule, in another rule, beside the rules.
            "strategies: [{pid: 1, priority: 0, name: a}]",
            "strategies: [{pid: 1, priority: 0}, {user: root, priority: 5}]",
            r#"{"strategies": [{"pid": 1, "priority": 0, "weight": 10}]}"#,
            r#"{"strategies": [{"pid": 1, "priority": 0}, {"user": "root", "priority": 5}]}"#,
            "{strategies: [{pid: 1, priority: 0}], irq: []}",
            r#"{"strategies": [{"pid": 1, "priority": 0, "name": "a"}], "irq": []}"#,
        ] {
            let (policy, notes) = read(ours);
            assert_eq!(levels(&policy)[0], Some(0), "{ours}");
            assert_eq!(notes, [""; 0], "{ours}");
        }
        assert_eq!(read("strategies: [{pid: 1, priority: 5}]").1, [""; 0]);
        // The same strategies with `irq` beside them.
        let (policy, notes) = read(r#"{"strategies": [{"pid": 1, "priority": 0}], "irq": []}"#);
        assert_eq!(levels(&policy), [Some(0)]);
        let note = "p:1:40: rule 1: priority: read as gthctl's own, because Gthulhu's files have no irq: 0 is \
                    the strongest; write true or false instead";
        assert_eq!(notes, [note]);
    }

    /// The URL of the API; `answer` removes it from the beginning of each error.
    const URL: &str = "http://127.0.0.1:8080/api/v1/scheduling/strategies";

    fn answer(text: &str) -> Result<Vec<Rule>, String> {
        Policy::parse_answer(text, URL).map_err(|e| {
            let e = e.to_string();
            e.strip_prefix(&format!("{URL}:")).unwrap_or_else(|| panic!("{e}")).to_owned()
        })
    }

    fn strategies(list: &str) -> Result<Vec<Rule>, String> {
        answer(&format!(
            "{{\"success\":true,\"message\":\"ok\",\"timestamp\":\"now\",\n\"scheduling\":{list}}}"
        ))
    }

    #[test]
    fn an_answer_means_what_the_same_file_means() {
        let rules = strategies(STRATEGIES).unwrap();
        assert_eq!(levels(&Policy { rules: rules.clone(), irq: Vec::new() }), MEANT);
        let file = read(&format!(r#"{{"strategies": {STRATEGIES}}}"#)).0.rules;
        for (i, (rule, file)) in rules.iter().zip(&file).enumerate() {
            assert_eq!((&rule.conditions, &rule.effects), (&file.conditions, &file.effects));
            assert_eq!(rule.name, format!("api rule {}", i + 1));
        }
        assert_eq!(rules.len(), file.len());
        assert_eq!(rules[1].location.to_string(), format!("{URL}:4:4"));
        assert_eq!(strategies("[]").unwrap(), []);
    }

    #[test]
    fn selectors_that_the_server_has_looked_up_are_not_asked_for_again() {
        let of = |pid: &str| {
            let labels = r#""selectors":[{"key":"app","value":"upf"}],"k8s_namespace":"core""#;
            strategies(&format!(r#"[{{{pid}{labels},"command_regex":"upf","priority":1}}]"#))
                .unwrap()
        };
        let (found, asked) = (of(r#""pid":7,"#), of(""));
        assert_eq!((found[0].conditions.pid, found[0].conditions.of_pods()), (Some(7), false));
        assert_eq!(found[0].conditions.command_regex.as_deref(), Some("upf"));
        assert!(asked[0].conditions.selectors.len() == 1 && asked[0].conditions.of_pods());
    }

    #[test]
    fn a_bad_answer_names_the_url() {
        let many = format!("[{}]", vec![r#"{"pid":1,"priority":1}"#; 129].join(","));
        let success = |rest: &str| answer(&format!(r#"{{"success":true{rest}}}"#));
        for (found, message) in [
            (answer("<html>"), "1:1: not an answer in JSON: expected value"),
            (answer("{\n\"success\": tru}"), "2:15: not an answer in JSON: expected ident"),
            (answer("{}"), "1:2: not an answer in JSON: missing field `success`"),
            (success(""), "1:1: scheduling: missing; expected a list of rules ([] for none)"),
            (
                answer(r#"{"success":false,"error":"no\u001b such node"}"#),
                r#"1:1: the server could not answer (success: false): "no\u{1b} such node""#,
            ),
            (
                success(r#","scheduling":null"#),
                "1:30: scheduling: expected a list of rules ([] for none), found nothing",
            ),
            (
                success(r#","strategies":[]"#),
                "1:17: strategies: unknown key; allowed here: scheduling",
            ),
            (
                // One of gthctl's own keys would change what the numbers mean.
                strategies(r#"[{"pid":1,"priority":0,"cpus":1}]"#),
                "2:37: rule 1: cpus: unknown key; allowed here: priority, execution_time, pid, \
                 selectors, command_regex, k8s_namespace",
            ),
            (
                strategies(r#"[{"command_regex":"(","priority":1}]"#),
                "2:33: rule 1: command_regex: bad pattern at character 1: unclosed group",
            ),
            (
                strategies(r#"[{"pid":1}]"#),
                "2:16: rule 1: no effect; give one of priority, execution_time",
            ),
            (strategies(&many), "2:2960: scheduling: more than 128 rules"),
        ] {
            assert_eq!(found.unwrap_err(), message);
        }
    }

    #[test]
    fn answers_are_json_and_have_one_list() {
        let error = |text| Policy::parse(text, Path::new("p")).unwrap_err().to_string();
        assert!(error("scheduling: []").contains("scheduling: unknown key"));
        let both = r#"{"strategies": [], "scheduling": []}"#;
        assert_eq!(error(both), "p:1:20: scheduling: given beside strategies; only one is allowed");
    }
}
