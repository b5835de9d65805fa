//! The plan: which changes the placements make.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::avoid::Detour;
use super::saved::is_met;
use super::selection::{Machine, check, not_in_use};
use super::share::shares;
use super::target::{Target, shown};
use super::wanted::{Absent, Masks, OnIrqbalance, Placement, check_cpus};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::nic::{self, Nic, NicIrq};
use crate::irq::inventory::source::Source;
use crate::irq::inventory::steering::Steering;

/// What placements change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The devices that the placements name, with the NICs under them.
    pub devices: Vec<Device>,
    pub changes: Vec<Change>,
    pub notes: Vec<String>,
    /// Why some placements have to wait.
    #[serde(skip)]
    pub waiting: Vec<String>,
    /// What to do when irqbalance may move an IRQ of the changes.
    #[serde(skip)]
    pub irqbalance: BTreeMap<u32, OnIrqbalance>,
}

/// A target and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub target: Target,
    /// The IRQ's source when the plan was made.
    #[serde(skip)]
    pub source: Option<Source>,
    /// The CPUs when the plan was made.
    pub now: CpuList,
    pub wanted: CpuList,
    /// If not empty, the target is in place wherever it cannot come to one of these CPUs.
    #[serde(skip)]
    pub away: CpuList,
}

impl Change {
    pub fn new(target: Target, now: CpuList, wanted: CpuList) -> Self {
        Self { target, source: None, now, wanted, away: CpuList::default() }
    }

    /// Whether the target may stay on these CPUs.
    pub fn is_met_by(&self, now: &CpuList) -> bool {
        is_met(now, &self.wanted, &self.away)
    }

    /// Whether the target is now on CPUs where it may stay.
    pub fn is_in_place(&self, host: &Host) -> bool {
        let now = self.target.read(host).ok().flatten();
        now.is_some_and(|now| self.is_met_by(&now.allowed))
    }
}

impl Plan {
    /// The plan for `placements`, which are made together or not at all.
    ///
    /// Fails when a CPU is not online, a device has no NIC under it, an IRQ or queue is not the
    /// NIC's or cannot be moved, or two placements want one target on different CPUs. The error
    /// names what is wrong.
    pub fn of(host: &Host, placements: &[Placement]) -> Result<Self> {
        Self::with(host, placements, Absent::Refuse)
    }

    /// As [`Plan::of`], unless `absent` says otherwise.
    pub fn with(host: &Host, placements: &[Placement], absent: Absent) -> Result<Self> {
        let mut plan = Self::default();
        if placements.is_empty() {
            return Ok(plan);
        }
        let machine = Machine::read(host)?;
        // What the policy says about one NIC takes precedence over what it says about all, and a
        // name of this machine over one of pods.
        let mut placements: Vec<&Placement> = placements.iter().collect();
        placements
            .sort_by_key(|one| (one.avoid.is_some(), one.nic.is_empty(), one.of_pods.is_some()));
        for placement in placements {
            let is_of_pods = placement.of_pods.is_some();
            if is_of_pods && placement.avoid.is_none() && absent != Absent::Keep {
                check_cpus(&placement.cpus, &machine.topology).map_err(|e| placement.at(e))?;
            }
            let waits = |e: &Error| is_of_pods || (absent == Absent::Keep && e.source.is_none());
            for one in placement.of_devices() {
                let before = plan.clone();
                match plan.place(&machine, one, absent) {
                    Err(e) if waits(&e) => {
                        plan = before;
                        plan.waiting.push(later(&e));
                    }
                    done => done?,
                }
            }
        }
        Ok(plan)
    }

    /// Adds what one placement changes, or why it has to wait.
    fn place(
        &mut self,
        machine: &Machine<'_>,
        mut placement: Placement,
        absent: Absent,
    ) -> Result<()> {
        if placement.nic.is_empty() {
            let nics = nic::all(machine.host, &machine.interrupts)?;
            return self.avoid(machine, &placement, &nics).map_err(|e| placement.at(e));
        }
        let found = match machine.find(&placement) {
            Err(e) if absent == Absent::Await => {
                self.waiting.push(later(&placement.at(e)));
                return Ok(());
            }
            found => found,
        };
        if absent == Absent::Keep {
            self.waiting.extend(placement.leave_out_offline(&machine.topology));
            let nics = found.as_ref().map(|(_, nics)| nics.as_slice()).unwrap_or_default();
            self.waiting.extend(placement.leave_out_missing(nics));
        }
        self.add(machine, &placement, found).map_err(|e| placement.at(e))
    }

    /// Leaves out the changes that only keep a target away from CPUs and that are among `fixed`,
    /// which the kernel refuses to move.
    pub(super) fn leave_out(&mut self, fixed: &[Change]) {
        self.changes.retain(|change| {
            let is_it =
                |one: &Change| one.target.is_same(&change.target) && one.source == change.source;
            change.away.is_empty() || !fixed.iter().any(is_it)
        });
    }

    /// The IRQs among the changes.
    pub fn irqs(&self) -> BTreeSet<u32> {
        self.changes.iter().filter_map(|change| change.target.irq()).collect()
    }

