//! Which IRQs a placement selects.

use super::target::Target;
use super::wanted::Placement;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::irq::host::Host;
use crate::irq::inventory::affinity::{Affinity, Fixed};
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::nic::{Nic, NicIrq, is_down, queues_of};
use crate::kernel::topology::Topology;

/// What gthctl reads once for all placements.
pub(super) struct Machine<'a> {
    pub host: &'a Host,
    pub topology: Topology,
    pub interrupts: Interrupts,
    pub fixed: Fixed<'a>,
}

impl<'a> Machine<'a> {
    pub fn read(host: &'a Host) -> Result<Self> {
        let (topology, interrupts) = (host.topology()?, Interrupts::read(&host.proc())?);
        Ok(Self { host, topology, interrupts, fixed: Fixed::new(host) })
    }

    /// The device of a placement and its NICs.
    ///
    /// Fails when there is no such device, when no NIC is under it, or when no NIC has an IRQ in
    /// use, for example while all are down. If the placement names queues, also fails when no NIC
    /// has an IRQ of any queue and all NICs are down. All of these conditions may change by
    /// themselves.
    pub fn find(&self, placement: &Placement) -> Result<(Device, Vec<Nic>)> {
        let Self { host, interrupts, .. } = self;
        let device = Device::with_nics(host, &placement.nic)?;
        let read = |name: &String| Nic::read(&host.sys(), interrupts, name);
        let nics: Vec<Nic> = device.nics.iter().map(read).collect::<Result<_>>()?;
        // The directory of an IRQ outlives its handler (free_irq(), kernel/irq/manage.c), but only
        // the handler's name says which queue the IRQ belongs to.
        if !placement.queues.is_empty()
            && queues_of(&nics).is_empty()
            && nics.iter().all(|nic| is_down(&host.sys(), &nic.name))
        {
            return Err(not_in_use(host, placement, &nics));
        }
        let numbers = nics.iter().flat_map(|nic| &nic.irqs).map(|irq| irq.irq);
        for irq in numbers {
            if Affinity::read(&host.proc(), irq)?.is_some() {
                return Ok((device, nics));
            }
        }
        Err(not_in_use(host, placement, &nics))
    }

    /// The IRQs of `nic` that a placement selects and their CPUs now.
    ///
    /// Fails when the placement names an IRQ that is not in use, or selects one that only the
    /// kernel can move.
    pub fn choose<'n>(
        &self,
        placement: &Placement,
        nic: &'n Nic,
    ) -> Result<Vec<(&'n NicIrq, CpuList)>> {
        let mut chosen = Vec::new();
        for irq in nic.irqs.iter().filter(|irq| placement.selects(irq)) {
            let target = Target::of_irq(nic, irq);
            let Some(now) = target.read(self.host)? else {
                // An IRQ without a handler may have no directory in /proc/irq.
                if placement.irqs.contains(&irq.irq) {
                    return Err(
                        Error::failure(format!("{target} is not in use")).help(up(&nic.name))
                    );
                }
                continue;
            };
            if self.fixed.is(irq.irq) == Some(true) {
                let name = irq.name.as_deref().unwrap_or("no name");
                let what = format!("{target} ({name}) cannot be moved: the kernel manages it");
                return Err(Error::failure(what).help("choose others by --queue or --irq"));
            }
            chosen.push((irq, now.allowed));
        }
        Ok(chosen)
    }
}

/// The error for NICs that have no IRQ in use.
pub(super) fn not_in_use(host: &Host, placement: &Placement, nics: &[Nic]) -> Error {
    if let Some(nic) = nics.iter().find(|nic| !nic.irqs.is_empty()) {
        let what = format!("{}: none of its IRQs is in use", placement.nic);
        return Error::failure(what).help(up(&nic.name));
    }
    // Such as Hyper-V's NICs, whose interrupts belong to the bus. On a legacy line a NIC has
    // an IRQ only while it is up.
    let names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let e = Error::failure(format!("{}: no IRQs of its own", names.join(", ")));
    match names.iter().find(|name| is_down(&host.sys(), name)) {
        Some(name) => e.help(up(name)),
        None => e,
    }
}

fn up(nic: &str) -> String {
    format!("ip link set {nic} up")
}

/// Fails when the placement names an IRQ or a queue that none of `nics` has.
pub(super) fn check(placement: &Placement, nics: &[Nic]) -> Result<()> {
    let refuse = |what: String| {
        let help = format!("`gthctl irq list {}` shows them", placement.nic);
        Err(Error::new(ExitCode::Usage, what).help(help))
    };
    let all = || nics.iter().flat_map(|nic| &nic.irqs);
    if let Some(irq) = placement.irqs.iter().find(|&&irq| all().all(|one| one.irq != irq)) {
        return refuse(format!("IRQ {irq} is not one of {}", placement.nic));
    }
    let queues = queues_of(nics);
    if let Some(queue) = placement.queues.iter().find(|queue| !queues.contains(queue)) {
        return refuse(format!("{} has no IRQ of queue {queue}", placement.nic));
    }
    Ok(())
}
