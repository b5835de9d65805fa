//! Makes a policy file from a trace.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use super::packets::{PacketsByCpu, entries, with_at_least};
use crate::base::cpulist::CpuList;
use crate::base::escape;
use crate::gtp::Plane;
use crate::irq::inventory::list::{List, ListedIrq, ListedNic};
use crate::policy::MAX_NAME;
use crate::trace::counts::Context;
use crate::trace::feed::Feed;
use crate::trace::rows::Row;

/// Tasks with a smaller share of the packets get no rule: they only help.
const LEAST_SHARE: f64 = 0.01;
/// A CPU that handles at least this share of all packets in softirq is one where downlink packets
/// arrive.
const SOFTIRQ_SHARE: f64 = 0.05;
/// A NIC brings packets to one of those CPUs if its interrupts there are at least this share of all
/// NIC interrupts on those CPUs.
const FEED_SHARE: f64 = 0.05;

/// The facts besides the rows.
pub struct TraceFacts<'a> {
    /// What was traced, as on the command line: `gtp5g`, `--function x`.
    pub traced: &'a str,
    /// The data plane, if it is one that rules can name.
    pub plane: Option<Plane>,
    pub seconds: f64,
    pub online: &'a CpuList,
    /// The interrupts of NICs during the trace.
    pub feeds: &'a [Feed],
    /// The NICs and irqbalance.
    pub list: &'a List,
}

impl TraceFacts<'_> {
    fn per_second(&self, packets: u64) -> f64 {
        packets as f64 / self.seconds.max(1e-9)
    }
}

/// The text of a policy file, with its reasons in comments. `None` if there were no
/// packets.
pub fn policy(rows: &[Row], facts: &TraceFacts<'_>) -> Option<String> {
    let packets = PacketsByCpu::of(rows);
    let all = packets.total();
    if all == 0 {
        return None;
    }
    let tasks = tasks(rows, all);
    let softirq = with_at_least(all as f64 * SOFTIRQ_SHARE, &packets.softirq);
    let mut text = format!(
        "# What gthctl trace {} saw in {:.0} s: {:.0} packets/s.\n",
        facts.traced,
        facts.seconds,
        facts.per_second(all)
    );
    if !softirq.is_empty() {
        text += &format!(
            "#\n# Packets arrive for no task, in softirq, on CPUs {softirq}: no rule reaches that work.\n\
             # It runs where the NIC's interrupts arrive"
        );
        text += &match irq(facts, &softirq) {
            Some(irq) => format!("; irq keeps them there.\n\n{irq}"),
            None if facts.feeds.iter().any(|feed| softirq.contains(feed.cpu as u32)) => {
                ": only the kernel can move the interrupts there.\n".into()
            }
            None => ": no NIC of this network namespace has interrupts there.\n".into(),
        };
    }
    if tasks.is_empty() {
        text += "\n# No task handles them, so there is no rule.\nstrategies: []\n";
        return Some(text);
    }
    text += "\n";
    if let Some(plane) = facts.plane {
        let gtp = match plane {
            Plane::Module(module) => module.name().to_owned(),
            Plane::Port(port) => format!("{{port: {port}}}"),
        };
        text += &format!(
            "# One rule for all of them, without names:\n\
             #   - {{name: traffic, gtp: {gtp}, priority: true}}\n"
        );
    }
    text += "strategies:\n";
    let others = facts.online.without(&softirq);
    let place = (!softirq.is_empty() && !others.is_empty()).then_some(others);
    let mut names: Vec<String> = Vec::new();
    for (task, totals) in &tasks {
        let name = task.name_of_rule(&names);
        text += &rule(&name, task, totals, place.as_ref(), facts);
        names.push(name);
    }
    Some(text)
}

/// The tasks with a good share of `all` packets, the busiest first.
fn tasks(rows: &[Row], all: u64) -> Vec<(TaskName, TaskTotals)> {
    let mut tasks: BTreeMap<TaskName, TaskTotals> = BTreeMap::new();
    for row in entries(rows).filter(|row| row.context == Context::Task) {
        tasks.entry(TaskName::of(row)).or_default().add(row);
    }
    let helps_only = |totals: &TaskTotals| (totals.packets as f64 / all as f64) < LEAST_SHARE;
    let mut tasks: Vec<(TaskName, TaskTotals)> =
        tasks.into_iter().filter(|(_, totals)| !helps_only(totals)).collect();
    tasks.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.packets));
    tasks
}

