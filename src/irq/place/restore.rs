//! Putting back what was there before.

use serde::Serialize;

use super::ban;
use super::plan::{Change, Plan};
use super::saved::{Entry, Saved, lock};
use super::target::Target;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::interrupts::Interrupts;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub restored: Vec<Back>,
    pub notes: Vec<String>,
    /// irqbalance could not be told to lift its bans; `notes` says why.
    pub ban_failed: bool,
}

/// A target that had been placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Back {
    #[serde(flatten)]
    pub target: Target,
    /// Where gthctl had put it.
    pub placed: CpuList,
    /// Where it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<CpuList>,
    /// Where it belongs, and is again unless `state` says otherwise.
    pub original: CpuList,
    /// Somebody else had moved it in between.
    pub moved_by_others: bool,
    pub state: State,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as it was.
    Restored,
    /// The IRQ or queue no longer exists.
    Gone,
    /// The IRQ's number now belongs to another device. gthctl left that one alone.
    Replaced,
    /// The kernel refused. The entry stays saved.
    Failed,
    /// The policy in force places it. Only the placement by hand is forgotten.
    KeptByPolicy,
}

impl Restored {
    /// How many targets could not be put back, plus one for the bans.
    pub fn failed(&self) -> usize {
        let failed = self.restored.iter().filter(|back| back.state == State::Failed);
        failed.count() + usize::from(self.ban_failed)
    }
}

/// Puts back everything that was placed, or what was placed for `nic`, except what the policy in
/// force places. A virtual device stands for the NICs under it. Waits while another gthctl changes
/// interrupts. It is no error if nothing is saved.
///
/// Fails when the saved state cannot be read or written, or when `nic` is neither a device nor has
/// anything saved. The result says what the kernel refuses.
pub fn restore(host: &Host, nic: Option<&str>) -> Result<Restored> {
    let _lock = lock(host)?;
    let saved = Saved::load_or_new(host)?;
    let nics = nic.map(|nic| nics(host, &saved, nic)).transpose()?;
    let runs = saved.runs(host);
    let mut done = put_all_back(host, saved, &Plan::default(), |entry| {
        if nics.as_ref().is_some_and(|nics| !nics.contains(&entry.target_now(host).nic)) {
            return false;
        }
        entry.by_hand = None;
        if runs.is_none() {
            entry.by_policy = None;
        }
        true
    })?;
    let kept = done.restored.iter().any(|back| back.state == State::KeptByPolicy);
    if let Some(pid) = runs.filter(|_| kept) {
        done.notes.push(format!(
            "the policy of the running gthctl (PID {pid}) places some of them; they are put back \
             when it no longer does"
        ));
    }
    Ok(done)
}

/// Puts back what a policy placed and `kept` does not contain: to where `gthctl irq pin` put
/// it, or else to where it was before. Takes back the bans that `kept` does not want any more.
///
/// Fails when the saved state cannot be read or written. The result says what the kernel refuses.
pub fn release(host: &Host, kept: &Plan) -> Result<Restored> {
    // Checks this without the lock, because usually there is nothing to do.
    let any = |saved: &Saved| {
        saved.entries.iter().any(|entry| is_released(host, entry, kept))
            || !ban::dropped(saved, kept).is_empty()
    };
    if !Saved::load(host)?.is_some_and(|saved| any(&saved)) {
        return Ok(Restored::default());
    }
    let _lock = lock(host)?;
    put_all_back(host, Saved::load_or_new(host)?, kept, |entry| {
        let released = is_released(host, entry, kept);
        if released {
            entry.by_policy = None;
        }
        released
    })
}

/// What [`release`] would change.
pub fn released(host: &Host, kept: &Plan) -> Result<Vec<Change>> {
    let saved = Saved::load(host)?.map_or(Vec::new(), |saved| saved.entries);
    let mut changes = Vec::new();
    for entry in saved.into_iter().filter(|entry| is_released(host, entry, kept)) {
        let Some(now) = entry.read(host)? else { continue };
        let wanted = entry.without_policy(host);
        changes.push(Change::new(entry.target, now.allowed, wanted));
    }
    Ok(changes)
}

