//! Keeping interrupts where the policy in force wants them: placing them, placing them again
//! when they have been moved, and putting everything back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::kept::Kept;
use super::pin::{Placed, Refused};
use super::plan::{Change, Plan};
use super::saved::By;
use super::target::{Target, shown};
use super::wanted::{Absent, OnIrqbalance, Placement};
use super::{ban, pin, restore};
use crate::base::error::{Error, Result};
use crate::base::log;
use crate::irq::host::Host;

/// How often gthctl checks whether something was moved. The kernel does not report that.
const LOOK: Duration = Duration::from_secs(1);
/// How often gthctl looks for new NICs and queues.
const PLAN: Duration = Duration::from_secs(10);
/// The longest wait before something is placed again. The wait begins with [`LOOK`] and doubles
/// each time.
const LONGEST: Duration = Duration::from_secs(60);
/// How many targets a line of the log names.
const NAMED: usize = 4;
/// The end of a note about what only the user can put back.
const RESTORE: &str = "`gthctl irq restore` tries again";
/// The end of a note about what a [`Keeper`] puts back later.
const KEEPER: &str = "gthctl tries again";

/// Keeps a policy's placements.
#[derive(Debug)]
pub struct Keeper {
    host: Host,
    kept: Kept,
    look_at: Instant,
    plan_at: Instant,
    /// The earliest time to place something again, and the wait after that.
    again_at: Instant,
    wait: Duration,
    /// What could not be placed, and why. gthctl retries it separately from the rest.
    refused: Vec<(Refused, String)>,
    /// When to retry it, and the wait after that.
    refused_at: Instant,
    refused_wait: Duration,
    /// The last error that was logged.
    said: Option<String>,
    /// What the kernel refuses to move, as an attempt has shown.
    fixed: Vec<Change>,
    /// Whether some changes of other placements could not be put back.
    owed: bool,
    /// The notes of the last attempt to put them back.
    told: Vec<String>,
}

impl Keeper {
    /// A keeper that places nothing.
    pub fn new(host: Host) -> Self {
        let now = Instant::now();
        Self {
            host,
            kept: Kept::default(),
            look_at: now,
            plan_at: now,
            again_at: now,
            wait: LOOK,
            refused: Vec::new(),
            refused_at: now,
            refused_wait: LOOK,
            said: None,
            fixed: Vec::new(),
            owed: false,
            told: Vec::new(),
        }
    }

    /// Keeps `placements` from now on, all or nothing, and puts back what other placements
    /// had changed. Returns notes for the user.
    ///
    /// Fails as [`Plan::of`] and [`pin::apply`] do. Then all is as before.
    pub fn set(&mut self, placements: &[Placement], absent: Absent) -> Result<Vec<String>> {
        let mut plan = self.plan(placements, absent)?;
        let mut notes = plan.waiting.clone();
        let mut refused = Vec::new();
        if !plan.changes.is_empty() {
            let (placed, errors) = self.apply(&plan, absent)?;
            if let Some(e) = errors.last().filter(|_| placed.is_nothing()) {
                return Err(e.clone());
            }
            notes.extend(placed.notes);
            refused = refusals(&errors);
            notes.extend(reasons(&refused));
            plan.waiting.extend(reasons(&refused));
            self.fixed.extend(placed.fixed);
            plan.leave_out(&self.fixed);
        }
        let now = self.begin(placements, plan);
        self.put_off(refused, now);
        self.told = self.release_others(KEEPER);
        if self.owed {
            self.back_off(now);
        }
        notes.extend(self.told.iter().cloned());
        Ok(notes)
    }

    /// Keeps `placements` from now on. Places those whose NICs exist. [`Keeper::look`] retries the
    /// others, at growing intervals. Returns notes for the user.
    ///
    /// Fails as [`Keeper::set`] does, but keeps the placements anyway.
    pub fn keep(&mut self, placements: &[Placement]) -> Result<Vec<String>> {
        self.set(placements, Absent::Keep).inspect_err(|e| {
            let plan = Plan { waiting: vec![e.to_string()], ..Plan::default() };
            let now = self.begin(placements, plan);
            self.plan_at = now;
            self.back_off(now);
            self.said = Some(stays(e));
        })
    }

    fn plan(&self, placements: &[Placement], absent: Absent) -> Result<Plan> {
        let mut plan = Plan::with(&self.host, placements, absent)?;
        plan.leave_out(&self.fixed);
        Ok(plan)
    }

    /// Makes the changes of `plan`. With [`Absent::Keep`], makes those that are possible, and also
    /// returns the errors about the rest, each with a [`Refused`].
    fn apply(&self, plan: &Plan, absent: Absent) -> Result<(Placed, Vec<Error>)> {
        let mut plan = plan.clone();
        let mut errors = Vec::new();
        loop {
            let e = match pin::apply(&self.host, &plan, By::Policy) {
                Err(e) if absent == Absent::Keep => e,
                done => return done.map(|placed| (placed, errors)),
            };
            let Some(refused) = Refused::of(&e) else { return Err(e) };
            let all = plan.changes.len();
            plan.changes.retain(|change| !refused.is(&change.target));
            plan.irqbalance.retain(|irq, _| !refused.has_irq(*irq));
            if plan.changes.len() == all {
                return Err(e);
            }
            errors.push(e);
            if plan.changes.is_empty() {
                return Ok((Placed::default(), errors));
            }
        }
    }

