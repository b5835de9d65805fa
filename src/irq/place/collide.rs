//! Exclusive CPUs that take a NIC's interrupts.
//!
//! This may be right or wrong. The softirq work of an interrupt runs before every task of its CPU.
//! A task that handles those packets next has them nearby; any other task is delayed.

use super::plan::Plan;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::nic::{NicIrq, all};

/// A note for each NIC whose interrupts arrive on `exclusive` CPUs, or will after `plan`.
/// `online` are the machine's CPUs.
///
/// Fails when /proc or /sys cannot be read.
pub fn notes(
    host: &Host,
    exclusive: &CpuList,
    online: &CpuList,
    plan: &Plan,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if exclusive.is_empty() {
        return Ok(notes);
    }
    let others = online.without(exclusive);
    let interrupts = Interrupts::read(&host.proc())?;
    for nic in all(host, &interrupts)? {
        let mut shared = Vec::new();
        for irq in nic.irqs {
            let common = goes_to(host, plan, irq.irq)?.common(exclusive);
            if !common.is_empty() {
                shared.push((irq, common));
            }
        }
        notes.extend(note(&nic.name, &shared, &others));
    }
    Ok(notes)
}

/// The CPUs where an IRQ arrives, or will after `plan`; none if it is not in use.
fn goes_to(host: &Host, plan: &Plan, irq: u32) -> Result<CpuList> {
    if let Some(wanted) = plan.wanted(irq) {
        return Ok(wanted.clone());
    }
    let now = Affinity::read(&host.proc(), irq)?;
    Ok(now.map(|now| now.effective.unwrap_or(now.allowed)).unwrap_or_default())
}

/// The note for the NIC `name`. `shared` has its IRQs, each with the exclusive CPUs that it comes
/// to.
fn note(name: &str, shared: &[(NicIrq, CpuList)], others: &CpuList) -> Option<String> {
    let (first, _) = shared.first()?;
    let named = format!("IRQ {} {}", first.irq, first.name.as_deref().unwrap_or_default());
    let more = match shared.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let cpus: CpuList = shared.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
    Some(format!(
        "CPUs {cpus} are exclusive and take interrupts of {name} ({}{more}): their softirq \
         work runs before the rule's tasks; that is right for tasks that handle these \
         packets; for other tasks, move the interrupts away with irq: [{{nic: {name}, cpus: \
         \"{others}\"}}]",
        named.trim_end(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::place::wanted::Placement;
    use crate::irq::tree::{Machine, Tree, on};

    #[test]
    fn where_they_arrive_now_or_will() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("proc/irq/40/effective_affinity_list", "3\n");
        tree.write("proc/irq/41/effective_affinity_list", "3\n");
        let notes = |exclusive: &str, placements: &[Placement]| {
            let exclusive = exclusive.parse().unwrap_or_default();
            let plan = Plan::of(&tree.host(), placements).unwrap();
            notes(&tree.host(), &exclusive, &"0-3".parse().unwrap(), &plan).unwrap()
        };
        assert_eq!(notes("", &[]), [""; 0]);
        assert_eq!(notes("2", &[]), [""; 0]);
        let note = &notes("2-3", &[])[0];
        let wanted = "CPUs 3 are exclusive and take interrupts of eth0 \
                      (IRQ 40 virtio0-input.1 and 1 more): ";
        assert!(note.starts_with(wanted), "{note}");
        assert!(note.ends_with("with irq: [{nic: eth0, cpus: \"0-1\"}]"), "{note}");
        assert_eq!(notes("2-3", &[on("eth0", "0-1")]), [""; 0]);
        assert!(notes("2", &[on("eth0", "2")])[0].contains("(IRQ 37 virtio0-config and 4 more)"));
    }
}
