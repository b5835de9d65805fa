//! Bans: telling irqbalance to leave the placed IRQs alone, and taking that back.
//!
//! gthctl tells it through its socket. The ban lasts until irqbalance ends. If irqbalance has no
//! socket, or does not read that many IRQs from it, the error contains the line for irqbalance's
//! configuration.

use std::collections::BTreeSet;

use super::pin::Refused;
use super::plan::Plan;
use super::saved::{Bans, By, Saved};
use super::wanted::OnIrqbalance;
use crate::base::error::{Error, Result};
use crate::irq::banned;
use crate::irq::host::Host;
use crate::irq::irqbalance::{Irqbalance, listed};

/// What to tell irqbalance.
#[derive(Default)]
pub struct Ban {
    daemon: Option<Irqbalance>,
    before: BTreeSet<u32>,
    irqs: BTreeSet<u32>,
}

impl Ban {
    /// Finds out what to tell irqbalance about `plan`, and records it in `new`. Waits for a busy
    /// irqbalance.
    ///
    /// The bans are those of the whole plan, even if only a part of it changes: irqbalance may have
    /// been restarted, and then it knows none of them.
    ///
    /// Fails when irqbalance is in the way and may not or cannot be told.
    pub fn of(
        host: &Host,
        plan: &Plan,
        by: By,
        new: &mut Saved,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut ban = Self::default();
        let irqs = placed(plan, new);
        let ignored = |irq: &u32| plan.on_irqbalance(*irq) == OnIrqbalance::Ignore;
        let running = match irqs.iter().all(ignored) {
            true => Irqbalance::running(host)?,
            false => Irqbalance::awaited(host)?,
        };
        let pids: Vec<u32> = running.iter().map(|daemon| daemon.pid).collect();
        // The bans of a process that has ended are void.
        if new.bans.pid.is_some_and(|pid| !pids.is_empty() && !pids.contains(&pid)) {
            new.bans = Bans::default();
        }
        let dropped = dropped(new, plan);
        for daemon in running {
            let asked = Asked::of(&(&daemon.banned - &dropped), plan, &irqs);
            if !asked.ignored.is_empty() {
                notes.push(format!(
                    "irqbalance is running (PID {}) and may move {} at any time; `gthctl irq \
                     drift` shows whether it did",
                    daemon.pid,
                    listed(&asked.ignored)
                ));
            }
            if asked.refused.is_empty() && asked.banned.is_empty() {
                if irqs.iter().any(|irq| plan.on_irqbalance(*irq) == OnIrqbalance::Ban) {
                    new.bans.pid = Some(daemon.pid);
                }
                continue;
            }
            asked.check(&daemon, by, &pids)?;
            ban.add(host, daemon, &asked.banned, new, notes)?;
        }
        Ok(ban)
    }

    /// Adds `added` to what `daemon` leaves alone. Fails when it does not take them all.
    fn add(
        &mut self,
        host: &Host,
        daemon: Irqbalance,
        added: &BTreeSet<u32>,
        new: &mut Saved,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let pid = daemon.pid;
        let all = &daemon.banned | added;
        let added_list = listed(added);
        if let Err(why) = daemon.takes(&all) {
            let what = format!(
                "irqbalance (PID {pid}) cannot be told to leave {added_list} alone ({why}); \
                 nothing changed"
            );
            return Err(Error::failure(what).help(by_configuration(host, &all)));
        }
        new.bans.pid = Some(pid);
        new.bans.irqs.extend(added);
        notes.push(format!(
            "irqbalance (PID {pid}) leaves {added_list} alone until it is restarted"
        ));
        *self = Self { before: daemon.banned.clone(), irqs: all, daemon: Some(daemon) };
        Ok(())
    }

    /// Tells irqbalance.
    pub fn make(&mut self, host: &Host) -> Result<()> {
        match &mut self.daemon {
            Some(daemon) => daemon.ban(host, &self.irqs),
            None => Ok(()),
        }
    }

    /// Takes back what [`Ban::make`] told irqbalance, even if that failed.
    pub fn undo(&mut self, host: &Host) -> Result<()> {
        match &mut self.daemon {
            Some(daemon) if daemon.told => daemon.ban(host, &self.before),
            _ => Ok(()),
        }
    }
}

