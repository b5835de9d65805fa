//! Putting interrupts where a plan says: save, write, read back; all of it or nothing.

use serde::Serialize;

use super::ban::Ban;
use super::plan::{Change, Plan};
use super::saved::{By, Entry, Saved, Source, ifindex, lock};
use super::target::{Target, shown};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;
use crate::kernel::procfs::Process;

/// What the kernel made of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    pub devices: Vec<Device>,
    pub changes: Vec<Done>,
    pub notes: Vec<String>,
}

/// One thing that was changed, as read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    pub nic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
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

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    InPlace,
    /// The next interrupt still comes in on the CPU of before and moves the others
    /// (irq_move_irq(), kernel/irq/migration.c).
    AfterNext,
    /// It takes effect when the IRQ is started.
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

/// Makes the changes of `plan`, having saved what was there. Waits for another call that
/// is at it. `by` is the policy only in the process that keeps it.
///
/// Fails when irqbalance is in the way, a running policy has placed one of them and it is
/// not that which does it now, or the kernel takes one of the changes not at all or
/// otherwise; what this call had changed until then is put back.
pub fn apply(host: &Host, plan: &Plan, by: By) -> Result<Placed> {
    let _lock = lock(host)?;
    let interrupts = Interrupts::read(&host.proc())?;
    let old = Saved::load_or_new(host)?;
    if by == By::Hand {
        check_policy(host, &old, plan)?;
    }
    let mut befores = Vec::new();
    for change in &plan.changes {
        let Change { nic, target, source, .. } = change;
        let now = target.irq().and_then(|irq| Source::of(host, &interrupts, irq));
        let before = match source.is_none() || now == *source {
            true => target.read(host, nic)?,
            false => None,
        };
        let gone = || Error::failure(format!("{nic}: {target} has gone; nothing changed"));
        befores.push(before.ok_or_else(gone)?.allowed);
    }
    let mut new = with_changes(host, &old, &interrupts, plan, &befores, by);
    if by == By::Policy {
        new.runner = Process::find(&host.proc(), std::process::id()).ok().flatten();
    }
    let mut notes = plan.notes.clone();
    let mut ban = Ban::of(host, plan, by, &mut new, &mut notes)?;
    new.store(host)?;
    match make(host, plan, &befores, &mut ban, new) {
        Ok(changes) => Ok(Placed { devices: plan.devices.clone(), changes, notes }),
        Err(e) => {
            let mut failed = put_back(host, plan, &befores);
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

/// Makes the changes, looks what the kernel made of them, and saves that they are made.
fn make(
    host: &Host,
    plan: &Plan,
    befores: &[CpuList],
    ban: &mut Ban,
    mut new: Saved,
) -> Result<Vec<Done>> {
    ban.make(host)?;
    for Change { nic, target, wanted, .. } in &plan.changes {
        target.write(host, nic, wanted)?;
        check(host, nic, target, wanted)?;
    }
    let mut changes = Vec::new();
    for (change, before) in plan.changes.iter().zip(befores) {
        let Change { nic, name, target, wanted, .. } = change.clone();
        let effective = check(host, &nic, &target, &wanted)?;
        let state = State::of(&wanted, effective.as_ref());
        let before = before.clone();
        changes.push(Done { nic, name, target, before, now: wanted, effective, state });
    }
    new.entries.iter_mut().for_each(|entry| entry.before = None);
    new.store(host)?;
    Ok(changes)
}

/// Puts back what a plan has changed; returns what could not be.
fn put_back(host: &Host, plan: &Plan, befores: &[CpuList]) -> Vec<Error> {
    let back = |(Change { nic, target, .. }, before): (&Change, &CpuList)| match check(
        host, nic, target, before,
    ) {
        Ok(_) => Ok(()),
        Err(_) => target
            .write(host, nic, before)
            .and_then(|()| check(host, nic, target, before).map(drop)),
    };
    plan.changes.iter().zip(befores).rev().filter_map(|one| back(one).err()).collect()
}

/// Fails when something is on other CPUs than these; else, the effective ones.
fn check(host: &Host, nic: &str, target: &Target, cpus: &CpuList) -> Result<Option<CpuList>> {
    match target.read(host, nic)? {
        Some(now) if now.allowed == *cpus => Ok(now.effective),
        now => {
            let now = now.map_or("nothing".into(), |now| shown(&now.allowed));
            let cpus = shown(cpus);
            let what = format!("{nic}: {target} to CPUs {cpus}: the kernel made {now} of it");
            Err(Error::failure(what))
        }
    }
}

/// Fails when a policy that is in force has placed something of `plan`.
fn check_policy(host: &Host, saved: &Saved, plan: &Plan) -> Result<()> {
    let Some(pid) = saved.runs(host) else { return Ok(()) };
    let placed =
        |change: &&Change| saved.entry(&change.nic, &change.target)?.by_policy.as_ref().map(drop);
    match plan.changes.iter().find(|change| placed(change).is_some()) {
        None => Ok(()),
        Some(Change { nic, target, .. }) => {
            let what = format!(
                "{nic}: the policy of the running gthctl (PID {pid}) places {target}; nothing changed"
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
    plan: &Plan,
    befores: &[CpuList],
    by: By,
) -> Saved {
    let mut new = old.clone();
    // Of an IRQ whose number has gone to another device there is nothing to put back.
    new.entries.retain(|entry| entry.is_same(host, interrupts));
    for entry in &mut new.entries {
        entry.nic = entry.called(host);
    }
    for (change, before) in plan.changes.iter().zip(befores) {
        let Change { nic, name, target, wanted, .. } = change.clone();
        let ifindex = ifindex(host, &nic);
        // Nor of the masks of another NIC that had this name.
        new.entries.retain(|entry| {
            target.irq().is_some() || !entry.is_of(&nic, &target) || entry.ifindex == ifindex
        });
        if new.entry(&nic, &target).is_none() {
            let source = target.irq().and_then(|irq| Source::of(host, interrupts, irq));
            new.entries.push(Entry {
                nic: nic.clone(),
                ifindex,
                name,
                target: target.clone(),
                source,
                original: before.clone(),
                by_policy: None,
                by_hand: None,
                before: None,
            });
        }
        let Some(entry) = new.entry_mut(&nic, &target) else { continue };
        entry.before = Some(before.clone());
        match by {
            By::Policy => entry.by_policy = Some(wanted),
            // A policy that had placed it is in force no longer.
            By::Hand => (entry.by_policy, entry.by_hand) = (None, Some(wanted)),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::irq::inventory::steering::Steering;
    use crate::irq::place::plan::{Masks, Placement};
    use crate::irq::tree::{Machine, Tree, affinity, on};

    fn plan(tree: &Tree, cpus: &str, rps: Masks) -> Plan {
        Plan::of(&tree.host(), &[Placement { rps, ..on("eth0", cpus) }]).unwrap()
    }

    #[test]
    fn placed_saved_and_read_back() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write("proc/irq/38/effective_affinity_list", "2\n");
        tree.write("proc/irq/39/effective_affinity_list", "\n");
        let plan = plan(&tree, "2", Masks::Match);
        let placed = apply(&tree.host(), &plan, By::Hand).unwrap();
        let states: Vec<State> = placed.changes.iter().map(|done| done.state).collect();
        assert_eq!(states[..3], [State::AfterNext, State::InPlace, State::WhenStarted]);
        assert_eq!(states[5], State::InPlace);
        assert!((37..=41).all(|irq| affinity(&tree, irq) == "2"));
        let saved = Saved::load(&tree.host()).unwrap().unwrap();
        assert!(!saved.unfinished());
        assert_eq!(saved.entries.len(), 7);
        assert_eq!(saved.entries[0].original.to_string(), "0-3");
        assert_eq!(saved.entries[6].original, CpuList::default());
    }

    #[test]
    fn what_was_there_first_is_kept() {
        let tree = Tree::machine(&Machine::VIRTIO);
        for cpus in ["2", "3"] {
            apply(&tree.host(), &plan(&tree, cpus, Masks::Keep), By::Hand).unwrap();
        }
        let saved = Saved::load(&tree.host()).unwrap().unwrap();
        let entry = &saved.entries[0];
        assert_eq!(
            (entry.original.to_string(), entry.wanted().to_string()),
            ("0-3".into(), "3".into())
        );
    }

    #[test]
    fn one_that_fails_takes_the_others_back() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let first = plan(&tree, "1", Masks::Keep);
        apply(&tree.host(), &first, By::Hand).unwrap();
        let saved = Saved::load(&tree.host()).unwrap();
        let mut second = plan(&tree, "2", Masks::Keep);
        // A sysctl that nobody may write, and which reads as a mask.
        let file = tree.path("sys/class/net/eth0/queues/rx-9/rps_cpus");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/cap_last_cap", file).unwrap();
        let mut last = second.changes[4].clone();
        (last.target, last.source) = (Target::Mask { mask: Steering::Rps, queue: 9 }, None);
        second.changes.push(last);
        let e = apply(&tree.host(), &second, By::Hand).unwrap_err();
        assert!(e.what.ends_with("no right to write; all is as before"), "{e}");
        assert!((37..=41).all(|irq| affinity(&tree, irq) == "1"));
        assert_eq!(Saved::load(&tree.host()).unwrap(), saved);
    }

    #[test]
    fn an_irq_that_became_anothers_since_it_was_planned() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let plan = plan(&tree, "1", Masks::Keep);
        let text = fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        tree.write("proc/interrupts", &text.replace("   3-edge", "   9-edge"));
        let e = apply(&tree.host(), &plan, By::Hand).unwrap_err();
        assert_eq!(e.what, "eth0: IRQ 40 has gone; nothing changed");
        assert!((37..=41).all(|irq| affinity(&tree, irq) == "0-3"));
    }
}
