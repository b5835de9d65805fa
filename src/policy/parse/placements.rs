//! The policy file's `irq`: where NICs' interrupts go.

use std::collections::BTreeSet;

use super::gthulhu::Format;
use super::rule::{cpus, namespaces, selectors};
use crate::base::error::Result;
use crate::base::mistakes::Mistakes;
use crate::base::yaml::{Field, Node, Place, Source, Value};
use crate::irq::place::wanted::{Avoid, Masks, OnIrqbalance, Placement};
use crate::policy::IrqEntry;

/// All keys of an entry.
pub const KEYS: [&str; 10] = [
    "selectors",
    "k8s_namespace",
    "nic",
    "cpus",
    "avoid",
    "spread",
    "queues",
    "rps",
    "xps",
    "irqbalance",
];

/// The most entries of a policy.
const MAX_ENTRIES: usize = 64;

/// The longest name of a network device (IFNAMSIZ of linux/if.h, without the final 0).
const MAX_NIC: usize = 15;

/// The longest name of a pod's network: a namespace and a name (Kubernetes, "Object Names and IDs").
pub const MAX_NETWORK: usize = 63 + 1 + 253;

/// No NIC has a queue of this number (16 bits in linux/netdevice.h).
const MAX_QUEUE: u64 = 65_535;

/// Reads the list of entries, or one entry without a list.
pub(super) fn read(source: Source, field: &Field) -> Result<Vec<IrqEntry>> {
    if matches!(field.value.value, Value::Map(_)) {
        return Ok(vec![entry(source, 1, field.value, field.value.place_or(field.place))?]);
    }
    let items = field.list("a list of NICs, such as [{nic: eth0, cpus: \"2\"}]")?;
    if let Some(extra) = items.get(MAX_ENTRIES) {
        let what = format!("irq: more than {MAX_ENTRIES} entries");
        return Err(source.error(extra.place_or(field.place), what));
    }
    let mut mistakes = Mistakes::default();
    let entry = |(i, item): (usize, &Node)| {
        mistakes.take(entry(source, i + 1, item, item.place_or(field.place)))
    };
    let entries = items.iter().enumerate().filter_map(entry).collect();
    mistakes.check().map(|()| entries)
}

fn entry(source: Source, number: usize, item: &Node, place: Place) -> Result<IrqEntry> {
    let label = format!("irq[{number}]");
    if matches!(item.value, Value::Null) {
        return Err(source.error(place, format!("{label}: expected keys, found nothing")));
    }
    let fields = item.fields(source, &format!("{label}."), &KEYS, &[], &[])?;
    let given = |name: &str| fields.iter().any(|field| field.name == name);
    let of_pods = ["selectors", "k8s_namespace"].into_iter().find(|name| given(name));
    let mut entry = IrqEntry::default();
    entry.placement.location = Some(source.location(place));
    for field in &fields {
        let placement = &mut entry.placement;
        match field.name {
            "selectors" => {
                let labels = selectors(source, field, Format::Ours)?;
                entry.selectors = not_empty(field, labels)?;
            }
            "k8s_namespace" => entry.k8s_namespace = not_empty(field, namespaces(field)?)?,
            "nic" if of_pods.is_some() => placement.nic = network(field)?,
            _ => set(placement, field)?,
        }
    }
    match lack(given, of_pods) {
        Some(what) => Err(source.error(place, format!("{label}: {what}"))),
        None => Ok(entry),
    }
}

/// Sets the value of one key.
fn set(placement: &mut Placement, field: &Field) -> Result<()> {
    match field.name {
        "nic" => placement.nic = nic(field)?,
        "cpus" => placement.cpus = cpus(field)?,
        "avoid" => match &field.value.value {
            Value::Text(text) if text == "exclusive" => {
                placement.avoid = Some(Avoid::Exclusive);
            }
            _ => return Err(field.expected("exclusive")),
        },
        "spread" => placement.spread = field.bool()?,
        "queues" => placement.queues = queues(field)?,
        "rps" => placement.rps = masks(field)?,
        "xps" => placement.xps = masks(field)?,
        _irqbalance => placement.irqbalance = irqbalance(field)?,
    }
    Ok(())
}

