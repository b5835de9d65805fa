//! One rule of the policy file: its keys, and the checks on each.

use regex_automata::util::syntax;

use super::gthulhu::{self, Format};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::base::mistakes::Mistakes;
use crate::base::yaml::{Field, Node, Place, Source, Value, lines, quote};
use crate::gtp::{Module, Plane};
use crate::pods::Selector;
use crate::policy::{
    Conditions, CpuLimit, Cpus, Effects, Gtp, Priority, Rule, SLICE_RANGE, cgroups, globs,
    regex_syntax_config,
};

/// All keys of a rule: its name, conditions, `include_children`, effects, `exclusive`.
pub const KEYS: [&str; 20] = [
    "name",
    "command_regex",
    "threads",
    "pid",
    "exe",
    "user",
    "cgroup",
    "systemd_unit",
    "container",
    "netns",
    "selectors",
    "k8s_namespace",
    "gtp",
    "include_children",
    "priority",
    "execution_time",
    "weight",
    "cpu_limit",
    "cpus",
    "exclusive",
];
const CONDITIONS: std::ops::Range<usize> = 1..13;
const EFFECTS: std::ops::Range<usize> = 14..19;

/// The keys of `gtp`.
pub const GTP_KEYS: [&str; 7] =
    ["module", "port", "functions", "min_pps", "hold", "max_tasks", "woken"];

/// The kernel's largest process id (`PID_MAX_LIMIT` on 64 bits).
const MAX_PID: u64 = 4_194_304;

/// The longest name of a rule, in characters: tables and messages show it.
pub const MAX_NAME: usize = 64;

/// The longest pattern, glob or other text, in characters.
const MAX_TEXT: usize = 1024;

/// The longest name of a function, in characters.
const MAX_SYMBOL: usize = 127;

/// How long a task may match after its last packet.
const HOLD_RANGE: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;

/// The most functions of one rule.
const MAX_FUNCTIONS: usize = 16;

/// The most selectors or namespaces of one rule.
const MAX_ITEMS: usize = 64;

/// Reads the rule in `item`; `text` is the whole file, `number` counts from 1.
pub(super) fn read(
    source: Source,
    text: &str,
    number: usize,
    item: &Node,
    place: Place,
    format: Format,
) -> Result<Rule> {
    let label = match item.get("name") {
        Some(Value::Text(name)) => format!("rule {number} ({})", quote(name)),
        _ => format!("rule {number}"),
    };
    if matches!(item.value, Value::Null) {
        return Err(source.error(place, format!("{label}: expected keys, found nothing")));
    }
    let known = match format {
        Format::Ours => KEYS.as_slice(),
        Format::Gthulhus => &gthulhu::KEYS,
    };
    let mut fields = item.fields(source, &format!("{label}: "), known, &[], &[])?;
    // Gthulhu's files contain keys without a value.
    fields.retain(|field| {
        !field.value.is_empty()
            || !["selectors", "k8s_namespace"].contains(&field.name)
            || matches!(field.value.value, Value::Map(_))
    });
    let mut rule = Rule {
        name: format!("rule {number}"),
        conditions: Conditions::default(),
        effects: Effects::default(),
        location: source.location(place),
    };
    let mut mistakes = Mistakes::default();
    for field in &fields {
        mistakes.take(set(&mut rule, source, text, field, format));
    }
    mistakes.check()?;
    check_whole(&rule, &fields, known, |what| source.error(place, format!("{label}: {what}")))?;
    Ok(rule)
}

