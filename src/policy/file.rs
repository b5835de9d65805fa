//! The policy file: a list of rules under `strategies`, and one of placements under `irq`.

use std::path::Path;

use super::{MAX_RULES, Policy, Rule, irq, rule};
use crate::error::Result;
use crate::yaml::{Field, Place, Source, Value};

/// The keys of a policy; one of them has to be there.
const OURS: [&str; 2] = ["strategies", "irq"];

/// Keys beside `strategies` in the file of a Gthulhu API server.
const API_SERVER: [&str; 7] = ["server", "logging", "jwt", "mongodb", "key", "account", "k8s"];

pub(super) fn load(path: &Path) -> Result<(Policy, Vec<String>)> {
    parse(&Source::new(path).read("policy file")?, path)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<(Policy, Vec<String>)> {
    let source = Source::new(path);
    let root = source.document(text)?;
    let fields = root.fields(source, "", &OURS, &API_SERVER, &[])?;
    let (ours, others): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|field| OURS.contains(&field.name));
    if ours.is_empty() {
        return Err(source.error(Place::START, "strategies: missing; expected a list of rules"));
    }
    let mut policy = Policy::default();
    for field in &ours {
        match field.name {
            "strategies" => policy.rules = rules(source, text, field)?,
            _irq => policy.irq = irq::read(source, field)?,
        }
    }
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
        let rule = rule::read(source, text, i + 1, item, item.place_or(list.place))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Policy, Vec<String>)> {
        parse(text, Path::new("p.yaml"))
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
        assert_eq!(policy.rules[0].effects.execution_time_ns, Some(20_000));
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
        assert_eq!(read("irq: []").unwrap().0, Policy::default());
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
            ("rules: []", "1:1: rules: unknown key; allowed here: strategies, irq"),
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
