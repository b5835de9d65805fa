//! Putting back what was there before.

use serde::Serialize;

use super::ban;
use super::plan::{Change, Plan};
use super::saved::{By, Entry, Saved, lock};
use super::target::Target;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::lower::Lower;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub restored: Vec<Back>,
    pub notes: Vec<String>,
    /// How many times irqbalance could not be told; `notes` say why.
    pub failed_bans: usize,
}

/// One thing that had been placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Back {
    pub nic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub target: Target,
    /// Where gthctl had put it.
    pub placed: CpuList,
    /// Where it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<CpuList>,
    /// Where it was before, and is again unless `state` says otherwise.
    pub original: CpuList,
    /// Somebody else had moved it in between.
    pub moved_by_others: bool,
    pub state: State,
    /// The kernel's reason, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as it was.
    Restored,
    /// The IRQ or queue is no longer there.
    Gone,
    /// The IRQ's number is another device's now, which was left alone.
    Replaced,
    /// The kernel refused; it stays saved.
    Failed,
    /// The policy in force places it; only what was placed by hand is forgotten.
    KeptByPolicy,
}

impl Restored {
    /// How many could not be put back, with the bans.
    pub fn failed(&self) -> usize {
        let failed = self.restored.iter().filter(|back| back.state == State::Failed);
        failed.count() + self.failed_bans
    }

    fn any(&self, state: State) -> bool {
        self.restored.iter().any(|back| back.state == state)
    }
}

/// Puts back everything that was placed for `nic`, or for all, but what the policy in force
/// places; a virtual device means the NICs under it. Waits for another call that is at it.
/// Nothing saved is no error.
///
/// Fails when what is saved cannot be read or written, or `nic` is neither a device nor
/// one that something is saved for. What the kernel refuses is in the answer.
pub fn restore(host: &Host, nic: Option<&str>) -> Result<Restored> {
    let _lock = lock(host)?;
    let saved = Saved::load_or_new(host)?;
    let nics = nic.map(|nic| nics(host, &saved, nic)).transpose()?;
    let runs = saved.runs(host);
    let mut done = put_all_back(host, saved, |entry| {
        if nics.as_ref().is_some_and(|nics| !nics.contains(&entry.called(host))) {
            return Goal::Leave;
        }
        entry.by_hand = None;
        if runs.is_none() {
            entry.by_policy = None;
        }
        Goal::Wanted
    })?;
    if let (Some(pid), true) = (runs, done.any(State::KeptByPolicy)) {
        done.notes.push(format!(
            "the policy of the running gthctl (PID {pid}) places some of them: they are put back \
             when it does no longer"
        ));
    }
    Ok(done)
}

/// Puts back what a policy placed that is not in `kept`: to where `gthctl irq pin` put it,
/// or where it was before that.
///
/// Fails when what is saved cannot be read or written. What the kernel refuses is in the
/// answer.
pub fn release(host: &Host, kept: &Plan) -> Result<Restored> {
    // Mostly there is nothing.
    let any = |saved: &Saved| saved.entries.iter().any(|entry| is_released(entry, kept));
    if !Saved::load(host)?.is_some_and(|saved| any(&saved)) {
        return Ok(Restored::default());
    }
    let _lock = lock(host)?;
    let Some(saved) = Saved::load(host)? else { return Ok(Restored::default()) };
    put_all_back(host, saved, |entry| match is_released(entry, kept) {
        true => {
            entry.by_policy = None;
            Goal::Wanted
        }
        false => Goal::Leave,
    })
}

/// What [`release`] would change.
pub fn released(host: &Host, kept: &Plan) -> Result<Vec<Change>> {
    let saved = Saved::load(host)?.map_or(Vec::new(), |saved| saved.entries);
    let mut changes = Vec::new();
    for entry in saved.iter().filter(|entry| is_released(entry, kept)) {
        let Some(now) = entry.read(host)? else { continue };
        let Entry { nic, name, target, original, by_hand, .. } = entry.clone();
        let wanted = by_hand.unwrap_or(original);
        let now = now.allowed;
        changes.push(Change { nic, name, target, source: None, now, wanted });
    }
    Ok(changes)
}