    /// The CPUs that the changes put `irq` on.
    pub fn wanted(&self, irq: u32) -> Option<&CpuList> {
        let change = self.changes.iter().find(|change| change.target.irq() == Some(irq))?;
        Some(&change.wanted)
    }

    /// What to do when irqbalance may move this IRQ.
    pub fn on_irqbalance(&self, irq: u32) -> OnIrqbalance {
        self.irqbalance.get(&irq).copied().unwrap_or_default()
    }

    /// Adds what one placement changes. `found` is its device with the NICs under it.
    fn add(
        &mut self,
        machine: &Machine<'_>,
        placement: &Placement,
        found: Result<(Device, Vec<Nic>)>,
    ) -> Result<()> {
        if placement.avoid.is_none() {
            check_cpus(&placement.cpus, &machine.topology)?;
        }
        let (device, nics) = found?;
        if device.is_virtual() {
            self.notes.push(format!("{}; gthctl places the interrupts there", device.on()));
        }
        self.devices.push(device);
        match placement.avoid {
            Some(_) => self.avoid(machine, placement, &nics),
            None => self.add_nics(machine, placement, &nics),
        }
    }

    fn add_nics(
        &mut self,
        machine: &Machine<'_>,
        placement: &Placement,
        nics: &[Nic],
    ) -> Result<()> {
        check(placement, nics)?;
        // How many queues each CPU has so far.
        let mut uses = BTreeMap::new();
        // Where IRQs go. Two NICs may share one: it goes where the first of them puts it.
        let mut placed: BTreeMap<u32, CpuList> = BTreeMap::new();
        let mut any = false;
        for nic in nics {
            let chosen = machine.choose(placement, nic)?;
            any |= !chosen.is_empty();
            let irqs: Vec<&NicIrq> = chosen.iter().map(|(irq, _)| *irq).collect();
            let near = nic.numa_node.map(|node| machine.topology.of_node(node)).unwrap_or_default();
            self.note_distance(nic, &placement.cpus, &near);
            let mut shares = shares(placement, &near, &mut uses, &irqs);
            for (irq, cpus) in &mut shares {
                cpus.clone_from(placed.entry(*irq).or_insert_with(|| cpus.clone()));
            }
            for (irq, now) in chosen {
                let source = Source::of(machine.host, &machine.interrupts, irq.irq);
                let wanted = shares[&irq.irq].clone();
                let change = Change::new(Target::of_irq(nic, irq), now, wanted);
                self.push(Change { source, ..change })?;
                self.irqbalance.entry(irq.irq).or_insert(placement.irqbalance);
            }
            for steering in [Steering::Rps, Steering::Xps] {
                self.add_masks(machine.host, placement, nic, steering, &irqs, &shares)?;
            }
        }
        if any { Ok(()) } else { Err(not_in_use(machine.host, placement, nics)) }
    }

    /// Adds all IRQs if there are CPUs that they have to avoid, even those that stay where they
    /// are, because irqbalance may move them. Skips IRQs that other placements are about.
    fn avoid(&mut self, machine: &Machine<'_>, placement: &Placement, nics: &[Nic]) -> Result<()> {
        if placement.away.is_empty() {
            return Ok(());
        }
        let Machine { host, topology, interrupts, fixed } = machine;
        let detour = Detour::new(host, interrupts, &placement.away, &topology.online)?;
        for (nic, irq) in nics.iter().flat_map(|nic| nic.irqs.iter().map(move |irq| (nic, irq))) {
            let target = Target::of_irq(nic, irq);
            let planned = |change: &Change| change.target.is_same(&target);
            if self.changes.iter().any(planned) || fixed.is(irq.irq) == Some(true) {
                continue;
            }
            let Some(now) = target.read(host)? else { continue };
            let wanted = detour.of(&target, &now.allowed);
            self.irqbalance.entry(irq.irq).or_insert(placement.irqbalance);
            self.changes.push(Change {
                source: Source::of(host, interrupts, irq.irq),
                away: placement.away.clone(),
                ..Change::new(target, now.allowed, wanted)
            });
        }
        Ok(())
    }