/// Sets the value of one key.
fn set(rule: &mut Rule, source: Source, text: &str, field: &Field, format: Format) -> Result<()> {
    let (conditions, effects) = (&mut rule.conditions, &mut rule.effects);
    match field.name {
        "name" => rule.name = name(field)?,
        "command_regex" => conditions.command_regex = Some(pattern(source, text, field)?),
        "threads" => conditions.threads = Some(pattern(source, text, field)?),
        "pid" => conditions.pid = Some(pid(field)?),
        "exe" => conditions.exe = Some(exe(field)?),
        "user" => conditions.user = Some(user(field)?),
        "cgroup" => conditions.cgroup = Some(cgroup(field)?),
        "systemd_unit" => conditions.systemd_unit = Some(unit(field)?),
        "container" => conditions.container = Some(container(field)?),
        "netns" => conditions.netns = Some(netns(field)?),
        "selectors" => conditions.selectors = selectors(source, field, format)?,
        "k8s_namespace" => conditions.k8s_namespace = namespaces(field)?,
        "gtp" => conditions.gtp = Some(gtp(source, field)?),
        "include_children" => conditions.include_children = field.bool()?,
        "priority" => effects.priority = priority(field, format)?,
        "execution_time" => effects.execution_time_ns = execution_time(field, format)?,
        "weight" => {
            let weight = field.integer("a weight (100 at nice 0)", 1..=10_000)?;
            effects.weight = Some(weight as u32);
        }
        "cpu_limit" => match field.text("ignore")? {
            "ignore" => effects.cpu_limit = Some(CpuLimit::Ignore),
            _ => return Err(field.expected("ignore")),
        },
        "cpus" => {
            effects.cpus = Some(match &field.value.value {
                Value::Text(text) if text == "allocated" => Cpus::Allocated,
                Value::Text(text) if text.starts_with(char::is_alphabetic) => {
                    return Err(field.expected("CPUs, such as 1 or \"0-3,8\", or allocated"));
                }
                _ => Cpus::List(cpus(field)?),
            });
        }
        _exclusive => effects.exclusive = field.bool()?,
    }
    Ok(())
}

/// Fails when the keys, all of them in `known`, do not make a rule together; `error` makes an error
/// about the rule.
fn check_whole(
    rule: &Rule,
    fields: &[Field],
    known: &[&str],
    error: impl Fn(String) -> Error,
) -> Result<()> {
    let find = |names: &[&str]| fields.iter().find(|field| names.contains(&field.name));
    for (keys, kind) in [(CONDITIONS, "condition"), (EFFECTS, "effect")] {
        let keys: Vec<&str> =
            KEYS[keys].iter().copied().filter(|key| known.contains(key)).collect();
        if find(&keys).is_none() {
            return Err(error(format!("no {kind}; give one of {}", keys.join(", "))));
        }
    }
    match find(&["exclusive"]) {
        Some(field) if rule.effects.exclusive && rule.effects.cpus.is_none() => {
            Err(field.error("needs cpus, which are not given"))
        }
        _ => Ok(()),
    }
}

/// A field's text, of limited length; `what` names it in the error.
fn short<'a>(field: &'a Field, what: &str, max: usize) -> Result<&'a str> {
    let text = field.text(what)?;
    if text.chars().count() > max {
        return Err(field.error(format!("longer than {max} characters")));
    }
    Ok(text)
}

fn name(field: &Field) -> Result<String> {
    short(field, "a name", MAX_NAME).map(Into::into)
}

fn pid(field: &Field) -> Result<u32> {
    Ok(field.integer("a process or thread id", 1..=MAX_PID)? as u32)
}

fn exe(field: &Field) -> Result<String> {
    let what = "the path of an executable (a glob such as /usr/bin/upf or **/upf)";
    let glob = short(field, what, MAX_TEXT)?;
    let pattern = globs::exe(glob).map_err(|why| bad_glob(field, &why))?;
    if !globs::can_match(glob, &pattern) {
        return Err(field.expected(what));
    }
    globs::check_stars(&pattern).map_err(|why| bad_glob(field, &why))?;
    Ok(glob.into())
}

fn cgroup(field: &Field) -> Result<String> {
    let what = "a cgroup's path from the root (a glob such as /system.slice/upf.service)";
    let glob = short(field, what, MAX_TEXT)?;
    let pattern = globs::cgroup(glob).map_err(|why| bad_glob(field, &why))?;
    // Every task is in the root or below.
    let path = glob.trim_end_matches('/');
    if path.is_empty() || !globs::can_match(path, &pattern) {
        return Err(field.expected(what));
    }
    globs::check_stars(&pattern).map_err(|why| bad_glob(field, &why))?;
    Ok(glob.into())
}

fn unit(field: &Field) -> Result<String> {
    let what = "the name of a systemd unit (a glob such as upf.service or upf@*.service)";
    let glob = short(field, what, MAX_TEXT)?;
    // `**` would go beyond the unit's directory, or mean no more than `*`.
    if glob.contains('/') || glob.contains("**") || !glob.contains(['.', '*']) {
        return Err(field.expected(what));
    }
    cgroups::unit(glob).map_err(|why| bad_glob(field, &why))?;
    Ok(glob.into())
}

