//! What goes where: which IRQs and masks of a NIC a placement selects, and which CPUs each
//! gets.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Serialize;

use super::avoid::Detour;
use super::saved::is_met;
use super::target::{Part, Target, shown};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Location, Result};
use crate::irq::host::Host;
use crate::irq::inventory::affinity::{Affinity, Fixed};
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::nic::{Nic, NicIrq, all_of, is_down};
use crate::irq::inventory::source::Source;
use crate::irq::inventory::steering::Steering;
use crate::kernel::topology::Topology;

/// Where a NIC's interrupts are wanted. It is serialized as an entry of a policy's `irq`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// A network device. A virtual one stands for the NICs under it. Empty for all NICs that no
    /// other placement is about, only with `avoid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nic: String,
    /// What `nic` means now, if it is a network of pods: network devices, or the addresses of PCI
    /// functions. They come and go with the pods, so each is placed as far as that is possible.
    #[serde(skip)]
    pub of_pods: Option<Vec<String>>,
    /// Empty with `avoid`.
    #[serde(skip_serializing_if = "CpuList::is_empty")]
    pub cpus: CpuList,
    /// Instead of `cpus`: anywhere but there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoid: Option<Avoid>,
    /// The CPUs that `avoid` means now.
    #[serde(skip)]
    pub away: CpuList,
    /// One CPU for each queue, instead of all for each.
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

/// What to do about a NIC that is missing or down, and about other placements that are not possible now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Each is an error.
    Refuse,
    /// The interrupts of such a NIC are placed when it comes. All else is an error.
    Await,
    /// Each placement waits until it is possible, and the others are made. One of whose CPUs some are
    /// not online uses the others meanwhile. Only what cannot be read is an error.
    Keep,
}

/// What becomes of the queues' masks.
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

/// What placements change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The devices that the placements name, with the NICs under them.
    pub devices: Vec<Device>,
    pub changes: Vec<Change>,
    pub notes: Vec<String>,
    /// What to do when irqbalance may move an IRQ of the changes.
    #[serde(skip)]
    pub irqbalance: BTreeMap<u32, OnIrqbalance>,
}

/// A target and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub target: Target,
    /// The IRQ's, when the plan was made.
    #[serde(skip)]
    pub source: Option<Source>,
    /// The CPUs when the plan was made.
    pub now: CpuList,
    pub wanted: CpuList,
    /// If not empty: it is in place wherever it cannot come to one of these CPUs.
    #[serde(skip)]
    pub away: CpuList,
}

impl Change {
    /// Whether the target may stay on these CPUs.
    pub fn is_met_by(&self, now: &CpuList) -> bool {
        is_met(now, &self.wanted, &self.away)
    }
}

impl Plan {
    /// The plan for `placements`, which are made together or not at all.
    ///
    /// Fails when a CPU is not online, a device has no NIC under it, an IRQ or queue is not the
    /// NIC's or cannot be moved, or two placements want one target on different CPUs. The error
    /// names what is wrong.
    pub fn of(host: &Host, placements: &[Placement]) -> Result<Self> {
        Ok(Self::with(host, placements, Absent::Refuse)?.0)
    }

    /// As [`Plan::of`], unless `absent` says otherwise. The second value says why some placements
    /// have to wait.
    pub fn with(
        host: &Host,
        placements: &[Placement],
        absent: Absent,
    ) -> Result<(Self, Vec<String>)> {
        let (mut plan, mut waiting) = (Self::default(), Vec::new());
        if placements.is_empty() {
            return Ok((plan, waiting));
        }
        let topology = host.topology()?;
        let interrupts = Interrupts::read(&host.proc())?;
        let machine = Machine { host, interrupts: &interrupts, fixed: Fixed::new(host) };
        // What the policy says about a NIC goes before what is said about all, and a name of this machine
        // before one of pods.
        let mut placements: Vec<&Placement> = placements.iter().collect();
        placements
            .sort_by_key(|one| (one.avoid.is_some(), one.nic.is_empty(), one.of_pods.is_some()));
        for placement in placements {
            if placement.of_pods.is_some() && placement.avoid.is_none() && absent != Absent::Keep {
                check_cpus(&placement.cpus, &topology).map_err(|e| placement.at(e))?;
            }
            let waits = |e: &Error| {
                placement.of_pods.is_some() || (absent == Absent::Keep && e.source.is_none())
            };
            for one in placement.of_devices() {
                let before = plan.clone();
                match plan.place(&machine, &one, &topology, absent) {
                    Err(e) if waits(&e) => {
                        plan = before;
                        waiting.push(later(&e));
                    }
                    done => waiting.extend(done?),
                }
            }
        }
        Ok((plan, waiting))
    }