/// The rule `name` for one task, on the CPUs `place` if there is a choice.
fn rule(
    name: &str,
    task: &TaskName,
    totals: &TaskTotals,
    place: Option<&CpuList>,
    facts: &TraceFacts<'_>,
) -> String {
    let cpus: CpuList = totals.cpus.iter().copied().collect();
    let home = totals.home.as_ref();
    let mut text = format!(
        "  # {:.0} packets/s on CPUs {cpus}{}\n  - name: {}\n",
        facts.per_second(totals.packets),
        home.map_or(String::new(), |home| format!(", in {}", escape::line(home))),
        quoted(name),
    );
    if let Some(unit) = &task.unit {
        text += &format!("    systemd_unit: {}\n", quoted(unit));
    }
    let pattern = format!("^{}$", pattern(&task.comm));
    text += &format!("    command_regex: {}\n    priority: true\n", quoted(&pattern));
    if let Some(place) = place {
        text += &format!("    cpus: {}\n", quoted(&place.to_string()));
    }
    text
}

/// The policy's `irq`, which keeps each NIC's interrupts on those of `cpus` that take them now.
/// `None` if none of them takes any.
fn irq(facts: &TraceFacts<'_>, cpus: &CpuList) -> Option<String> {
    let mut nics: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
    for Feed { cpu, nic, per_second, .. } in facts.feeds {
        let cpu = *cpu as u32;
        if cpus.contains(cpu) {
            *nics.entry(nic).or_default().entry(cpu).or_default() += per_second;
        }
    }
    let all: f64 = nics.values().flat_map(BTreeMap::values).sum();
    let mut text = String::new();
    for (nic, mut rates) in nics {
        rates.retain(|_, rate| *rate >= all * FEED_SHARE);
        if rates.is_empty() {
            continue;
        }
        let queues = movable_queues(facts.list, nic);
        if queues.as_ref().is_some_and(BTreeSet::is_empty) {
            continue;
        }
        let each: Vec<String> =
            rates.iter().map(|(cpu, rate)| format!("{rate:.0} on CPU {cpu}")).collect();
        let cpus: CpuList = rates.keys().copied().collect();
        text += &format!(
            "  # interrupts/s: {}\n  - nic: {}\n    cpus: {}\n",
            each.join(", "),
            quoted(nic),
            quoted(&cpus.to_string()),
        );
        if cpus.len() > 1 {
            text += "    spread: true\n";
        }
        if let Some(queues) = queues {
            let queues: Vec<String> = queues.iter().map(u32::to_string).collect();
            text += &format!("    queues: [{}]\n", queues.join(", "));
        }
        let irqs = movable(facts.list, nic).map(|irq| irq.irq).collect();
        if facts.list.may_move(&irqs) {
            text += "    irqbalance: ban\n";
        }
    }
    (!text.is_empty()).then(|| format!("irq:\n{text}"))
}

/// Those of a NIC's IRQs that are in use and that user space may move.
fn movable<'a>(list: &'a List, nic: &str) -> impl Iterator<Item = &'a ListedIrq> {
    list.nics.iter().filter(move |listed| listed.name == nic).flat_map(ListedNic::movable)
}

/// The queues whose IRQs user space may move; `None` if these are all of the NIC's. The kernel
/// moves the others itself, and then no entry may be about the whole NIC.
fn movable_queues(list: &List, nic: &str) -> Option<BTreeSet<u32>> {
    let all = list.nics.iter().filter(|listed| listed.name == nic).flat_map(|nic| &nic.irqs);
    let fixed: Vec<&ListedIrq> = all.filter(|irq| irq.managed == Some(true)).collect();
    if fixed.is_empty() {
        return None;
    }
    let queue = |irq: &ListedIrq| irq.queue.map(|queue| queue.number);
    let mut queues: BTreeSet<u32> = movable(list, nic).filter_map(queue).collect();
    queues.retain(|number| fixed.iter().all(|irq| queue(irq) != Some(*number)));
    Some(queues)
}