/// The IRQs of the whole plan that have an entry in `saved`.
fn placed(plan: &Plan, saved: &Saved) -> BTreeSet<u32> {
    let saved = saved.irqs();
    plan.irqbalance.keys().copied().filter(|irq| saved.contains(irq)).collect()
}

/// Whether an irqbalance runs that has not been asked to leave IRQs of `plan` alone.
///
/// Fails when the saved state cannot be read.
pub fn are_lost(host: &Host, plan: &Plan) -> Result<bool> {
    let banned = |irq: &u32| plan.on_irqbalance(*irq) == OnIrqbalance::Ban;
    if !plan.irqbalance.keys().any(banned) {
        return Ok(false);
    }
    let Some(saved) = Saved::load(host)? else { return Ok(false) };
    if !placed(plan, &saved).iter().any(banned) {
        return Ok(false);
    }
    let pids = Irqbalance::pids(host)?;
    Ok(!pids.is_empty() && saved.bans.pid.is_none_or(|asked| !pids.contains(&asked)))
}

/// The IRQs of a plan that an irqbalance may move, by what the plan says to do about it.
struct Asked {
    refused: BTreeSet<u32>,
    ignored: BTreeSet<u32>,
    banned: BTreeSet<u32>,
}

impl Asked {
    /// irqbalance leaves `banned` alone. `placed` are the IRQs of the whole plan. Only the IRQs of
    /// the plan's changes are refused.
    fn of(banned: &BTreeSet<u32>, plan: &Plan, placed: &BTreeSet<u32>) -> Self {
        let of = |irqs: &BTreeSet<u32>, how: OnIrqbalance| {
            let irqs = irqs.iter().copied().filter(|irq| !banned.contains(irq));
            irqs.filter(|&irq| plan.on_irqbalance(irq) == how).collect()
        };
        let changed = plan.irqs();
        Self {
            refused: of(&changed, OnIrqbalance::Refuse),
            ignored: of(&changed, OnIrqbalance::Ignore),
            banned: of(placed, OnIrqbalance::Ban),
        }
    }

    /// Fails when `daemon`, one of `pids`, is in the way or does not answer.
    fn check(&self, daemon: &Irqbalance, by: By, pids: &[u32]) -> Result<()> {
        let pid = daemon.pid;
        let failed =
            |what: String, help| Err(Error::failure(format!("{what}; nothing changed")).help(help));
        if let Some(why) = daemon.busy() {
            let what = format!("irqbalance (PID {pid}) does not answer: {why}");
            return failed(what, "try again: it answers nothing while it scans all IRQs");
        }
        if !self.refused.is_empty() {
            let irqs = listed(&self.refused);
            let what =
                format!("irqbalance is running (PID {pid}) and would move {irqs} within seconds");
            let help = match by {
                By::Policy => "`irqbalance: ban` beside `nic` tells it to leave them alone",
                By::Hand => "--ban tells it to leave them alone; --force places them anyway",
            };
            let refused = Refused::Irqs(self.refused.clone());
            return failed(what, help).map_err(|e| refused.cause(e));
        }
        if pids.len() > 1 {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let what = format!(
                "more than one irqbalance is running (PID {}), and gthctl can tell only one to \
                 leave IRQs alone",
                pids.join(", ")
            );
            return failed(what, "stop the others");
        }
        Ok(())
    }
}

/// How the administrator tells irqbalance to leave these IRQs alone: the line for the file with
/// the arguments of its service. Debian has one file, Red Hat and SUSE another.
fn by_configuration(host: &Host, irqs: &BTreeSet<u32>) -> String {
    let is_red_hat = banned::places(host, banned::OF_RED_HAT).iter().any(|file| file.is_file());
    let file = if is_red_hat { banned::OF_RED_HAT } else { banned::OF_DEBIAN };
    let bans: Vec<String> = irqs.iter().map(|irq| format!("--banirq={irq}")).collect();
    format!(
        "put IRQBALANCE_ARGS=\"{}\" into {file}, keep the other arguments there, and restart \
         irqbalance",
        bans.join(" ")
    )
}

/// The saved bans of IRQs that `kept` lets irqbalance move. IRQs placed by hand keep theirs.
pub fn dropped(saved: &Saved, kept: &Plan) -> BTreeSet<u32> {
    let by_hand = saved.entries.iter().filter(|entry| entry.by_hand.is_some());
    let by_hand: BTreeSet<u32> = by_hand.filter_map(|entry| entry.target.irq()).collect();
    let ignored = |irq: &u32| kept.on_irqbalance(*irq) == OnIrqbalance::Ignore;
    saved.bans.irqs.iter().copied().filter(|irq| ignored(irq) && !by_hand.contains(irq)).collect()
}