    /// Adds what one placement changes. Returns why it has to wait, if it may.
    fn place(
        &mut self,
        machine: &Machine<'_>,
        placement: &Placement,
        topology: &Topology,
        absent: Absent,
    ) -> Result<Option<String>> {
        let at = |e: Error| placement.at(e);
        if placement.nic.is_empty() {
            let (sys, interrupts) = (machine.host.sys(), machine.interrupts);
            let all = all_of(&sys, interrupts, &Device::all(machine.host)?)?;
            self.avoid(machine, placement, &all, topology).map_err(at)?;
            return Ok(None);
        }
        let found = match machine.find(placement) {
            Err(e) if absent == Absent::Await => return Ok(Some(later(&at(e)))),
            found => found,
        };
        let (placement, meanwhile) = match absent {
            Absent::Keep => placement.meanwhile(topology),
            Absent::Refuse | Absent::Await => (Cow::Borrowed(placement), None),
        };
        let placement: &Placement = &placement;
        if placement.avoid.is_none() {
            check_cpus(&placement.cpus, topology).map_err(at)?;
        }
        let (device, nics) = found.map_err(at)?;
        if device.is_virtual() {
            self.notes.push(format!("{}; gthctl places the interrupts there", device.on()));
        }
        self.devices.push(device);
        match placement.avoid {
            Some(_) => self.avoid(machine, placement, &nics, topology).map_err(at)?,
            None => self.add(machine, placement, &nics).map_err(at)?,
        }
        Ok(meanwhile)
    }

    /// The IRQs among the changes.
    pub fn irqs(&self) -> BTreeSet<u32> {
        self.changes.iter().filter_map(|change| change.target.irq()).collect()
    }

    /// Where an IRQ of the changes goes.
    pub fn wanted(&self, irq: u32) -> Option<&CpuList> {
        let change = self.changes.iter().find(|change| change.target.irq() == Some(irq))?;
        Some(&change.wanted)
    }

    /// What to do when irqbalance may move this IRQ.
    pub fn on_irqbalance(&self, irq: u32) -> OnIrqbalance {
        self.irqbalance.get(&irq).copied().unwrap_or_default()
    }

    fn add(&mut self, machine: &Machine<'_>, placement: &Placement, nics: &[Nic]) -> Result<()> {
        let host = machine.host;
        check_selection(placement, nics)?;
        // How many queues each CPU has got.
        let mut uses = BTreeMap::new();
        let mut any = false;
        for nic in nics {
            let chosen = machine.choose(placement, nic)?;
            any |= !chosen.is_empty();
            let node = node_of(host, nic.numa_node);
            if let Some((node, near)) = &node {
                self.note_distance(&nic.name, &placement.cpus, *node, near);
            }
            let near = node.map(|(_, near)| near).unwrap_or_default();
            let share = Share::new(placement, &near, &mut uses, chosen.iter().map(|(irq, _)| *irq));
            for (irq, now) in &chosen {
                self.push(Change {
                    target: target(nic, irq),
                    source: Source::of(host, machine.interrupts, irq.irq),
                    now: now.clone(),
                    wanted: share.of(irq),
                    away: CpuList::default(),
                })?;
                self.irqbalance.entry(irq.irq).or_insert(placement.irqbalance);
            }
            for (masks, steering) in
                [(placement.rps, Steering::Rps), (placement.xps, Steering::Xps)]
            {
                if masks != Masks::Keep {
                    self.add_masks(host, placement, nic, (masks, steering), &chosen, &share)?;
                }
            }
        }
        if any { Ok(()) } else { Err(not_in_use(host, placement, nics)) }
    }