    fn is_refused(&self, target: &Target) -> bool {
        self.refused.iter().any(|(refused, _)| refused.is(target))
    }

    /// Postpones what an attempt to place everything could not place.
    fn put_off(&mut self, refused: Vec<(Refused, String)>, now: Instant) {
        if refused.is_empty() {
            self.refused_wait = LOOK;
        } else {
            self.refused_at = now + self.refused_wait;
            self.refused_wait = LONGEST.min(self.refused_wait * 2);
        }
        self.refused = refused;
    }

    fn begin(&mut self, placements: &[Placement], plan: Plan) -> Instant {
        let now = Instant::now();
        self.kept = Kept { placements: placements.to_vec(), plan, moved: self.kept.moved };
        (self.look_at, self.plan_at) = (now + LOOK, now + PLAN);
        (self.again_at, self.wait, self.said) = (now, LOOK, None);
        (self.refused_at, self.refused_wait) = (now, LOOK);
        self.refused.clear();
        now
    }

    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Puts everything back. Returns notes for the user.
    pub fn end(&mut self) -> Vec<String> {
        self.kept = Kept::default();
        self.release_others(RESTORE)
    }

    /// If a look is due, checks whether something is not where it is wanted, and places it again,
    /// at growing intervals. Retries what could not be put back. Logs what it does and what goes
    /// wrong. Returns the time until the next look; `None` when there is nothing to keep or to put
    /// back.
    pub fn look(&mut self) -> Option<Duration> {
        if self.kept.placements.is_empty() && !self.owed {
            return None;
        }
        let now = Instant::now();
        if now >= self.look_at {
            self.look_and_tell(now);
            self.look_at = Instant::now() + LOOK;
        }
        Some(self.look_at.saturating_duration_since(Instant::now()))
    }

    fn look_and_tell(&mut self, now: Instant) {
        match self.look_now(now) {
            Ok(None) => {}
            Ok(Some(done)) => log::info(done),
            Err(e) => {
                self.back_off(now);
                if self.kept.plan.changes.is_empty() {
                    self.kept.plan.waiting = vec![e.to_string()];
                }
                self.complain(stays(&e));
            }
        }
    }

    /// Returns the log line of what was placed again, or of what irqbalance was told again.
    fn look_now(&mut self, now: Instant) -> Result<Option<String>> {
        let all = now >= self.refused_at;
        let is_due = |change: &Change| all || !self.is_refused(&change.target);
        let mut due = self.kept.plan.changes.iter().filter(|change| is_due(change));
        let moved = due.any(|change| !change.is_in_place(&self.host));
        if !moved && !self.owed && now < self.plan_at {
            return Ok(None);
        }
        if now >= self.again_at + LONGEST {
            self.wait = LOOK;
        }
        if now < self.again_at {
            return Ok(None);
        }
        self.plan_at = now + PLAN;
        let mut plan = self.plan(&self.kept.placements, Absent::Keep)?;
        let done = self.place_again(&mut plan, now);
        let irqbalance = plan.irqbalance.clone();
        self.kept.plan = plan;
        self.kept.plan.leave_out(&self.fixed);
        self.kept.plan.waiting.extend(done.as_ref().err().map(ToString::to_string));
        // A target that has gone need not stay saved. An error that prevents every placement
        // prevents putting back, too.
        if done.as_ref().err().is_none_or(|e| Refused::of(e).is_some()) {
            self.release_and_tell(now);
        }
        let done = done?;
        let told = self.ban_again(irqbalance)?;
        self.said = None;
        Ok(done.or(told))
    }

    /// Makes those changes of `whole` that are not in place. When it is due, also retries what
    /// could not be placed. Returns the log line about that.
    fn place_again(&mut self, whole: &mut Plan, now: Instant) -> Result<Option<String>> {
        let all = now >= self.refused_at;
        let mut plan = whole.clone();
        plan.changes.retain(|change| {
            !change.is_met_by(&change.now) && (all || !self.is_refused(&change.target))
        });
        let (mut placed, mut refused) = (Placed::default(), Vec::new());
        if !plan.changes.is_empty() {
            let (done, errors) = self.apply(&plan, Absent::Keep)?;
            (placed, refused) = (done, refusals(&errors));
        }
        let is_known = |why| self.refused.iter().any(|(_, known)| known == why);
        refused.iter().filter(|(_, why)| !is_known(why)).for_each(|(_, why)| log::error(why));
        match all {
            true => self.put_off(refused, now),
            false => self.refused.extend(refused),
        }
        whole.waiting.extend(reasons(&self.refused));
        let Placed { fixed, changes, .. } = placed;
        plan.changes
            .retain(|change| changes.iter().any(|done| done.target.is_same(&change.target)));
        log::notes(pin::note_of_fixed(&fixed).as_slice());
        self.fixed.extend(fixed);
        if plan.changes.is_empty() {
            return Ok(None);
        }
        self.kept.moved += plan.changes.len() as u64;
        self.back_off(now);
        Ok(Some(self.placed_again(&plan, now)))
    }

