//! Finds what is no longer where gthctl put it.

use serde::Serialize;

use super::saved::{By, Saved};
use super::target::Target;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::irq::host::Host;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::irqbalance::Irqbalance;

/// Every target that was placed, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drift {
    pub placed: Vec<PlacedTarget>,
    pub notes: Vec<String>,
}

/// A target that was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacedTarget {
    #[serde(flatten)]
    pub target: Target,
    /// `None` for a target that could not be put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    pub wanted: CpuList,
    /// smp_affinity_list, or the mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<CpuList>,
    /// effective_affinity_list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<CpuList>,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    InPlace,
    /// Somebody else has set other CPUs.
    Moved,
    /// The IRQ or queue does not exist: the NIC is down, reset or removed.
    Gone,
    /// The IRQ's number now belongs to another device.
    Replaced,
    /// The change that places it has not finished.
    Unfinished,
}

impl Drift {
    /// The targets that are not where they were put.
    pub fn away(&self) -> impl Iterator<Item = &PlacedTarget> {
        self.placed.iter().filter(|look| look.state != State::InPlace)
    }
}

/// Looks at everything that was placed and not restored.
///
/// Fails when the saved state cannot be read. Only root can read it.
pub fn look(host: &Host) -> Result<Drift> {
    let Some(saved) = Saved::load(host)? else { return Ok(Drift::default()) };
    let interrupts = Interrupts::read(&host.proc())?;
    let mut drift = Drift::default();
    for entry in &saved.entries {
        let found = entry.read(host)?;
        let state = match &found {
            None => State::Gone,
            Some(_) if !entry.is_same(host, &interrupts) => State::Replaced,
            Some(found) if entry.is_met_by(&found.allowed) => State::InPlace,
            Some(found) if entry.before.as_ref() == Some(&found.allowed) => State::Unfinished,
            Some(_) => State::Moved,
        };
        drift.placed.push(PlacedTarget {
            target: entry.target_now(host),
            by: entry.by(),
            wanted: entry.wanted().clone(),
            now: found.as_ref().map(|found| found.allowed.clone()),
            effective: found.and_then(|found| found.effective),
            state,
        });
    }
    if saved.unfinished() {
        drift
            .notes
            .push("the last change has not ended: it is still running, or it was killed".into());
    }
    let irqs = saved.irqs();
    for daemon in Irqbalance::running(host)?.iter().filter(|daemon| !daemon.spares(&irqs)) {
        let pid = daemon.pid;
        let what = match daemon.busy() {
            None => "does not leave all of these IRQs alone".into(),
            Some(why) => format!("may move these IRQs (no answer: {why})"),
        };
        drift.notes.push(format!("irqbalance is running (PID {pid}) and {what}"));
    }
    Ok(drift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::place::saved::lock;
    use crate::irq::tree::{Machine, Tree, pin, saved};

    #[test]
    fn each_kind() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(look(&host).unwrap(), Drift::default());
        pin(&tree, "eth0", "2");
        assert_eq!(look(&host).unwrap().away().count(), 0);
        tree.allow(38, "0-1");
        std::fs::remove_dir_all(tree.path("proc/irq/39")).unwrap();
        tree.irq_40_passes_to_another_device();
        tree.irqbalance(42);
        let drift = look(&host).unwrap();
        let away: Vec<_> =
            drift.away().map(|look| (look.target.irq().unwrap(), look.state)).collect();
        assert_eq!(away, [(38, State::Moved), (39, State::Gone), (40, State::Replaced)]);
        assert_eq!(drift.notes.len(), 1, "{drift:?}");
        assert!(drift.notes[0].starts_with("irqbalance is running (PID 42)"));
    }

    #[test]
    fn a_change_that_was_killed() {
        let tree = Tree::machine(&Machine::VIRTIO);
        pin(&tree, "eth0", "2");
        let _lock = lock(&tree.host()).unwrap();
        let mut saved = saved(&tree).unwrap();
        let last = saved.entries.last_mut().unwrap();
        last.before = Some("0-3".parse().unwrap());
        saved.store(&tree.host()).unwrap();
        tree.allow(41, "0-3");
        let drift = look(&tree.host()).unwrap();
        let away: Vec<_> = drift.away().map(|look| look.state).collect();
        assert_eq!((away, drift.notes.len()), (vec![State::Unfinished], 1));
    }
}