    /// Adds all IRQs if there are CPUs that they have to avoid: also those that stay where they are, as
    /// irqbalance may move them. Those that other placements are about stay with these.
    fn avoid(
        &mut self,
        machine: &Machine<'_>,
        placement: &Placement,
        nics: &[Nic],
        topology: &Topology,
    ) -> Result<()> {
        if placement.away.is_empty() {
            return Ok(());
        }
        let detour =
            Detour::new(machine.host, machine.interrupts, &placement.away, &topology.online)?;
        for (nic, irq) in nics.iter().flat_map(|nic| nic.irqs.iter().map(move |irq| (nic, irq))) {
            let target = target(nic, irq);
            let planned = |change: &Change| change.target.is_same(&target);
            if self.changes.iter().any(planned) || machine.fixed.is(irq.irq) == Some(true) {
                continue;
            }
            let Some(now) = target.read(machine.host)? else { continue };
            let wanted = detour.of(&target, &now.allowed);
            self.irqbalance.entry(irq.irq).or_insert(placement.irqbalance);
            self.changes.push(Change {
                source: Source::of(machine.host, machine.interrupts, irq.irq),
                now: now.allowed,
                wanted,
                away: placement.away.clone(),
                target,
            });
        }
        Ok(())
    }

    fn add_masks(
        &mut self,
        host: &Host,
        placement: &Placement,
        nic: &Nic,
        (masks, steering): (Masks, Steering),
        chosen: &[(&NicIrq, CpuList)],
        share: &Share<'_>,
    ) -> Result<()> {
        let is_of = |irq: &NicIrq, number: u32| {
            irq.queue.is_some_and(|queue| steering.steers(&queue) && queue.number == number)
        };
        let mut any = false;
        for queue in steering.queues(&host.sys(), &nic.name)? {
            let irq = chosen.iter().map(|(irq, _)| *irq).find(|irq| is_of(irq, queue));
            if !placement.is_whole() && irq.is_none() && !placement.queues.contains(&queue) {
                continue;
            }
            let part = Part::Mask { mask: steering, queue };
            let target = Target { nic: nic.name.clone(), name: None, part };
            let Some(now) = target.read(host)? else { continue };
            any = true;
            let wanted = match (masks, irq) {
                (Masks::Off | Masks::Keep, _) => CpuList::default(),
                (Masks::Match, Some(irq)) => share.of(irq),
                (Masks::Match, None) => placement.cpus.clone(),
            };
            let (now, away) = (now.allowed, CpuList::default());
            self.push(Change { target, source: None, now, wanted, away })?;
        }
        if !any {
            let what = match steering {
                Steering::Rps => "RPS",
                Steering::Xps => "XPS",
            };
            self.notes.push(format!("{}: its queues have no {what} mask to set", nic.name));
        }
        Ok(())
    }

    fn push(&mut self, change: Change) -> Result<()> {
        let Change { target, wanted, .. } = &change;
        match self.changes.iter().find(|other| target.is_same(&other.target)) {
            None => {
                self.changes.push(change);
                Ok(())
            }
            Some(other) if other.wanted == *wanted => Ok(()),
            Some(other) => {
                let (one, two) = (shown(&other.wanted), shown(wanted));
                let what = format!("{target} is placed twice, on CPUs {one} and on CPUs {two}");
                Err(Error::new(ExitCode::Usage, what).help("place it once"))
            }
        }
    }

    fn note_distance(&mut self, nic: &str, cpus: &CpuList, node: u32, near: &CpuList) {
        let far = cpus.without(near);
        if !far.is_empty() {
            let what = format!("{nic}: CPUs {far} are not in its NUMA node {node} (CPUs {near})");
            self.notes.push(what);
        }
    }
}

/// Why something is placed later.
fn later(e: &Error) -> String {
    let e = Error { help: None, ..e.clone() };
    format!("{e}; gthctl places the interrupts when that is fixed")
}

