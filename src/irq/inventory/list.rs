//! NICs and their IRQs, with everything known about them.

use std::collections::BTreeSet;
use std::time::Instant;

use serde::Serialize;

use super::affinity::{Affinity, Fixed};
use super::device::Device;
use super::interrupts::Interrupts;
use super::nic::{Nic, NicIrq, all_of};
use super::queue::Queue;
use super::steering::Steering;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::irq::host::Host;
use crate::irq::irqbalance::Irqbalance;

/// NICs and their IRQs at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct List {
    pub nics: Vec<ListedNic>,
    /// Devices on top of the NICs, and those that lead to another network namespace.
    pub on_top: Vec<Device>,
    pub irqbalance: Vec<Irqbalance>,
}

impl List {
    /// Whether an irqbalance runs that does not leave all of `irqs` alone.
    pub fn may_move(&self, irqs: &BTreeSet<u32>) -> bool {
        self.irqbalance.iter().any(|daemon| !daemon.spares(irqs))
    }
}

/// A NIC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedNic {
    pub name: String,
    pub driver: Option<String>,
    pub pci: Option<String>,
    pub numa_node: Option<u32>,
    pub irqs: Vec<ListedIrq>,
}

impl ListedNic {
    /// The NIC's IRQs that are in use and that user space may move.
    pub fn movable(&self) -> impl Iterator<Item = &ListedIrq> {
        let movable = |irq: &&ListedIrq| irq.smp_affinity.is_some() && irq.managed != Some(true);
        self.irqs.iter().filter(movable)
    }
}

/// An IRQ of a NIC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedIrq {
    pub irq: u32,
    /// As in /proc/interrupts; `None` while it has no handler.
    pub name: Option<String>,
    pub queue: Option<Queue>,
    pub smp_affinity: Option<CpuList>,
    pub effective_affinity: Option<CpuList>,
    /// Whether only the kernel can move it; `None` if only an attempt to move it can show that.
    pub managed: Option<bool>,
    /// All interrupts so far, on the CPUs that are online.
    pub total: u64,
    /// The interrupts per second since the last look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The CPU that took the most interrupts since the last look, or in total at the first look.
    pub busiest_cpu: Option<u32>,
    /// The masks of the IRQ's queue, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rps_cpus: Option<CpuList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xps_cpus: Option<CpuList>,
}

/// Looks repeatedly, to calculate rates.
pub struct Lister<'a> {
    host: &'a Host,
    /// Only the NICs under this device.
    device: Option<&'a str>,
    before: Option<(Interrupts, Instant)>,
}

impl<'a> Lister<'a> {
    /// For the NICs under `device`, or for all.
    pub fn new(host: &'a Host, device: Option<&'a str>) -> Self {
        Self { host, device, before: None }
    }

    /// The NICs and their IRQs now.
    ///
    /// Fails when there is no such device, or when no NIC is under it.
    pub fn look(&mut self) -> Result<List> {
        let now = Interrupts::read(&self.host.proc())?;
        let at = Instant::now();
        let since = self.before.as_ref().map(|(before, then)| {
            (now.since(before), at.duration_since(*then).as_secs_f64().max(1e-9))
        });
        let devices = match self.device {
            Some(name) => vec![Device::with_nics(self.host, name)?],
            None => Device::all(self.host)?,
        };
        let fixed = Fixed::new(self.host);
        let mut nics = Vec::new();
        for nic in all_of(&self.host.sys(), &now, &devices)? {
            let mut irqs = Vec::new();
            for irq in &nic.irqs {
                irqs.push(look(self.host, &nic, irq, &fixed, (&now, since.as_ref()))?);
            }
            let Nic { name, driver, pci, numa_node, .. } = nic;
            nics.push(ListedNic { name, driver, pci, numa_node, irqs });
        }
        let on_top = devices.into_iter().filter(Device::is_virtual).collect();
        let irqbalance = Irqbalance::running(self.host)?;
        self.before = Some((now, at));
        Ok(List { nics, on_top, irqbalance })
    }
}