/// The task that a rule is about, by names that outlive the process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TaskName {
    comm: String,
    unit: Option<String>,
}

impl TaskName {
    fn of(row: &Row) -> Self {
        // A session's scope has a new name each time.
        let unit = row.home.unit.clone().filter(|unit| unit.ends_with(".service"));
        // Names that need escaping cannot be written in a policy.
        let unit = unit.filter(|unit| matches!(escape::line(unit), Cow::Borrowed(_)));
        Self { comm: row.comm.clone(), unit }
    }

    /// A name for the task's rule that none of `others` has.
    fn name_of_rule(&self, others: &[String]) -> String {
        let comm = short(&self.comm);
        let with_unit = self.unit.as_ref().map(|unit| short(&format!("{comm} {unit}")));
        let numbered = (2..).map(|number: usize| format!("{comm} {number}"));
        let mut names = iter::once(comm.clone()).chain(with_unit).chain(numbered);
        names.find(|name| !others.contains(name)).unwrap_or_default()
    }
}

/// The name of a rule for a task with this comm. It leaves room for a number at the end.
pub(super) fn short(comm: &str) -> String {
    let comm = if comm.is_empty() { "unnamed" } else { comm };
    escape::line(comm).chars().take(MAX_NAME - 8).collect()
}

#[derive(Default)]
struct TaskTotals {
    packets: u64,
    cpus: Vec<u32>,
    home: Option<String>,
}

impl TaskTotals {
    fn add(&mut self, row: &Row) {
        self.packets += row.packets;
        self.cpus.push(row.cpu as u32);
        self.home = Some(row.home.short()).filter(|home| !home.is_empty());
    }
}

/// A regular expression that matches this name, without control characters, as policies require.
pub(super) fn pattern(comm: &str) -> String {
    let of = |c: char| {
        // `-` has a special meaning only within a class.
        if c == '-' {
            return c.into();
        }
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        match escape::line(text) {
            Cow::Borrowed(_) => regex_syntax::escape(text),
            Cow::Owned(_) => text.bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        }
    };
    comm.chars().map(of).collect()
}