impl Placement {
    /// The placement of each device that it stands for now.
    fn of_devices(&self) -> Vec<Cow<'_, Self>> {
        let Some(devices) = &self.of_pods else { return vec![Cow::Borrowed(self)] };
        let of = |nic: &String| Self { nic: nic.clone(), of_pods: None, ..self.clone() };
        devices.iter().map(|nic| Cow::Owned(of(nic))).collect()
    }

    /// The placement on those of its CPUs that are online, with a note about the others. It is as
    /// it was if none of them is online.
    fn meanwhile(&self, topology: &Topology) -> (Cow<'_, Self>, Option<String>) {
        let Topology { possible, online, .. } = topology;
        let offline = self.cpus.common(possible).without(online);
        let cpus = self.cpus.without(&offline);
        if offline.is_empty() || cpus.is_empty() {
            return (Cow::Borrowed(self), None);
        }
        let what = format!("CPUs {offline} are not online: {} uses {cpus} meanwhile", self.nic);
        let note = self.at(Error::failure(what)).to_string();
        (Cow::Owned(Self { cpus, ..self.clone() }), Some(note))
    }

    /// The error with the placement's place in the policy file.
    fn at(&self, e: Error) -> Error {
        Error { at: self.location.clone().or(e.at), ..e }
    }

    /// True when it selects all IRQs of the NIC.
    fn is_whole(&self) -> bool {
        self.queues.is_empty() && self.irqs.is_empty()
    }

    /// True when it selects `irq`: all, or by the IRQ's number or its queue's.
    fn selects(&self, irq: &NicIrq) -> bool {
        self.is_whole()
            || self.irqs.contains(&irq.irq)
            || irq.queue.is_some_and(|queue| self.queues.contains(&queue.number))
    }
}

/// What gthctl reads once for all placements.
struct Machine<'a> {
    host: &'a Host,
    interrupts: &'a Interrupts,
    fixed: Fixed<'a>,
}

