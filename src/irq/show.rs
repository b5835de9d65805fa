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
use crate::base::output::{listing, listing_without, row, table};

/// The columns that are left out on a narrow terminal.
const SPARE: [&str; 5] = ["XPS", "managed", "RPS", "driver", "busiest CPU"];

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
            // The NIC's cells are in its first row.
            let mut cells = if i == 0 { nic_cells(nic) } else { vec![String::new(); 3] };
            cells.extend(irq_cells(irq, counted));
            rows.push(cells);
        }
    }
    let mut text = match list.nics.is_empty() {
        true => "no NICs in this network namespace".into(),
        false => listing_without(&SPARE, rows),
    };
    text += &on_top(&list.on_top);
    let elsewhere: BTreeSet<&String> =
        list.on_top.iter().flat_map(|device| &device.elsewhere).collect();
    if !elsewhere.is_empty() {
        let elsewhere: Vec<&str> = elsewhere.into_iter().map(String::as_str).collect();
        text += &format!("\nto other network namespaces: {}", elsewhere.join(", "));
    }
    text + &irqbalance(&list.irqbalance)
}

fn nic_cells(nic: &ListedNic) -> Vec<String> {
    let node = nic.numa_node.map_or("-".into(), |node| node.to_string());
    vec![nic.name.clone(), nic.driver.clone().unwrap_or("-".into()), node]
}

fn irq_cells(irq: &ListedIrq, counted: bool) -> Vec<String> {
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
    if running.is_empty() {
        return "\nirqbalance is not running".into();
    }
    let mut text = String::new();
    for daemon in running {
        let (pid, except) = (daemon.pid, daemon.except());
        let silent = daemon.silent.as_ref();
        let silent = silent.map_or(String::new(), |why| format!(" (no answer: {why})"));
        text += &format!("\nirqbalance is running (PID {pid}) and moves IRQs{except}{silent}");
    }
    text
}

/// What would change.
pub fn plan(plan: &Plan) -> String {
    let mut rows = vec![row(["NIC", "what", "name", "CPUs"])];
    for change in &plan.changes {
        let (now, wanted) = (shown(&change.now), shown(&change.wanted));
        let cpus = if now == wanted { now } else { format!("{now} -> {wanted}") };
        rows.push(cells(&change.target, [cpus]));
    }
    listing(rows)
}

/// What was changed, as read back.
pub fn placed(placed: &Placed) -> String {
    let mut rows = vec![row(["NIC", "what", "name", "before", "CPUs", "effective", ""])];
    for done in &placed.changes {
        let state = match done.state {
            pin::State::InPlace => "in place",
            pin::State::AfterNext => "in place after its next interrupt",
            pin::State::WhenStarted => "in place when it is started",
        };
        let more = [shown(&done.before), shown(&done.now), cpus(&done.effective), state.into()];
        rows.push(cells(&done.target, more));
    }
    listing(rows) + &on_top(&placed.devices)
}

/// What was put back.
pub fn restored(restored: &Restored) -> String {
    if restored.restored.is_empty() && !restored.ban_failed {
        return "nothing to restore".into();
    }
    let mut rows = vec![row(["NIC", "what", "name", "placed", "found", "original", ""])];
    for back in &restored.restored {
        let mut state = match back.state {
            restore::State::Restored => "restored",
            restore::State::Gone => "no longer there",
            restore::State::Replaced => "now another device's: left alone",
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
        let more = [shown(&back.placed), cpus(&back.found), shown(&back.original), state];
        rows.push(cells(&back.target, more));
    }
    table(rows)
}

/// What was placed, and where it is now.
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
            drift::State::Replaced => "now another device's",
            drift::State::Unfinished => "never got there",
        };
        let by = match look.by {
            Some(By::Policy) => "policy",
            Some(By::Hand) => "pin",
            None => "restore",
        };
        let (now, effective) = (cpus(&look.now), cpus(&look.effective));
        rows.push(cells(
            &look.target,
            [shown(&look.wanted), by.into(), now, effective, state.into()],
        ));
    }
    listing(rows)
}

/// `0-3`, `none`, or `-` where they are unknown.
fn cpus(cpus: &Option<CpuList>) -> String {
    cpus.as_ref().map_or("-".into(), shown)
}

fn cells<const N: usize>(target: &Target, more: [String; N]) -> Vec<String> {
    let Target { nic, name, part } = target;
    let mut cells = vec![nic.clone(), part.to_string(), name.clone().unwrap_or_default()];
    cells.extend(more);
    cells
}

/// A line for each virtual device with its NICs.
fn on_top(devices: &[Device]) -> String {
    let has_nics = |device: &&Device| device.is_virtual() && !device.nics.is_empty();
    devices.iter().filter(has_nics).map(|device| format!("\n{}", device.on())).collect()
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
        let first = "eth0 virtio_net 0 37 virtio0-config 0-3 0 370 0 - - ?";
        assert_eq!(cells_of(&text, "37").join(" "), first, "{text}");
        assert_eq!(cells_of(&text, "38")[9..], ["none", "-", "?"], "{text}");
        assert!(text.ends_with("\nn6 is a macvlan on eth0\nirqbalance is not running"), "{text}");
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0-i38\0");
        let text = list(&lister.look().unwrap());
        assert_eq!(cells_of(&text, "38")[7..10], ["380", "0", "-"], "{text}");
        assert!(text.contains("(PID 42) and moves IRQs except IRQ 38 (no answer: "), "{text}");
    }

    /// A network device's name may contain terminal escapes.
    #[test]
    fn no_name_moves_the_cursor() {
        // The kernel allows everything but white space (dev_valid_name(), net/core/dev.c).
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
        tree.veth("veth1", 5, 2);
        tree.veth("cali2", 6, 2);
        tree.link("sys/class/net/veth1/master", "sys/class/net/br0");
        let text = list(&Lister::new(&tree.host(), None).look().unwrap());
        let below = "\nbr0 is a virtual device on eth0\nveth1 is a virtual device on eth0\n\
                     to other network namespaces: cali2, veth1\nirqbalance is not running";
        assert!(text.ends_with(below), "{text}");
        let text = list(&Lister::new(&tree.host(), Some("veth1")).look().unwrap());
        let below = "\nveth1 is a virtual device on eth0\nto other network namespaces: veth1\n\
                     irqbalance is not running";
        assert!(text.ends_with(below), "{text}");
    }

    #[test]
    fn placed_moved_and_restored() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(drift(&drift::look(&host).unwrap()), "nothing is placed");
        pin(&tree, "eth0", "2");
        tree.allow(38, "1");
        let text = drift(&drift::look(&host).unwrap());
        let wanted = ["eth0", "IRQ 38", "virtio0-input.0", "2", "pin", "1", "0", "MOVED"];
        assert_eq!(cells_of(&text, "IRQ 38"), wanted);
        let text = restored(&restore::restore(&host, None).unwrap());
        let wanted = ["2", "1", "0-3", "restored; had been moved by others"];
        assert_eq!(cells_of(&text, "IRQ 38")[3..], wanted);
        assert_eq!(restored(&Restored::default()), "nothing to restore");
    }
}
