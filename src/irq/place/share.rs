//! Which CPUs each IRQ of a NIC gets.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::Placement;
use crate::base::cpulist::CpuList;
use crate::irq::inventory::nic::NicIrq;

/// Which CPUs each IRQ of a NIC gets.
pub(super) struct Share<'a> {
    cpus: &'a CpuList,
    /// The CPU of each queue number, or of each IRQ where no name tells a queue. Empty when
    /// each gets all CPUs.
    places: BTreeMap<u32, u32>,
    by_queue: bool,
}

impl<'a> Share<'a> {
    /// With [`Placement::spread`], each queue gets the CPU that has the fewest queues by `uses`.
    /// Among equal CPUs, one of `near` comes first.
    pub fn new(
        placement: &'a Placement,
        near: &CpuList,
        uses: &mut BTreeMap<u32, usize>,
        irqs: &[&NicIrq],
    ) -> Self {
        let by_queue = irqs.iter().any(|irq| irq.queue.is_some());
        let keys: BTreeSet<u32> = match (placement.spread, by_queue) {
            (false, _) => BTreeSet::new(),
            // A receive queue and a transmit queue with one number belong together.
            (true, true) => irqs.iter().filter_map(|irq| Some(irq.queue?.number)).collect(),
            (true, false) => irqs.iter().map(|irq| irq.irq).collect(),
        };
        let mut place = |key| {
            let used = |cpu| uses.get(&cpu).copied().unwrap_or(0);
            let cpus = placement.cpus.iter();
            let cpu = cpus.min_by_key(|&cpu| (used(cpu), !near.contains(cpu)))?;
            *uses.entry(cpu).or_default() += 1;
            Some((key, cpu))
        };
        let places = keys.into_iter().filter_map(&mut place).collect();
        Self { cpus: &placement.cpus, places, by_queue }
    }

    pub fn of(&self, irq: &NicIrq) -> CpuList {
        let key = if self.by_queue { irq.queue.map(|queue| queue.number) } else { Some(irq.irq) };
        match key.and_then(|key| self.places.get(&key)) {
            Some(&cpu) => [cpu].into_iter().collect(),
            None => self.cpus.clone(),
        }
    }
}
