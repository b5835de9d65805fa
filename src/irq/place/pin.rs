//! Puts interrupts where a plan wants them: saves, writes and reads back, all or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::ban::Ban;
use super::plan::{Change, Plan};
use super::saved::{By, Entry, Saved, ifindex, lock};
use super::target::{Target, shown};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::source::Source;
use crate::irq::irqbalance::listed;
use crate::kernel::procfs::Process;

/// What applying a plan has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placed {
    pub devices: Vec<Device>,
    pub changes: Vec<Done>,
    pub notes: Vec<String>,
    /// IRQs that should stay away from CPUs, but that the kernel refuses to move.
    #[serde(skip)]
    pub fixed: Vec<Change>,
}

impl Placed {
    /// Whether no change was made and no IRQ is in `fixed`.
    pub fn is_nothing(&self) -> bool {
        self.changes.is_empty() && self.fixed.is_empty()
    }
}

/// A change that was made, as read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    #[serde(flatten)]
    pub target: Target,
    pub before: CpuList,
    /// smp_affinity_list, or the mask.
    pub now: CpuList,
    /// effective_affinity_list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<CpuList>,
    pub state: State,
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    InPlace,
    /// The next interrupt still arrives on the old CPU, and moves the IRQ for those after it
    /// (irq_move_irq(), kernel/irq/migration.c).
    AfterNext,
    /// When the IRQ is started.
    WhenStarted,
}

impl State {
    fn of(wanted: &CpuList, effective: Option<&CpuList>) -> Self {
        match effective {
            Some(cpus) if cpus.is_empty() => Self::WhenStarted,
            Some(cpus) if cpus.iter().any(|cpu| !wanted.contains(cpu)) => Self::AfterNext,
            _ => Self::InPlace,
        }
    }
}

/// What cannot be placed, as the source of an [`Error`]. The rest of the plan could be placed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
    #[error("{}", listed(.0))]
    Irqs(BTreeSet<u32>),
    /// IRQs and masks.
    #[error("{}", .0.iter().map(Target::to_string).collect::<Vec<_>>().join(", "))]
    Targets(Vec<Target>),
}

impl Refused {
    /// What `e` is about, if its source is a [`Refused`].
    pub fn of(e: &Error) -> Option<&Self> {
        e.source.as_ref()?.downcast_ref()
    }

    pub fn is(&self, target: &Target) -> bool {
        match self {
            Self::Irqs(irqs) => target.irq().is_some_and(|irq| irqs.contains(&irq)),
            Self::Targets(targets) => targets.iter().any(|one| one.is_same(target)),
        }
    }

    pub fn has_irq(&self, irq: u32) -> bool {
        match self {
            Self::Irqs(irqs) => irqs.contains(&irq),
            Self::Targets(targets) => targets.iter().any(|one| one.irq() == Some(irq)),
        }
    }

    /// `e`, with this as its source.
    pub fn cause(self, e: Error) -> Error {
        Error { source: Some(Arc::new(self)), ..e }
    }
}

/// A change that is being made, and the CPUs of its target before it.
type Begun<'p> = (&'p Change, CpuList);

/// Saves the present settings and makes the changes of `plan`. Waits while another gthctl changes
/// interrupts. Only the process that keeps the policy passes [`By::Policy`].
///
/// An IRQ that only has to stay away from CPUs stays where it is if the kernel refuses to move it.
///
/// Fails when irqbalance is in the way, when the running policy places one of the targets and
/// `by` is [`By::Hand`], or when the kernel refuses or alters another change. Then it puts back
/// what it has changed.
pub fn apply(host: &Host, plan: &Plan, by: By) -> Result<Placed> {
    let _lock = lock(host)?;
    let interrupts = Interrupts::read(&host.proc())?;
    let old = Saved::load_or_new(host)?;
    if by == By::Hand {
        check_policy(host, &old, plan)?;
    }
    let begun = begin(host, &interrupts, plan)?;
    let mut new = with_changes(host, &old, &interrupts, &begun, by);
    if by == By::Policy {
        new.runner = Process::find(&host.proc(), std::process::id()).ok().flatten();
    }
    let mut notes = plan.notes.clone();
    let mut ban = Ban::of(host, plan, by, &mut new, &mut notes)?;
    new.store(host)?;
    match make(host, &begun, &mut ban, new) {
        Ok((changes, fixed)) => {
            notes.extend(note_of_fixed(&fixed));
            Ok(Placed { devices: plan.devices.clone(), changes, notes, fixed })
        }
        Err(e) => {
            let mut failed = put_back(host, &begun);
            failed.extend(ban.undo(host).err());
            if failed.is_empty() {
                failed.extend(old.store(host).err());
            }
            let what = match failed.first() {
                None => format!("{}; all is as before", e.what),
                Some(other) => format!("{}; not all could be put back: {other}", e.what),
            };
            Err(Error { what, ..e })
        }
    }
}