fn is_released(entry: &Entry, kept: &Plan) -> bool {
    let kept = || kept.changes.iter().any(|change| entry.is_of(&change.nic, &change.target));
    entry.by_policy.is_some() && !kept()
}

/// What is to become of something that was placed.
enum Goal {
    Leave,
    /// It goes where it is wanted now.
    Wanted,
}

/// Moves each entry where `goal`, which may change it, wants it; stores what is left.
fn put_all_back(
    host: &Host,
    mut saved: Saved,
    goal: impl Fn(&mut Entry) -> Goal,
) -> Result<Restored> {
    let interrupts = Interrupts::read(&host.proc())?;
    let mut done = Restored::default();
    let mut left = Vec::new();
    for mut entry in std::mem::take(&mut saved.entries) {
        let placed = entry.wanted().clone();
        if matches!(goal(&mut entry), Goal::Leave) {
            left.push(entry);
            continue;
        }
        let back = put_back(host, &entry, placed, &interrupts);
        entry.before = None;
        match back.state {
            State::Gone | State::Replaced => {}
            State::Restored if entry.by().is_none() => {}
            _ => left.push(entry),
        }
        done.restored.push(back);
    }
    saved.entries = left;
    // What follows may take long, and gthctl may be ended meanwhile.
    saved.store(host)?;
    if let Err(e) = ban::free(host, &mut saved) {
        done.failed_bans = 1;
        done.notes.push(e.to_string());
    }
    saved.store(host)?;
    Ok(done)
}

/// The names of the NICs that `name` means.
fn nics(host: &Host, saved: &Saved, name: &str) -> Result<Vec<String>> {
    let called = |entry: &Entry| entry.nic_now(host).is_none_or(|nic| nic == name);
    let of = |entry: &Entry| entry.nic == name && called(entry);
    let is_saved = saved.entries.iter().any(of);
    match Lower::read(&host.sys(), name) {
        Ok(lower) if !is_saved => Ok(lower.nics),
        // It may have been removed.
        Err(e) if !is_saved => Err(e),
        _ => Ok(vec![name.into()]),
    }
}

/// Moves what `entry` is about where it is wanted; gthctl had `placed` it.
fn put_back(host: &Host, entry: &Entry, placed: CpuList, interrupts: &Interrupts) -> Back {
    let (Entry { name, target, .. }, goal) = (entry.clone(), entry.wanted().clone());
    let nic = entry.called(host);
    let found = entry.read(host).map(|found| found.map(|found| found.allowed));
    let found = found.unwrap_or_default();
    let moved = found.as_ref().is_some_and(|cpus| {
        // A change that was cut short need not have got this far.
        *cpus != placed && entry.before.as_ref() != Some(cpus)
    });
    let (state, why) = match &found {
        None => (State::Gone, None),
        Some(_) if !entry.is_same(host, interrupts) => (State::Replaced, None),
        Some(_) if entry.by() == Some(By::Policy) => (State::KeptByPolicy, None),
        Some(now) if *now == goal => (State::Restored, None),
        Some(_) => match write_back(host, entry) {
            Ok(()) => (State::Restored, None),
            Err(e) => (State::Failed, Some(e.to_string())),
        },
    };
    let moved_by_others = moved && !matches!(state, State::Replaced | State::KeptByPolicy);
    Back { nic, name, target, placed, found, original: goal, moved_by_others, state, why }
}

