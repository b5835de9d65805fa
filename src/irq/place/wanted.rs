//! What a user wants: where the interrupts of a NIC should go.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Location, Result};
use crate::irq::inventory::nic::{Nic, NicIrq, queues_of};
use crate::irq::inventory::steering::Steering;
use crate::kernel::topology::Topology;

/// Where a NIC's interrupts are wanted. It is serialized as an entry of a policy's `irq`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// A network device. A virtual one stands for the NICs under it. An empty name, allowed only
    /// with `avoid`, stands for all NICs that no other placement is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nic: String,
    /// What `nic` means now, if it is a network of pods: network devices, or the addresses of PCI
    /// functions. They come and go with the pods, so each is placed as far as that is possible.
    #[serde(skip)]
    pub of_pods: Option<Vec<String>>,
    /// Empty with `avoid`.
    #[serde(skip_serializing_if = "CpuList::is_empty")]
    pub cpus: CpuList,
    /// Used instead of `cpus`: the CPUs that interrupts have to avoid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoid: Option<Avoid>,
    /// The CPUs that `avoid` means now.
    #[serde(skip)]
    pub away: CpuList,
    /// One CPU for each queue, instead of all CPUs for each.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Only these queues and `irqs`. When both are empty, all IRQs of the NIC.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub queues: BTreeSet<u32>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub irqs: BTreeSet<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub rps: Masks,
    #[serde(skip_serializing_if = "is_default")]
    pub xps: Masks,
    #[serde(skip_serializing_if = "is_default")]
    pub irqbalance: OnIrqbalance,
    /// Its place in the policy file, if it is from one.
    #[serde(skip)]
    pub location: Option<Location>,
}

/// CPUs that interrupts are kept away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Avoid {
    /// The exclusive CPUs of the policy's rules.
    Exclusive,
}

/// What to do when irqbalance is running, which would move the IRQs elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnIrqbalance {
    /// Change nothing, unless irqbalance already leaves them alone.
    #[default]
    Refuse,
    /// Place them anyway.
    Ignore,
    /// Tell it to leave them alone.
    Ban,
}

/// What to do about a NIC that is missing or down, and about other placements that cannot be made
/// now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Each is an error.
    Refuse,
    /// The interrupts of such a NIC are placed when it becomes available. Anything else is an
    /// error.
    Await,
    /// Each such placement waits until it is possible, and the others are made. If some CPUs of a
    /// placement are not online, it uses the others meanwhile. Only what cannot be read is an
    /// error.
    Keep,
}

/// What to do with the queues' masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Masks {
    /// They stay as they are.
    #[default]
    Keep,
    /// Each gets the CPUs of its queue's IRQ.
    Match,
    /// Each becomes empty.
    Off,
}

impl Placement {
    /// The placement of each device that it stands for now.
    pub(super) fn of_devices(&self) -> Vec<Self> {
        let Some(devices) = &self.of_pods else { return vec![self.clone()] };
        let of = |nic: &String| Self { nic: nic.clone(), of_pods: None, ..self.clone() };
        devices.iter().map(of).collect()
    }

    /// Leaves out the CPUs that are offline, unless all are. Returns a note about them.
    pub(super) fn leave_out_offline(&mut self, topology: &Topology) -> Option<String> {
        let Topology { possible, online, .. } = topology;
        let offline = self.cpus.common(possible).without(online);
        let left = self.cpus.without(&offline);
        if offline.is_empty() || left.is_empty() {
            return None;
        }
        let what = format!("CPUs {offline} are not online: {} uses {left} meanwhile", self.nic);
        self.cpus = left;
        Some(self.at(Error::failure(what)).to_string())
    }

    /// Leaves out the queues that none of `nics` has, unless no queue would be left. Returns a note
    /// about them.
    pub(super) fn leave_out_missing(&mut self, nics: &[Nic]) -> Option<String> {
        let have = queues_of(nics);
        let missing = &self.queues - &have;
        let left = &self.queues & &have;
        if missing.is_empty() || left.is_empty() {
            return None;
        }
        let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
        let (nic, missing) = (&self.nic, missing.join(", "));
        let what = format!("{nic} has no IRQ of queue {missing}: the others are placed meanwhile");
        self.queues = left;
        Some(self.at(Error::failure(what)).to_string())
    }

    /// The error with the placement's place in the policy file.
    pub(super) fn at(&self, e: Error) -> Error {
        Error { at: self.location.clone().or(e.at), ..e }
    }

    /// True when it selects all IRQs of the NIC.
    pub(super) fn is_whole(&self) -> bool {
        self.queues.is_empty() && self.irqs.is_empty()
    }

    /// True when it selects `irq`: it selects all IRQs, or names this IRQ's number or its queue's.
    pub(super) fn selects(&self, irq: &NicIrq) -> bool {
        self.is_whole()
            || self.irqs.contains(&irq.irq)
            || irq.queue.is_some_and(|queue| self.queues.contains(&queue.number))
    }

    /// What to do with the queues' masks of this kind.
    pub(super) fn masks(&self, steering: Steering) -> Masks {
        match steering {
            Steering::Rps => self.rps,
            Steering::Xps => self.xps,
        }
    }
}

/// Fails when one of `cpus` is not online. The error names it and those that are.
pub(super) fn check_cpus(cpus: &CpuList, topology: &Topology) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ExitCode::Usage, what));
    if cpus.is_empty() {
        return refuse("no CPU is given".into());
    }
    let (possible, online) = (&topology.possible, &topology.online);
    let outside = cpus.without(possible);
    if !outside.is_empty() {
        return refuse(format!("CPUs {outside}: this machine has CPUs {possible}"));
    }
    let offline = cpus.without(online);
    if !offline.is_empty() {
        return refuse(format!("CPUs {offline} are not online; CPUs {online} are"));
    }
    Ok(())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