impl Machine<'_> {
    /// The device of a placement and its NICs.
    ///
    /// Fails when there is no such device, when no NIC is under it, or when no NIC has an IRQ in
    /// use, as while it is down. All of these may change by themselves.
    fn find(&self, placement: &Placement) -> Result<(Device, Vec<Nic>)> {
        let Self { host, interrupts, .. } = self;
        let device = Device::with_nics(host, &placement.nic)?;
        let read = |name: &String| Nic::read(&host.sys(), interrupts, name);
        let nics: Vec<Nic> = device.nics.iter().map(read).collect::<Result<_>>()?;
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
    fn choose<'n>(
        &self,
        placement: &Placement,
        nic: &'n Nic,
    ) -> Result<Vec<(&'n NicIrq, CpuList)>> {
        let mut chosen = Vec::new();
        for irq in nic.irqs.iter().filter(|irq| placement.selects(irq)) {
            let target = target(nic, irq);
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

fn target(nic: &Nic, irq: &NicIrq) -> Target {
    let part = Part::Irq { irq: irq.irq };
    Target { nic: nic.name.clone(), name: irq.name.clone(), part }
}

fn not_in_use(host: &Host, placement: &Placement, nics: &[Nic]) -> Error {
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

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Fails when one of `cpus` is not online. The error names it and those that are.
pub fn check_cpus(cpus: &CpuList, topology: &Topology) -> Result<()> {
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

fn check_selection(placement: &Placement, nics: &[Nic]) -> Result<()> {
    let refuse = |what: String| {
        let help = format!("`gthctl irq list {}` shows them", placement.nic);
        Err(Error::new(ExitCode::Usage, what).help(help))
    };
    let all = || nics.iter().flat_map(|nic| &nic.irqs);
    if let Some(irq) = placement.irqs.iter().find(|&&irq| all().all(|one| one.irq != irq)) {
        return refuse(format!("IRQ {irq} is not one of {}", placement.nic));
    }
    let queues: BTreeSet<u32> =
        all().filter_map(|irq| irq.queue).map(|queue| queue.number).collect();
    if let Some(queue) = placement.queues.iter().find(|queue| !queues.contains(queue)) {
        return refuse(format!("{} has no IRQ of queue {queue}", placement.nic));
    }
    Ok(())
}

/// A NIC's NUMA node and its CPUs; `None` where sysfs does not tell.
pub fn node_of(host: &Host, node: Option<u32>) -> Option<(u32, CpuList)> {
    let node = node?;
    let path = host.sys().join(format!("devices/system/node/node{node}/cpulist"));
    let cpus = fs::read_to_string(path).ok()?.trim_end().parse().ok()?;
    Some((node, cpus))
}

/// Which CPUs each IRQ of a NIC gets.
struct Share<'a> {
    cpus: &'a CpuList,
    /// The CPU of each queue number, or of each IRQ where no name tells a queue. Empty when
    /// each gets all CPUs.
    places: BTreeMap<u32, u32>,
    by_queue: bool,
}

impl<'a> Share<'a> {
    /// With [`Placement::spread`], each queue gets the CPU that has the fewest queues by `uses`.
    /// Among equal CPUs, one of `near` comes first.
    fn new<'i>(
        placement: &'a Placement,
        near: &CpuList,
        uses: &mut BTreeMap<u32, usize>,
        irqs: impl Iterator<Item = &'i NicIrq> + Clone,
    ) -> Self {
        let by_queue = irqs.clone().any(|irq| irq.queue.is_some());
        let keys: BTreeSet<u32> = match (placement.spread, by_queue) {
            (false, _) => BTreeSet::new(),
            // A receive queue and a transmit queue with one number belong together.
            (true, true) => irqs.filter_map(|irq| Some(irq.queue?.number)).collect(),
            (true, false) => irqs.map(|irq| irq.irq).collect(),
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

    fn of(&self, irq: &NicIrq) -> CpuList {
        let key = if self.by_queue { irq.queue.map(|queue| queue.number) } else { Some(irq.irq) };
        match key.and_then(|key| self.places.get(&key)) {
            Some(&cpu) => [cpu].into_iter().collect(),
            None => self.cpus.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::{Machine, Tree, on};

    /// Each change as `TARGET CPUS`.
    fn plan(tree: &Tree, placement: Placement) -> std::result::Result<Vec<String>, String> {
        let plan = Plan::of(&tree.host(), &[placement]).map_err(|e| e.to_string())?;
        let changes = plan.changes.iter();
        Ok(changes.map(|c| format!("{} {}", c.target.part, shown(&c.wanted))).collect())
    }

    #[test]
    fn the_same_cpus_for_all_or_one_for_each_queue_and_its_masks() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let changes = plan(&tree, on("eth0", "2-3")).unwrap();
        assert_eq!(changes, ["IRQ 37 2-3", "IRQ 38 2-3", "IRQ 39 2-3", "IRQ 40 2-3", "IRQ 41 2-3"]);
        let wanted =
            Placement { spread: true, rps: Masks::Match, xps: Masks::Match, ..on("eth0", "1-3") };
        assert_eq!(
            plan(&tree, wanted).unwrap(),
            [
                "IRQ 37 1-3",
                "IRQ 38 1",
                "IRQ 39 1",
                "IRQ 40 2",
                "IRQ 41 2",
                "RPS of rx-0 1",
                "RPS of rx-1 2",
                "XPS of tx-0 1",
                "XPS of tx-1 2",
            ]
        );
    }

    #[test]
    fn one_queue_or_one_irq() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let one = Placement { queues: [1].into(), rps: Masks::Off, ..on("eth0", "3") };
        assert_eq!(plan(&tree, one).unwrap(), ["IRQ 40 3", "IRQ 41 3", "RPS of rx-1 none"]);
        let one = Placement { irqs: [37].into(), ..on("eth0", "3") };
        assert_eq!(plan(&tree, one).unwrap(), ["IRQ 37 3"]);
        let none = Placement { irqs: [159].into(), ..on("eth0", "3") };
        let why = "IRQ 159 is not one of eth0; `gthctl irq list eth0` shows them";
        assert_eq!(plan(&tree, none).unwrap_err(), why);
        let none = Placement { queues: [7].into(), ..on("eth0", "3") };
        assert!(plan(&tree, none).unwrap_err().starts_with("eth0 has no IRQ of queue 7; "));
    }

    #[test]
    fn the_nics_own_node_first() {
        let tree = Tree::machine(&Machine::TWO_NODES);
        let wanted = Placement { spread: true, ..on("enp5s0", "0-3") };
        // Its node has CPUs 2 and 3, which are too few for a third queue.
        assert_eq!(plan(&tree, wanted).unwrap(), ["IRQ 129 2", "IRQ 130 3", "IRQ 131 0"]);
        let far = Plan::of(&tree.host(), &[on("enp5s0", "0,2")]).unwrap();
        assert_eq!(far.notes, ["enp5s0: CPUs 0 are not in its NUMA node 1 (CPUs 2-3)"]);
    }

    #[test]
    fn nics_of_two_nodes_share_the_cpus() {
        let tree = Tree::machine(&Machine::TWO_NODES);
        let lines = [(129, "0-TxRx-0"), (130, "0-TxRx-1"), (131, "1-TxRx-0"), (132, "1-TxRx-1")];
        let mut text = "      CPU0 CPU1 CPU2 CPU3\n".to_owned();
        for (irq, name) in lines {
            text += &format!("{irq}: 0 0 0 0  PCI-MSIX  {irq}-edge  eth{name}\n");
            tree.write(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        tree.write("proc/interrupts", &text);
        for (nic, device, node, irqs) in [
            ("eth0", "0000:01:00.0", "0\n", [129, 130]),
            ("eth1", "0000:81:00.0", "1\n", [131, 132]),
        ] {
            let device = format!("pci0000:00/{device}");
            tree.pci(&device, "ixgbe", &irqs);
            tree.write(&format!("sys/devices/{device}/numa_node"), node);
            tree.nic(nic, &device);
        }
        tree.on_top("bond0", &["eth0", "eth1"]);
        let spread = |cpus| {
            let wanted = Placement { spread: true, ..on("bond0", cpus) };
            plan(&tree, wanted).unwrap()
        };
        assert_eq!(spread("0-3"), ["IRQ 129 0", "IRQ 130 1", "IRQ 131 2", "IRQ 132 3"]);
        // eth0 also takes a CPU of eth1's node. eth1 gets the other one, then that one again.
        assert_eq!(spread("0,2-3"), ["IRQ 129 0", "IRQ 130 2", "IRQ 131 3", "IRQ 132 2"]);
        assert_eq!(spread("1"), ["IRQ 129 1", "IRQ 130 1", "IRQ 131 1", "IRQ 132 1"]);
    }

    #[test]
    fn a_virtual_device_is_placed_by_its_nics() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("n6", &["eth0"]);
        tree.write("sys/class/net/n6/uevent", "DEVTYPE=macvlan\n");
        let plan = Plan::of(&tree.host(), &[on("n6", "1")]).unwrap();
        assert_eq!(plan.notes, ["n6 is a macvlan on eth0; gthctl places the interrupts there"]);
        assert!(plan.changes.iter().all(|change| change.target.nic == "eth0"));
        assert_eq!(plan.irqs(), (37..=41).collect());
    }

    /// n3 of pods, which stands for these devices.
    fn of_pods(devices: &[&str], cpus: &str) -> Placement {
        let of_pods = Some(devices.iter().map(|&name| name.into()).collect());
        Placement { of_pods, ..on("n3", cpus) }
    }

    #[test]
    fn devices_of_pods_are_placed_as_far_as_possible() {
        let tree = Tree::machine(&Machine::VIRTIO);
        // A virtual function whose network device is in a pod.
        tree.pci("pci0000:00/0000:03:02.1", "iavf", &[50, 51]);
        tree.link("sys/bus/pci/devices/0000:03:02.1", "sys/devices/pci0000:00/0000:03:02.1");
        let mut text = fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        for (irq, name) in [(50, "iavf-0000:03:02.1:mbx"), (51, "iavf-eth7-TxRx-0")] {
            text += &format!("{irq}: 0 0 0 0  PCI-MSIX-0000:03:02.1  {name}\n");
            tree.write(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        tree.write("proc/interrupts", &text);
        let vf = Nic::read(&tree.sys(), &Interrupts::read(&tree.proc()).unwrap(), "0000:03:02.1");
        let vf = vf.unwrap();
        assert_eq!((vf.irqs.len(), vf.pci.as_deref()), (2, Some("0000:03:02.1")));
        assert_eq!(vf.irqs[1].queue.unwrap().to_string(), "rxtx0");

        let plan = |placements: &[Placement]| {
            let (plan, waiting) = Plan::with(&tree.host(), placements, Absent::Refuse).unwrap();
            let changes = plan.changes.iter();
            let changes: Vec<_> =
                changes.map(|c| format!("{} {}", c.target, shown(&c.wanted))).collect();
            (changes, waiting)
        };
        // Its queues' masks are not seen from here.
        let pods = of_pods(&["0000:03:02.1", "0000:03:02.2", "eth9"], "2");
        let (changes, waiting) = plan(&[Placement { rps: Masks::Match, xps: Masks::Off, ..pods }]);
        assert_eq!(changes, ["0000:03:02.1: IRQ 50 2", "0000:03:02.1: IRQ 51 2"]);
        assert_eq!(waiting.len(), 2);
        assert!(waiting[0].starts_with("\"0000:03:02.2\": no such PCI function"), "{waiting:?}");
        assert!(waiting[1].starts_with("\"eth9\": no such network device"), "{waiting:?}");
        // What another entry says goes first, and the rest of the plan stays.
        let both = [of_pods(&["eth0", "0000:03:02.1"], "2"), on("eth0", "3")];
        let (changes, waiting) = plan(&both);
        assert_eq!(changes.len(), 7);
        assert_eq!(
            (&changes[0][..], &changes[6][..]),
            ("eth0: IRQ 37 3", "0000:03:02.1: IRQ 51 2")
        );
        let conflict = "eth0: IRQ 37 is placed twice, on CPUs 3 and on CPUs 2; gthctl places the interrupts \
                        when that is fixed";
        assert_eq!(waiting, [conflict]);
        // The CPUs are checked though there is no pod.
        let e = Plan::of(&tree.host(), &[of_pods(&[], "9")]).unwrap_err();
        assert_eq!(e.what, "CPUs 9: this machine has CPUs 0-3");
        assert_eq!(plan(&[of_pods(&[], "2")]), (vec![], vec![]));
    }

    #[test]
    fn bad_cpus_are_named() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        let why = |cpus| plan(&tree, on("eth0", cpus)).unwrap_err();
        assert_eq!(why("1,4,9"), "CPUs 4,9: this machine has CPUs 0-3");
        assert_eq!(why("2-3"), "CPUs 3 are not online; CPUs 0-2 are");
        let none = Placement { cpus: CpuList::default(), ..on("eth0", "1") };
        assert_eq!(plan(&tree, none).unwrap_err(), "no CPU is given");
    }

    #[test]
    fn what_the_kernel_manages_is_refused_before_anything_changes() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("sys/kernel/debug/irq/irqs/39", "IRQD_AFFINITY_MANAGED\n");
        let why = plan(&tree, on("eth0", "1")).unwrap_err();
        let wanted = "eth0: IRQ 39 (virtio0-output.0) cannot be moved: the kernel manages it; ";
        assert!(why.starts_with(wanted), "{why}");
        let other = Placement { queues: [1].into(), ..on("eth0", "1") };
        assert!(plan(&tree, other).is_ok());
    }

    #[test]
    fn two_placements_of_one_thing_must_agree() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let two = [on("eth0", "1"), on("eth0", "2")];
        let why = Plan::of(&tree.host(), &two).unwrap_err().to_string();
        assert_eq!(why, "eth0: IRQ 37 is placed twice, on CPUs 1 and on CPUs 2; place it once");
        let same = [on("eth0", "1"), on("eth0", "1")];
        assert_eq!(Plan::of(&tree.host(), &same).unwrap().changes.len(), 5);
    }

    #[test]
    fn what_is_named_must_be_in_use() {
        let tree = Tree::machine(&Machine::VIRTIO);
        std::fs::remove_dir_all(tree.path("proc/irq/39")).unwrap();
        let two = Placement { irqs: [38, 39].into(), ..on("eth0", "1") };
        let why = "eth0: IRQ 39 is not in use; ip link set eth0 up";
        assert_eq!(plan(&tree, two).unwrap_err(), why);
        let all = plan(&tree, on("eth0", "1")).unwrap();
        assert_eq!(all, ["IRQ 37 1", "IRQ 38 1", "IRQ 40 1", "IRQ 41 1"]);
        std::fs::remove_dir_all(tree.path("proc/irq")).unwrap();
        let why = plan(&tree, on("eth0", "1")).unwrap_err();
        assert_eq!(why, "eth0: none of its IRQs is in use; ip link set eth0 up");
    }

    #[test]
    fn a_nic_without_irqs_of_its_own() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.link("sys/devices/vmbus/1/driver", "sys/bus/vmbus/drivers/hv_netvsc");
        tree.nic("eth1", "vmbus/1");
        tree.on_top("n6", &["eth1"]);
        let why = |flags| {
            tree.write("sys/class/net/eth1/flags", flags);
            plan(&tree, on("n6", "1")).unwrap_err()
        };
        assert_eq!(why("0x1003\n"), "eth1: no IRQs of its own");
        assert_eq!(why("0x1002\n"), "eth1: no IRQs of its own; ip link set eth1 up");
    }
}