fn write_back(host: &Host, entry: &Entry) -> Result<()> {
    let goal = entry.wanted();
    entry.write(host, goal)?;
    match entry.read(host)?.is_some_and(|now| now.allowed == *goal) {
        true => Ok(()),
        false => {
            let Entry { nic, target, .. } = entry;
            Err(Error::failure(format!("{nic}: {target}: the kernel did not take it back")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::irq::place::plan::{Masks, Placement};
    use crate::irq::tree::{Machine, Tree, affinity, on, pin, place};

    #[test]
    fn exactly_what_was_there() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(restore(&host, None).unwrap(), Restored::default());
        tree.write("proc/irq/40/smp_affinity_list", "1,3\n");
        pin(&tree, "eth0", "2");
        pin(&tree, "eth0", "3");
        tree.write("proc/irq/38/smp_affinity_list", "0\n");
        let done = restore(&host, Some("eth0")).unwrap();
        assert!(done.restored.iter().all(|back| back.state == State::Restored));
        let moved: Vec<_> = done.restored.iter().filter(|back| back.moved_by_others).collect();
        assert_eq!(moved.len(), 1);
        assert_eq!(moved[0].found.as_ref().unwrap().to_string(), "0");
        assert_eq!([38, 40].map(|irq| affinity(&tree, irq)), ["0-3", "1,3"]);
        assert_eq!(Saved::load(&host).unwrap(), None);
        assert_eq!(restore(&host, Some("eth0")).unwrap(), Restored::default());
    }

    #[test]
    fn after_a_crash_nothing_is_blamed_on_others() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        pin(&tree, "eth0", "1");
        pin(&tree, "eth0", "2");
        // As if the second had not got that far.
        let mut saved = Saved::load(&host).unwrap().unwrap();
        for entry in &mut saved.entries {
            entry.before = Some("1".parse().unwrap());
        }
        saved.store(&host).unwrap();
        tree.write("proc/irq/41/smp_affinity_list", "1\n");
        tree.write("proc/irq/40/smp_affinity_list", "3\n");
        let done = restore(&host, None).unwrap();
        let moved = done.restored.iter().filter(|back| back.moved_by_others);
        assert_eq!(moved.map(|back| back.target.irq()).collect::<Vec<_>>(), [Some(40)]);
        assert!((37..=41).all(|irq| affinity(&tree, irq) == "0-3"));
    }

    #[test]
    fn what_is_gone_or_anothers_is_left_alone() {
        let tree = Tree::machine(&Machine::VIRTIO);
        pin(&tree, "eth0", "2");
        fs::remove_dir_all(tree.path("proc/irq/39")).unwrap();
        let text = fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        tree.write("proc/interrupts", &text.replace("   3-edge", "   9-edge"));
        let done = restore(&tree.host(), None).unwrap();
        let states: Vec<State> = done.restored.iter().map(|back| back.state).collect();
        use State::{Gone, Replaced};
        assert_eq!(states, [State::Restored, State::Restored, Gone, Replaced, State::Restored]);
        assert_eq!(affinity(&tree, 40), "2");
        assert_eq!(Saved::load(&tree.host()).unwrap(), None);
    }

    #[test]
    fn a_nic_that_was_renamed_and_one_that_took_its_name() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        tree.write("sys/class/net/eth0/ifindex", "2\n");
        place(&tree, Placement { rps: Masks::Match, ..on("eth0", "2") }).unwrap();
        let net = tree.path("sys/class/net");
        fs::rename(net.join("eth0"), net.join("n3")).unwrap();
        tree.write("sys/class/net/eth0/ifindex", "3\n");
        tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "8\n");
        assert_eq!(restore(&host, Some("n3")).unwrap().restored.len(), 7);
        let mask = |nic: &str| fs::read_to_string(net.join(nic).join("queues/rx-0/rps_cpus"));
        assert_eq!((mask("n3").unwrap(), mask("eth0").unwrap()), ("0\n".into(), "8\n".into()));
        assert_eq!(Saved::load(&host).unwrap(), None);
    }

    #[test]
    fn one_nic_of_two_and_one_that_is_none() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("n6", &["eth0"]);
        tree.on_top("lo", &[]);
        let host = tree.host();
        assert!(restore(&host, Some("eth9")).is_err());
        pin(&tree, "n6", "2");
        assert_eq!(restore(&host, Some("lo")).unwrap(), Restored::default());
        assert_eq!(affinity(&tree, 37), "2");
        assert_eq!(restore(&host, Some("n6")).unwrap().restored.len(), 5);
        assert_eq!(affinity(&tree, 37), "0-3");
        // Its NIC may have been removed since.
        pin(&tree, "eth0", "2");
        fs::remove_file(tree.path("sys/class/net/eth0")).unwrap();
        assert_eq!(restore(&host, Some("eth0")).unwrap().restored.len(), 5);
    }
}
