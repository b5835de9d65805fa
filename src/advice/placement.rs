//! Where a NIC's interrupts should go, by what runs where.
//!
//! A NIC's interrupt brings softirq work, which runs before every task of its CPU. So it
//! belongs on CPUs near the NIC that no exclusive rule owns and no task that processes
//! GTP packets runs on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::packets::{PacketsByCpu, with_at_least};
use crate::base::cpulist::CpuList;
use crate::base::escape;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::list::{List, ListedIrq, ListedNic};
use crate::irq::place::target::shown;
use crate::trace::rows::Row;

/// A CPU with this share of the tasks' packets is busy with them.
const BUSY_SHARE: f64 = 0.05;

/// The facts.
pub struct NicFacts<'a> {
    pub device: &'a Device,
    /// The NICs, with their interrupts during the watch.
    pub list: &'a List,
    /// The CPUs of each NIC's NUMA node, if the machine reports it.
    pub near: &'a BTreeMap<String, CpuList>,
    pub online: &'a CpuList,
    /// CPUs that run without a tick (nohz_full).
    pub tickless: &'a CpuList,
    /// The exclusive CPUs of the live policy.
    pub exclusive: &'a CpuList,
    /// What a trace saw; empty if there was none.
    pub rows: &'a [Row],
    /// How the facts were found, such as why there was no trace.
    pub how: Vec<String>,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What was seen, one fact per line.
    pub facts: Vec<String>,
    /// Where tasks process GTP packets.
    pub busy_cpus: CpuList,
    pub exclusive_cpus: CpuList,
    /// What to run; empty if all is well.
    pub commands: Vec<String>,
}

/// The placement that follows from the facts.
pub fn advise(nic_facts: &NicFacts<'_>) -> Advice {
    let packets = PacketsByCpu::of(nic_facts.rows);
    let by_tasks: u64 = packets.tasks.values().sum();
    let busy = with_at_least(by_tasks as f64 * BUSY_SHARE, &packets.tasks);
    let softirq: CpuList = packets.softirq.keys().copied().collect();
    let mut facts = nic_facts.how.clone();
    if nic_facts.device.is_virtual() {
        facts.push(nic_facts.device.on());
    }
    if !busy.is_empty() {
        facts.push(format!("tasks process GTP packets on CPUs {busy}"));
    }
    if !softirq.is_empty() {
        facts.push(format!("GTP packets are processed in softirq on CPUs {softirq}"));
    }
    if !nic_facts.exclusive.is_empty() {
        facts.push(format!("the live policy keeps CPUs {} for its own tasks", nic_facts.exclusive));
    }
    let free = |cpu: &u32| !busy.contains(*cpu) && !nic_facts.exclusive.contains(*cpu);
    let mut free: CpuList = nic_facts.online.iter().filter(free).collect();
    let with_tick = free.without(nic_facts.tickless);
    if !with_tick.is_empty() && with_tick != free {
        let cpus = free.common(nic_facts.tickless);
        facts.push(format!("CPUs {cpus} are to do without a tick (nohz_full)"));
        free = with_tick;
    }
    let mut commands = Vec::new();
    for nic in &nic_facts.list.nics {
        commands.extend(advise_on(nic, nic_facts, &free, &mut facts));
    }
    Advice { facts, busy_cpus: busy, exclusive_cpus: nic_facts.exclusive.clone(), commands }
}