    /// Puts back what nothing keeps any more. Logs its notes unless the last ones were the same.
    fn release_and_tell(&mut self, now: Instant) {
        let notes = self.release_others(KEEPER);
        if notes != self.told {
            log::notes(&notes);
        }
        self.told = notes;
        if self.owed && self.again_at <= now {
            self.back_off(now);
        }
    }

    /// Tells an irqbalance that was started meanwhile which IRQs to leave alone. Returns the log
    /// line about that.
    fn ban_again(&self, irqbalance: BTreeMap<u32, OnIrqbalance>) -> Result<Option<String>> {
        let plan = Plan { irqbalance, ..Plan::default() };
        if !ban::are_lost(&self.host, &plan)? {
            return Ok(None);
        }
        Ok(pin::apply(&self.host, &plan, By::Policy)?.notes.into_iter().next())
    }

    fn back_off(&mut self, now: Instant) {
        self.again_at = now + self.wait;
        self.wait = LONGEST.min(self.wait * 2);
    }

    /// The log line about what a look that began at `now` has placed again.
    fn placed_again(&self, plan: &Plan, now: Instant) -> String {
        let known = |change: &Change| {
            let mut old = self.kept.plan.changes.iter();
            old.find(|old| old.target.is_same(&change.target))
        };
        let one = |change: &Change| {
            let Change { target, now, wanted, .. } = change;
            let why = match known(change) {
                Some(old) if old.wanted == *wanted => {
                    format!("had been moved to CPUs {}", shown(now))
                }
                Some(_) => "its CPUs changed".into(),
                None => "new".into(),
            };
            format!("{} {} ({why}) on CPUs {}", target.nic, target.part, shown(wanted))
        };
        let mut named: Vec<String> = plan.changes.iter().take(NAMED).map(one).collect();
        if plan.changes.len() > NAMED {
            named.push(format!("{} more", plan.changes.len() - NAMED));
        }
        let wait = self.again_at.saturating_duration_since(now).as_secs();
        format!("placed {}; the next time in {wait} s at the earliest", named.join(", "))
    }

    /// Puts back what nothing keeps any more. `again` says who retries it if all of it fails. Only
    /// `gthctl irq restore` retries what the kernel refuses.
    fn release_others(&mut self, again: &str) -> Vec<String> {
        let released = restore::release(&self.host, &self.kept.plan);
        self.owed = released.is_err();
        let released = match released {
            Ok(released) => released,
            Err(e) => return vec![format!("not put back: {}; {again}", e.what)],
        };
        let failed = released.restored.into_iter().filter_map(|back| back.why);
        let failed = failed.map(|why| format!("not put back: {why}; {RESTORE}"));
        released.notes.into_iter().chain(failed).collect()
    }

    fn complain(&mut self, what: String) {
        if self.said.as_ref() != Some(&what) {
            log::error(&what);
            self.said = Some(what);
        }
    }
}

/// The subjects and texts of those errors that have a [`Refused`].
fn refusals(errors: &[Error]) -> Vec<(Refused, String)> {
    errors.iter().filter_map(|e| Some((Refused::of(e)?.clone(), stays(e)))).collect()
}

fn reasons(refused: &[(Refused, String)]) -> impl Iterator<Item = String> {
    refused.iter().map(|(_, why)| why.clone())
}