fn bad_glob(field: &Field, why: &globs::BadGlob) -> Error {
    field.error(format!("bad glob {}: {why}", field.value.found()))
}

/// A container's id, whole or its beginning, as runtimes print it, or as Kubernetes writes it
/// (`containerd://ID`).
fn container(field: &Field) -> Result<String> {
    let what = "a container's id (8 to 64 lower-case hexadecimal digits; put it in quotes)";
    let text = short(field, what, MAX_TEXT)?;
    let id = text.rsplit_once("://").map_or(text, |(_runtime, id)| id);
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if !(8..=64).contains(&id.len()) || !id.chars().all(digit) {
        return Err(field.expected(what));
    }
    Ok(id.into())
}

/// A name or a number.
fn user(field: &Field) -> Result<String> {
    match &field.value.value {
        Value::Integer(_) => {
            Ok(field.integer("a user id", 0..=u64::from(u32::MAX - 1))?.to_string())
        }
        _ => short(field, "a user's name or id", MAX_TEXT).map(Into::into),
    }
}

fn netns(field: &Field) -> Result<String> {
    let what = "a network namespace: a name (ip netns), a path, or an inode number";
    if let Value::Integer(_) = field.value.value {
        return Ok(field.integer(what, 1..=u64::from(u32::MAX))?.to_string());
    }
    let text = short(field, what, MAX_TEXT)?;
    if text.contains('/') && !text.starts_with('/') {
        return Err(field.expected(what));
    }
    Ok(text.into())
}

/// In Gthulhu's format, a label without a value has an empty value, as Go reads it.
pub(super) fn selectors(source: Source, field: &Field, format: Format) -> Result<Vec<Selector>> {
    let what = "a list of labels, such as [{key: app, value: upf}]";
    items(field, what)?
        .iter()
        .enumerate()
        .map(|(i, item)| {
            let item = field.item(item);
            if !matches!(item.value.value, Value::Map(_)) {
                return Err(item.expected(what));
            }
            let prefix = format!("{}[{}].", field.path, i + 1);
            let fields = item.value.fields(source, &prefix, &["key", "value"], &[], &[])?;
            let get = |name| fields.iter().find(|field| field.name == name);
            let Some(key) = get("key") else {
                return Err(item.error("a label without key; expected {key: ..., value: ...}"));
            };
            let value = match get("value") {
                Some(value) => value.text_or_empty("a label's value")?,
                None if format == Format::Gthulhus => "",
                None => {
                    let what = "a label without value; expected {key: ..., value: ...}";
                    return Err(item.error(what));
                }
            };
            let key = short(key, "a label's key", MAX_TEXT)?.into();
            Ok(Selector { key, value: value.into() })
        })
        .collect()
}

pub(super) fn namespaces(field: &Field) -> Result<Vec<String>> {
    let what = "a Kubernetes namespace, or a list of them";
    if let Value::Text(_) = field.value.value {
        return Ok(vec![short(field, what, MAX_TEXT)?.into()]);
    }
    let name = |item| short(&field.item(item), what, MAX_TEXT).map(String::from);
    items(field, what)?.iter().map(name).collect()
}

/// A module's name, or a map with more keys.
fn gtp(source: Source, field: &Field) -> Result<Gtp> {
    let what =
        "a data plane, such as gtp5g, {module: gtp5g, min_pps: 10, hold: 30s} or {port: 2152}";
    if let Value::Text(_) = field.value.value {
        return Ok(of_plane(Plane::Module(module(field)?)));
    }
    if !matches!(field.value.value, Value::Map(_)) {
        return Err(field.expected(what));
    }
    let fields = field.value.fields(source, &format!("{}.", field.path), &GTP_KEYS, &[], &[])?;
    let named = |name| fields.iter().find(|field| field.name == name);
    let mut gtp = of_plane(match (named("module"), named("port")) {
        (Some(name), None) => Plane::Module(module(name)?),
        (None, Some(port)) => Plane::Port(port.integer("a UDP port", 1..=65535)? as u16),
        (None, None) => {
            let modules = Module::ALL.map(Module::name).join(", ");
            return Err(field.error(format!("no data plane; give a module ({modules}) or a port")));
        }
        (Some(_), Some(port)) => {
            return Err(port.error("a data plane has a module or a port, not both"));
        }
    });
    for field in &fields {
        match field.name {
            "module" | "port" => {}
            "functions" if gtp.plane.port().is_some() => {
                return Err(field.error("a module has functions, a port has none"));
            }
            "functions" => gtp.functions = functions(field)?,
            "min_pps" => {
                let packets = field.integer("packets per second", 1..=1_000_000)?;
                gtp.min_pps = packets as u32;
            }
            "hold" => gtp.hold_ns = field.nanoseconds(HOLD_RANGE)?,
            "max_tasks" => gtp.max_tasks = field.integer("a number of tasks", 1..=4096)? as u32,
            _woken => gtp.woken = field.bool()?,
        }
    }
    Ok(gtp)
}