/// The command that places the interrupts of `nic` on some of the `free` CPUs, if that
/// changes anything.
fn advise_on(
    nic: &ListedNic,
    nic_facts: &NicFacts<'_>,
    free: &CpuList,
    facts: &mut Vec<String>,
) -> Option<String> {
    facts.push(arrivals(nic));
    let mut tell = |what: &str| facts.push(format!("{}: {what}", nic.name));
    if nic.irqs.is_empty() {
        tell("no IRQs of its own");
        return None;
    }
    if free.is_empty() {
        tell("no CPU is free for its interrupts");
        return None;
    }
    let near = nic_facts.near.get(&nic.name);
    let here: CpuList =
        free.iter().filter(|&cpu| near.is_none_or(|near| near.contains(cpu))).collect();
    let places = if here.is_empty() { free } else { &here };
    // IRQs without an affinity are not in use.
    let used = nic.irqs.iter().filter(|irq| irq.smp_affinity.is_some());
    let (fixed, movable): (Vec<&ListedIrq>, Vec<&ListedIrq>) =
        used.partition(|irq| irq.managed == Some(true));
    let away = |irq: &&ListedIrq| !well_placed(irq, places, nic_facts.online);
    for irq in fixed.iter().copied().filter(away) {
        let cpus = irq.smp_affinity.as_ref().map(shown).unwrap_or_default();
        tell(&format!("the kernel keeps IRQ {} on CPUs {cpus}: it cannot be moved", irq.irq));
    }
    if movable.iter().any(away) {
        if here.is_empty() {
            tell("no CPU of its NUMA node is free for them");
        }
        return Some(command(&nic.name, &movable, !fixed.is_empty(), places, nic_facts));
    }
    if movable.is_empty() && fixed.is_empty() {
        tell("none of its IRQs is in use");
    } else if !fixed.iter().any(away) {
        tell("its interrupts are already in a good place");
    }
    None
}

/// What was seen and the commands that follow, as a script. All but the commands are comments.
pub fn script(advice: &Advice) -> String {
    let facts = advice.facts.iter().map(|fact| format!("# {}", escape::line(fact)));
    let commands = advice.commands.iter().map(|command| escape::line(command).into_owned());
    facts.chain(commands).collect::<Vec<_>>().join("\n")
}

/// How many interrupts the NIC had, and which CPU took most of each.
fn arrivals(nic: &ListedNic) -> String {
    let rate: f64 =
        nic.irqs.iter().filter_map(|irq| irq.per_second).fold(0.0, |all, rate| all + rate);
    let cpus: CpuList = nic.irqs.iter().filter_map(|irq| irq.busiest_cpu).collect();
    let at = if cpus.is_empty() { String::new() } else { format!(", most of them on CPUs {cpus}") };
    format!("{}: {rate:.0} interrupts/s{at}", nic.name)
}

/// True if neither the IRQ nor RPS can bring the work to CPUs outside `places`. The kernel's lists
/// keep offline CPUs, which are ignored here.
fn well_placed(irq: &ListedIrq, places: &CpuList, online: &CpuList) -> bool {
    let cpus = irq.smp_affinity.iter().chain(&irq.rps_cpus);
    cpus.flat_map(CpuList::iter).all(|cpu| places.contains(cpu) || !online.contains(cpu))
}