    fn add_masks(
        &mut self,
        host: &Host,
        placement: &Placement,
        nic: &Nic,
        steering: Steering,
        irqs: &[&NicIrq],
        shares: &BTreeMap<u32, CpuList>,
    ) -> Result<()> {
        let masks = placement.masks(steering);
        if masks == Masks::Keep {
            return Ok(());
        }
        let is_of = |irq: &NicIrq, number: u32| {
            irq.queue.is_some_and(|queue| steering.steers(&queue) && queue.number == number)
        };
        let mut any = false;
        for queue in steering.queues(&host.sys(), &nic.name)? {
            let irq = irqs.iter().find(|irq| is_of(irq, queue));
            if !placement.is_whole() && irq.is_none() && !placement.queues.contains(&queue) {
                continue;
            }
            let target = Target::of_mask(nic, steering, queue);
            let Some(now) = target.read(host)? else { continue };
            any = true;
            let wanted = match irq {
                _ if masks == Masks::Off => CpuList::default(),
                Some(irq) => shares[&irq.irq].clone(),
                None => placement.cpus.clone(),
            };
            self.push(Change::new(target, now.allowed, wanted))?;
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

    fn note_distance(&mut self, nic: &Nic, cpus: &CpuList, near: &CpuList) {
        let (name, far) = (&nic.name, cpus.without(near));
        if let Some(node) = nic.numa_node.filter(|_| !near.is_empty() && !far.is_empty()) {
            let what = format!("{name}: CPUs {far} are not in its NUMA node {node} (CPUs {near})");
            self.notes.push(what);
        }
    }
}

/// Why something is placed later.
fn later(e: &Error) -> String {
    let e = Error { help: None, ..e.clone() };
    format!("{e}; gthctl places the interrupts when that is fixed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::inventory::interrupts::Interrupts;
    use crate::irq::tree::{Machine, Tree, of_pods, on};

    #[test]
    fn nics_that_share_an_irq_share_its_cpu() {
        let tree = Tree::machine(&Machine::VIRTIO);
        for (nic, device) in [("eth5", "0000:00:19.0"), ("eth6", "0000:00:1a.0")] {
            tree.pci_nic(nic, &format!("pci0000:00/{device}"), "e1000", &[]);
            tree.write(&format!("sys/devices/pci0000:00/{device}/irq"), "16\n");
        }
        tree.irqs("IO-APIC", &[(16, "eth5, eth6")]);
        tree.on_top("bond0", &["eth5", "eth6"]);
        let spread = Placement { spread: true, ..on("bond0", "0-3") };
        assert_eq!(plan(&tree, spread).unwrap(), ["IRQ 16 0"]);
    }

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
        for (nic, device, node, irqs) in [
            ("eth0", "0000:01:00.0", "0\n", [141, 142]),
            ("eth1", "0000:81:00.0", "1\n", [143, 144]),
        ] {
            let names = [0, 1].map(|queue| format!("{nic}-TxRx-{queue}"));
            tree.irqs("PCI-MSIX", &[(irqs[0], &names[0]), (irqs[1], &names[1])]);
            let device = format!("pci0000:00/{device}");
            tree.pci_nic(nic, &device, "ixgbe", &irqs);
            tree.write(&format!("sys/devices/{device}/numa_node"), node);
        }
        tree.on_top("bond0", &["eth0", "eth1"]);
        let spread = |cpus| {
            let wanted = Placement { spread: true, ..on("bond0", cpus) };
            plan(&tree, wanted).unwrap()
        };
        assert_eq!(spread("0-3"), ["IRQ 141 0", "IRQ 142 1", "IRQ 143 2", "IRQ 144 3"]);
        // eth0 also takes a CPU of eth1's node. eth1 gets the other one, then that one again.
        assert_eq!(spread("0,2-3"), ["IRQ 141 0", "IRQ 142 2", "IRQ 143 3", "IRQ 144 2"]);
        assert_eq!(spread("1"), ["IRQ 141 1", "IRQ 142 1", "IRQ 143 1", "IRQ 144 1"]);
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

    #[test]
    fn devices_of_pods_are_placed_as_far_as_possible() {
        let tree = Tree::machine(&Machine::VIRTIO);
        // A virtual function whose network device is in a pod.
        tree.pci("pci0000:00/0000:03:02.1", "iavf", &[50, 51]);
        let names = [(50, "iavf-0000:03:02.1:mbx"), (51, "iavf-eth7-TxRx-0")];
        tree.irqs("PCI-MSIX-0000:03:02.1", &names);
        let vf = Nic::read(&tree.sys(), &Interrupts::read(&tree.proc()).unwrap(), "0000:03:02.1");
        let vf = vf.unwrap();
        assert_eq!((vf.irqs.len(), vf.pci.as_deref()), (2, Some("0000:03:02.1")));
        assert_eq!(vf.irqs[1].queue.unwrap().to_string(), "rxtx0");

        let plan = |placements: &[Placement]| {
            let plan = Plan::with(&tree.host(), placements, Absent::Refuse).unwrap();
            let changes = plan.changes.iter();
            let changes: Vec<_> =
                changes.map(|c| format!("{} {}", c.target, shown(&c.wanted))).collect();
            (changes, plan.waiting)
        };
        // Its queues' masks are not visible from here.
        let pods = of_pods(&["0000:03:02.1", "0000:03:02.2", "eth9"], "2");
        let (changes, waiting) = plan(&[Placement { rps: Masks::Match, xps: Masks::Off, ..pods }]);
        assert_eq!(changes, ["0000:03:02.1: IRQ 50 2", "0000:03:02.1: IRQ 51 2"]);
        assert_eq!(waiting.len(), 2);
        assert!(waiting[0].starts_with("\"0000:03:02.2\": no such PCI function"), "{waiting:?}");
        assert!(waiting[1].starts_with("\"eth9\": no such network device"), "{waiting:?}");
        // What another entry says takes precedence, and the rest of the plan stays.
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
        // The CPUs are checked even if there is no pod.
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