/// The condition on `plane` with the defaults.
fn of_plane(plane: Plane) -> Gtp {
    Gtp {
        plane,
        functions: Vec::new(),
        min_pps: 1,
        hold_ns: 30_000_000_000,
        max_tasks: 256,
        woken: false,
    }
}

fn module(field: &Field) -> Result<Module> {
    let name = field.text("a data plane's kernel module, gtp5g or gtp")?;
    let module = Module::ALL.into_iter().find(|module| module.name() == name);
    module.ok_or_else(|| field.expected("a data plane's kernel module, gtp5g or gtp"))
}

fn functions(field: &Field) -> Result<Vec<String>> {
    let what = "a list of functions of the module, such as [gtp5g_encap_recv]";
    let Value::List(items) = &field.value.value else { return Err(field.expected(what)) };
    if items.is_empty() {
        return Err(field.expected(what));
    }
    if items.len() > MAX_FUNCTIONS {
        return Err(field.error(format!("more than {MAX_FUNCTIONS} functions")));
    }
    let mut functions = Vec::new();
    for item in items {
        let item = field.item(item);
        let what = "a function's name (letters, digits and _)";
        let name = item.text(what)?;
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.starts_with(first) || !name.chars().all(rest) {
            return Err(item.expected(what));
        }
        functions.push(short(&item, what, MAX_SYMBOL)?.to_owned());
    }
    functions.sort();
    functions.dedup();
    Ok(functions)
}

fn items<'a>(field: &Field<'a>, what: &str) -> Result<&'a [Node]> {
    let Value::List(items) = &field.value.value else { return Err(field.expected(what)) };
    if items.len() > MAX_ITEMS {
        return Err(field.error(format!("more than {MAX_ITEMS} items")));
    }
    Ok(items)
}

fn execution_time(field: &Field, format: Format) -> Result<Option<u64>> {
    match (&field.value.value, format) {
        (Value::Integer(0), Format::Gthulhus) => Ok(None),
        _ => field.nanoseconds(SLICE_RANGE).map(Some),
    }
}

