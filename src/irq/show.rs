//! Interrupts as tables.

use std::collections::BTreeSet;

use super::inventory::device::Device;
use super::inventory::list::{List, ListedIrq, ListedNic};
use super::irqbalance::Irqbalance;
use super::place::drift::{self, Drift};
use super::place::pin::{self, Placed};
use super::place::plan::Plan;
use super::place::restore::{self, Restored};
use super::place::saved::By;
use super::place::target::{Target, shown};
use crate::base::cpulist::CpuList;
use crate::base::output::{row, table};

/// NICs and their IRQs.
pub fn list(list: &List) -> String {
    let counted = list.nics.iter().flat_map(|nic| &nic.irqs).any(|irq| irq.per_second.is_some());
    let mut head = row(["NIC", "driver", "node", "IRQ", "name", "CPUs", "effective", "interrupts"]);
    if counted {
        head.push("per s".into());
    }
    head.extend(["busiest CPU", "RPS", "XPS", "managed"].map(Into::into));
    let mut rows = vec![head];
    for nic in &list.nics {
        if nic.irqs.is_empty() {
            rows.push(nic_cells(nic));
        }
        for (i, irq) in nic.irqs.iter().enumerate() {
            // What is the NIC's stands in its first row.
            let mut cells = if i == 0 { nic_cells(nic) } else { vec![String::new(); 3] };
            cells.extend(irq_cells(irq, counted));
            rows.push(cells);
        }
    }
    let mut text = match list.nics.is_empty() {
        true => "no NICs in this network namespace".into(),
        false => table(rows),
    };
    for device in list.on_top.iter().filter(|device| !device.nics.is_empty()) {
        text += &format!("\n{}", device.on());
    }
    let elsewhere: BTreeSet<&str> =
        list.on_top.iter().flat_map(|device| &device.elsewhere).map(String::as_str).collect();
    if !elsewhere.is_empty() {
        let elsewhere: Vec<&str> = elsewhere.into_iter().collect();
        text += &format!("\nto other network namespaces: {}", elsewhere.join(", "));
    }
    text + &irqbalance(&list.irqbalance)
}

fn nic_cells(nic: &ListedNic) -> Vec<String> {
    let node = nic.numa_node.map_or("-".into(), |node| node.to_string());
    vec![nic.name.clone(), nic.driver.clone().unwrap_or("-".into()), node]
}