/// Takes back the bans of IRQs that have no entry in `saved` any more, or that `kept` lets
/// irqbalance move, and removes them from `saved`. Waits for a busy irqbalance.
///
/// Fails when irqbalance cannot be told. Then `saved` keeps the bans.
pub fn free(host: &Host, saved: &mut Saved, kept: &Plan) -> Result<()> {
    let needed = &saved.irqs() - &dropped(saved, kept);
    let bans = &mut saved.bans;
    let freed = &bans.irqs - &needed;
    if freed.is_empty() {
        if needed.is_empty() {
            *bans = Bans::default();
        }
        return Ok(());
    }
    // If irqbalance has ended, the bans have ended with it.
    if let Some(mut daemon) = bans.pid.and_then(|pid| Irqbalance::with_pid(host, pid)) {
        let left = &daemon.banned - &freed;
        // Somebody else may already have taken them back.
        if daemon.silent.is_some() || left != daemon.banned {
            let failed = |e: Error| {
                let what = format!("{}; it may still leave {} alone", e.what, listed(&freed));
                Error::failure(what).help("`gthctl irq restore` tries again")
            };
            daemon.ban(host, &left).map_err(failed)?;
        }
    }
    bans.irqs = &bans.irqs & &needed;
    if bans.irqs.is_empty() {
        bans.pid = None;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::irq::place::pin::{Placed, apply};
    use crate::irq::place::restore::restore;
    use crate::irq::place::wanted::Placement;
    use crate::irq::tree::{self, Daemon, Machine, Tree, affinities, affinity, on, saved};

    /// Places these IRQs of eth0, or all of them, on CPU 2.
    fn place(tree: &Tree, irqs: &[u32], irqbalance: OnIrqbalance) -> Result<Placed> {
        let irqs = irqs.iter().copied().collect();
        tree::place(tree, Placement { irqs, irqbalance, ..on("eth0", "2") })
    }

    fn ban(tree: &Tree, irqs: &[u32]) -> Result<Placed> {
        place(tree, irqs, OnIrqbalance::Ban)
    }

    /// The bans that are saved.
    fn told(tree: &Tree) -> Option<Vec<u32>> {
        Some(saved(tree)?.bans.irqs.into_iter().collect())
    }

    /// Why such a placement is refused. Nothing has changed then.
    fn refused(tree: &Tree, irqs: &[u32], irqbalance: OnIrqbalance) -> String {
        let e = place(tree, irqs, irqbalance).unwrap_err().to_string();
        assert_eq!((affinities(tree), told(tree)), (vec!["0-3".into(); 5], None), "{e}");
        e
    }

    /// A machine with an irqbalance that has no socket.
    fn without_socket() -> Tree {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0--foreground\0");
        tree
    }

    #[test]
    fn irqbalance_is_in_the_way() {
        let tree = without_socket();
        let e = refused(&tree, &[], OnIrqbalance::Refuse);
        assert!(e.starts_with("irqbalance is running (PID 42) and would move IRQ 37, 38"), "{e}");
        let placed = place(&tree, &[], OnIrqbalance::Ignore).unwrap();
        assert!(placed.notes[0].contains("at any time"), "{placed:?}");
    }

    #[test]
    fn one_without_a_socket_is_for_the_administrator() {
        let tree = without_socket();
        tree.write("proc/42/cmdline", "irqbalance\0--banirq=4\0");
        let refused = || refused(&tree, &[38, 39], OnIrqbalance::Ban);
        let e = refused();
        let what = "irqbalance (PID 42) cannot be told to leave IRQ 38, 39 alone (";
        let line = "); nothing changed; put IRQBALANCE_ARGS=\"--banirq=4 --banirq=38 --banirq=39\" \
                    into /etc/default/irqbalance, ";
        assert!(e.starts_with(what) && e.contains(line), "{e}");
        tree.write("etc/sysconfig/irqbalance", "");
        assert!(refused().contains(" into /etc/sysconfig/irqbalance, "));
        // With that line it is not in the way.
        tree.write("proc/42/cmdline", "irqbalance\0--banirq=38\0--banirq=39\0");
        ban(&tree, &[38, 39]).unwrap();
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(told(&tree), None);
    }

    #[test]
    fn a_busy_one_is_waited_for() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0, 0, 0, 500, 0, 0, 500, 0, 0]);
        ban(&tree, &[38]).unwrap();
        ban(&tree, &[39]).unwrap();
        assert_eq!(told(&tree), Some(vec![38, 39]));
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        let settings = daemon.asked().into_iter().filter(|request| request != "setup");
        let lists = ["7 38", "7 38 39", "7"];
        assert!(settings.eq(lists.map(|list| format!("settings ban irqs {list}\0"))));
        assert_eq!(told(&tree), None);
    }

    #[test]
    fn one_that_never_answers_is_not_told() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[]);
        let e = refused(&tree, &[], OnIrqbalance::Ban);
        assert!(e.contains("no answer in 1.5 s; nothing changed; try again: "), "{e}");
        assert_eq!(daemon.asked().len(), 0);
    }

    #[test]
    fn what_it_is_told_later_is_taken_back_too() {
        let tree = Tree::machine(&Machine::VIRTIO);
        // It reads both lists only after gthctl has stopped waiting.
        let daemon = Daemon::new(&tree, &[0, 2500, 0]);
        let e = ban(&tree, &[38]).unwrap_err();
        assert!(e.what.contains("leave alone: its socket: no answer in 1.5 s; not all"), "{e}");
        assert_eq!((affinity(&tree, 38), told(&tree)), ("0-3".into(), Some(vec![38])));
        let asked = daemon.asked();
        assert_eq!(asked, ["setup", "settings ban irqs 7 38\0", "settings ban irqs 7\0"]);
    }

    #[test]
    fn what_cannot_be_freed_stays_saved() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0; 3]);
        ban(&tree, &[38]).unwrap();
        let done = restore(&tree.host(), None).unwrap();
        assert_eq!((done.failed(), affinity(&tree, 38)), (1, "0-3".into()));
        assert!(done.notes[0].contains("it may still leave IRQ 38 alone; "), "{done:?}");
        assert_eq!(told(&tree), Some(vec![38]));
        let asked = daemon.asked();
        assert_eq!(asked.len(), 3);
        // irqbalance ends, and so do the bans.
        fs::remove_dir_all(tree.path(&format!("proc/{}", std::process::id()))).unwrap();
        assert_eq!((restore(&tree.host(), None).unwrap().failed(), told(&tree)), (0, None));
    }

    #[test]
    fn bans_of_what_is_no_longer_saved_are_freed() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0; 7]);
        ban(&tree, &[38, 40]).unwrap();
        tree.irq_40_passes_to_another_device();
        place(&tree, &[38], OnIrqbalance::Refuse).unwrap();
        let entries = saved(&tree).unwrap().entries.len();
        assert_eq!((entries, told(&tree)), (1, Some(vec![38, 40])));
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(daemon.asked()[5], "settings ban irqs 7\0");
    }

    #[test]
    fn a_list_that_is_too_long_is_for_the_administrator() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::at(&tree, Daemon::bind(&tree), (1000..1100).collect(), &[0]);
        let e = refused(&tree, &[38], OnIrqbalance::Ban);
        assert!(e.contains("(101 IRQs are more than it reads from its socket); "), "{e}");
        assert!(e.contains("\"--banirq=38 --banirq=1000 ") && e.contains("=1099\" into "), "{e}");
        assert_eq!(daemon.asked().len(), 1);
    }

    #[test]
    fn two_of_them() {
        let tree = without_socket();
        tree.irqbalance(43);
        let e = refused(&tree, &[], OnIrqbalance::Ban);
        assert!(e.starts_with("more than one irqbalance is running (PID 42, 43)"), "{e}");
    }

    #[test]
    fn a_change_that_fails_takes_the_bans_back() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0; 5]);
        let all = Placement { irqbalance: OnIrqbalance::Ban, ..on("eth0", "2") };
        let plan = Plan::of(&tree.host(), &[all]).unwrap();
        tree.refuse_writes("proc/irq/39/smp_affinity_list");
        apply(&tree.host(), &plan, By::Hand).unwrap_err();
        assert_eq!((affinity(&tree, 38), told(&tree)), ("0-3".into(), None));
        let asked = daemon.asked();
        assert_eq!(
            [&asked[1], &asked[3]],
            ["settings ban irqs 7 37 38 39 40 41\0", "settings ban irqs 7\0"]
        );
    }
}
