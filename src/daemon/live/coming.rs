//! Replaces one policy with the next. A policy with other placements of interrupts waits
//! until [`Worker`] has made them; everything else goes on meanwhile.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use super::{LOOK_AFTER, LivePolicy, Loaded, PolicyContext, read_text};
use crate::base::atomic_file::Replacement;
use crate::base::error::{Error, Result};
use crate::base::log;
use crate::daemon::control::server::ReplyTo;
use crate::daemon::control::{Proposal, Reply};
use crate::daemon::reports::Applied;
use crate::irq::place::worker::{Done, Ticket, Worker};
use crate::sched::{Rules, Scheduler};

/// A policy that waits for its interrupts.
pub(super) struct Coming {
    ticket: Ticket,
    new: Loaded,
    whence: Whence,
    begin: Instant,
    /// Meanwhile, the policy in force has changed where it wants its own interrupts.
    others_moved: bool,
}

/// Where a policy comes from.
enum Whence {
    /// From the file.
    File,
    /// From a request. The policy becomes the file's content, which was `held` before.
    Request { replacement: Replacement, target: PathBuf, held: Option<String>, reply: ReplyTo },
}

impl Coming {
    /// Such as "the new content of the policy file".
    pub(super) fn describe(&self) -> &'static str {
        match self.whence {
            Whence::File => "the new content of the policy file",
            Whence::Request { .. } => "a policy that is being applied",
        }
    }
}

impl LivePolicy {
    /// If `generation` is still the live one, makes the proposal live and the file's
    /// content. Replies when that is done.
    pub fn apply(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        proposal: &Proposal,
        generation: u32,
        reply: ReplyTo,
    ) {
        let begin = Instant::now();
        match self.prepare(scheduler, context, proposal, generation) {
            Ok((new, target, replacement)) => {
                let held = read_text(&target).ok();
                let whence = Whence::Request { replacement, target, held, reply };
                if let Err(e) = self.bring(scheduler, context, new, whence, begin) {
                    log::error(&e);
                }
            }
            Err(e) => reply.send(Reply::Failed(e.into())),
        }
    }

    fn prepare(
        &self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        proposal: &Proposal,
        generation: u32,
    ) -> Result<(Loaded, PathBuf, Replacement)> {
        let target = self.target()?.to_owned();
        if let Some(coming) = &self.coming {
            let what = format!("{} waits for its interrupts to be placed", coming.describe());
            return Err(Error::failure(what).help("apply again when it is in force or rejected"));
        }
        // The policy has changed, or the pods, users or cpusets that it refers to.
        if generation != scheduler.generation() {
            let what = "the policy in force, or what it refers to, has changed meanwhile";
            return Err(Error::failure(what).help("look at what changes now, and apply again"));
        }
        // Loaded first with the user's own file in its messages, then as the target's content.
        let text = self.proposed(scheduler, context, proposal)?.text;
        let new = self.load(text, Some(&target), context, scheduler)?;
        let replacement = Replacement::prepare(&target, &new.text)?;
        Ok((new, target, replacement))
    }

    /// Brings the file's policy into force, unless it already is.
    pub(super) fn bring_file(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        new: Loaded,
        begin: Instant,
    ) -> Result<()> {
        let of_file = |coming: &&Coming| matches!(coming.whence, Whence::File);
        if self
            .coming
            .as_ref()
            .filter(of_file)
            .is_some_and(|coming| coming.new.policy == new.policy)
        {
            return Ok(());
        }
        let processes = |loaded: &Loaded| -> Vec<_> {
            loaded.compiled.rules.iter().map(|rule| rule.by_pid).collect()
        };
        // A process that a rule names may have started or ended since the policy was read.
        if new.policy == self.now.policy && processes(&new) == processes(&self.now) {
            if self.coming.as_ref().is_some_and(|coming| of_file(&coming)) {
                self.give_up();
            }
            self.now.text = new.text;
            return Ok(());
        }
        self.bring(scheduler, context, new, Whence::File, begin)
    }

    /// Brings `new` into force at once, or when its interrupts are where it wants them.
    /// Replies to the requester; returns the error of the file's policy for the log.
    fn bring(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        new: Loaded,
        whence: Whence,
        begin: Instant,
    ) -> Result<()> {
        self.give_up();
        let moves = !new.places_as(&self.now);
        if let (true, Some(irqs)) = (moves, &mut self.irqs) {
            // Interrupts come first: placing them may be refused.
            let ticket = irqs.set(&new.placements());
            self.coming = Some(Coming { ticket, new, whence, begin, others_moved: false });
            return Ok(());
        }
        let is_elsewhere = new.placements() != self.now.placements();
        let done = self.finish(scheduler, context, new, whence, begin);
        if is_elsewhere {
            // Only the lines in the file differ. Messages then name the new lines.
            self.keep_irqs();
        }
        done
    }