/// The command that places `irqs`, which are all IRQs of `nic` that are in use, or only `some` of
/// them.
fn command(
    nic: &str,
    irqs: &[&ListedIrq],
    some: bool,
    places: &CpuList,
    nic_facts: &NicFacts<'_>,
) -> String {
    let mut queues: Vec<u32> =
        irqs.iter().filter_map(|irq| irq.queue).map(|queue| queue.number).collect();
    queues.sort_unstable();
    queues.dedup();
    // CPUs that already take the interrupts come first, so that few move.
    let mut order: Vec<u32> = places.iter().collect();
    let taken = |cpu: u32| irqs.iter().any(|irq| irq.busiest_cpu == Some(cpu));
    order.sort_by_key(|&cpu| !taken(cpu));
    // A driver's IRQ names may not tell which queue each IRQ belongs to.
    let shares = if queues.is_empty() { irqs.len() } else { queues.len() };
    let cpus: CpuList = order.into_iter().take(shares).collect();
    let mut command = format!("gthctl irq pin {nic} --cpus {cpus}");
    if cpus.len() > 1 {
        command += " --spread";
    }
    if some {
        command.extend(irqs.iter().map(|irq| format!(" --irq {}", irq.irq)));
    }
    // The kernel refuses an RPS mask of CPUs that run without a tick (rps_cpumask_housekeeping(),
    // net/core/net-sysfs.c).
    let takes_rps = cpus.common(nic_facts.tickless).is_empty();
    let uses_rps = |irq: &&ListedIrq| irq.rps_cpus.as_ref().is_some_and(|cpus| !cpus.is_empty());
    if takes_rps && irqs.iter().any(uses_rps) {
        command += " --rps";
    }
    if nic_facts.list.may_move(&irqs.iter().map(|irq| irq.irq).collect()) {
        command += " --ban";
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape::NASTY;
    use crate::irq::inventory::list::Lister;
    use crate::irq::place::plan::Plan;
    use crate::irq::place::wanted::Placement;
    use crate::irq::tree::{Machine, Tree};
    use crate::trace::counts::Context;

    fn row(cpu: usize, context: Context, packets: u64) -> Row {
        Row::of_packets("nr-gnb", cpu, context, packets)
    }

    fn advice(tree: &Tree, nic: &str, rows: &[Row], exclusive: &str, near: &str) -> Advice {
        let host = tree.host();
        let list = |text: &str| match text {
            "" => CpuList::default(),
            text => text.parse().unwrap(),
        };
        let near = match near {
            "" => BTreeMap::new(),
            cpus => BTreeMap::from([(nic.to_owned(), list(cpus))]),
        };
        advise(&NicFacts {
            device: &Device::with_nics(&host, nic).unwrap(),
            list: &Lister::new(&host, Some(nic)).look().unwrap(),
            near: &near,
            online: &host.topology().unwrap().online,
            tickless: &host.topology().unwrap().tickless,
            exclusive: &list(exclusive),
            rows,
            how: vec!["how".into()],
        })
    }

    #[test]
    fn away_from_the_tasks_and_from_exclusive_cpus() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let rows =
            [row(2, Context::Task, 900), row(1, Context::Task, 9), row(0, Context::Idle, 40)];
        let seen = advice(&tree, "eth0", &rows, "3", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0-1 --spread"]);
        assert_eq!(
            seen.facts,
            [
                "how",
                "tasks process GTP packets on CPUs 2",
                "GTP packets are processed in softirq on CPUs 0",
                "the live policy keeps CPUs 3 for its own tasks",
                "eth0: 0 interrupts/s, most of them on CPUs 0",
            ]
        );
        // Two queues, three CPUs: the one that takes their interrupts, and one more.
        let seen = advice(&tree, "eth0", &[row(1, Context::Task, 9)], "", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0,2 --spread"]);
    }

    #[test]
    fn not_on_cpus_without_a_tick_unless_no_other_is_free() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("sys/devices/system/cpu/nohz_full", "2-3\n");
        for queue in ["rx-0", "rx-1"] {
            tree.write(&format!("sys/class/net/eth0/queues/{queue}/rps_cpus"), "1\n");
        }
        let rows = [row(1, Context::Task, 9)];
        let seen = advice(&tree, "eth0", &rows, "", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0 --rps"]);
        assert!(
            seen.facts.iter().any(|fact| fact.starts_with("CPUs 2-3 are to do without a tick"))
        );
        let seen = advice(&tree, "eth0", &rows, "0", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 2-3 --spread"]);
    }

    #[test]
    fn near_the_nic_if_there_is_room() {
        let tree = Tree::machine(&Machine::TWO_NODES);
        let near = advice(&tree, "enp5s0", &[row(2, Context::Task, 9)], "", "2-3");
        assert_eq!(near.commands, ["gthctl irq pin enp5s0 --cpus 3"]);
        let far = advice(&tree, "enp5s0", &[row(2, Context::Task, 9)], "3", "2-3");
        assert_eq!(far.commands, ["gthctl irq pin enp5s0 --cpus 0-1 --spread"]);
        assert!(far.facts.last().unwrap().ends_with("no CPU of its NUMA node is free for them"));
        let none = advice(&tree, "enp5s0", &[row(2, Context::Task, 9)], "0-1,3", "2-3");
        assert!(none.commands.is_empty());
        assert!(none.facts.last().unwrap().ends_with("no CPU is free for its interrupts"));
    }

    /// Such as gve's, although its IRQs belong to queues all the same.
    #[test]
    fn names_that_do_not_tell_queues() {
        let tree = Tree::machine(&Machine::TWO_NODES);
        let text = std::fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        tree.write("proc/interrupts", &text.replace("enp5s0-TxRx-", "gve-ntfy-blk"));
        let seen = advice(&tree, "enp5s0", &[row(3, Context::Task, 9)], "", "");
        assert_eq!(seen.commands, ["gthctl irq pin enp5s0 --cpus 0-2 --spread"]);
    }

    #[test]
    fn what_the_kernel_manages_is_left_to_it() {
        let tree = Tree::machine(&Machine::VIRTIO);
        for irq in ["38", "39"] {
            tree.write(&format!("sys/kernel/debug/irq/irqs/{irq}"), "IRQD_AFFINITY_MANAGED\n");
        }
        tree.allow(39, "1");
        let rows = [row(2, Context::Task, 9)];
        let seen = advice(&tree, "eth0", &rows, "", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0 --irq 37 --irq 40 --irq 41"]);
        let fact = "eth0: the kernel keeps IRQ 38 on CPUs 0-3: it cannot be moved";
        assert_eq!(seen.facts.last().unwrap(), fact);
        // The commands of the advice can be carried out.
        let irqs = [37, 40, 41].into();
        let (nic, cpus) = ("eth0".into(), "0".parse().unwrap());
        let placement = Placement { nic, cpus, irqs, ..Placement::default() };
        assert_eq!(Plan::of(&tree.host(), &[placement]).unwrap().changes.len(), 3);
        for irq in [37, 40, 41] {
            tree.allow(irq, "0");
        }
        let seen = advice(&tree, "eth0", &rows, "", "");
        assert_eq!((seen.commands, seen.facts.last().unwrap().as_str()), (vec![], fact));
    }

    #[test]
    fn cpus_that_are_offline_are_no_place() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        let well = "eth0: its interrupts are already in a good place";
        let seen = advice(&tree, "eth0", &[], "", "");
        assert_eq!((seen.commands, seen.facts.last().unwrap().as_str()), (vec![], well));
        let seen = advice(&tree, "eth0", &[], "2", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0-1 --spread"]);
    }

    #[test]
    fn nics_without_irqs_and_without_any_in_use() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.link("sys/devices/vmbus/1/driver", "sys/bus/vmbus/drivers/hv_netvsc");
        tree.nic("eth1", "vmbus/1");
        let seen = advice(&tree, "eth1", &[], "2", "");
        assert_eq!(seen.commands, [""; 0]);
        assert_eq!(seen.facts.last().unwrap(), "eth1: no IRQs of its own");
        std::fs::remove_dir_all(tree.path("proc/irq")).unwrap();
        let seen = advice(&tree, "eth0", &[], "2", "");
        assert_eq!(seen.commands, [""; 0]);
        assert_eq!(seen.facts.last().unwrap(), "eth0: none of its IRQs is in use");
    }

    #[test]
    fn nothing_to_do_and_what_else_to_do() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let well = advice(&tree, "eth0", &[], "", "");
        assert!(well.commands.is_empty(), "{well:?}");
        assert_eq!(well.facts.last().unwrap(), "eth0: its interrupts are already in a good place");
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "c\n");
        tree.irqbalance(42);
        let seen = advice(&tree, "eth0", &[], "2", "");
        assert_eq!(seen.commands, ["gthctl irq pin eth0 --cpus 0-1 --spread --rps --ban"]);
    }

    #[test]
    fn no_name_moves_the_cursor() {
        let text = script(&Advice {
            facts: vec![format!("{NASTY}: 1 interrupts/s")],
            busy_cpus: CpuList::default(),
            exclusive_cpus: CpuList::default(),
            commands: vec![format!("gthctl irq pin {NASTY} --cpus 1")],
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("a\\u{1b}[2J"), "{text}");
        assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
    }
}