fn is_released(host: &Host, entry: &Entry, kept: &Plan) -> bool {
    if entry.by_policy.is_none() {
        return false;
    }
    let target = entry.target_now(host);
    !kept.changes.iter().any(|change| target.is_same(&change.target))
}

/// Moves the targets of the entries for which `choose` returns true to where they are wanted after
/// `choose` has changed the entries. Stores the entries that are left. `kept` says which of those
/// irqbalance may move.
fn put_all_back(
    host: &Host,
    mut saved: Saved,
    kept: &Plan,
    choose: impl Fn(&mut Entry) -> bool,
) -> Result<Restored> {
    let interrupts = Interrupts::read(&host.proc())?;
    let mut done = Restored::default();
    let mut left = Vec::new();
    for mut entry in std::mem::take(&mut saved.entries) {
        let placed = entry.wanted().clone();
        if !choose(&mut entry) {
            left.push(entry);
            continue;
        }
        let back = put_back(host, &entry, placed, &interrupts);
        entry.before = None;
        match back.state {
            State::Gone | State::Replaced => {}
            State::Restored if entry.by_hand.is_none() => {}
            State::Restored => {
                // This may lack CPUs that have been banned meanwhile.
                entry.by_hand = Some(back.original.clone());
                left.push(entry);
            }
            _ => left.push(entry),
        }
        done.restored.push(back);
    }
    saved.entries = left;
    // Taking back the bans may take long, and gthctl may be killed meanwhile.
    saved.store(host)?;
    if let Err(e) = ban::free(host, &mut saved, kept) {
        done.ban_failed = true;
        done.notes.push(e.to_string());
    }
    saved.store(host)?;
    Ok(done)
}

/// The names of the NICs that `name` stands for.
fn nics(host: &Host, saved: &Saved, name: &str) -> Result<Vec<String>> {
    let called = |entry: &Entry| entry.nic_now(host).is_none_or(|nic| nic == name);
    let is_saved = saved.entries.iter().any(|entry| entry.target.nic == name && called(entry));
    match Device::read(host, name) {
        Ok(device) if !is_saved => Ok(device.nics),
        // A NIC with saved entries may have been removed.
        Err(e) if !is_saved => Err(e),
        _ => Ok(vec![name.into()]),
    }
}

/// Moves the target of `entry` to where it is wanted; gthctl had `placed` it.
fn put_back(host: &Host, entry: &Entry, placed: CpuList, interrupts: &Interrupts) -> Back {
    let target = entry.target_now(host);
    let original = entry.by_policy.clone().unwrap_or_else(|| entry.without_policy(host));
    let found = entry.read(host).map(|found| found.map(|found| found.allowed));
    let (state, why) = match &found {
        Err(e) => (State::Failed, Some(e.to_string())),
        Ok(None) => (State::Gone, None),
        Ok(Some(_)) if !entry.is_same(host, interrupts) => (State::Replaced, None),
        Ok(Some(_)) if entry.by_policy.is_some() => (State::KeptByPolicy, None),
        Ok(Some(now)) if *now == original => (State::Restored, None),
        Ok(Some(_)) => match write_back(host, &target, &original) {
            Ok(()) => (State::Restored, None),
            Err(e) => (State::Failed, Some(e.to_string())),
        },
    };
    let found = found.ok().flatten();
    let moved = found.as_ref().is_some_and(|cpus| {
        // A change that was killed may not have reached this target.
        *cpus != placed && entry.before.as_ref() != Some(cpus)
    });
    let moved_by_others = moved && !matches!(state, State::Replaced | State::KeptByPolicy);
    Back { target, placed, found, original, moved_by_others, state, why }
}

