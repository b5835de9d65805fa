//! The policy file: its keys, and the checks on each rule.

use std::path::Path;

use regex_automata::util::syntax;

use super::{MAX_RULES, Policy, Priority, Rule, regex_syntax_config};
use crate::config::SLICE_RANGE;
use crate::cpulist::CpuList;
use crate::error::Result;
use crate::yaml::{Field, Node, Place, Source, Value, quote};

/// The keys of a rule.
pub const KEYS: [&str; 7] =
    ["name", "command_regex", "pid", "priority", "execution_time", "cpus", "exclusive"];

/// Keys of a rule that are not supported yet: Gthulhu's, then ours to come.
const LATER: [&str; 11] = [
    "selectors",
    "k8s_namespace",
    "weight",
    "threads",
    "cgroup",
    "systemd_unit",
    "user",
    "exe",
    "netns",
    "container",
    "include_children",
];

/// Keys beside `strategies` in the file of a Gthulhu API server.
const API_SERVER: [&str; 7] = ["server", "logging", "jwt", "mongodb", "key", "account", "k8s"];

/// The kernel's largest process id (`PID_MAX_LIMIT` on 64 bits).
const MAX_PID: u64 = 4_194_304;

/// The longest name of a rule, in characters: it stands in tables and messages.
const MAX_NAME: usize = 64;

/// The longest pattern, in characters.
const MAX_PATTERN: usize = 1024;

pub(super) fn load(path: &Path) -> Result<(Policy, Vec<String>)> {
    parse(&Source::new(path).read("policy file")?, path)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<(Policy, Vec<String>)> {
    let source = Source::new(path);
    let root = source.document(text)?;
    let fields = root.fields(source, "", &["strategies"], &API_SERVER, &[])?;
    let (strategies, others): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|field| field.name == "strategies");
    let Some(strategies) = strategies.first() else {
        return Err(source.error(Place::START, "strategies: missing; expected a list of rules"));
    };
    let policy = Policy { rules: rules(source, text, strategies)? };
    let notes = others.first().map(|first| {
        let names: Vec<&str> = others.iter().map(|field| field.name).collect();
        let at = source.location(first.place);
        format!("{at}: {}: accepted, not acted on: they are for an API server", names.join(", "))
    });
    Ok((policy, notes.into_iter().collect()))
}