fn irq_cells(irq: &ListedIrq, counted: bool) -> Vec<String> {
    let cpus = |cpus: &Option<CpuList>| cpus.as_ref().map_or("-".into(), shown);
    let managed = match irq.managed {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    let mut cells = vec![
        irq.irq.to_string(),
        irq.name.clone().unwrap_or("-".into()),
        cpus(&irq.smp_affinity),
        cpus(&irq.effective_affinity),
        irq.total.to_string(),
    ];
    if counted {
        cells.push(irq.per_second.map_or("-".into(), |rate| format!("{rate:.0}")));
    }
    cells.push(irq.busiest_cpu.map_or("-".into(), |cpu| cpu.to_string()));
    cells.extend([cpus(&irq.rps_cpus), cpus(&irq.xps_cpus), managed.into()]);
    cells
}

fn irqbalance(running: &[Irqbalance]) -> String {
    let mut text = String::new();
    for Irqbalance { pid, banned, silent, .. } in running {
        let banned: Vec<String> = banned.iter().map(u32::to_string).collect();
        let banned = match banned.is_empty() {
            true => String::new(),
            false => format!(" except IRQ {}", banned.join(", ")),
        };
        let silent = silent.as_ref().map_or(String::new(), |why| format!(" (not asked: {why})"));
        text += &format!("\nirqbalance runs (PID {pid}) and moves IRQs{banned}{silent}");
    }
    match text.is_empty() {
        true => "\nirqbalance does not run".into(),
        false => text,
    }
}

/// What would change.
pub fn plan(plan: &Plan) -> String {
    let mut rows = vec![row(["NIC", "what", "name", "CPUs"])];
    for change in &plan.changes {
        let (now, wanted) = (shown(&change.now), shown(&change.wanted));
        let cpus = if now == wanted { now } else { format!("{now} -> {wanted}") };
        rows.push(cells(&change.nic, &change.target, &change.name, [cpus]));
    }
    table(rows)
}

/// What has changed, as read back.
pub fn placed(placed: &Placed) -> String {
    let mut rows = vec![row(["NIC", "what", "name", "before", "CPUs", "effective", ""])];
    for done in &placed.changes {
        let state = match done.state {
            pin::State::InPlace => "in place",
            pin::State::AfterNext => "in place after its next interrupt",
            pin::State::WhenStarted => "in place when it is started",
        };
        let effective = done.effective.as_ref().map_or("-".into(), shown);
        let more = [shown(&done.before), shown(&done.now), effective, state.into()];
        rows.push(cells(&done.nic, &done.target, &done.name, more));
    }
    with_devices(table(rows), &placed.devices)
}

/// What has been put back.
pub fn restored(restored: &Restored) -> String {
    if restored.restored.is_empty() && restored.failed_bans == 0 {
        return "nothing to restore".into();
    }
    let mut rows = vec![row(["NIC", "what", "name", "placed", "found", "original", ""])];
    for back in &restored.restored {
        let mut state = match back.state {
            restore::State::Restored => "restored",
            restore::State::Gone => "no longer there",
            restore::State::Replaced => "another device's now: left alone",
            restore::State::Failed => "NOT restored",
            restore::State::KeptByPolicy => "stays: the policy places it",
        }
        .to_owned();
        if back.moved_by_others {
            state += "; had been moved by others";
        }
        if let Some(why) = &back.why {
            state += &format!(": {why}");
        }
        let found = back.found.as_ref().map_or("-".into(), shown);
        let more = [shown(&back.placed), found, shown(&back.original), state];
        rows.push(cells(&back.nic, &back.target, &back.name, more));
    }
    table(rows)
}

/// What has been placed, and where it is now.
pub fn drift(drift: &Drift) -> String {
    if drift.placed.is_empty() {
        return "nothing is placed".into();
    }
    let mut rows = vec![row(["NIC", "what", "name", "placed", "by", "now", "effective", ""])];
    for look in &drift.placed {
        let state = match look.state {
            drift::State::InPlace => "in place",
            drift::State::Moved => "MOVED",
            drift::State::Gone => "no longer there",
            drift::State::Replaced => "another device's now",
            drift::State::Unfinished => "never got there",
        };
        let cpus = |cpus: &Option<CpuList>| cpus.as_ref().map_or("-".into(), shown);
        let by = match look.by {
            Some(By::Policy) => "policy",
            Some(By::Hand) => "pin",
            None => "restore",
        };
        let (now, effective) = (cpus(&look.now), cpus(&look.effective));
        let more = [shown(&look.wanted), by.into(), now, effective, state.into()];
        rows.push(cells(&look.nic, &look.target, &look.name, more));
    }
    table(rows)
}

fn cells<const N: usize>(
    nic: &str,
    target: &Target,
    name: &Option<String>,
    more: [String; N],
) -> Vec<String> {
    let mut cells = vec![nic.into(), target.to_string(), name.clone().unwrap_or_default()];
    cells.extend(more);
    cells
}

fn with_devices(mut text: String, devices: &[Device]) -> String {
    for device in devices.iter().filter(|device| device.is_virtual()) {
        text += &format!("\n{}", device.on());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape;
    use crate::irq::inventory::list::Lister;
    use crate::irq::tree::{Machine, Tree, pin};

    /// The cells of the row of `what`, without the lines between.
    fn cells_of<'a>(table: &'a str, what: &str) -> Vec<&'a str> {
        let rows = table.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        rows.into_iter().find(|row| row.contains(&what)).unwrap_or_else(|| panic!("{table}"))
    }

    #[test]
    fn a_list() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("n6", &["eth0"]);
        tree.write("sys/class/net/n6/uevent", "DEVTYPE=macvlan\n");
        let host = tree.host();
        let mut lister = Lister::new(&host, None);
        let text = list(&lister.look().unwrap());
        let first = [
            "eth0",
            "virtio_net",
            "0",
            "37",
            "virtio0-config",
            "0-3",
            "0",
            "370",
            "0",
            "-",
            "-",
            "?",
        ];
        assert_eq!(cells_of(&text, "37"), first, "{text}");
        assert_eq!(cells_of(&text, "38")[9..], ["none", "-", "?"], "{text}");
        assert!(text.ends_with("\nn6 is a macvlan on eth0\nirqbalance does not run"), "{text}");
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0-i38\0");
        let text = list(&lister.look().unwrap());
        assert_eq!(cells_of(&text, "38")[7..10], ["380", "0", "-"], "{text}");
        assert!(text.contains("(PID 42) and moves IRQs except IRQ 38 (not asked: "), "{text}");
    }

    /// Whoever may name a network device is not believed to mean the terminal well.
    #[test]
    fn no_name_moves_the_cursor() {
        // As far as the kernel allows (dev_valid_name(), net/core/dev.c): no white space.
        let nasty = "a\u{1b}[2J\u{9b}2J\u{202e}b";
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.nic(nasty, "pci0000:00/0000:00:03.0");
        let list_of_all = Lister::new(&tree.host(), None).look().unwrap();
        let text = list(&list_of_all);
        assert!(text.contains("a\\u{1b}[2J"), "{text}");
        assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
    }

    #[test]
    fn a_list_says_what_leads_elsewhere() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("br0", &["eth0", "veth1"]);
        for (name, files) in [("veth1", ["5", "2", "1"]), ("cali2", ["6", "2", "1"])] {
            tree.on_top(name, &[]);
            for (file, text) in ["ifindex", "iflink", "type"].iter().zip(files) {
                tree.write(&format!("sys/class/net/{name}/{file}"), text);
            }
        }
        tree.link("sys/class/net/veth1/master", "sys/class/net/br0");
        let text = list(&Lister::new(&tree.host(), None).look().unwrap());
        let below = "\nbr0 is a virtual device on eth0\nveth1 is a virtual device on eth0\n\
                     to other network namespaces: cali2, veth1\nirqbalance does not run";
        assert!(text.ends_with(below), "{text}");
        let text = list(&Lister::new(&tree.host(), Some("veth1")).look().unwrap());
        let below = "\nveth1 is a virtual device on eth0\nto other network namespaces: veth1\n\
                     irqbalance does not run";
        assert!(text.ends_with(below), "{text}");
    }

    #[test]
    fn placed_moved_and_restored() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(drift(&crate::irq::place::drift::look(&host).unwrap()), "nothing is placed");
        pin(&tree, "eth0", "2");
        tree.write("proc/irq/38/smp_affinity_list", "1\n");
        let text = drift(&crate::irq::place::drift::look(&host).unwrap());
        let wanted = ["eth0", "IRQ 38", "virtio0-input.0", "2", "pin", "1", "0", "MOVED"];
        assert_eq!(cells_of(&text, "IRQ 38"), wanted);
        let done = crate::irq::place::restore::restore(&host, None).unwrap();
        let text = restored(&done);
        let wanted = ["2", "1", "0-3", "restored; had been moved by others"];
        assert_eq!(cells_of(&text, "IRQ 38")[3..], wanted);
        assert_eq!(restored(&Restored::default()), "nothing to restore");
    }
}