/// Reads the CPUs of each target before the change.
///
/// Fails when a target has gone, or its IRQ number has passed to another device, since the
/// plan was made.
fn begin<'p>(host: &Host, interrupts: &Interrupts, plan: &'p Plan) -> Result<Vec<Begun<'p>>> {
    let begun = |change: &'p Change| {
        let Change { target, source, .. } = change;
        let now = target.irq().and_then(|irq| Source::of(host, interrupts, irq));
        let is_same = source.is_none() || now == *source;
        match target.read(host)?.filter(|_| is_same) {
            Some(before) => Ok((change, before.allowed)),
            None => Err(Error::failure(format!("{target} has gone; nothing changed"))),
        }
    };
    plan.changes.iter().map(begun).collect()
}

/// Makes the changes, reads back what the kernel has set, and saves that they are done. Returns the
/// changes that were made, and those of IRQs that the kernel refuses to move.
fn make(
    host: &Host,
    begun: &[Begun<'_>],
    ban: &mut Ban,
    mut new: Saved,
) -> Result<(Vec<Done>, Vec<Change>)> {
    ban.make(host)?;
    let (mut fixed, mut refused) = (Vec::new(), Vec::new());
    for (change, before) in begun {
        let Change { target, wanted, away, .. } = change;
        let moved = match away.is_empty() {
            true => target.write(host, wanted).map(|()| true),
            false if before == wanted => Ok(true),
            false => target.write_if_movable(host, wanted),
        };
        match moved {
            Ok(true) => {}
            Ok(false) => fixed.push((*change).clone()),
            Err(e) => refused.push((target.clone(), e)),
        }
    }
    let is_fixed = |target: &Target| fixed.iter().any(|one| one.target.is_same(target));
    let mut changes = Vec::new();
    for (Change { target, wanted, .. }, before) in begun {
        if is_fixed(target) || refused.iter().any(|(one, _)| one.is_same(target)) {
            continue;
        }
        let effective = match check(host, target, wanted) {
            Ok(effective) => effective,
            Err(e) => {
                refused.push((target.clone(), e));
                continue;
            }
        };
        let state = State::of(wanted, effective.as_ref());
        let (target, before, now) = (target.clone(), before.clone(), wanted.clone());
        changes.push(Done { target, before, now, effective, state });
    }
    if !refused.is_empty() {
        return Err(not_taken(refused));
    }
    new.entries.retain(|entry| !is_fixed(&entry.target));
    for entry in &mut new.entries {
        entry.before = None;
    }
    new.store(host)?;
    Ok((changes, fixed))
}

/// The first of the errors, as an error about the targets of all.
fn not_taken(refused: Vec<(Target, Error)>) -> Error {
    let (targets, errors): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
    let mut e = errors.into_iter().next().expect("there is one");
    if targets.len() > 1 {
        e.what += &format!(" (and {} more)", targets.len() - 1);
    }
    Refused::Targets(targets).cause(e)
}

/// The note about IRQs that should stay away from CPUs, but that the kernel refuses to move.
pub(super) fn note_of_fixed(fixed: &[Change]) -> Option<String> {
    let irqs: BTreeSet<u32> = fixed.iter().filter_map(|change| change.target.irq()).collect();
    let still: Vec<CpuList> = fixed.iter().map(|change| change.now.common(&change.away)).collect();
    let away: CpuList = still.iter().flat_map(CpuList::iter).collect();
    let them = if irqs.len() == 1 { "it" } else { "them" };
    (!irqs.is_empty()).then(|| {
        let irqs = listed(&irqs);
        format!("{irqs} may still come to CPUs {away}: the kernel does not let {them} move")
    })
}

/// Undoes the changes. Returns an error for each change that it cannot undo.
fn put_back(host: &Host, begun: &[Begun<'_>]) -> Vec<Error> {
    let back = |(Change { target, .. }, before): &Begun<'_>| {
        if !target.is_on(host, before).unwrap_or(false) {
            target.write(host, before)?;
            check(host, target, &target.keeps(host, before)?)?;
        }
        Ok(())
    };
    begun.iter().rev().filter_map(|change| back(change).err()).collect()
}

/// The effective CPUs of a target. Fails when its allowed CPUs are not `cpus`.
fn check(host: &Host, target: &Target, cpus: &CpuList) -> Result<Option<CpuList>> {
    match target.read(host)? {
        Some(now) if now.allowed == *cpus => Ok(now.effective),
        now => {
            let now = now.map_or("nothing".into(), |now| shown(&now.allowed));
            let cpus = shown(cpus);
            Err(Error::failure(format!("{target} to CPUs {cpus}: the kernel set {now} instead")))
        }
    }
}

/// Fails when a running policy places something of `plan`.
fn check_policy(host: &Host, saved: &Saved, plan: &Plan) -> Result<()> {
    let Some(pid) = saved.runs(host) else { return Ok(()) };
    let by_policy =
        |target: &Target| saved.entry(target).is_some_and(|entry| entry.by_policy.is_some());
    match plan.changes.iter().map(|change| &change.target).find(|target| by_policy(target)) {
        None => Ok(()),
        Some(Target { nic, part, .. }) => {
            let what = format!(
                "{nic}: the policy of the running gthctl (PID {pid}) places {part}; nothing changed"
            );
            Err(Error::failure(what).help("change it there, under `irq`"))
        }
    }
}

/// What is saved while these changes are made.
fn with_changes(
    host: &Host,
    old: &Saved,
    interrupts: &Interrupts,
    begun: &[Begun<'_>],
    by: By,
) -> Saved {
    let mut new = old.clone();
    // An IRQ whose number has passed to another device is not put back.
    new.entries.retain(|entry| entry.is_same(host, interrupts));
    for entry in &mut new.entries {
        entry.target = entry.target_now(host);
    }
    for (Change { target, wanted, away, .. }, before) in begun {
        let ifindex = ifindex(host, &target.nic);
        // Neither are the masks of another NIC that had this name.
        new.entries.retain(|entry| {
            target.irq().is_some() || !entry.target.is_same(target) || entry.ifindex == ifindex
        });
        let entry = new.entry_or(target, || Entry::new(host, interrupts, target, before));
        entry.before = Some(before.clone());
        entry.away = away.clone();
        // Somebody else has moved it to CPUs where it may stay, also under the next policy.
        let stays = !away.is_empty() && wanted == before && entry.by_policy.is_some();
        match by {
            By::Policy if stays => {}
            By::Policy => entry.by_policy = Some(wanted.clone()),
            // The policy that had placed it is no longer in force.
            By::Hand => (entry.by_policy, entry.by_hand) = (None, Some(wanted.clone())),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::irq::inventory::steering::Steering;
    use crate::irq::place::target::Part;
    use crate::irq::place::wanted::{Masks, Placement};
    use crate::irq::tree::{Machine, Tree, affinities, on, place, saved};

    fn plan(tree: &Tree, cpus: &str) -> Plan {
        Plan::of(&tree.host(), &[on("eth0", cpus)]).unwrap()
    }

    #[test]
    fn placed_saved_and_read_back() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("proc/irq/38/effective_affinity_list", "2\n");
        tree.write("proc/irq/39/effective_affinity_list", "\n");
        let placed = place(&tree, Placement { rps: Masks::Match, ..on("eth0", "2") }).unwrap();
        let states: Vec<State> = placed.changes.iter().map(|done| done.state).collect();
        assert_eq!(states[..3], [State::AfterNext, State::InPlace, State::WhenStarted]);
        assert_eq!(states[5], State::InPlace);
        assert_eq!(affinities(&tree), ["2"; 5]);
        let saved = saved(&tree).unwrap();
        assert!(!saved.unfinished());
        assert_eq!(saved.entries.len(), 7);
        assert_eq!(saved.entries[0].original.to_string(), "0-3");
        assert_eq!(saved.entries[6].original, CpuList::default());
    }

    #[test]
    fn one_that_fails_takes_the_others_back() {
        let tree = Tree::machine(&Machine::VIRTIO);
        place(&tree, on("eth0", "1")).unwrap();
        let before = saved(&tree);
        let mut second = plan(&tree, "2");
        tree.refuse_writes("sys/class/net/eth0/queues/rx-9/rps_cpus");
        let mut last = second.changes[4].clone();
        (last.target.part, last.source) = (Part::Mask { mask: Steering::Rps, queue: 9 }, None);
        second.changes.push(last);
        let e = apply(&tree.host(), &second, By::Hand).unwrap_err();
        assert!(e.what.ends_with("no right to write; all is as before"), "{e}");
        assert_eq!((affinities(&tree), saved(&tree)), (vec!["1".to_owned(); 5], before));
    }

    /// The mask's file is a pipe here. A thread at its other end does what the kernel does.
    #[test]
    fn a_mask_is_taken_back_as_far_as_its_cpus_are_online() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        let change = &mut plan(&tree, "1").changes[0];
        change.target.part = Part::Mask { mask: Steering::Rps, queue: 0 };
        let mask = tree.path("sys/class/net/eth0/queues/rx-0/rps_cpus");
        fs::remove_file(&mask).unwrap();
        mkfifo(&mask, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let kernel = std::thread::spawn(move || {
            fs::write(&mask, "2\n").unwrap();
            let written = fs::read_to_string(&mask).unwrap();
            fs::write(&mask, "7\n").unwrap();
            written
        });
        let failed = put_back(&tree.host(), &[(change, "0-3".parse().unwrap())]);
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(kernel.join().unwrap(), "f\n");
    }

    #[test]
    fn an_irq_that_became_anothers_since_it_was_planned() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let plan = plan(&tree, "1");
        tree.irq_40_passes_to_another_device();
        let e = apply(&tree.host(), &plan, By::Hand).unwrap_err();
        assert_eq!(e.what, "eth0: IRQ 40 has gone; nothing changed");
        assert_eq!(affinities(&tree), ["0-3"; 5]);
    }
}