/// `true`, `false`, or a level; in Gthulhu's format any number.
fn priority(field: &Field, format: Format) -> Result<Option<Priority>> {
    let level = match field.value.value {
        Value::Integer(i) if format == Format::Gthulhus => {
            Some((i > 0).then_some(Priority::STRONGEST))
        }
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
pub(super) fn cpus(field: &Field) -> Result<CpuList> {
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
        cpus.extend(part.parse::<CpuList>().map_err(|why| item.error(why.to_string()))?.iter());
    }
    Ok(cpus.into_iter().collect())
}

/// A pattern that the BPF program can run: no look-around, no back-references, bytes rather than
/// Unicode.
fn pattern(source: Source, text: &str, field: &Field) -> Result<String> {
    let pattern = short(field, "a regular expression", MAX_TEXT)?;
    let (offset, why) = match syntax::parse_with(pattern, &regex_syntax_config()) {
        Ok(hir) if hir.properties().look_set().contains_word_unicode() => {
            (0, "Unicode word boundaries are not supported".to_string())
        }
        Ok(_) => return Ok(pattern.into()),
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

/// The place of character `offset` of a text value, if the file holds it verbatim: on one
/// line, without escapes.
fn inside(text: &str, value_at: Place, value: &str, offset: usize) -> Option<Place> {
    let line = lines(text).nth(value_at.line - 1)?;
    let (start, first) = line.char_indices().nth(value_at.column - 1)?;
    let quotes = usize::from(first == '"' || first == '\'');
    let as_it_is = line[start + quotes..].starts_with(value);
    as_it_is.then(|| Place { column: value_at.column + quotes + offset, ..value_at })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::Policy;

    fn read(text: &str) -> Result<(Policy, Vec<String>)> {
        Policy::parse(text, Path::new("p.yaml"))
    }

    /// Parses the only rule of a policy whose first line is `strategies:`.
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
            "name: upf\n  command_regex: \"^nr-gnb$\"\n  threads: ^rx\n  pid: 7\n  exe: /usr/*/upf\n  \
             user: 33\n  cgroup: /a/*\n  systemd_unit: upf.service\n  container: containerd://0123abcd\n  \
             netns: n3\n  selectors: [{key: app, value: upf}]\n  k8s_namespace: core\n  \
             gtp: {module: gtp5g, functions: [b, a_1, b], min_pps: 10, hold: 500ms, max_tasks: 4, woken: true}\n  \
             include_children: true\n  priority: 3\n  execution_time: 1.5ms\n  weight: 200\n  \
             cpu_limit: ignore\n  cpus: 2-3,0\n  exclusive: true\n",
        );
        let text = |text: &str| Some(text.to_string());
        let expected = Rule {
            name: "upf".into(),
            conditions: Conditions {
                command_regex: text("^nr-gnb$"),
                threads: text("^rx"),
                pid: Some(7),
                exe: text("/usr/*/upf"),
                user: text("33"),
                cgroup: text("/a/*"),
                systemd_unit: text("upf.service"),
                container: text("0123abcd"),
                netns: text("n3"),
                selectors: vec![Selector { key: "app".into(), value: "upf".into() }],
                k8s_namespace: vec!["core".into()],
                gtp: Some(Gtp {
                    plane: Plane::Module(Module::Gtp5g),
                    functions: vec!["a_1".into(), "b".into()],
                    min_pps: 10,
                    hold_ns: 500_000_000,
                    max_tasks: 4,
                    woken: true,
                }),
                include_children: true,
            },
            effects: Effects {
                priority: Priority::new(3),
                execution_time_ns: Some(1_500_000),
                weight: Some(200),
                cpu_limit: Some(CpuLimit::Ignore),
                cpus: Some(Cpus::List("0,2-3".parse().unwrap())),
                exclusive: true,
            },
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
            assert_eq!(rule.effects.priority.map(Priority::level), level, "{written}");
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
            ("allocated", "allocated"),
        ] {
            let rule = only(&format!("{{pid: 1, \"cpus\": {written}}}"));
            assert_eq!(rule.effects.cpus.unwrap().to_string(), cpus, "{written}");
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
                "alocated",
                "2:18: rule 1: cpus: expected CPUs, such as 1 or \"0-3,8\", or allocated, found \"alocated\"",
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
            format!(
                "{at}: no condition; give one of command_regex, threads, pid, exe, user, cgroup, systemd_unit, container, netns, selectors, k8s_namespace, gtp"
            )
        );
        assert_eq!(
            error("{pid: 1}"),
            format!(
                "{at}: no effect; give one of priority, execution_time, weight, cpu_limit, cpus"
            )
        );
        assert_eq!(
            error("{pid: 1, exclusive: false}"),
            format!(
                "{at}: no effect; give one of priority, execution_time, weight, cpu_limit, cpus"
            )
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
        assert_eq!(
            error("{}"),
            "p.yaml:1:1: rule 1: no condition; give one of command_regex, threads, pid, exe, user, cgroup, systemd_unit, container, netns, selectors, k8s_namespace, gtp"
        );
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
            // With an escape in the YAML text the place is the value's.
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
            ("{pid: 1, prio: 2}", "2:12: rule 1: prio: unknown key; allowed here: KEYS"),
            (
                "{pid: 1, commandRegex: a}",
                "2:12: rule 1: commandRegex: unknown key; did you mean command_regex? allowed here: KEYS",
            ),
            ("7", "2:3: rule 1: expected keys (KEYS), found 7"),
        ] {
            let message = message.replace("KEYS", &KEYS.join(", "));
            assert_eq!(error(rule), format!("p.yaml:{message}"));
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
    fn texts_that_name_something() {
        for (rule, message) in [
            (
                "exe: upf",
                "exe: expected the path of an executable (a glob such as /usr/bin/upf or **/upf), found \"upf\"",
            ),
            ("exe: '/a['", "exe: bad glob \"/a[\": unclosed character class; missing ']'"),
            (
                "cgroup: a/b",
                "cgroup: expected a cgroup's path from the root (a glob such as /system.slice/upf.service), found \"a/b\"",
            ),
            (
                "systemd_unit: upf",
                "systemd_unit: expected the name of a systemd unit (a glob such as upf.service or upf@*.service), found \"upf\"",
            ),
            (
                "systemd_unit: upf**.service",
                "systemd_unit: expected the name of a systemd unit (a glob such as upf.service or upf@*.service), found \"upf**.service\"",
            ),
            (
                "container: upf",
                "container: expected a container's id (8 to 64 lower-case hexadecimal digits; put it in quotes), found \"upf\"",
            ),
            (
                "netns: a/b",
                "netns: expected a network namespace: a name (ip netns), a path, or an inode number, found \"a/b\"",
            ),
            ("user: -1", "user: expected a user id from 0 to 4294967294, found -1"),
            (
                "selectors: upf",
                "selectors: expected a list of labels, such as [{key: app, value: upf}], found \"upf\"",
            ),
            (
                "selectors: [{value: upf}]",
                "selectors: a label without key; expected {key: ..., value: ...}",
            ),
            (
                "selectors: [{key: app}]",
                "selectors: a label without value; expected {key: ..., value: ...}",
            ),
            (
                "k8s_namespace: [1]",
                "k8s_namespace: expected a Kubernetes namespace, or a list of them (text; put it in quotes), found 1",
            ),
            (
                "pid: 1, weight: 0",
                "weight: expected a weight (100 at nice 0) from 1 to 10000, found 0",
            ),
            ("pid: 1, cpu_limit: none", "cpu_limit: expected ignore, found \"none\""),
        ] {
            let found = error(&format!("{{priority: 1, {rule}}}"));
            assert!(found.ends_with(&format!(": rule 1: {message}")), "{found}");
        }
    }

    #[test]
    fn a_label_may_have_an_empty_value() {
        let label = [Selector { key: "app".into(), value: String::new() }];
        let rule = only("{priority: 1, selectors: [{key: app, value: ''}]}");
        assert_eq!(rule.conditions.selectors, label);
        // In Gthulhu's format, a label without a value has an empty one.
        let gthulhus = r#"{"strategies": [{"priority": 1, "selectors": [{"key": "app"}]}]}"#;
        assert_eq!(read(gthulhus).unwrap().0.rules[0].conditions.selectors, label);
    }

    #[test]
    fn globs_match_some_paths_but_not_all() {
        for good in ["{/a.slice,/b.slice}", "**", "**/upf", "*/upf", "*{/a,b}", "{b,/a}/*"] {
            for key in ["cgroup", "exe"] {
                only(&format!("{{{key}: '{good}', priority: 1}}"));
            }
        }
        only("{cgroup: '*', priority: 1}");
        for bad in ["*upf", "**upf", "*?", "{a,*b}", "[a]", "?a", "a/b"] {
            for (key, expected) in
                [("cgroup", "a cgroup's path from"), ("exe", "the path of an executable")]
            {
                let found = error(&format!("{{{key}: '{bad}', priority: 1}}"));
                let message = format!("p.yaml:2:{}: rule 1: {key}: expected ", key.len() + 6);
                assert!(found.starts_with(&format!("{message}{expected}")), "{found}");
            }
        }
        for (key, bad) in [
            ("exe", "/opt/upf/"),
            ("exe", "/opt//upf"),
            ("exe", "/opt/../upf"),
            ("exe", "**/./upf"),
            ("cgroup", "/a.slice//b"),
        ] {
            let found = error(&format!("{{{key}: '{bad}', priority: 1}}"));
            assert!(found.contains(&format!("{key}: expected ")), "{found}");
        }
        only("{cgroup: /a.slice/b/, priority: 1}");
        for key in ["exe", "cgroup"] {
            let found = error(&format!("{{{key}: /opt/upf**, priority: 1}}"));
            assert!(
                found.ends_with("** must be a whole directory, such as /opt/**/upf"),
                "{found}"
            );
        }
        for root in ["/", "//", "///"] {
            let found = error(&format!("{{cgroup: {root}, priority: 1}}"));
            assert!(found.contains("cgroup: expected a cgroup's path from the root"), "{found}");
        }
        let found = error("{exe: '/a[/]', priority: 1}");
        let why = "exe: bad glob \"/a[/]\": [...] may hold only ASCII characters other than /";
        assert_eq!(found, format!("p.yaml:2:9: rule 1: {why}"));
    }

    #[test]
    fn traffic_by_a_name_or_a_map() {
        let of = |gtp: &str| only(&format!("{{gtp: {gtp}, priority: 1}}")).conditions.gtp.unwrap();
        let default = of_plane(Plane::Module(Module::Gtp));
        assert_eq!(of("gtp"), default);
        assert_eq!(of("{module: gtp}"), default);
        assert_eq!(of("gtp5g"), of_plane(Plane::Module(Module::Gtp5g)));
        assert_eq!(of("{port: 2152}"), of_plane(Plane::Port(2152)));
        assert_eq!(of("{module: gtp, hold: 1s}"), Gtp { hold_ns: 1_000_000_000, ..default });
        let many = format!("{{module: gtp, functions: [{}]}}", ["f"; 17].join(", "));
        for (gtp, message) in [
            (
                "",
                "gtp: expected a data plane, such as gtp5g, {module: gtp5g, min_pps: 10, hold: 30s} or {port: 2152}, found nothing",
            ),
            (
                "[gtp]",
                "gtp: expected a data plane, such as gtp5g, {module: gtp5g, min_pps: 10, hold: 30s} or {port: 2152}, found a list",
            ),
            ("upf", "gtp: expected a data plane's kernel module, gtp5g or gtp, found \"upf\""),
            ("{}", "gtp: no data plane; give a module (gtp5g, gtp) or a port"),
            ("{min_pps: 1}", "gtp: no data plane; give a module (gtp5g, gtp) or a port"),
            (
                "{port: 2152, module: gtp}",
                "gtp.port: a data plane has a module or a port, not both",
            ),
            ("{port: 0}", "gtp.port: expected a UDP port from 1 to 65535, found 0"),
            ("{port: gtp-u}", "gtp.port: expected a UDP port from 1 to 65535, found \"gtp-u\""),
            ("{port: 1, functions: [f]}", "gtp.functions: a module has functions, a port has none"),
            (
                "{module: 5}",
                "gtp.module: expected a data plane's kernel module, gtp5g or gtp (text; put it in quotes), found 5",
            ),
            (
                "{module: gtp, min_pps: 0}",
                "gtp.min_pps: expected packets per second from 1 to 1000000, found 0",
            ),
            (
                "{module: gtp, hold: 99ms}",
                "gtp.hold: expected a time from 100ms to 3600s (nanoseconds, or such as 500us or 2ms), found \"99ms\"",
            ),
            (
                "{module: gtp, max_tasks: 4097}",
                "gtp.max_tasks: expected a number of tasks from 1 to 4096, found 4097",
            ),
            (
                "{module: gtp, functions: []}",
                "gtp.functions: expected a list of functions of the module, such as [gtp5g_encap_recv], found a list",
            ),
            (
                "{module: gtp, functions: gtp_rx}",
                "gtp.functions: expected a list of functions of the module, such as [gtp5g_encap_recv], found \"gtp_rx\"",
            ),
            (
                "{module: gtp, functions: ['a b']}",
                "gtp.functions: expected a function's name (letters, digits and _), found \"a b\"",
            ),
            (
                "{module: gtp, functions: [1a]}",
                "gtp.functions: expected a function's name (letters, digits and _), found \"1a\"",
            ),
            (&many, "gtp.functions: more than 16 functions"),
            (
                "{module: gtp, min_pp: 1}",
                "gtp.min_pp: unknown key; did you mean min_pps? allowed here: module, port, functions, min_pps, hold, max_tasks, woken",
            ),
        ] {
            let found = error(&format!("{{priority: 1, gtp: {gtp}}}"));
            assert!(found.ends_with(&format!(": rule 1: {message}")), "{found}");
        }
        let place = error("{priority: 1, gtp: {module: gtp, hold: 2h}}");
        assert!(place.starts_with("p.yaml:2:42: "), "{place}");
    }

    #[test]
    fn keys_of_gthulhu_without_a_value_are_nothing() {
        for unset in ["selectors: []", "k8s_namespace: ''", "k8s_namespace: []", "selectors: "] {
            let rule = only(&format!("{{pid: 1, priority: 1, {unset}}}"));
            assert!(!rule.conditions.of_pods());
        }
        assert!(error("{priority: 1, selectors: []}").contains("no condition"));
    }
}
