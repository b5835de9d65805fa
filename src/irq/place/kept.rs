//! Reports on what is kept where the policy in force wants it.

use serde::{Deserialize, Serialize};

use super::plan::{Change, Plan};
use super::restore;
use super::wanted::Placement;
use crate::irq::host::Host;

/// Interrupts, RPS masks and XPS masks that the policy places (`irq`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irqs {
    pub in_place: usize,
    /// How many somebody else has moved.
    pub away: usize,
    /// How many gthctl has placed since it was started, because they had been moved or were new.
    pub placed_again: u64,
    /// Why other interrupts are not placed yet.
    pub waiting: Vec<String>,
}

/// An interrupt or mask that a policy would move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqMove {
    pub nic: String,
    /// Such as `IRQ 38` or `RPS of rx-0`.
    pub what: String,
    /// The IRQ's name, as in /proc/interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its CPUs; empty for none.
    pub now: String,
    pub wanted: String,
}

/// What a [`Keeper`](super::keep::Keeper) keeps, for reports.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub(super) placements: Vec<Placement>,
    /// The plan for `placements`.
    pub(super) plan: Plan,
    /// How many targets were placed again.
    pub(super) moved: u64,
}

impl Kept {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many are in place; `None` when there is nothing to keep.
    pub fn report(&self, host: &Host) -> Option<Irqs> {
        if self.placements.is_empty() {
            return None;
        }
        let in_place = self.plan.changes.iter().filter(|change| change.is_in_place(host)).count();
        Some(Irqs {
            in_place,
            away: self.plan.changes.len() - in_place,
            placed_again: self.moved,
            waiting: self.plan.waiting.clone(),
        })
    }
}

/// What [`Keeper::set`](super::keep::Keeper::set) would change for this plan.
pub fn preview(host: &Host, plan: &Plan) -> Vec<IrqMove> {
    let released = restore::released(host, plan).unwrap_or_default();
    let changes = plan.changes.iter().chain(&released);
    changes.filter(|change| change.now != change.wanted).map(IrqMove::of).collect()
}

impl IrqMove {
    fn of(change: &Change) -> Self {
        Self {
            nic: change.target.nic.clone(),
            what: change.target.part.to_string(),
            name: change.target.name.clone(),
            now: change.now.to_string(),
            wanted: change.wanted.to_string(),
        }
    }
}