    /// Continues with the policy that waited for its interrupts: brings it into force, or refuses
    /// it if they could not be placed.
    pub fn go_on(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
    ) -> Result<()> {
        let done = self.irqs.as_mut().map(Worker::done).unwrap_or_default();
        let mut all = Ok(());
        for Done { ticket, is_kept, result } in done {
            let is_its = |coming: &mut Coming| coming.ticket == ticket;
            let Some(coming) = self.coming.take_if(is_its) else {
                if is_kept {
                    say(result);
                }
                continue;
            };
            all = all.and(match result {
                Ok(notes) => {
                    log::notes(&notes);
                    self.finish_as_of_now(scheduler, context, coming)
                }
                Err(e) => {
                    if let Err(e) = self.refuse(coming.whence, e) {
                        let stays = "the previous settings stay in force";
                        log::error(format_args!("{e}; {stays}"));
                    }
                    if coming.others_moved {
                        self.keep_irqs();
                    }
                    Ok(())
                }
            });
        }
        all
    }

    /// Loads the policy again, as its meaning may have changed while it waited, and brings it into
    /// force.
    fn finish_as_of_now(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        Coming { new, whence, begin, .. }: Coming,
    ) -> Result<()> {
        let placed = new.placements();
        let done = match self.load(new.text, self.file.as_deref(), context, scheduler) {
            Ok(new) => self.finish(scheduler, context, new, whence, begin),
            Err(e) => self.refuse(whence, e),
        };
        if self.now.placements() != placed {
            self.keep_irqs();
        }
        done
    }

    fn finish(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        new: Loaded,
        whence: Whence,
        begin: Instant,
    ) -> Result<()> {
        if let Whence::Request { target, held, .. } = &whence
            && read_text(target).ok() != *held
        {
            return self.refuse(whence, file_changed());
        }
        let old = (self.now.text.clone(), self.previous.clone());
        if let Err(e) = self.go_live(scheduler, new, begin) {
            return self.refuse(whence, e);
        }
        // For the file's policy, `rejected` stays: the file's present content may have been refused
        // while this policy waited.
        let Whence::Request { replacement, target, reply, .. } = whence else { return Ok(()) };
        match replacement.commit() {
            Ok(note) => log::notes(note.as_slice()),
            Err(e) => {
                reply.send(Reply::Failed(e.into()));
                let again = self.load(old.0, Some(&target), context, scheduler)?;
                self.go_live(scheduler, again, begin)?;
                self.previous = old.1;
                return Ok(());
            }
        }
        self.rejected = None;
        let took_ms = begin.elapsed().as_secs_f64() * 1e3;
        let generation = scheduler.generation();
        reply.send(Reply::Applied(Applied { generation, policy_file: target, took_ms }));
        Ok(())
    }

    /// Sends the error to the requester. For the file's policy, remembers the error and returns it
    /// for the log.
    fn refuse(&mut self, whence: Whence, e: Error) -> Result<()> {
        match whence {
            Whence::File => {
                self.reject(&e);
                Err(e)
            }
            Whence::Request { reply, .. } => {
                reply.send(Reply::Failed(e.into()));
                Ok(())
            }
        }
    }

    /// Drops the policy that waits for its interrupts: another one replaces it.
    fn give_up(&mut self) {
        if let Some(coming) = self.coming.take() {
            if let Whence::Request { reply, .. } = coming.whence {
                reply.send(Reply::Failed(file_changed().into()));
            }
            self.keep_irqs();
        }
    }

    /// Places the interrupts as the policy in force wants. While another policy waits for its
    /// interrupts, this is put off: the new order would undo that policy's placements, or make the
    /// thread skip that policy's order.
    pub(super) fn keep_irqs(&mut self) {
        if let Some(coming) = &mut self.coming {
            coming.others_moved = true;
            return;
        }
        if let Some(irqs) = &mut self.irqs {
            irqs.keep(&self.now.placements());
        }
    }

    fn go_live(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        new: Loaded,
        begin: Instant,
    ) -> Result<()> {
        self.out_of_step = true;
        scheduler.set_policy(&new.compiled, Rules::New)?;
        self.out_of_step = false;
        log::notes(&new.notes);
        (self.shared, self.look_at) = (None, Instant::now() + LOOK_AFTER);
        let is_another = !new.says_the_same(&self.now);
        let old = std::mem::replace(&mut self.now, new);
        self.say_pod_nics(&old.pod_nics);
        if is_another {
            self.previous = Some(old.text);
        }
        self.since = SystemTime::now();
        self.changes.taken += 1;
        let file = self.file.as_deref().unwrap_or(std::path::Path::new("policy"));
        self.log_in_force(&file.display().to_string(), scheduler.generation(), begin);
        Ok(())
    }
}

/// The error for a request that would have overwritten what somebody has just saved.
fn file_changed() -> Error {
    let what = "the policy file changed while this policy's interrupts were being placed";
    Error::failure(what).help("look at it, and apply again")
}

/// Logs the result of placements, whether they were made or will be retried.
pub(super) fn say(result: Result<Vec<String>>) {
    match result {
        Ok(notes) => log::notes(&notes),
        Err(e) => {
            log::error(format_args!("{e}; the interrupts stay where they are; gthctl will retry"))
        }
    }
}