fn write_back(host: &Host, target: &Target, cpus: &CpuList) -> Result<()> {
    target.write(host, cpus)?;
    match target.is_on(host, &target.keeps(host, cpus)?)? {
        true => Ok(()),
        false => Err(Error::failure(format!("{target}: the kernel did not take it back"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::irq::place::wanted::{Masks, Placement};
    use crate::irq::tree::{Machine, Tree, affinities, affinity, on, pin, place, saved};

    /// For example, because no descriptors are left.
    #[test]
    fn what_cannot_be_read_now_stays_saved() {
        let tree = Tree::machine(&Machine::VIRTIO);
        pin(&tree, "eth0", "2");
        let list = tree.path("proc/irq/38/smp_affinity_list");
        fs::remove_file(&list).unwrap();
        fs::create_dir(&list).unwrap();
        let done = restore(&tree.host(), None).unwrap();
        let failed: Vec<_> = done.restored.iter().filter(|b| b.state == State::Failed).collect();
        assert_eq!(failed.len(), 1, "{done:?}");
        assert!(failed[0].why.as_ref().is_some_and(|why| why.contains("directory")), "{failed:?}");
        fs::remove_dir(&list).unwrap();
        tree.allow(38, "2");
        restore(&tree.host(), None).unwrap();
        assert_eq!(affinity(&tree, 38), "0-3");
    }

    #[test]
    fn exactly_what_was_there() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(restore(&host, None).unwrap(), Restored::default());
        tree.allow(40, "1,3");
        pin(&tree, "eth0", "2");
        pin(&tree, "eth0", "3");
        let entry = &saved(&tree).unwrap().entries[0];
        assert_eq!([&entry.original, entry.wanted()].map(CpuList::to_string), ["0-3", "3"]);
        tree.allow(38, "0");
        let done = restore(&host, Some("eth0")).unwrap();
        assert!(done.restored.iter().all(|back| back.state == State::Restored));
        let moved: Vec<_> = done.restored.iter().filter(|back| back.moved_by_others).collect();
        assert_eq!(moved.len(), 1);
        assert_eq!(moved[0].found.as_ref().unwrap().to_string(), "0");
        assert_eq!([38, 40].map(|irq| affinity(&tree, irq)), ["0-3", "1,3"]);
        assert_eq!(saved(&tree), None);
        assert_eq!(restore(&host, Some("eth0")).unwrap(), Restored::default());
    }

    #[test]
    fn after_a_crash_nothing_is_blamed_on_others() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        pin(&tree, "eth0", "1");
        pin(&tree, "eth0", "2");
        // As if the second change had not reached these targets.
        let mut saved = saved(&tree).unwrap();
        for entry in &mut saved.entries {
            entry.before = Some("1".parse().unwrap());
        }
        saved.store(&host).unwrap();
        tree.allow(41, "1");
        tree.allow(40, "3");
        let done = restore(&host, None).unwrap();
        let moved = done.restored.iter().filter(|back| back.moved_by_others);
        assert_eq!(moved.map(|back| back.target.irq()).collect::<Vec<_>>(), [Some(40)]);
        assert_eq!(affinities(&tree), ["0-3"; 5]);
    }

    #[test]
    fn what_is_gone_or_anothers_is_left_alone() {
        let tree = Tree::machine(&Machine::VIRTIO);
        pin(&tree, "eth0", "2");
        fs::remove_dir_all(tree.path("proc/irq/39")).unwrap();
        tree.irq_40_passes_to_another_device();
        let done = restore(&tree.host(), None).unwrap();
        let states: Vec<State> = done.restored.iter().map(|back| back.state).collect();
        use State::{Gone, Replaced};
        assert_eq!(states, [State::Restored, State::Restored, Gone, Replaced, State::Restored]);
        assert_eq!(affinity(&tree, 40), "2");
        assert_eq!(saved(&tree), None);
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
        assert_eq!(saved(&tree), None);
    }

    #[test]
    fn one_nic_of_two_and_one_that_is_none() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.on_top("n6", &["eth0"]);
        tree.on_top("lo", &[]);
        let host = tree.host();
        assert!(restore(&host, Some("eth9")).is_err());
        pin(&tree, "n6", "2");
        tree.pci("pci0000:00/0000:04:02.1", "ixgbevf", &[]);
        for nothing_saved in ["lo", "0000:04:02.1"] {
            assert_eq!(restore(&host, Some(nothing_saved)).unwrap(), Restored::default());
        }
        assert_eq!(affinity(&tree, 37), "2");
        assert_eq!(restore(&host, Some("n6")).unwrap().restored.len(), 5);
        assert_eq!(affinity(&tree, 37), "0-3");
        // Its NIC may have been removed since.
        pin(&tree, "eth0", "2");
        fs::remove_file(tree.path("sys/class/net/eth0")).unwrap();
        assert_eq!(restore(&host, Some("eth0")).unwrap().restored.len(), 5);
    }
}
