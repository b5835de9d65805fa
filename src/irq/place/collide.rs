//! Exclusive CPUs that take a NIC's interrupts.
//!
//! This may be right or wrong. The softirq work of an interrupt runs before every task of its
//! CPU. A task that handles those packets next has them near; any other task is delayed.

use std::collections::BTreeSet;

use super::plan::Plan;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::nic::all_of;

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
    for nic in all_of(&host.sys(), &interrupts, &Device::all(host)?)? {
        let name = nic.name;
        let mut shared = Vec::new();
        let mut cpus = BTreeSet::new();
        for irq in nic.irqs {
            let goes_to = match plan.wanted(irq.irq) {
                Some(wanted) => wanted.clone(),
                None => match Affinity::read(&host.proc(), irq.irq)? {
                    Some(affinity) => affinity.effective.unwrap_or(affinity.allowed),
                    None => continue,
                },
            };
            let common = goes_to.common(exclusive);
            if !common.is_empty() {
                cpus.extend(common.iter());
                shared.push(irq);
            }
        }
        let Some(first) = shared.first() else { continue };
        let named = format!("IRQ {} {}", first.irq, first.name.as_deref().unwrap_or_default());
        let more = match shared.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let cpus: CpuList = cpus.into_iter().collect();
        notes.push(format!(
            "CPUs {cpus} are exclusive and take interrupts of {name} ({}{more}): their softirq \
             work runs before the rule's tasks; that is right for tasks that handle these \
             packets; for other tasks, move the interrupts away with irq: [{{nic: {name}, cpus: \
             \"{others}\"}}]",
            named.trim_end(),
        ));
    }
    Ok(notes)
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