/// Why the `given` keys do not make an entry together; `None` if they do. `of_pods` is the key that
/// asks for pods.
fn lack(given: impl Fn(&str) -> bool, of_pods: Option<&str>) -> Option<String> {
    if let (Some(key), false) = (of_pods, given("nic")) {
        return Some(format!("{key} without nic; name a network of the pods, such as n3"));
    }
    if given("avoid") {
        let other = ["cpus", "spread", "queues", "rps", "xps"].into_iter().find(|name| given(name));
        return other.map(|other| format!("avoid and {other}; give one of them"));
    }
    let missing = ["nic", "cpus"].into_iter().find(|name| !given(name));
    missing.map(|missing| format!("no {missing}"))
}

/// Fails if `items` is empty, which would mean all pods.
fn not_empty<T>(field: &Field, items: Vec<T>) -> Result<Vec<T>> {
    if items.is_empty() { Err(field.error("empty; name the pods")) } else { Ok(items) }
}

fn nic(field: &Field) -> Result<String> {
    let what = "the name of a network device, such as eth0";
    let name = field.text(what)?;
    // dev_valid_name(), net/core/dev.c.
    let bad = |c: char| c.is_whitespace() || c == '/' || c == ':';
    if name.len() > MAX_NIC || name.contains(bad) || [".", ".."].contains(&name) {
        return Err(field.expected(what));
    }
    Ok(name.into())
}

/// A pod's network, by its interface, its name, or its namespace and name.
fn network(field: &Field) -> Result<String> {
    let what = "a network of the pods, such as n3 or core/n3";
    let name = field.text(what)?;
    let parts: Vec<&str> = name.split('/').collect();
    let bad =
        |part: &&str| part.is_empty() || part.contains(|c: char| c.is_whitespace() || c == ':');
    if name.len() > MAX_NETWORK || parts.len() > 2 || parts.iter().any(bad) {
        return Err(field.expected(what));
    }
    Ok(name.into())
}

/// A queue's number or a list of them.
fn queues(field: &Field) -> Result<BTreeSet<u32>> {
    let number = |field: &Field| field.integer("a queue's number", 0..=MAX_QUEUE);
    let numbers = match &field.value.value {
        Value::List(items) if !items.is_empty() => {
            items.iter().map(|item| number(&field.item(item))).collect::<Result<Vec<_>>>()?
        }
        Value::Integer(_) => vec![number(field)?],
        _ => return Err(field.expected("queues' numbers, such as 1 or [0, 1]")),
    };
    Ok(numbers.into_iter().map(|number| number as u32).collect())
}

/// What to do with the masks; `on` and `off` are text in YAML 1.2, and allowed here.
fn masks(field: &Field) -> Result<Masks> {
    match &field.value.value {
        Value::Bool(true) => Ok(Masks::Match),
        Value::Bool(false) => Ok(Masks::Off),
        Value::Text(text) if ["match", "on"].contains(&text.as_str()) => Ok(Masks::Match),
        Value::Text(text) if text == "off" => Ok(Masks::Off),
        Value::Text(text) if text == "keep" => Ok(Masks::Keep),
        _ => Err(field.expected("match, off or keep")),
    }
}