/// The text as a YAML scalar. A JSON string is one.
pub(super) fn quoted(text: &str) -> String {
    escape::json(&serde_json::Value::from(text).to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::escape::NASTY;
    use crate::gtp::Module;
    use crate::irq::inventory::list::Lister;
    use crate::irq::place::plan::Plan;
    use crate::irq::place::wanted::OnIrqbalance;
    use crate::irq::tree::{Machine, Tree};
    use crate::policy::{Cpus, Policy};

    fn feed(nic: &str, cpu: usize, irq: u32, per_second: f64) -> Feed {
        Feed { cpu, nic: nic.into(), irq, name: "rx".into(), per_second }
    }

    fn suggest(rows: &[Row]) -> Option<String> {
        suggest_with(
            rows,
            &[
                feed("eth0", 1, 34, 90.4),
                feed("eth0", 1, 36, 9.0),
                feed("eth0", 2, 35, 70.0),
                feed("eth0", 3, 35, 4.0),
                // A few interrupts of another NIC.
                feed("mgmt", 1, 37, 2.0),
                feed("null", 3, 38, 80.0),
            ],
        )
    }

    fn suggest_with(rows: &[Row], feeds: &[Feed]) -> Option<String> {
        suggest_on(&Tree::machine(&Machine::VIRTIO), rows, feeds)
    }

    fn suggest_on(tree: &Tree, rows: &[Row], feeds: &[Feed]) -> Option<String> {
        let host = tree.host();
        let online = "0-3".parse().unwrap();
        let facts = TraceFacts {
            traced: "gtp",
            plane: Some(Plane::Module(Module::Gtp)),
            seconds: 10.0,
            online: &online,
            feeds,
            list: &Lister::new(&host, None).look().unwrap(),
        };
        policy(rows, &facts)
    }

    #[test]
    fn a_rule_for_each_task_that_does_the_work() {
        let mut in_unit = Row::of_packets("a b\"c", 2, Context::Task, 400);
        in_unit.home.unit = Some("upf.service".into());
        let text = suggest(&[
            Row::of_packets("nr-gnb", 0, Context::Task, 600),
            Row::of_packets("nr-gnb", 1, Context::Task, 400),
            in_unit,
            Row::of_packets("helper", 1, Context::Task, 3),
        ]);
        let text = text.unwrap();
        assert!(
            text.starts_with("# What gthctl trace gtp saw in 10 s: 140 packets/s.\n"),
            "{text}"
        );
        assert!(text.contains("  # 100 packets/s on CPUs 0-1\n  - name: \"nr-gnb\"\n"), "{text}");
        let rule = "\n\n# One rule for all of them, without names:\n\
                    #   - {name: traffic, gtp: gtp, priority: true}\nstrategies:\n";
        assert!(text.contains(rule), "{text}");
        let (policy, notes) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        assert_eq!(notes, [""; 0]);
        let rules: Vec<_> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(rules, ["nr-gnb", "a b\"c"]);
        let conditions = &policy.rules[1].conditions;
        assert_eq!(conditions.systemd_unit.as_deref(), Some("upf.service"));
        assert_eq!(conditions.command_regex.as_deref(), Some("^a b\"c$"));
        assert!(policy.rules.iter().all(|rule| rule.effects.priority.is_some()));
        assert!(policy.rules.iter().all(|rule| rule.effects.cpus.is_none()));
    }

    #[test]
    fn rules_have_different_names() {
        let long = "\u{1b}".repeat(15);
        let tasks = [
            ("", None),
            ("upf", None),
            ("upf", Some("a.service")),
            ("upf", Some("b.service")),
            ("upf a.service", None),
            (long.as_str(), None),
            (long.as_str(), Some("a.service")),
        ];
        let rows = tasks.map(|(comm, unit)| {
            let mut row = Row::of_packets(comm, 0, Context::Task, 400);
            row.home.unit = unit.map(Into::into);
            row
        });
        let text = suggest(&rows).unwrap();
        let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        let names: Vec<_> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
        let cut = short(&long);
        let second = format!("{cut} 2");
        let of_upf = ["upf", "upf a.service", "upf b.service", "upf a.service 2"];
        assert_eq!(names[..3], ["unnamed", cut.as_str(), second.as_str()]);
        assert_eq!(names[3..], of_upf);
    }

    /// A name must not end a comment: what follows would be a rule.
    #[test]
    fn no_name_is_read_as_a_rule() {
        let mut row = Row::of_packets(NASTY, 2, Context::Task, 400);
        row.home.unit = Some(format!("x\u{85}irq: [{NASTY}.scope"));
        let text = suggest(&[row]).unwrap();
        assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
        let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        assert_eq!(policy.rules.len(), 1);
        assert!(policy.irq.is_empty());
    }

    #[test]
    fn patterns_escape_what_has_a_meaning() {
        assert_eq!(pattern("nr-gnb"), "nr-gnb");
        assert_eq!(pattern("kworker/1:0+a.b[c]-d\\"), r"kworker/1:0\+a\.b\[c\]-d\\");
    }

    #[test]
    fn tasks_keep_away_from_softirq() {
        let text = suggest(&[
            Row::of_packets("nr-gnb", 0, Context::Task, 600),
            Row::of_packets("swapper/1", 1, Context::Idle, 300),
            Row::of_packets("stress", 1, Context::Softirq, 300),
            Row::of_packets("stress", 2, Context::Softirq, 3),
        ]);
        let text = text.unwrap();
        assert!(text.contains("on CPUs 1: no rule reaches"), "{text}");
        assert!(
            text.contains("\nirq:\n  # interrupts/s: 99 on CPU 1\n  - nic: \"eth0\"\n"),
            "{text}"
        );
        let (policy, notes) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        assert_eq!(notes, [""; 0]);
        assert_eq!(placements(&policy), [("eth0".into(), "1".into(), false)]);
        assert_eq!(policy.rules.len(), 1);
        assert_eq!(policy.rules[0].effects.cpus, Some(Cpus::List("0,2-3".parse().unwrap())));
    }

    /// The NIC and CPUs of each entry of `irq`, and whether they are spread.
    fn placements(policy: &Policy) -> Vec<(String, String, bool)> {
        let irq = policy.irq.iter().map(|entry| &entry.placement);
        irq.map(|entry| (entry.nic.clone(), entry.cpus.to_string(), entry.spread)).collect()
    }

    #[test]
    fn interrupts_of_several_nics_stay_on_several_cpus() {
        let rows = [1, 2, 3].map(|cpu| Row::of_packets("swapper", cpu, Context::Idle, 300));
        let text = suggest(&rows).unwrap();
        let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        // In YAML a bare null would not be a name.
        let wanted = [("eth0".into(), "1-2".into(), true), ("null".into(), "3".into(), false)];
        assert_eq!(placements(&policy), wanted);
        assert!(text.contains("# interrupts/s: 99 on CPU 1, 70 on CPU 2\n"), "{text}");
    }

    /// `policy apply` refuses an entry whose IRQs irqbalance would move, unless the entry allows a
    /// ban.
    #[test]
    fn irqbalance_is_told_if_it_would_move_them() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let row = Row::of_packets("swapper/1", 1, Context::Idle, 300);
        let on_irqbalance = || {
            let text = suggest_on(&tree, std::slice::from_ref(&row), &[feed("eth0", 1, 38, 90.0)])
                .unwrap();
            let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
            policy.irq[0].placement.irqbalance
        };
        assert_eq!(on_irqbalance(), OnIrqbalance::Refuse);
        tree.irqbalance(42);
        assert_eq!(on_irqbalance(), OnIrqbalance::Ban);
        // irqbalance may move another of the NIC's IRQs, even one that brought no packets.
        let bans = |irqs: &[u32]| {
            let bans: String = irqs.iter().map(|irq| format!("--banirq={irq}\0")).collect();
            tree.write("proc/42/cmdline", &format!("irqbalance\0{bans}"));
        };
        bans(&[37, 38, 39, 40]);
        assert_eq!(on_irqbalance(), OnIrqbalance::Ban);
        bans(&[37, 38, 39, 40, 41]);
        assert_eq!(on_irqbalance(), OnIrqbalance::Refuse);
    }

    /// `policy apply` refuses an entry about an IRQ that only the kernel can move.
    #[test]
    fn queues_that_only_the_kernel_can_move_stay_out() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let row = Row::of_packets("swapper/1", 1, Context::Idle, 300);
        let suggested = || {
            let feeds = [feed("eth0", 1, 38, 90.0)];
            let text = suggest_on(&tree, std::slice::from_ref(&row), &feeds).unwrap();
            let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
            let placements: Vec<_> = policy.irq.into_iter().map(|entry| entry.placement).collect();
            Plan::of(&tree.host(), &placements).expect(&text);
            assert_eq!(placements.is_empty(), text.contains(": only the kernel can move the "));
            placements.first().map(|placement| placement.queues.clone())
        };
        assert_eq!(suggested(), Some([].into()));
        let managed = |irq: u32| {
            let file = format!("sys/kernel/debug/irq/irqs/{irq}");
            tree.write(&file, "affinity: 0-3\n IRQD_AFFINITY_MANAGED\n");
        };
        // The output of queue 1, whose input could move.
        managed(41);
        assert_eq!(suggested(), Some([0].into()));
        managed(38);
        assert_eq!(suggested(), None);
    }

    #[test]
    fn nothing_but_softirq_and_nothing_at_all() {
        let rows = [Row::of_packets("swapper/1", 1, Context::Idle, 300)];
        let text = suggest_with(&rows, &[]).unwrap();
        let (policy, _) = Policy::parse(&text, Path::new("p.yaml")).expect(&text);
        assert!(policy.irq.is_empty() && text.contains("has interrupts there.\n"), "{text}");
        assert!(policy.rules.is_empty() && text.contains("there is no rule"), "{text}");
        assert_eq!(suggest(&[]), None);
    }
}