fn look(
    host: &Host,
    nic: &Nic,
    irq: &NicIrq,
    fixed: &Fixed<'_>,
    (now, since): (&Interrupts, Option<&(Interrupts, f64)>),
) -> Result<ListedIrq> {
    let affinity = Affinity::read(&host.proc(), irq.irq)?;
    let counted = now.get(irq.irq);
    let recent = since.and_then(|(since, seconds)| Some((since, since.get(irq.irq)?, seconds)));
    let busiest = match &recent {
        Some((since, counted, _)) => since.per_cpu(counted).max_by_key(most),
        None => counted.and_then(|counted| now.per_cpu(counted).max_by_key(most)),
    };
    let mask = |steering: Steering| match irq.queue.filter(|queue| steering.steers(queue)) {
        Some(queue) => steering.read(&host.sys(), &nic.name, queue.number),
        None => Ok(None),
    };
    Ok(ListedIrq {
        irq: irq.irq,
        name: irq.name.clone(),
        queue: irq.queue,
        smp_affinity: affinity.as_ref().map(|affinity| affinity.allowed.clone()),
        effective_affinity: affinity.and_then(|affinity| affinity.effective),
        managed: fixed.is(irq.irq),
        total: counted.map_or(0, |counted| counted.total()),
        per_second: recent.map(|(_, counted, seconds)| counted.total() as f64 / seconds),
        busiest_cpu: busiest.filter(|&(_, n)| n > 0).map(|(cpu, _)| cpu),
        rps_cpus: mask(Steering::Rps)?,
        xps_cpus: mask(Steering::Xps)?,
    })
}

/// Orders CPUs by their counts. Among equal counts, the lowest CPU is the greatest.
fn most(&(cpu, n): &(u32, u32)) -> (u32, std::cmp::Reverse<u32>) {
    (n, std::cmp::Reverse(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::{Machine, Tree};

    #[test]
    fn totals_then_rates() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        tree.on_top("n6", &["eth0"]);
        tree.on_top("lo", &[]);
        tree.write("sys/class/net/eth0/queues/rx-1/rps_cpus", "c\n");
        let mut lister = Lister::new(&host, None);
        let list = lister.look().unwrap();
        assert_eq!((list.nics.len(), list.on_top[0].name.as_str()), (1, "n6"));
        let irq = &list.nics[0].irqs[3];
        assert_eq!((irq.irq, irq.total, irq.per_second, irq.busiest_cpu), (40, 400, None, Some(0)));
        let rps = irq.rps_cpus.as_ref().unwrap().to_string();
        assert_eq!((rps.as_str(), &irq.xps_cpus), ("2-3", &None));
        let text = std::fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        let (old, new) = (
            "         0          0  PCI-MSIX-0000:00:03.0    3",
            "         0         50  PCI-MSIX-0000:00:03.0    3",
        );
        tree.write("proc/interrupts", &text.replace(old, new));
        let list = lister.look().unwrap();
        let irq = &list.nics[0].irqs[3];
        assert_eq!((irq.total, irq.busiest_cpu), (450, Some(3)));
        assert!(irq.per_second.unwrap() > 0.0);
        let idle = &list.nics[0].irqs[4];
        assert_eq!((idle.per_second, idle.busiest_cpu), (Some(0.0), None));
    }

    #[test]
    fn of_one_device() {
        let tree = Tree::machine(&Machine::TWO_NODES);
        tree.on_top("br0", &["enp5s0"]);
        tree.on_top("lo", &[]);
        let host = tree.host();
        let list = Lister::new(&host, Some("br0")).look().unwrap();
        assert_eq!((list.nics[0].name.as_str(), list.nics[0].numa_node), ("enp5s0", Some(1)));
        assert!(Lister::new(&host, Some("lo")).look().is_err());
        let value = serde_json::to_value(&list).unwrap();
        assert_eq!(value["nics"][0]["irqs"][1]["queue"], "rxtx1");
        assert_eq!(value["nics"][0]["irqs"][1]["smp_affinity"], "0-3");
    }
}