fn irqbalance(field: &Field) -> Result<OnIrqbalance> {
    match &field.value.value {
        Value::Text(text) if text == "refuse" => Ok(OnIrqbalance::Refuse),
        Value::Text(text) if text == "ignore" => Ok(OnIrqbalance::Ignore),
        Value::Text(text) if text == "ban" => Ok(OnIrqbalance::Ban),
        _ => Err(field.expected("refuse, ignore or ban")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::Policy;

    fn read(irq: &str) -> Result<Vec<IrqEntry>> {
        let text = format!("strategies: []\nirq: {irq}");
        Policy::parse(&text, Path::new("p.yaml")).map(|(policy, _)| policy.irq)
    }

    #[track_caller]
    fn only_entry(entry: &str) -> IrqEntry {
        let mut entry = read(&format!("[{entry}]")).unwrap().remove(0);
        entry.placement.location = None;
        entry
    }

    #[track_caller]
    fn only(entry: &str) -> Placement {
        only_entry(entry).placement
    }

    #[test]
    fn every_key() {
        let plain = only("{nic: eth0, cpus: 11}");
        let cpus: crate::base::cpulist::CpuList = "11".parse().unwrap();
        assert_eq!(plain, Placement { nic: "eth0".into(), cpus, ..Placement::default() });
        let all = only(
            "{nic: n6, cpus: \"2-5\", spread: true, queues: [0, 3], rps: off, xps: match, irqbalance: ban}",
        );
        assert_eq!(
            serde_json::to_value(&all).unwrap(),
            serde_json::json!({
                "nic": "n6", "cpus": "2-5", "spread": true, "queues": [0, 3], "rps": "off",
                "xps": "match", "irqbalance": "ban",
            })
        );
        let location =
            read("\n- {nic: eth0, cpus: 1}").unwrap().remove(0).placement.location.unwrap();
        assert_eq!((location.line, location.column), (3, 4));
        for (masks, same) in [("true", "match"), ("on", "match"), ("false", "off")] {
            let of = |masks: &str| only(&format!("{{nic: a, cpus: 1, rps: {masks}}}"));
            assert_eq!(of(masks), of(same));
        }
        assert_eq!(only("{nic: a, cpus: 1, queues: 3}").queues, [3].into());
        assert_eq!(read("[]").unwrap(), []);
        let all = Placement { avoid: Some(Avoid::Exclusive), ..Placement::default() };
        for one in ["{avoid: exclusive}", "[{avoid: exclusive}]"] {
            let found = read(one).unwrap().remove(0).placement;
            assert_eq!(Placement { location: None, ..found }, all);
        }
        let named = only("{nic: n6, avoid: exclusive, irqbalance: ban}");
        assert_eq!(
            serde_json::to_value(&named).unwrap(),
            serde_json::json!({"nic": "n6", "avoid": "exclusive", "irqbalance": "ban"})
        );
    }

    #[test]
    fn nics_of_pods() {
        let keys = |entry: &str| serde_json::to_value(only_entry(entry)).unwrap();
        let found = keys(
            "{selectors: [{key: app, value: upf}], k8s_namespace: core, nic: core/n3, cpus: 2}",
        );
        assert_eq!(
            found,
            serde_json::json!({
                "selectors": [{"key": "app", "value": "upf"}], "k8s_namespace": ["core"],
                "nic": "core/n3", "cpus": "2",
            })
        );
        // A whole namespace, whatever the order of the keys; a name too long for a device.
        let long = "a-network-with-a-long-name";
        let found =
            only_entry(&format!("{{nic: {long}, avoid: exclusive, k8s_namespace: [core]}}"));
        assert_eq!((found.placement.nic.as_str(), found.of_pods()), (long, true));
        assert!(!only_entry("{nic: n3, cpus: 1}").of_pods());
        let policy = |irq: &str| {
            let text = format!("irq: {{{irq}, nic: n3, cpus: 1}}");
            Policy::parse(&text, Path::new("p.yaml")).unwrap().0
        };
        assert!(policy("k8s_namespace: core").of_pods() && !policy("spread: true").of_pods());
    }

    #[test]
    fn mistakes_are_named() {
        for (irq, message) in [
            (
                "",
                "2:5: irq: expected a list of NICs, such as [{nic: eth0, cpus: \"2\"}], found nothing",
            ),
            ("{nic: eth0}", "2:1: irq[1]: no cpus"),
            (
                "eth0",
                "2:6: irq: expected a list of NICs, such as [{nic: eth0, cpus: \"2\"}], found \"eth0\"",
            ),
            ("{avoid: 3}", "2:14: irq[1].avoid: expected exclusive, found 3"),
            ("{avoid: busy}", "2:14: irq[1].avoid: expected exclusive, found \"busy\""),
            ("[{avoid: exclusive, cpus: 1}]", "2:8: irq[1]: avoid and cpus; give one of them"),
            (
                "[{nic: a, avoid: exclusive, rps: off}]",
                "2:8: irq[1]: avoid and rps; give one of them",
            ),
            (
                "[eth0]",
                "2:7: irq[1]: expected keys (selectors, k8s_namespace, nic, cpus, avoid, spread, queues, rps, xps, irqbalance), found \"eth0\"",
            ),
            ("[{cpus: 1}]", "2:8: irq[1]: no nic"),
            ("[{nic: a, cpus: 1}, {nic: eth0}]", "2:27: irq[2]: no cpus"),
            (
                "[{nic: a/b, cpus: 1}]",
                "2:13: irq[1].nic: expected the name of a network device, such as eth0, found \"a/b\"",
            ),
            (
                "{selectors: [{key: app, value: upf}], cpus: 1}",
                "2:1: irq[1]: selectors without nic; name a network of the pods, such as n3",
            ),
            (
                "{k8s_namespace: core, avoid: exclusive}",
                "2:1: irq[1]: k8s_namespace without nic; name a network of the pods, such as n3",
            ),
            ("{selectors: [{key: app, value: upf}], nic: n3}", "2:1: irq[1]: no cpus"),
            ("{selectors: [], nic: n3, cpus: 1}", "2:7: irq[1].selectors: empty; name the pods"),
            (
                "{selectors: upf, nic: n3, cpus: 1}",
                "2:18: irq[1].selectors: expected a list of labels, such as [{key: app, value: upf}], found \"upf\"",
            ),
            (
                "{selectors: [{key: app}], nic: n3, cpus: 1}",
                "2:20: irq[1].selectors: a label without value; expected {key: ..., value: ...}",
            ),
            (
                "{k8s_namespace: core, nic: a/b/c, cpus: 1}",
                "2:33: irq[1].nic: expected a network of the pods, such as n3 or core/n3, found \"a/b/c\"",
            ),
            (
                "{k8s_namespace: core, nic: /n3, cpus: 1}",
                "2:33: irq[1].nic: expected a network of the pods, such as n3 or core/n3, found \"/n3\"",
            ),
            // Without pods, it is a device of this machine.
            (
                "{nic: core/n3, cpus: 1}",
                "2:12: irq[1].nic: expected the name of a network device, such as eth0, found \"core/n3\"",
            ),
            ("[{nic: a, cpus: ''}]", "2:22: irq[1].cpus: \"\": "),
            ("[{nic: a, cpus: 3-1}]", "2:22: irq[1].cpus: \"3-1\": "),
            ("[{nic: a, cpus: 1, cpu: 2}]", "2:25: irq[1].cpu: unknown key; did you mean cpus? "),
            (
                "[{nic: a, cpus: 1, queues: []}]",
                "2:25: irq[1].queues: expected queues' numbers, such as 1 or [0, 1], found a list",
            ),
            (
                "[{nic: a, cpus: 1, queues: -1}]",
                "2:33: irq[1].queues: expected a queue's number from 0 to 65535, found -1",
            ),
            (
                "[{nic: a, cpus: 1, rps: 2}]",
                "2:30: irq[1].rps: expected match, off or keep, found 2",
            ),
            (
                "[{nic: a, cpus: 1, irqbalance: kill}]",
                "2:37: irq[1].irqbalance: expected refuse, ignore or ban, found \"kill\"",
            ),
        ] {
            let found = read(irq).expect_err(irq).to_string();
            assert!(found.starts_with(&format!("p.yaml:{message}")), "{irq}: {found}");
        }
        let many = format!("[{}]", ["{nic: a, cpus: 1}"; 65].join(", "));
        assert!(read(&many).unwrap_err().to_string().ends_with("irq: more than 64 entries"));
    }
}
