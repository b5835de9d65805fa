//! Which CPUs each IRQ of a NIC gets.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::Placement;
use crate::base::cpulist::CpuList;
use crate::irq::inventory::nic::NicIrq;

/// The CPUs of each of `irqs`, by its number.
///
/// With [`Placement::spread`], each queue gets the CPU that has the fewest queues according to
/// `uses`. If no IRQ's name contains a queue, each IRQ gets such a CPU. Among equal CPUs, one of
/// `near` comes first.
pub(super) fn shares(
    placement: &Placement,
    near: &CpuList,
    uses: &mut BTreeMap<u32, usize>,
    irqs: &[&NicIrq],
) -> BTreeMap<u32, CpuList> {
    let by_queue = irqs.iter().any(|irq| irq.queue.is_some());
    // A receive queue and a transmit queue with one number belong together.
    let key = |irq: &NicIrq| if by_queue { irq.queue.map(|it| it.number) } else { Some(irq.irq) };
    let keys: BTreeSet<u32> = irqs.iter().filter_map(|irq| key(irq)).collect();
    let mut place = |key| {
        let used = |cpu| uses.get(&cpu).copied().unwrap_or(0);
        let cpus = placement.cpus.iter();
        let cpu = cpus.min_by_key(|&cpu| (used(cpu), !near.contains(cpu)))?;
        *uses.entry(cpu).or_default() += 1;
        Some((key, CpuList::from_iter([cpu])))
    };
    let places: BTreeMap<u32, CpuList> = match placement.spread {
        true => keys.into_iter().filter_map(&mut place).collect(),
        false => BTreeMap::new(),
    };
    let of = |irq: &NicIrq| key(irq).and_then(|key| places.get(&key)).unwrap_or(&placement.cpus);
    irqs.iter().map(|irq| (irq.irq, of(irq).clone())).collect()
}
