//! The policy file: a list of rules under `strategies`, and a list of placements under `irq`.

mod gthulhu;
pub(super) mod placements;
pub(super) mod rule;

use std::path::Path;

use self::gthulhu::{ANSWER, Format, SCHEDULING};
use super::{MAX_RULES, Policy, Rule};
use crate::base::error::Result;
use crate::base::mistakes::Mistakes;
use crate::base::yaml::{Field, Node, Place, Source, Value};

/// The keys of a policy; at least one is required.
const OURS: [&str; 2] = ["strategies", "irq"];

/// Keys beside `strategies` in a Gthulhu API server's file.
const API_SERVER: [&str; 7] = ["server", "logging", "jwt", "mongodb", "key", "account", "k8s"];

pub(super) fn load(path: &Path) -> Result<(Policy, Vec<String>)> {
    parse(&Source::new(path).read("policy file")?, path)
}

/// The strategies in an answer of Gthulhu's API; see [`gthulhu::answer`].
pub(super) fn answer(text: &str, url: &Path) -> Result<Vec<Rule>> {
    gthulhu::answer(text, url)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<(Policy, Vec<String>)> {
    let source = Source::new(path);
    let root = source.document(text)?;
    let is_json = gthulhu::is_json(text);
    let mut hidden = API_SERVER.to_vec();
    if is_json {
        hidden.extend([SCHEDULING].iter().chain(&ANSWER));
    }
    let mut fields = root.fields(source, "", &OURS, &hidden, &[])?;
    fields.retain(|field| !ANSWER.contains(&field.name));
    let (ours, others): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .partition(|field| OURS.contains(&field.name) || field.name == SCHEDULING);
    if ours.is_empty() {
        return Err(source.error(Place::START, "strategies: missing; expected a list of rules"));
    }
    let find = |name| ours.iter().find(|field| field.name == name);
    if let (Some(_), Some(second)) = (find("strategies"), find(SCHEDULING)) {
        let what = format!("{SCHEDULING}: given beside strategies; only one is allowed");
        return Err(source.error(second.place, what));
    }
    let mut policy = Policy::default();
    let mut notes = Vec::new();
    let mut mistakes = Mistakes::default();
    let has_irq = find("irq").is_some();
    for field in &ours {
        match field.name {
            "irq" => {
                let read = placements::read(source, field);
                policy.irq = mistakes.take(read).unwrap_or_default();
            }
            _strategies => {
                let list = list(source, field)?;
                let items = list.list(EXPECTED)?;
                let (format, note) = gthulhu::format(source, is_json, has_irq, items);
                let read = rules(source, text, &list, items, format);
                policy.rules = mistakes.take(read).unwrap_or_default();
                notes.extend(note);
            }
        }
    }
    mistakes.check()?;
    notes.extend(others.first().map(|first| {
        let names: Vec<&str> = others.iter().map(|field| field.name).collect();
        let at = source.location(first.place);
        format!("{at}: {}: API server settings have no effect", names.join(", "))
    }));
    Ok((policy, notes))
}

/// The list of rules under `strategies`, directly or as `default` in a map.
fn list<'a>(source: Source<'a>, strategies: &Field<'a>) -> Result<Field<'a>> {
    if !matches!(strategies.value.value, Value::Map(_)) {
        return Ok(strategies.clone());
    }
    let inner = strategies.value.fields(source, "strategies.", &["default"], &[], &[])?;
    inner.into_iter().next().ok_or_else(|| strategies.expected(EXPECTED))
}

const EXPECTED: &str = "a list of rules ([] for none)";

fn rules(
    source: Source,
    text: &str,
    list: &Field,
    items: &[Node],
    format: Format,
) -> Result<Vec<Rule>> {
    if let Some(extra) = items.get(MAX_RULES) {
        let what = format!("{}: more than {MAX_RULES} rules", list.path);
        return Err(source.error(extra.place_or(list.place), what));
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut mistakes = Mistakes::default();
    for (i, item) in items.iter().enumerate() {
        let read = rule::read(source, text, i + 1, item, item.place_or(list.place), format);
        let Some(rule) = mistakes.take(read) else { continue };
        if let Some(earlier) = rules.iter().find(|earlier| earlier.name == rule.name) {
            let what = format!(
                "rule {}: name: {:?} is also the name of the rule in line {}; names must differ",
                i + 1,
                rule.name,
                earlier.location.line
            );
            mistakes.take::<()>(Err(source.error(item.place_or(list.place), what)));
        }
        rules.push(rule);
    }
    mistakes.check().map(|()| rules)
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

    /// Finds the mistakes in every key of every rule, and in the placements; an error's own text is
    /// about the first.
    #[test]
    fn all_mistakes_are_found() {
        let text = "strategies:
- {name: x, pid: 0, priority: 21}
- {name: y, pid: 1, priority: 1}
- {name: y, pid: 2, priority: 1}
- {pid: 1, exclusive: true, cpus: 4-2}
- {pid: 1, prioriti: 1, cpus: x}
irq:
- {nic: eth0}
- {nic: n6, cpus: 2}
- {cpus: 1}
";
        let e = read(text).unwrap_err();
        let all: Vec<String> = e.all().map(ToString::to_string).collect();
        let begin = [
            "p.yaml:2:18: rule 1 (\"x\"): pid: ",
            "p.yaml:2:31: rule 1 (\"x\"): priority: ",
            "p.yaml:4:4: rule 3: name: \"y\" is also the name of the rule in line 3",
            "p.yaml:5:35: rule 4: cpus: ",
            "p.yaml:6:12: rule 5: prioriti: unknown key",
            "p.yaml:8:4: irq[1]: no cpus",
            "p.yaml:10:4: irq[3]: no nic",
        ];
        assert_eq!(all.len(), begin.len(), "{all:#?}");
        assert!(all.iter().zip(begin).all(|(found, begin)| found.starts_with(begin)), "{all:#?}");
        assert_eq!(e.to_string(), all[0]);
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
        assert_eq!(notes, ["p.yaml:2:3: server, logging, jwt: API server settings have no effect"]);
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