fn stays(e: &Error) -> String {
    format!("{e}; the interrupts stay where they are")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::cpulist::CpuList;
    use crate::base::error::Location;
    use crate::irq::place::drift;
    use crate::irq::place::kept::{Irqs, preview};
    use crate::irq::place::restore::{State, restore};
    use crate::irq::place::saved::Bans;
    use crate::irq::place::wanted::{Avoid, Masks};
    use crate::irq::tree::{Daemon, Tree, affinities, affinity, of_pods, on, pin, place, saved};

    /// A keeper of all IRQs of eth0 on CPU 2.
    fn keeper(tree: &Tree) -> Keeper {
        let mut keeper = Keeper::new(tree.host());
        keeper.set(&[on("eth0", "2")], Absent::Refuse).unwrap();
        keeper
    }

    fn report(tree: &Tree, keeper: &Keeper) -> Irqs {
        keeper.kept().report(&tree.host()).unwrap()
    }

    #[test]
    fn set_changed_and_taken_back() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        assert!(keeper.look().is_none() && keeper.kept().report(&tree.host()).is_none());
        assert_eq!(keeper.set(&[], Absent::Refuse).unwrap(), [""; 0]);
        assert!(!tree.path("run/gthctl").exists());

        let moves_to = |placements: &[Placement]| {
            preview(&tree.host(), &Plan::of(&tree.host(), placements).unwrap())
        };
        let moves = moves_to(&[on("eth0", "2")]);
        assert_eq!((moves.len(), moves[1].what.as_str()), (5, "IRQ 38"));
        assert_eq!((moves[1].now.as_str(), moves[1].wanted.as_str()), ("0-3", "2"));
        assert_eq!(affinity(&tree, 38), "0-3");
        keeper.set(&[on("eth0", "2")], Absent::Refuse).unwrap();
        assert_eq!(affinities(&tree), ["2"; 5]);
        let found = report(&tree, &keeper);
        assert_eq!((found.in_place, found.away, found.placed_again), (5, 0, 0));

        // Now only those of one queue.
        let one = Placement { queues: [1].into(), ..on("eth0", "3") };
        let moves = moves_to(std::slice::from_ref(&one));
        let moves: Vec<_> = moves.iter().map(|one| (&one.what[4..], one.wanted.as_str())).collect();
        assert_eq!(moves, [("40", "3"), ("41", "3"), ("37", "0-3"), ("38", "0-3"), ("39", "0-3")]);
        keeper.set(&[one], Absent::Refuse).unwrap();
        assert_eq!(affinities(&tree), ["0-3", "0-3", "0-3", "3", "3"]);
        assert_eq!(keeper.end(), [""; 0]);
        assert_eq!(affinities(&tree), ["0-3"; 5]);
        assert_eq!(saved(&tree), None);
    }

    #[test]
    fn what_was_placed_by_hand_comes_back() {
        let tree = Tree::with_this_process();
        pin(&tree, "eth0", "1");
        let mut keeper = keeper(&tree);
        assert_eq!(affinities(&tree), ["2"; 5]);
        // Meanwhile, it can be neither moved nor put back by hand.
        let e = place(&tree, on("eth0", "3")).unwrap_err();
        let pid = std::process::id();
        let why = format!("eth0: the policy of the running gthctl (PID {pid}) places IRQ 37; ");
        assert!(e.what.starts_with(&why), "{e}");
        keeper.end();
        assert_eq!(affinities(&tree), ["1"; 5]);

        keeper.set(&[on("eth0", "2")], Absent::Refuse).unwrap();
        let done = restore(&tree.host(), None).unwrap();
        assert!(done.restored.iter().all(|back| back.state == State::KeptByPolicy), "{done:?}");
        assert_eq!((affinities(&tree), done.notes.len()), (vec!["2".to_owned(); 5], 1));
        keeper.end();
        assert_eq!(affinities(&tree), ["0-3"; 5]);
    }

    /// CRI-O may have given such a CPU to a pod.
    #[test]
    fn what_was_placed_by_hand_comes_back_without_cpus_that_were_banned_since() {
        let tree = Tree::with_this_process();
        pin(&tree, "eth0", "0-1");
        let mut keeper = keeper(&tree);
        tree.write("etc/sysconfig/irqbalance", "IRQBALANCE_BANNED_CPUS=2\n");
        keeper.end();
        assert_eq!(affinities(&tree), ["0"; 5]);
        assert_eq!(drift::look(&tree.host()).unwrap().away().count(), 0);
        // A banned CPU may be chosen by hand, even as the only one.
        pin(&tree, "eth0", "1");
        keeper.set(&[on("eth0", "2")], Absent::Refuse).unwrap();
        keeper.end();
        assert_eq!(affinities(&tree), ["1"; 5]);
    }

    #[test]
    fn after_a_crash_anybody_may() {
        let tree = Tree::with_this_process();
        keeper(&tree);
        fs::remove_dir_all(tree.path(&format!("proc/{}", std::process::id()))).unwrap();
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(affinities(&tree), ["0-3"; 5]);

        keeper(&tree);
        pin(&tree, "eth0", "1");
        assert_eq!(affinities(&tree), ["1"; 5]);
        restore(&tree.host(), None).unwrap();
        assert_eq!(affinities(&tree), ["0-3"; 5]);

        // The next gthctl puts it back if its policy does not want it.
        keeper(&tree);
        Keeper::new(tree.host()).set(&[], Absent::Await).unwrap();
        assert_eq!(affinities(&tree), ["0-3"; 5]);
    }

    #[test]
    fn the_nic_of_a_pod_that_comes_and_goes() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        tree.on_top("n6", &["eth0"]);
        for (devices, cpus) in [(&[][..], "0-3"), (&["n6"], "2"), (&["eth0"], "2"), (&[], "0-3")] {
            keeper.keep(&[of_pods(devices, "2")]).unwrap();
            assert_eq!(affinities(&tree), vec![cpus; 5], "{devices:?}");
        }
        assert_eq!(saved(&tree), None);
    }

    /// Everything stays in place, so no change saves the new name.
    #[test]
    fn the_masks_of_a_nic_that_is_renamed_stay() {
        let tree = Tree::with_this_process();
        tree.write("sys/class/net/eth0/ifindex", "2\n");
        tree.on_top("n6", &["eth0"]);
        let mut keeper = Keeper::new(tree.host());
        let with_rps = Placement { rps: Masks::Match, ..on("n6", "2") };
        keeper.set(&[with_rps], Absent::Refuse).unwrap();
        let net = tree.path("sys/class/net");
        fs::rename(net.join("eth0"), net.join("n3")).unwrap();
        fs::remove_file(net.join("n6/lower_eth0")).unwrap();
        tree.link("sys/class/net/n6/lower_n3", "sys/class/net/n3");
        assert_eq!(keeper.look_now(Instant::now() + PLAN).unwrap(), None);
        let mask = || fs::read_to_string(net.join("n3/queues/rx-0/rps_cpus")).unwrap();
        assert_eq!((mask().as_str(), report(&tree, &keeper).away), ("4\n", 0));
        keeper.end();
        assert_eq!((mask().as_str(), saved(&tree)), ("0\n", None));
    }

    #[test]
    fn all_or_nothing() {
        let tree = Tree::with_this_process();
        let mut keeper = keeper(&tree);
        let before = saved(&tree);
        let mut second = on("eth9", "1");
        second.location = Some(Location { file: "p.yaml".into(), line: 5, column: 3 });
        let both = [on("eth0", "3"), second];
        let e = keeper.set(&both, Absent::Refuse).unwrap_err().to_string();
        assert!(e.starts_with("p.yaml:5:3: \"eth9\": no such network device"), "{e}");
        assert!(keeper.set(&[on("eth0", "9")], Absent::Await).is_err());
        assert_eq!((affinities(&tree), saved(&tree)), (vec!["2".to_owned(); 5], before));

        let notes = keeper.set(&both, Absent::Await).unwrap();
        assert!(notes[0].starts_with("p.yaml:5:3: \"eth9\": no such network device"), "{notes:?}");
        assert!(notes[0].ends_with("; gthctl places the interrupts when that is fixed"));
        assert_eq!(affinities(&tree), ["3"; 5]);
        assert_eq!(report(&tree, &keeper).waiting, notes);
    }

    /// CPU 3 is offline, and eth1 is down: its interrupts have no names then.
    #[test]
    fn what_waits_does_not_keep_others_waiting() {
        let tree = Tree::with_this_process();
        tree.pci_nic("eth1", "pci0000:00/0000:00:04.0", "ixgbe", &[50]);
        tree.allow(50, "0-3");
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        let queue = |nic, number, cpus| Placement { queues: [number].into(), ..on(nic, cpus) };
        let placements = [queue("eth0", 0, "3"), queue("eth1", 0, "1"), queue("eth0", 1, "1")];
        let mut keeper = Keeper::new(tree.host());
        let waiting = keeper.keep(&placements).unwrap();
        assert!(waiting[0].starts_with("CPUs 3 are not online; "), "{waiting:?}");
        assert!(waiting[1].starts_with("eth1 has no IRQ of queue 0; "), "{waiting:?}");
        assert_eq!(affinities(&tree), ["0-3", "0-3", "0-3", "1", "1"]);
        tree.allow(40, "0-1");
        keeper.look_now(Instant::now() + LOOK).unwrap().unwrap();
        assert_eq!(affinities(&tree), ["0-3", "0-3", "0-3", "1", "1"]);
        tree.write("sys/devices/system/cpu/online", "0-3\n");
        keeper.look_now(Instant::now() + PLAN + LONGEST).unwrap().unwrap();
        assert_eq!(affinities(&tree), ["0-3", "3", "3", "1", "1"]);
    }

    /// Meanwhile, the rest of the CPU list applies.
    #[test]
    fn a_cpu_that_goes_and_comes() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        keeper.set(&[on("eth0", "2-3")], Absent::Refuse).unwrap();
        tree.write("sys/devices/system/cpu/online", "0-2\n");
        let now = Instant::now() + PLAN;
        let line = keeper.look_now(now).unwrap().unwrap();
        assert!(line.starts_with("placed eth0 IRQ 37 (its CPUs changed) on CPUs 2, "), "{line}");
        assert_eq!(affinities(&tree), ["2"; 5]);
        assert_eq!(saved(&tree).unwrap().entries.len(), 5);
        let waiting = report(&tree, &keeper).waiting;
        assert_eq!(waiting, ["CPUs 3 are not online: eth0 uses 2 meanwhile"]);
        // Only [`Absent::Keep`] tolerates an offline CPU.
        for absent in [Absent::Refuse, Absent::Await] {
            let e = keeper.set(&[on("eth0", "2-3")], absent).unwrap_err();
            assert_eq!(e.what, "CPUs 3 are not online; CPUs 0-2 are");
        }
        tree.write("sys/devices/system/cpu/online", "0-3\n");
        keeper.look_now(now + PLAN).unwrap().unwrap();
        assert_eq!(affinities(&tree), ["2-3"; 5]);
        assert_eq!(report(&tree, &keeper).waiting, [""; 0]);
        keeper.end();
        assert_eq!(affinities(&tree), ["0-3"; 5]);
    }

    /// As after `ethtool -L`.
    #[test]
    fn a_queue_that_goes_and_comes() {
        let tree = Tree::with_this_process();
        let interrupts = fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        let both = Placement { queues: [0, 1].into(), ..on("eth0", "2") };
        let mut keeper = Keeper::new(tree.host());
        keeper.set(std::slice::from_ref(&both), Absent::Refuse).unwrap();
        assert_eq!(affinities(&tree), ["0-3", "2", "2", "2", "2"]);
        let left = interrupts.lines().filter(|line| !line.contains("put.1"));
        tree.write("proc/interrupts", &left.map(|line| format!("{line}\n")).collect::<String>());
        let now = Instant::now() + PLAN;
        keeper.look_now(now).unwrap();
        assert_eq!((affinity(&tree, 38), affinity(&tree, 39)), ("2".into(), "2".into()));
        let waiting = report(&tree, &keeper).waiting;
        assert_eq!(waiting, ["eth0 has no IRQ of queue 1: the others are placed meanwhile"]);
        let e = keeper.set(&[both], Absent::Refuse).unwrap_err();
        assert_eq!(e.what, "eth0 has no IRQ of queue 1");
    }

    #[test]
    fn what_could_not_be_put_back_is_put_back_later() {
        const SAVED: &str = "run/gthctl/irq/saved.json";
        let tree = Tree::with_this_process();
        let mut keeper = keeper(&tree);
        let file = tree.path(SAVED);
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let notes = keeper.set(&[], Absent::Refuse).unwrap();
        assert!(notes[0].starts_with("not put back: "), "{notes:?}");
        assert!(notes.len() == 1 && notes[0].ends_with("; gthctl tries again"), "{notes:?}");
        let now = Instant::now();
        assert!(keeper.look().is_some());
        // The note is not logged again.
        assert_eq!(keeper.look_now(now + LOOK).unwrap(), None);
        assert_eq!((affinities(&tree), &keeper.told), (vec!["2".into(); 5], &notes));
        fs::remove_dir(&file).unwrap();
        tree.write(SAVED, &text);
        // The wait has doubled.
        assert_eq!(keeper.look_now(now + 2 * LOOK).unwrap(), None);
        assert_eq!(affinities(&tree), ["2"; 5]);
        assert_eq!(keeper.look_now(now + 3 * LOOK).unwrap(), None);
        assert_eq!((affinities(&tree), saved(&tree)), (vec!["0-3".into(); 5], None));
        assert!(keeper.look().is_none());
    }

    /// For example, irqbalance may be told about only some NICs' interrupts.
    #[test]
    fn what_is_refused_keeps_no_other_from_being_kept() {
        let tree = Tree::with_this_process();
        tree.irqbalance(42);
        let bans: String = [38, 39].map(|irq| format!("--banirq={irq}\0")).concat();
        tree.write("proc/42/cmdline", &format!("irqbalance\0{bans}"));
        let of = |queue, cpus, irqbalance| Placement {
            queues: [queue].into(),
            irqbalance,
            ..on("eth0", cpus)
        };
        let both = [of(0, "2", OnIrqbalance::Ban), of(1, "3", OnIrqbalance::Refuse)];
        let mut keeper = Keeper::new(tree.host());
        let notes = keeper.keep(&both).unwrap();
        let why = "irqbalance is running (PID 42) and would move IRQ 40, 41 within seconds";
        assert!(notes.len() == 1 && notes[0].starts_with(why), "{notes:?}");
        let first_placed = ["0-3", "2", "2", "0-3", "0-3"];
        assert_eq!(affinities(&tree), first_placed);
        let found = report(&tree, &keeper);
        assert_eq!((found.in_place, found.away, found.waiting.len()), (2, 2, 1));
        // What was placed is also placed again when it is moved.
        tree.allow(38, "0-3");
        let line = keeper.look_now(Instant::now() + PLAN).unwrap().unwrap();
        assert!(line.starts_with("placed eth0 IRQ 38 (had been moved to CPUs 0-3) on"), "{line}");
        assert_eq!(affinities(&tree), first_placed);
        // With [`Absent::Refuse`], nothing is placed then.
        assert!(keeper.set(&both, Absent::Refuse).is_err());
        fs::remove_dir_all(tree.path("proc/42")).unwrap();
        keeper.look_now(Instant::now() + 2 * PLAN + LONGEST).unwrap().unwrap();
        assert_eq!(affinities(&tree), ["0-3", "2", "2", "3", "3"]);
    }

    /// A mask that the kernel refuses is retried separately, whatever else moves.
    #[test]
    fn what_is_refused_for_good_does_not_slow_the_rest() {
        let tree = Tree::with_this_process();
        tree.refuse_writes("sys/class/net/eth0/queues/rx-0/rps_cpus");
        let with_rps = Placement { rps: Masks::Match, ..on("eth0", "2") };
        let mut keeper = Keeper::new(tree.host());
        let notes = keeper.keep(&[with_rps]).unwrap();
        assert!(notes.len() == 1 && notes[0].contains("rx-0"), "{notes:?}");
        assert_eq!(affinities(&tree), ["2"; 5]);
        // It has been tried so often by now that the next time is a minute later.
        let mut now = Instant::now();
        for _ in 0..10 {
            now += LONGEST;
            assert_eq!(keeper.look_now(now).unwrap(), None);
        }
        assert_eq!(report(&tree, &keeper).waiting, notes);
        tree.allow(38, "0-3");
        now += LOOK;
        let line = keeper.look_now(now).unwrap().unwrap();
        assert!(line.ends_with("CPUs 2; the next time in 1 s at the earliest"), "{line}");
        assert_eq!(affinities(&tree), ["2"; 5]);
        assert_eq!(report(&tree, &keeper).waiting, notes);
    }

    /// Before 6.13, the kernel shows it only when an attempt is made.
    #[test]
    fn one_that_the_kernel_does_not_let_move_stays_and_the_others_keep_away() {
        let tree = Tree::with_this_process();
        let fixed = tree.fix(39, "0-3");
        let mut keeper = Keeper::new(tree.host());
        let away: CpuList = "3".parse().unwrap();
        let off = Placement { avoid: Some(Avoid::Exclusive), away, ..Placement::default() };
        let notes = keeper.set(std::slice::from_ref(&off), Absent::Refuse).unwrap();
        assert_eq!(notes, ["IRQ 39 may still come to CPUs 3: the kernel does not let it move"]);
        let placed = |cpus: &str| [cpus, cpus, "0-3", cpus, cpus].map(String::from);
        assert_eq!(affinities(&tree), placed("0-2"));
        let found = report(&tree, &keeper);
        assert_eq!((found.in_place, found.away, saved(&tree).unwrap().entries.len()), (4, 0, 4));
        // It is neither retried nor reported again.
        assert_eq!(keeper.look_now(Instant::now() + PLAN).unwrap(), None);
        assert_eq!(keeper.set(std::slice::from_ref(&off), Absent::Refuse).unwrap(), [""; 0]);
        // An IRQ that is placed on given CPUs has to move.
        let e = keeper.set(&[on("eth0", "1")], Absent::Refuse).unwrap_err();
        assert!(e.what.starts_with("eth0: IRQ 39 to CPUs 1: the kernel does not let it"), "{e}");
        // The number passes to another device, whose interrupt moves.
        drop(fixed);
        tree.write("sys/kernel/irq/39/chip_name", "other\n");
        tree.write("sys/kernel/irq/39/hwirq", "1\n");
        fs::remove_file(tree.path("proc/irq/39/smp_affinity_list")).unwrap();
        tree.allow(39, "0-3");
        let line = keeper.look_now(Instant::now() + 2 * PLAN).unwrap().unwrap();
        assert!(line.starts_with("placed eth0 IRQ 39 (new) on CPUs 0-2; "), "{line}");
        assert_eq!(affinities(&tree), ["0-2"; 5]);
    }

    /// The saved state has no bans for it.
    #[test]
    fn an_irqbalance_that_starts_after_the_placement_is_told() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        let ban = Placement { irqbalance: OnIrqbalance::Ban, ..on("eth0", "2") };
        assert_eq!(keeper.set(&[ban], Absent::Refuse).unwrap(), [""; 0]);
        let daemon = Daemon::new(&tree, &[0; 3]);
        let now = Instant::now() + PLAN;
        let line = keeper.look_now(now).unwrap().unwrap();
        assert!(line.ends_with(" leaves IRQ 37, 38, 39, 40, 41 alone until it is restarted"));
        assert_eq!(keeper.look_now(now + PLAN).unwrap(), None);
        assert_eq!(daemon.asked()[1], "settings ban irqs 7 37 38 39 40 41\0");
    }

    /// An irqbalance whose configuration makes it leave them alone is asked once.
    #[test]
    fn an_irqbalance_that_need_not_be_told() {
        let tree = Tree::with_this_process();
        let mut keeper = Keeper::new(tree.host());
        tree.irqbalance(42);
        let bans: Vec<String> = (37..=41).map(|irq| format!("--banirq={irq}")).collect();
        tree.write("proc/42/cmdline", &format!("irqbalance\0{}\0", bans.join("\0")));
        let ban = Placement { irqbalance: OnIrqbalance::Ban, ..on("eth0", "2") };
        keeper.set(&[ban], Absent::Refuse).unwrap();
        assert_eq!(saved(&tree).unwrap().bans, Bans { pid: Some(42), irqs: [].into() });
        assert_eq!(keeper.look_now(Instant::now() + PLAN).unwrap(), None);
        keeper.end();
        assert_eq!((affinities(&tree), saved(&tree)), (vec!["0-3".into(); 5], None));
    }

    /// gthctl tells irqbalance the whole list of IRQs to leave alone, so the list keeps the bans of
    /// others.
    #[test]
    fn a_policy_that_lets_irqbalance_move_them_takes_the_bans_back() {
        let tree = Tree::with_this_process();
        let daemon = Daemon::new(&tree, &[0; 7]);
        let mut keeper = Keeper::new(tree.host());
        let placed = |irqbalance| Placement { irqbalance, ..on("eth0", "2") };
        keeper.set(&[placed(OnIrqbalance::Ban)], Absent::Refuse).unwrap();
        let notes = keeper.set(&[placed(OnIrqbalance::Ignore)], Absent::Refuse).unwrap();
        assert!(notes[0].contains(" may move IRQ 37, 38, 39, 40, 41 at any time"), "{notes:?}");
        let saved = saved(&tree).unwrap();
        assert_eq!((saved.bans, saved.entries.len()), (Bans::default(), 5));
        assert_eq!((notes.len(), affinities(&tree)), (1, vec!["2".into(); 5]));
        assert_eq!(daemon.asked()[5], "settings ban irqs 7\0");
    }

    /// It is told about the whole plan, whether nothing or one of the IRQs has been moved.
    #[test]
    fn an_irqbalance_that_was_restarted_is_told_again() {
        let told_again = " leaves IRQ 37, 38, 39, 40, 41 alone until it is restarted";
        let placed_again = "placed eth0 IRQ 38 (had been moved to CPUs 0-3) on CPUs 2; the next";
        for (moved, start, end) in
            [(false, "irqbalance (PID ", told_again), (true, placed_again, " at the earliest")]
        {
            let tree = Tree::with_this_process();
            let mut keeper = Keeper::new(tree.host());
            let ban = Placement { irqbalance: OnIrqbalance::Ban, ..on("eth0", "2") };
            keeper.set(&[ban], Absent::Refuse).unwrap();
            // As if an irqbalance with another PID had been told.
            let mut told_before = saved(&tree).unwrap();
            told_before.bans = Bans { pid: Some(42), irqs: (37..=41).collect() };
            told_before.store(&tree.host()).unwrap();
            let now = Instant::now() + PLAN;
            assert_eq!(keeper.look_now(now).unwrap(), None, "{moved}");
            let daemon = Daemon::new(&tree, &[0; 3]);
            if moved {
                tree.allow(38, "0-3");
            }
            let line = keeper.look_now(now + PLAN).unwrap().unwrap();
            assert!(line.starts_with(start) && line.ends_with(end), "{moved}: {line}");
            let told = Bans { pid: Some(std::process::id()), irqs: (37..=41).collect() };
            assert_eq!((saved(&tree).unwrap().bans, affinity(&tree, 38)), (told, "2".into()));
            assert_eq!(keeper.look_now(now + 2 * PLAN).unwrap(), None, "{moved}");
            assert_eq!(daemon.asked()[1], "settings ban irqs 7 37 38 39 40 41\0", "{moved}");
        }
    }

    #[test]
    fn what_is_moved_is_placed_again_more_and_more_seldom() {
        let tree = Tree::with_this_process();
        let mut keeper = keeper(&tree);
        let mut now = Instant::now() + LOOK;
        assert_eq!(keeper.look_now(now).unwrap(), None);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            tree.allow(38, "0-1");
            assert_eq!(report(&tree, &keeper).away, 1);
            let mut pause = 0;
            while keeper.look_now(now).unwrap().is_none() {
                now += LOOK;
                pause += 1;
            }
            assert_eq!(affinity(&tree, 38), "2");
            pauses.push(pause);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(report(&tree, &keeper).placed_again, 8);
        // After a quiet period, gthctl reacts quickly again.
        now += 3 * LONGEST;
        tree.allow(38, "0-1");
        let line = keeper.look_now(now).unwrap().unwrap();
        assert!(
            line.starts_with("placed eth0 IRQ 38 (had been moved to CPUs 0-1) on CPUs 2;"),
            "{line}"
        );
        // The next policy does not restart the count.
        for placements in [&[on("eth0", "1")][..], &[], &[on("eth0", "2")]] {
            keeper.set(placements, Absent::Refuse).unwrap();
        }
        assert_eq!(report(&tree, &keeper).placed_again, 9);
    }

    #[test]
    fn an_error_that_lasts_is_told_once() {
        const SAVED: &str = "run/gthctl/irq/saved.json";
        let tree = Tree::with_this_process();
        tree.write(SAVED, "nonsense");
        let mut keeper = Keeper::new(tree.host());
        let e = keeper.keep(&[on("eth0", "2")]).unwrap_err();
        let told = Some(stays(&e));
        let begin = Instant::now() + LOOK;
        let longest = LONGEST.as_secs() as u32;
        for looks in 0..longest {
            keeper.look_and_tell(begin + looks * LOOK);
            assert_eq!(keeper.said, told, "after {looks} looks");
        }
        assert_eq!(
            (affinities(&tree), &keeper.kept().plan().waiting),
            (vec!["0-3".into(); 5], &vec![e.to_string()])
        );
        fs::remove_file(tree.path(SAVED)).unwrap();
        keeper.look_and_tell(begin + 2 * longest * LOOK);
        assert_eq!((affinities(&tree), &keeper.said), (vec!["2".into(); 5], &None));
    }

    #[test]
    fn a_nic_that_goes_and_comes() {
        let tree = Tree::with_this_process();
        let mut keeper = keeper(&tree);
        let dir = tree.path("proc/irq");
        fs::rename(&dir, tree.path("proc/was")).unwrap();
        let now = Instant::now() + LOOK;
        assert_eq!(keeper.look_now(now).unwrap(), None);
        let waiting = report(&tree, &keeper).waiting;
        assert!(waiting[0].starts_with("eth0: none of its IRQs is in use; "), "{waiting:?}");
        assert_eq!(saved(&tree), None);
        fs::rename(tree.path("proc/was"), &dir).unwrap();
        for irq in 37..=41 {
            tree.allow(irq, "1");
        }
        assert_eq!(keeper.look_now(now + LOOK).unwrap(), None);
        let line = keeper.look_now(now + PLAN).unwrap().unwrap();
        assert!(line.starts_with("placed eth0 IRQ 37 (new) on CPUs 2, "), "{line}");
        assert!(line.contains(", 1 more; "), "{line}");
        keeper.end();
        assert_eq!(affinities(&tree), ["1"; 5]);
    }
}