/// The rules under `strategies`: a list, or a map with the list as `default`.
fn rules(source: Source, text: &str, strategies: &Field) -> Result<Vec<Rule>> {
    let expected = "a list of rules ([] for none)";
    let inner;
    let list = if matches!(strategies.value.value, Value::Map(_)) {
        inner = strategies.value.fields(source, "strategies.", &["default"], &[], &[])?;
        inner.first().ok_or_else(|| strategies.expected(expected))?
    } else {
        strategies
    };
    let items = list.list(expected)?;
    if let Some(extra) = items.get(MAX_RULES) {
        let what = format!("{}: more than {MAX_RULES} rules", list.path);
        return Err(source.error(extra.place_or(list.place), what));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let rule = rule(source, text, i + 1, item, item.place_or(list.place))?;
        if let Some(earlier) = rules.iter().find(|earlier| earlier.name == rule.name) {
            let what = format!(
                "rule {}: name: {:?} is also the name of the rule in line {}; names must differ",
                i + 1,
                rule.name,
                earlier.location.line
            );
            return Err(source.error(item.place_or(list.place), what));
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// One rule; `number` counts from 1.
fn rule(source: Source, text: &str, number: usize, item: &Node, place: Place) -> Result<Rule> {
    let label = match item.get("name") {
        Some(Value::Text(name)) => format!("rule {number} ({})", quote(name)),
        _ => format!("rule {number}"),
    };
    if matches!(item.value, Value::Null) {
        return Err(source.error(place, format!("{label}: expected keys, found nothing")));
    }
    let fields = item.fields(source, &format!("{label}: "), &KEYS, &LATER, &[])?;
    let mut rule = Rule {
        name: format!("rule {number}"),
        command_regex: None,
        pid: None,
        priority: None,
        execution_time_ns: None,
        cpus: None,
        exclusive: false,
        location: source.location(place),
    };
    let mut exclusive = None;
    for field in &fields {
        match field.name {
            "name" => {
                rule.name = field.text("a name")?.into();
                if rule.name.chars().count() > MAX_NAME {
                    return Err(field.error(format!("longer than {MAX_NAME} characters")));
                }
            }
            "command_regex" => {
                let pattern = field.text("a regular expression")?;
                check_regex(source, text, field, pattern)?;
                rule.command_regex = Some(pattern.into());
            }
            "pid" => rule.pid = Some(field.integer("a process or thread id", 1..=MAX_PID)? as u32),
            "priority" => rule.priority = priority(field)?,
            "execution_time" => rule.execution_time_ns = Some(field.nanoseconds(SLICE_RANGE)?),
            "cpus" => rule.cpus = Some(cpus(field)?),
            "exclusive" => {
                rule.exclusive = field.bool()?;
                exclusive = Some(field);
            }
            _later if field.value.is_empty() => {}
            later => {
                let what =
                    format!("{label}: {later} is not supported yet; expected {}", KEYS.join(", "));
                return Err(source.error(field.place, what));
            }
        }
    }
    let given = |names: &[&str]| fields.iter().any(|field| names.contains(&field.name));
    if !given(&["command_regex", "pid"]) {
        let what = format!("{label}: no condition; give command_regex or pid");
        return Err(source.error(place, what));
    }
    if !given(&["priority", "execution_time", "cpus"]) {
        let what = format!("{label}: no effect; give priority, execution_time or cpus");
        return Err(source.error(place, what));
    }
    match exclusive {
        Some(field) if rule.exclusive && rule.cpus.is_none() => {
            Err(field.error("needs cpus, which are not given"))
        }
        _ => Ok(rule),
    }
}

/// `true`, `false`, or a level.
fn priority(field: &Field) -> Result<Option<Priority>> {
    let level = match field.value.value {
        Value::Bool(true) => Some(Some(Priority::STRONGEST)),
        Value::Bool(false) => Some(None),
        Value::Integer(i) => u64::try_from(i).ok().and_then(Priority::new).map(Some),
        _ => None,
    };
    level.ok_or_else(|| {
        let max = Priority::MAX;
        field.expected(format!("true, false, or a whole number from 0 (strongest) to {max}"))
    })
}

/// A CPU list as text, one number, or a list of both.
fn cpus(field: &Field) -> Result<CpuList> {
    let items = match &field.value.value {
        Value::List(items) if !items.is_empty() => items.as_slice(),
        _ => std::slice::from_ref(field.value),
    };
    let mut cpus = Vec::new();
    for item in items {
        let item = field.item(item);
        let part = match &item.value.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            _ => return Err(item.expected("CPU numbers, such as 1, \"0-3,8\" or [0, 2]")),
        };
        cpus.extend(part.parse::<CpuList>().map_err(|why| item.error(why))?.iter());
    }
    Ok(cpus.into_iter().collect())
}

/// The pattern must be one that the kernel side can carry out: no look-around,
/// no back-references, bytes rather than Unicode.
fn check_regex(source: Source, text: &str, field: &Field, pattern: &str) -> Result<()> {
    if pattern.chars().count() > MAX_PATTERN {
        return Err(field.error(format!("longer than {MAX_PATTERN} characters")));
    }
    let (offset, why) = match syntax::parse_with(pattern, &regex_syntax_config()) {
        Ok(hir) if hir.properties().look_set().contains_word_unicode() => {
            (0, "Unicode word boundaries are not supported".to_string())
        }
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(e)) => (e.span().start.offset, e.kind().to_string()),
        Err(regex_syntax::Error::Translate(e)) => (e.span().start.offset, e.kind().to_string()),
        Err(e) => (0, e.to_string().lines().last().unwrap_or_default().to_string()),
    };
    let before = pattern.get(..offset).unwrap_or_default().chars().count();
    let place = field.value.place_or(field.place);
    let place = inside(text, place, pattern, before).unwrap_or(place);
    let what = format!("{}: bad pattern at character {}: {why}", field.path, before + 1);
    Err(source.error(place, what))
}

/// The place of a text value's character number `offset`, when the file holds
/// the value as it is: in one line and without escapes.
fn inside(text: &str, value_at: Place, value: &str, offset: usize) -> Option<Place> {
    let line = text.lines().nth(value_at.line - 1)?;
    let (start, first) = line.char_indices().nth(value_at.column - 1)?;
    let quotes = usize::from(first == '"' || first == '\'');
    let as_it_is = line[start + quotes..].starts_with(value);
    as_it_is.then(|| Place { column: value_at.column + quotes + offset, ..value_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Policy, Vec<String>)> {
        parse(text, Path::new("p.yaml"))
    }

    /// The only rule of a policy whose first line is `strategies:`.
    #[track_caller]
    fn only(rule: &str) -> Rule {
        read(&format!("strategies:\n- {rule}")).expect(rule).0.rules.remove(0)
    }

    #[track_caller]
    fn error(rule: &str) -> String {
        read(&format!("strategies:\n- {rule}")).expect_err(rule).to_string()
    }

    #[test]
    fn reads_every_key() {
        let rule = only(
            "name: upf\n  command_regex: \"^nr-gnb$\"\n  pid: 7\n  priority: 3\n  \
             execution_time: 1.5ms\n  cpus: 2-3,0\n  exclusive: true\n",
        );
        let expected = Rule {
            name: "upf".into(),
            command_regex: Some("^nr-gnb$".into()),
            pid: Some(7),
            priority: Priority::new(3),
            execution_time_ns: Some(1_500_000),
            cpus: Some("0,2-3".parse().unwrap()),
            exclusive: true,
            location: Source::new(Path::new("p.yaml")).location(Place { line: 2, column: 3 }),
        };
        assert_eq!(rule, expected);
        assert_eq!(only("{pid: 7, priority: true}").name, "rule 1");
    }

    #[test]
    fn priority_is_a_level_or_yes_or_no() {
        for (written, level) in
            [("true", Some(0)), ("false", None), ("0", Some(0)), ("20", Some(20))]
        {
            let rule = only(&format!("{{pid: 1, priority: {written}}}"));
            assert_eq!(rule.priority.map(Priority::level), level, "{written}");
        }
        for bad in ["21", "-1", "high", "1.0", "yes", "[]"] {
            let message = error(&format!("{{pid: 1, priority: {bad}}}"));
            let expected = "rule 1: priority: expected true, false, or a whole number from 0 (strongest) to 20";
            assert!(message.contains(expected), "{message}");
        }
        assert!(Priority::new(9).unwrap().preempts() && !Priority::new(10).unwrap().preempts());
    }

    #[test]
    fn cpus_in_every_form() {
        for (written, cpus) in [
            ("5", "5"),
            ("\"0-3,8\"", "0-3,8"),
            ("0-7:1/2", "0,2,4,6"),
            ("[1, \"4-5\", 0]", "0-1,4-5"),
        ] {
            let rule = only(&format!("{{pid: 1, \"cpus\": {written}}}"));
            assert_eq!(rule.cpus.unwrap().to_string(), cpus, "{written}");
        }
        for (bad, message) in [
            ("3-1", "2:18: rule 1: cpus: \"3-1\": the range runs backwards; write 1-3"),
            ("[0, 1024]", "2:22: rule 1: cpus: \"1024\": CPU numbers go from 0 to 1023"),
            (
                "-1",
                "2:18: rule 1: cpus: \"-1\": expected a CPU number or a range, such as 8, 0-3 or 0-31:2/4",
            ),
            (
                "[]",
                "2:12: rule 1: cpus: expected CPU numbers, such as 1, \"0-3,8\" or [0, 2], found a list",
            ),
            (
                "1.5",
                "2:18: rule 1: cpus: expected CPU numbers, such as 1, \"0-3,8\" or [0, 2], found 1.5",
            ),
        ] {
            assert_eq!(error(&format!("{{pid: 1, cpus: {bad}}}")), format!("p.yaml:{message}"));
        }
    }

    #[test]
    fn a_rule_needs_a_condition_and_an_effect() {
        let at = "p.yaml:2:4: rule 1";
        assert_eq!(
            error("{priority: true}"),
            format!("{at}: no condition; give command_regex or pid")
        );
        assert_eq!(
            error("{pid: 1}"),
            format!("{at}: no effect; give priority, execution_time or cpus")
        );
        assert_eq!(
            error("{pid: 1, exclusive: false}"),
            format!("{at}: no effect; give priority, execution_time or cpus")
        );
        assert_eq!(
            error("{pid: 1, priority: 1, exclusive: true}"),
            "p.yaml:2:36: rule 1: exclusive: needs cpus, which are not given"
        );
        for enough in [
            "{pid: 1, priority: false}",
            "{command_regex: a, execution_time: 10us}",
            "{pid: 1, cpus: 0}",
        ] {
            only(enough);
        }
        assert_eq!(error("{}"), "p.yaml:1:1: rule 1: no condition; give command_regex or pid");
        assert_eq!(error(""), "p.yaml:2:2: rule 1: expected keys, found nothing");
    }

    #[test]
    fn patterns_are_checked_where_they_stand() {
        let bad = |pattern: &str| error(&format!("{{priority: 1, command_regex: {pattern}}}"));
        for (pattern, message) in [
            (
                "\"nr-(gnb\"",
                "2:36: rule 1: command_regex: bad pattern at character 4: unclosed group",
            ),
            (
                "'a[z-b]'",
                "2:35: rule 1: command_regex: bad pattern at character 3: invalid character class range, the start must be <= the end",
            ),
            (
                "^(?!a)b",
                "2:33: rule 1: command_regex: bad pattern at character 2: look-around, including look-ahead and look-behind, is not supported",
            ),
            // An escape in the YAML text: the place is that of the value.
            (
                "\"(a)\\\\1\"",
                "2:32: rule 1: command_regex: bad pattern at character 4: backreferences are not supported",
            ),
            (
                "'\u{e4}(a)\\1'",
                "2:37: rule 1: command_regex: bad pattern at character 5: backreferences are not supported",
            ),
            (
                "'(?u)\\bx'",
                "2:33: rule 1: command_regex: bad pattern at character 1: Unicode word boundaries are not supported",
            ),
            ("\"\"", "2:32: rule 1: command_regex: expected a regular expression, found \"\""),
            (
                "5",
                "2:32: rule 1: command_regex: expected a regular expression (text; put it in quotes), found 5",
            ),
        ] {
            assert_eq!(bad(pattern), format!("p.yaml:{message}"));
        }
        assert!(bad(&"a".repeat(1025)).ends_with("command_regex: longer than 1024 characters"));
        for good in
            ["nr-gnb|nr-ue|ping", "'\\bping\\b'", "'^[\\w-]+/\\d$'", "(?i)upf", "\u{e4}", "."]
        {
            only(&format!("{{priority: 1, command_regex: {good}}}"));
        }
    }

    #[test]
    fn other_limits() {
        for (rule, message) in [
            (
                "{pid: 0, priority: 1}",
                "2:9: rule 1: pid: expected a process or thread id from 1 to 4194304, found 0",
            ),
            (
                "{pid: 4194305, priority: 1}",
                "2:9: rule 1: pid: expected a process or thread id from 1 to 4194304, found 4194305",
            ),
            (
                "{pid: 1, execution_time: 9us}",
                "2:28: rule 1: execution_time: expected a time from 10us to 1s (nanoseconds, or such as 500us or 2ms), found \"9us\"",
            ),
            ("{name: '', pid: 1}", "2:10: rule 1 (\"\"): name: expected a name, found \"\""),
            ("{pid: 1, pid: 2}", "2:12: rule 1: pid: given twice; first in line 2"),
            (
                "{pid: 1, prio: 2}",
                "2:12: rule 1: prio: unknown key; allowed here: name, command_regex, pid, priority, execution_time, cpus, exclusive",
            ),
            (
                "{pid: 1, commandRegex: a}",
                "2:12: rule 1: commandRegex: unknown key; did you mean command_regex? allowed here: name, command_regex, pid, priority, execution_time, cpus, exclusive",
            ),
            (
                "7",
                "2:3: rule 1: expected keys (name, command_regex, pid, priority, execution_time, cpus, exclusive), found 7",
            ),
        ] {
            assert_eq!(error(rule), format!("p.yaml:{message}"));
        }
    }

    #[test]
    fn what_is_to_come_is_an_error_that_names_the_rule() {
        assert_eq!(
            error("{name: upf, pid: 1, priority: 1, selectors: [{key: app, value: upf}]}"),
            "p.yaml:2:36: rule 1 (\"upf\"): selectors is not supported yet; expected name, \
             command_regex, pid, priority, execution_time, cpus, exclusive"
        );
        for unset in ["selectors: []", "k8s_namespace: ''", "cgroup: "] {
            only(&format!("{{pid: 1, priority: 1, {unset}}}"));
        }
    }

    #[test]
    fn names_are_short() {
        let name = "n".repeat(MAX_NAME);
        assert_eq!(only(&format!("{{name: {name}, pid: 1, priority: 1}}")).name, name);
        let message = error(&format!("{{name: {name}n, pid: 1, priority: 1}}"));
        assert!(message.ends_with("): name: longer than 64 characters"), "{message}");
    }

    #[test]
    fn names_differ() {
        let two = |a: &str, b: &str| {
            read(&format!(
                "strategies:\n- {{pid: 1, priority: 1{a}}}\n- {{pid: 1, priority: 1{b}}}\n"
            ))
        };
        assert_eq!(
            two(", name: x", ", name: x").unwrap_err().to_string(),
            "p.yaml:3:4: rule 2: name: \"x\" is also the name of the rule in line 2; names must differ"
        );
        assert!(two(", name: rule 2", "").is_err());
        assert!(two("", "").is_ok());
    }

    #[test]
    fn reads_the_api_servers_json() {
        let text = r#"{
  "server": {"port": ":8080", "read_timeout": 15},
  "logging": {"level": "info"},
  "jwt": {"private_key_path": "./k.key", "token_duration": 24},
  "strategies": {
    "default": [
      {"priority": true, "execution_time": 20000, "command_regex": "nr-gnb|nr-ue|ping", "selectors": []}
    ]
  }
}"#;
        let (policy, notes) = read(text).unwrap();
        assert_eq!(policy.rules[0].execution_time_ns, Some(20_000));
        assert_eq!(
            notes,
            [
                "p.yaml:2:3: server, logging, jwt: accepted, not acted on: they are for an API server"
            ]
        );
    }

    #[test]
    fn a_policy_has_strategies() {
        assert_eq!(read("strategies: []").unwrap().0.rules, []);
        for (text, message) in [
            ("", "1:1: strategies: missing; expected a list of rules"),
            ("logging: {}", "1:1: strategies: missing; expected a list of rules"),
            (
                "strategies:",
                "1:12: strategies: expected a list of rules ([] for none), found nothing",
            ),
            (
                "strategies: {}",
                "1:1: strategies: expected a list of rules ([] for none), found a map of keys",
            ),
            (
                "strategies: {default: 1}",
                "1:23: strategies.default: expected a list of rules ([] for none), found 1",
            ),
            (
                "strategies: {defualt: []}",
                "1:14: strategies.defualt: unknown key; did you mean default? allowed here: default",
            ),
            ("rules: []", "1:1: rules: unknown key; allowed here: strategies"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), format!("p.yaml:{message}"));
        }
    }

    #[test]
    fn the_number_of_rules_is_limited() {
        let rules = |n: usize| {
            let rules: String =
                (1..=n).map(|pid| format!("- {{pid: {pid}, priority: 1}}\n")).collect();
            read(&format!("strategies:\n{rules}"))
        };
        assert_eq!(rules(MAX_RULES).unwrap().0.rules.len(), MAX_RULES);
        assert_eq!(
            rules(MAX_RULES + 1).unwrap_err().to_string(),
            "p.yaml:130:4: strategies: more than 128 rules"
        );
    }
}
