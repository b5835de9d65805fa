//! The policy in force: its origin, its predecessor, why the file on disk is not in
//! force, and the steps from one to the next. Each step is all or nothing.

mod allocated_cpus;
mod coming;
mod pod_placements;

use std::ops::RangeFrom;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, poll};

use self::allocated_cpus::{Allocations, load_here};
use self::coming::Coming;
use super::control::Proposal;
use super::marker::Marker;
use super::reports::{
    self, Failed, Health, Keys, MarkedTask, Plan, RuleCount, Shown, Status, Traffic,
};
use super::throttled;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::log;
use crate::base::output::count;
use crate::base::root::Root;
use crate::base::time::{self, rfc3339, rounded_up};
use crate::base::yaml::Source;
use crate::irq::host::Host;
use crate::irq::place::kept::{Kept, preview};
use crate::irq::place::wanted::{Absent, Avoid, Placement};
use crate::irq::place::worker::Worker;
use crate::irq::place::{self, collide};
use crate::kernel::topology::Topology;
use crate::pods::{Pod, UNHEARD};
use crate::policy::compile::{Compiled, Machine, compile};
use crate::policy::diff::ChangeKind;
use crate::policy::pod_nics::PodNic;
use crate::policy::resolve;
use crate::policy::{IrqEntry, MAX_RULES, NO_POD, Policy, Rule, diff, forgery};
use crate::sched::traffic::Mark;
use crate::sched::verdict::Verdict;
use crate::sched::{Rules, Scheduler};

/// What a policy's meaning depends on, besides its text.
#[derive(Clone, Copy)]
pub struct PolicyContext<'a> {
    pub topology: &'a Topology,
    /// The default slice.
    pub slice_ns: u64,
    /// Whether gthctl follows this node's pods, for the policy or to count what they do.
    pub follows_pods: bool,
    /// This node's pods, once they are known.
    pub pods: Option<&'a [Pod]>,
    /// Why they are unknown or perhaps out of date.
    pub pods_problem: Option<&'a str>,
    /// Where kubelets keep their kubepods cgroup besides the root.
    pub kubelets: &'a [String],
    /// The rules that the API adds behind those of the policy file.
    pub strategies: &'a [Rule],
}

impl<'a> PolicyContext<'a> {
    /// For a policy file alone: only the running gthctl looks up pods and asks the API.
    pub fn of_file(topology: &'a Topology, slice_ns: u64, kubelets: &'a [String]) -> Self {
        let (follows_pods, pods, pods_problem) = (false, Some([].as_slice()), None);
        Self { topology, slice_ns, follows_pods, pods, pods_problem, kubelets, strategies: &[] }
    }

    /// Why a pod may be missing from those that are known.
    pub fn pods_doubt(&self) -> Option<&str> {
        let unheard = self.pods.is_none().then_some(UNHEARD);
        self.pods_problem.or(unheard)
    }
}

/// A policy, read from its file and from the API, with its meaning on this machine.
struct Loaded {
    /// What the file holds.
    text: String,
    policy: Policy,
    /// How many of its rules come from the file; the API's rules follow them.
    file_rules: usize,
    compiled: Compiled,
    /// What `cpus: allocated` stood for when the policy was loaded.
    allocated: Allocations,
    /// What the networks of pods in `irq` stood for at the last look.
    pod_nics: Vec<PodNic>,
    notes: Vec<String>,
}

/// The policy in force.
pub struct LivePolicy {
    file: Option<PathBuf>,
    now: Loaded,
    since: SystemTime,
    /// The previous policy's text.
    previous: Option<String>,
    rejected: Option<(Error, SystemTime)>,
    changes: Changes,
    /// The NICs' interrupts, once [`LivePolicy::place`] has been called.
    irqs: Option<Worker>,
    /// A policy that waits for its interrupts.
    coming: Option<Coming>,
    /// The kernel has refused a policy, perhaps after accepting a part of it.
    out_of_step: bool,
    /// Notes on exclusive CPUs that take interrupts; `None` before the check.
    shared: Option<Vec<String>>,
    /// When to check. The check is put off because it takes longer than bringing the next policy
    /// into force.
    look_at: Instant,
}

/// How often the policy changed since gthctl was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Another policy came into force.
    pub taken: u64,
    /// A policy file was rejected. A file that stays as it is counts once.
    pub rejected: u64,
}

/// Delay from when a policy comes into force to the check which of its exclusive CPUs take
/// interrupts.
const LOOK_AFTER: Duration = Duration::from_secs(1);

impl LivePolicy {
    /// Reads the file, if there is one.
    pub fn read(file: Option<PathBuf>, context: &PolicyContext<'_>) -> Result<Self> {
        let text = file.as_deref().map(read_text).transpose()?;
        let now = load(text.unwrap_or(NO_RULES.into()), file.as_deref(), context, Vec::new())?;
        let now = now.with_pod_nics(context, &[]);
        log::notes(&now.notes);
        Ok(Self {
            file,
            now,
            since: SystemTime::now(),
            previous: None,
            rejected: None,
            changes: Changes::default(),
            irqs: None,
            coming: None,
            out_of_step: false,
            shared: None,
            look_at: Instant::now(),
        })
    }

    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Follows this file from now on; [`LivePolicy::reload`] brings it into force.
    pub fn follow(&mut self, file: PathBuf) {
        self.file = Some(file);
    }

    pub fn compiled(&self) -> &Compiled {
        &self.now.compiled
    }

    /// Whether the policy refers to Kubernetes pods.
    pub fn asks_for_pods(&self) -> bool {
        self.now.policy.of_pods()
    }

    /// Recompiles the policy in force before the scheduler is loaded.
    pub fn settle(&mut self, context: &PolicyContext<'_>) -> Result<()> {
        // The cpusets as last known: interrupts stay off their CPUs meanwhile.
        let allocated = self.now.allocated.clone();
        let new = load(self.now.text.clone(), self.file.as_deref(), context, allocated)?;
        let new = new.with_pod_nics(context, &self.now.pod_nics);
        let new = self.with_same_processes(new, 0..);
        self.replace(new);
        self.out_of_step = false;
        Ok(())
    }

    /// Makes `new` the policy in force and places its interrupts. Returns the policy before it.
    fn replace(&mut self, new: Loaded) -> Loaded {
        let moves = new.placements() != self.now.placements();
        let old = std::mem::replace(&mut self.now, new);
        if moves {
            self.keep_irqs();
        }
        old
    }

    /// From now on, places the interrupts of existing NICs as the policy in force says;
    /// reports and retries what fails. Waits for the first placement only until `until` is
    /// readable, or for `patience`.
    ///
    /// Fails when the process can get no more threads or descriptors.
    pub fn place(&mut self, until: BorrowedFd<'_>, patience: Duration) -> Result<()> {
        let irqs = self.irqs.insert(Worker::start(Host::this())?);
        irqs.keep(&self.now.placements());
        let mut fds = [irqs.as_fd(), until].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, rounded_up(Some(patience)));
        irqs.done().into_iter().for_each(|done| coming::say(done.result));
        Ok(())
    }

    /// Readable when [`LivePolicy::go_on`] has something to do.
    pub fn irqs_fd(&self) -> Option<BorrowedFd<'_>> {
        self.irqs.as_ref().map(AsFd::as_fd)
    }

    /// Starts putting interrupts back; the scheduler can be unloaded meanwhile.
    pub fn begin_to_put_back(&mut self) {
        if let Some(irqs) = &mut self.irqs {
            irqs.end();
        }
    }

    /// Puts interrupts back where they were. Dropping the policy does the same.
    pub fn put_back(&mut self) {
        self.irqs = None;
    }

    fn kept(&self) -> Kept {
        self.irqs.as_ref().map(Worker::kept).unwrap_or_default()
    }

    /// Notes exclusive CPUs that take interrupts, once for each policy, a little after it
    /// comes into force. Returns when to call again.
    pub fn note_shared_cpus(&mut self, topology: &Topology) -> Option<Duration> {
        if self.shared.is_some() {
            return None;
        }
        let wait = self.look_at.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Some(wait);
        }
        let notes = shared_cpus(&self.now, self.kept().plan(), topology);
        log::notes(&notes);
        self.shared = Some(notes);
        None
    }

    /// As [`load_here`], but relative to the policy in force: the API's rules keep the processes
    /// that they found until the API changes the rules.
    fn load(
        &self,
        text: String,
        path: Option<&Path>,
        context: &PolicyContext<'_>,
        scheduler: &mut Scheduler<'_>,
    ) -> Result<Loaded> {
        let new = load_here(text, path, context, scheduler, Rules::New)?;
        let new = new.with_pod_nics(context, &self.now.pod_nics);
        let of_api = new.file_rules..;
        Ok(self.with_same_processes(new, of_api))
    }

    /// For those of the `rules` of `new` that are already in force, keeps the processes
    /// that they found: a later process with the same id does not count.
    fn with_same_processes(&self, mut new: Loaded, rules: RangeFrom<usize>) -> Loaded {
        let Loaded { policy, compiled, .. } = &self.now;
        for (rule, its) in new.policy.rules.iter().zip(&mut new.compiled.rules).skip(rules.start) {
            let same = |old: &Rule| old.conditions == rule.conditions;
            if let Some(old) = policy.rules.iter().position(same) {
                its.by_pid = compiled.rules[old].by_pid;
            }
        }
        new
    }

    /// For the network namespaces that were missing: whether any exists now, and whether
    /// the file over which one will be mounted exists. The kernel sends no event for the
    /// mount.
    pub fn missing_netns(&self) -> (bool, bool) {
        let root = Root::default();
        let rules = self.now.policy.rules.iter().zip(&self.now.compiled.rules);
        let missing = rules.filter(|(_, compiled)| compiled.netns.is_none());
        let mut found = (false, false);
        for netns in missing.filter_map(|(rule, _)| rule.conditions.netns.as_deref()) {
            found.0 |= resolve::netns(&root, netns).is_some();
            found.1 |= root.path(&resolve::netns_path(netns)).exists();
        }
        found
    }

    /// Brings the file's content into force if it has changed. A mistake changes nothing; the
    /// content is remembered as rejected, unless `is_being_written` says that a program is
    /// still writing it.
    pub fn reload(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        is_being_written: impl FnOnce() -> bool,
    ) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let begin = Instant::now();
        let read = read_text(&file);
        let read = read.and_then(|text| self.load(text, Some(&file), context, scheduler));
        if read.is_err() && is_being_written() {
            return Ok(());
        }
        let done = read.and_then(|new| self.bring_file(scheduler, context, new, begin));
        match &done {
            Ok(()) => self.rejected = None,
            Err(e) => self.reject(e),
        }
        done
    }

    /// Remembers why the file is not in force.
    fn reject(&mut self, why: &Error) {
        if self.rejected.as_ref().is_none_or(|(before, _)| before != why) {
            self.rejected = Some((why.clone(), SystemTime::now()));
            self.changes.rejected += 1;
        }
    }

    /// Brings a change in what the policy's names stand for into force.
    pub fn refresh(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
    ) -> Result<()> {
        if self.renew(scheduler, context)? {
            log::info(format_args!(
                "what the policy refers to has changed; generation {} is in force",
                scheduler.generation()
            ));
        }
        Ok(())
    }

    /// Brings the strategies of `context` into force, which come from the API called `name`.
    pub fn take_strategies(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        name: &str,
    ) -> Result<()> {
        let begin = Instant::now();
        if self.renew(scheduler, context)? {
            self.since = SystemTime::now();
            self.changes.taken += 1;
            self.log_in_force(name, scheduler.generation(), begin);
        }
        Ok(())
    }

    /// Loads the policy in force again. Returns true if that made a new generation.
    fn renew(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
    ) -> Result<bool> {
        let text = self.now.text.clone();
        // After a failure, the kernel's tables may hold another policy.
        let rules = if self.out_of_step { Rules::New } else { Rules::Same };
        let new = load_here(text, self.file.as_deref(), context, scheduler, rules)?;
        let new = new.with_pod_nics(context, &self.now.pod_nics);
        let new = self.with_same_processes(new, 0..);
        let differs = new.compiled != self.now.compiled || self.out_of_step;
        if differs {
            // A failure here is retried: the old policy is still in force.
            self.out_of_step = true;
            scheduler.set_policy(&new.compiled, rules)?;
            self.out_of_step = false;
        }
        let is_new = |note: &&String| !self.now.notes.contains(note);
        log::notes(&new.notes.iter().filter(is_new).cloned().collect::<Vec<_>>());
        let old = self.replace(new);
        self.say_pod_nics(&old.pod_nics);
        Ok(differs)
    }

    /// Logs that the policy is in force after a change in the source called `name`.
    fn log_in_force(&self, name: &str, generation: u32, begin: Instant) {
        log::info(format_args!(
            "{name}: {} in force as generation {generation} after {:.1} ms",
            self.summary(),
            begin.elapsed().as_secs_f64() * 1e3,
        ));
    }

    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// When the policy came into force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Whether the kernel may schedule by another policy; [`LivePolicy::refresh`] repairs that.
    pub fn is_out_of_step(&self) -> bool {
        self.out_of_step
    }

    /// What the proposal would change.
    pub fn plan(
        &self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        proposal: &Proposal,
    ) -> Result<Plan> {
        let new = self.proposed(scheduler, context, proposal)?;
        let counts = count_tasks(&scheduler.verdicts(None)?, self.now.policy.rules.len());
        let new_counts =
            count_tasks(&scheduler.try_policy(&new.compiled, Rules::New)?, new.policy.rules.len());
        let change = |change: diff::Change| reports::Change {
            kind: change.kind,
            before: change.before.map(|i| report_rule(&self.now.policy.rules[i], Some(counts[i]))),
            after: change.after.map(|i| report_rule(&new.policy.rules[i], Some(new_counts[i]))),
        };
        let changes = diff::changes(&self.now.policy, &new.policy);
        let irqs = place::plan::Plan::of(&Host::this(), &new.placements())?;
        let shared = shared_cpus(&new, &irqs, context.topology);
        Ok(Plan {
            generation: scheduler.generation(),
            changes: changes.into_iter().map(change).collect(),
            exclusive_cpus_before: self.now.compiled.reserved.to_string(),
            exclusive_cpus: new.compiled.reserved.to_string(),
            irq_before: self.now.irq_entries(),
            irq: new.irq_entries(),
            irqs: preview(&Host::this(), &irqs),
            notes: new.notes.into_iter().chain(shared).collect(),
        })
    }

    /// The policy file, which a new policy would replace.
    pub fn target(&self) -> Result<&Path> {
        self.file.as_deref().ok_or_else(|| {
            Error::failure("the running gthctl has no policy file, so there is none to replace")
                .help("name one with `policy` in its config file or with --policy")
        })
    }

    fn proposed(
        &self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        proposal: &Proposal,
    ) -> Result<Loaded> {
        match proposal {
            Proposal::Text { path, text } => {
                self.load(text.clone(), Some(path), context, scheduler)
            }
            Proposal::Previous => {
                let nothing = || Error::failure("there is no policy before this one to return to");
                let text = self.previous.clone().ok_or_else(nothing)?;
                self.load(text, self.file.as_deref(), context, scheduler)
            }
        }
    }

    /// Such as "2 rules (1 of the API), CPUs 3 exclusive".
    pub fn summary(&self) -> String {
        let rules = self.now.policy.rules.len();
        let mut text = count(rules, "rule");
        if rules > self.now.file_rules {
            text += &format!(" ({} of the API)", rules - self.now.file_rules);
        }
        if !self.now.compiled.reserved.is_empty() {
            text += &format!(", CPUs {} exclusive", self.now.compiled.reserved);
        }
        for entry in &self.now.policy.irq {
            let Placement { nic, cpus, avoid, .. } = &entry.placement;
            let nic = match (nic.as_str(), entry.of_pods()) {
                ("", _) => "NICs".into(),
                (nic, true) => format!("{nic} of pods"),
                (nic, false) => nic.to_owned(),
            };
            text += &match avoid {
                Some(Avoid::Exclusive) => format!(", interrupts of {nic} off exclusive CPUs"),
                None => format!(", interrupts of {nic} on CPUs {cpus}"),
            };
        }
        text
    }

    /// What is in force, and why the file is not, in one line.
    pub fn status_line(&self, generation: u32) -> String {
        let file =
            self.file.as_ref().map_or("no policy file".into(), |file| file.display().to_string());
        let mut line = format!("Scheduling by {file}, generation {generation}: {}", self.summary());
        if let Some((e, _)) = &self.rejected {
            line += &format!("; rejected: {e}");
        }
        line
    }

    /// Whether a policy waits for its interrupts to be placed.
    pub fn is_waiting(&self) -> bool {
        self.coming.is_some()
    }

    /// Whether the kernel schedules by the policy in force.
    pub fn health(
        &self,
        scheduler: &mut Scheduler<'_>,
        last_error: Option<&(Error, SystemTime)>,
    ) -> Result<Health> {
        Ok(Health {
            generation: scheduler.generation(),
            kernel_in_step: scheduler.holds(&self.now.compiled)?,
            last_error: last_error.map(failed),
        })
    }

    /// What is known of the node's pods, if they are followed.
    fn kubernetes(&self, context: &PolicyContext<'_>) -> Option<String> {
        let pods = context.pods.map(|pods| count(pods.len(), "pod"));
        let known: Vec<String> =
            pods.into_iter().chain(context.pods_problem.map(Into::into)).collect();
        context.follows_pods.then(|| known.join("; "))
    }

    /// The state, with the tasks in `verdicts`; `started` is when gthctl started. Fields that the
    /// service has to fill in stay empty.
    pub fn status(
        &self,
        scheduler: &mut Scheduler<'_>,
        context: &PolicyContext<'_>,
        marker: &Marker,
        verdicts: &[Verdict],
        started: SystemTime,
    ) -> Result<Status> {
        Ok(Status {
            pid: std::process::id(),
            running_since: rfc3339(started),
            scheduler_since: String::new(),
            policy_file: self.file.clone(),
            generation: scheduler.generation(),
            in_force_since: rfc3339(self.since),
            rules: self.now.policy.rules.len(),
            file_rules: self.now.file_rules,
            exclusive_cpus: self.now.compiled.reserved.to_string(),
            allocated: self.allocated(),
            tasks_matched: verdicts.iter().filter(|verdict| verdict.rule.is_some()).count(),
            tasks: verdicts.len(),
            kernel_in_step: scheduler.holds(&self.now.compiled)?,
            rejected: self.rejected.as_ref().map(failed),
            config_rejected: None,
            last_error: None,
            last_run: None,
            api: None,
            kubernetes: self.kubernetes(context),
            kubernetes_doubt: context
                .follows_pods
                .then(|| context.pods_doubt())
                .flatten()
                .map(Into::into),
            kernel_lacks: Vec::new(),
            traffic: self.traffic(scheduler, marker)?,
            throttled_cgroups: throttled::cgroups(scheduler)?,
            pod_nics: self.report_pod_nics(),
            irqs: self.irqs.as_ref().and_then(|irqs| irqs.kept().report(irqs.host())),
            can_roll_back: self.previous.is_some(),
            notes: self
                .notes()
                .chain(marker.notes())
                .cloned()
                .chain(self.waits())
                .chain(self.elsewhere(verdicts))
                .collect(),
        })
    }

    /// What a policy not yet in force waits for.
    fn waits(&self) -> Option<String> {
        let coming = self.coming.as_ref()?;
        Some(format!("{} waits for its interrupts to be placed", coming.describe()))
    }

    fn notes(&self) -> impl Iterator<Item = &String> {
        self.now.notes.iter().chain(self.shared.iter().flatten())
    }

    fn traffic(&self, scheduler: &mut Scheduler<'_>, marker: &Marker) -> Result<Option<Traffic>> {
        if self.now.compiled.traffic_conditions.is_empty() {
            return Ok(None);
        }
        let now = time::monotonic()?;
        let task = |mark: &Mark| {
            let marked = mark.marked.as_ref()?;
            Some(MarkedTask {
                tid: mark.tid,
                pid: mark.tgid,
                comm: mark.comm.clone(),
                rules: self.rules_by(mark.condition),
                since: rfc3339(
                    SystemTime::now() - Duration::from_nanos(now.saturating_sub(marked.since)),
                ),
                function: marked.function.clone(),
                packets: marked.packets,
                ends_in_ms: marked.until.saturating_sub(now) / 1_000_000,
            })
        };
        let tasks = scheduler.marks(None)?.iter().filter_map(task).collect();
        let [marked, ended, refused] = scheduler.stats()?.marks();
        Ok(Some(Traffic { functions: marker.functions(), marked, ended, refused, tasks }))
    }

    /// The names of the rules with this traffic condition.
    fn rules_by(&self, condition: usize) -> Vec<String> {
        let set = self
            .now
            .compiled
            .traffic_conditions
            .get(condition)
            .map_or(0, |condition| condition.rules);
        let rules = self.rules().iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
        rules.map(|(_, rule)| rule.name.clone()).collect()
    }

    /// The rules in force.
    pub fn show(&self, scheduler: &mut Scheduler<'_>) -> Result<Shown> {
        let counts = count_tasks(&scheduler.verdicts(None)?, self.now.policy.rules.len());
        let mut shown = self.now.shown(Some(scheduler.generation()), Some(&counts));
        shown.notes = self.notes().cloned().collect();
        Ok(shown)
    }

    /// How many of these tasks fall under each rule, in the policy's order.
    pub fn rule_counts(&self, verdicts: &[Verdict]) -> Vec<RuleCount> {
        let rules = &self.now.policy.rules;
        let counts = count_tasks(verdicts, rules.len());
        let count = |(rule, tasks): (&Rule, usize)| RuleCount { rule: rule.name.clone(), tasks };
        rules.iter().zip(counts).map(count).collect()
    }

    /// The rules, to explain a task.
    pub fn rules(&self) -> &[Rule] {
        &self.now.policy.rules
    }
}

impl Loaded {
    /// Its `irq` entries, without their places in the file.
    fn irq_entries(&self) -> Vec<Keys> {
        self.policy.irq.iter().map(keys).collect()
    }

    /// Whether it says the same as `other`, perhaps on other lines.
    fn says_the_same(&self, other: &Self) -> bool {
        let changes = diff::changes(&self.policy, &other.policy);
        changes.iter().all(|change| change.kind == ChangeKind::Kept)
            && self.irq_entries() == other.irq_entries()
    }

    /// Whether it places interrupts as `other` does, regardless of their lines in the file.
    fn places_as(&self, other: &Self) -> bool {
        let of = |loaded: &Self| -> Vec<Placement> {
            let all = loaded.placements().into_iter();
            all.map(|placement| Placement { location: None, ..placement }).collect()
        };
        of(self) == of(other)
    }

    /// Its placements of interrupts, with the CPUs that they avoid now and the devices of pods.
    fn placements(&self) -> Vec<Placement> {
        let away = |placement: &Placement| match placement.avoid {
            Some(Avoid::Exclusive) => self.compiled.reserved.clone(),
            None => CpuList::default(),
        };
        let of = |(index, IrqEntry { placement, .. }): (usize, &IrqEntry)| Placement {
            away: away(placement),
            of_pods: self.devices_of_pods(index),
            ..placement.clone()
        };
        self.policy.irq.iter().enumerate().map(of).collect()
    }

    fn shown(&self, generation: Option<u32>, counts: Option<&[usize]>) -> Shown {
        let rules = self.policy.rules.iter().enumerate();
        Shown {
            generation,
            rules: rules.map(|(i, rule)| report_rule(rule, counts.map(|c| c[i]))).collect(),
            exclusive_cpus: self.compiled.reserved.to_string(),
            irq: self.policy.irq.iter().map(keys).collect(),
            notes: self.notes.clone(),
        }
    }
}

/// Reads and compiles a policy without a scheduler.
pub fn check(path: &Path, text: String, context: &PolicyContext<'_>) -> Result<Shown> {
    let mut loaded = load(text, Some(path), context, Vec::new())?;
    let host = Host::this();
    let plan = place::plan::Plan::with(&host, &loaded.placements(), Absent::Await)?;
    let shared = shared_cpus(&loaded, &plan, context.topology);
    loaded.notes.extend(plan.notes.into_iter().chain(plan.waiting).chain(shared));
    Ok(loaded.shown(None, None))
}

/// The notes on the policy, except those about interrupts. Fails for all that `gthctl
/// run` would refuse the policy for.
pub fn check_rules(path: &Path, text: String, context: &PolicyContext<'_>) -> Result<Vec<String>> {
    load(text, Some(path), context, Vec::new()).map(|loaded| loaded.notes)
}

/// Notes on exclusive CPUs that take interrupts; none if /proc or /sys cannot be read.
fn shared_cpus(loaded: &Loaded, irqs: &place::plan::Plan, topology: &Topology) -> Vec<String> {
    let (host, reserved) = (Host::this(), &loaded.compiled.reserved);
    collide::notes(&host, reserved, &topology.online, irqs).unwrap_or_default()
}

/// The policy of a service without a policy file.
const NO_RULES: &str = "strategies: []";

/// The text of a policy file.
fn read_text(path: &Path) -> Result<String> {
    Source::new(path).read("policy file")
}

/// Reads and compiles a policy; `allocated` holds the cpusets of its rules' tasks as they are now.
fn load(
    text: String,
    path: Option<&Path>,
    context: &PolicyContext<'_>,
    allocated: Allocations,
) -> Result<Loaded> {
    let (mut policy, mut notes) = Policy::parse(&text, path.unwrap_or(Path::new("policy")))?;
    let file_rules = policy.rules.len();
    add_strategies(&mut policy, context.strategies)?;
    let machine = Machine {
        topology: context.topology,
        root: &Root::default(),
        pods: context.pods.unwrap_or_default(),
        kubelets: context.kubelets,
        allocated: &allocated,
        slice_ns: context.slice_ns,
    };
    let (compiled, more) = compile(&policy, &machine)?;
    notes.extend(more);
    notes.extend(forgery::notes(&policy, machine.root));
    if let Some(pods) = context.pods.filter(|_| context.follows_pods) {
        let of_none = policy.rules.iter().filter(|rule| rule.conditions.is_of_none(pods));
        notes.extend(of_none.map(|rule| {
            format!("{}: {}: {NO_POD}; the rule matches nothing", rule.location, rule.name)
        }));
    }
    if let (None, Some(why)) = (context.pods, context.pods_doubt()) {
        let of_pods = policy.rules.iter().filter(|rule| rule.conditions.of_pods());
        notes.extend(of_pods.map(|rule| {
            format!(
                "{}: {}: {why}; the rule matches nothing until the API answers",
                rule.location, rule.name
            )
        }));
    }
    Ok(Loaded { text, policy, file_rules, compiled, allocated, pod_nics: Vec::new(), notes })
}

/// Adds the rules of the API behind those of the file.
fn add_strategies(policy: &mut Policy, strategies: &[Rule]) -> Result<()> {
    if let Some(extra) =
        strategies.get(MAX_RULES - policy.rules.len()..).unwrap_or_default().first()
    {
        let what = format!(
            "{}: more than {MAX_RULES} rules, with the {} of the policy file",
            extra.name,
            policy.rules.len()
        );
        return Err(Error::new(ExitCode::Usage, what).at(extra.location.clone()));
    }
    for rule in strategies {
        if let Some(other) = policy.rules.iter().find(|other| other.name == rule.name) {
            let what = format!("name: {:?} is the name of a rule of the API", rule.name);
            let e = Error::new(ExitCode::Usage, what).at(other.location.clone());
            return Err(e.help("give the rule another name"));
        }
    }
    policy.rules.extend_from_slice(strategies);
    Ok(())
}

/// How many threads fall under each of the rules.
fn count_tasks(verdicts: &[Verdict], rules: usize) -> Vec<usize> {
    let mut counts = vec![0; rules];
    for rule in verdicts.iter().filter_map(|verdict| verdict.rule) {
        if let Some(count) = counts.get_mut(rule) {
            *count += 1;
        }
    }
    counts
}

fn report_rule(rule: &Rule, tasks: Option<usize>) -> reports::Rule {
    reports::Rule {
        name: rule.name.clone(),
        conditions: keys(&rule.conditions),
        effects: keys(&rule.effects),
        tasks,
    }
}

/// A struct as the keys of a policy file.
pub fn keys(of: &impl serde::Serialize) -> Keys {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::Object(keys)) => keys,
        _ => Keys::new(),
    }
}

/// What failed, and since when.
pub(super) fn failed((why, since): &(Error, SystemTime)) -> Failed {
    Failed { why: why.to_string(), since: rfc3339(*since) }
}

/// The error for a request about a missing thread.
pub fn no_such_thread(tid: u32) -> Error {
    Error::new(ExitCode::Failure, format!("the scheduler knows no thread {tid}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::kernel::topology;

    const URL: &str = "http://dm/api/v1/scheduling/strategies";

    fn strategies(list: &str) -> Vec<Rule> {
        let answer = format!(r#"{{"success":true,"scheduling":[{list}]}}"#);
        Policy::parse_answer(&answer, URL).unwrap()
    }

    fn with<T>(strategies: &[Rule], run: impl FnOnce(&PolicyContext<'_>) -> T) -> T {
        run(&PolicyContext {
            topology: &Topology::read(Path::new(topology::SYSFS)).unwrap(),
            slice_ns: 2_000_000,
            pods: Some(&[]),
            pods_problem: None,
            follows_pods: false,
            kubelets: &[],
            strategies,
        })
    }

    /// The names of the rules of `file` with `strategies`, or the error.
    fn names(file: &str, strategies: &[Rule]) -> std::result::Result<Vec<String>, String> {
        let path = Some(Path::new("p.yaml"));
        let loaded = with(strategies, |context| load(file.to_owned(), path, context, Vec::new()));
        let loaded = loaded.map_err(|e| e.to_string())?;
        assert_eq!(loaded.policy.rules.len(), loaded.compiled.rules.len());
        assert_eq!(loaded.policy.rules.len() - loaded.file_rules, strategies.len());
        Ok(loaded.policy.rules.into_iter().map(|rule| rule.name).collect())
    }

    #[test]
    fn the_apis_rules_come_behind_the_files() {
        let two =
            strategies(r#"{"command_regex":"a","priority":1},{"command_regex":"b","priority":1}"#);
        let file = "strategies: [{name: own, user: root, priority: 1}, {user: root, weight: 5}]";
        assert_eq!(names(file, &two).unwrap(), ["own", "rule 2", "api rule 1", "api rule 2"]);
        assert_eq!(names(NO_RULES, &two).unwrap(), ["api rule 1", "api rule 2"]);
        let taken = "strategies:\n- {name: api rule 2, user: root, priority: 1}\n";
        assert_eq!(
            names(taken, &two).unwrap_err(),
            "p.yaml:2:4: name: \"api rule 2\" is the name of a rule of the API; \
             give the rule another name"
        );
    }

    /// Only while gthctl follows pods, not where a policy is only checked.
    #[test]
    fn a_rule_whose_pods_are_none_of_the_nodes_says_so() {
        let file = "strategies:\n- {name: upf, k8s_namespace: [cor], priority: 1}";
        let notes = |follows_pods| {
            with(&[], |context| {
                let context = PolicyContext { follows_pods, ..*context };
                load(file.into(), Some(Path::new("p.yaml")), &context, Vec::new()).unwrap().notes
            })
        };
        assert_eq!(notes(false), [""; 0]);
        let none = "p.yaml:2:4: upf: no pod of this node has these labels and namespaces; the rule \
                    matches nothing";
        assert_eq!(notes(true), [none]);
    }

    #[test]
    fn both_sources_share_the_rules_there_are() {
        let rule = r#"{"command_regex":"a","weight":5}"#;
        let file = |n: usize| format!("strategies: [{}]", vec![rule; n].join(","));
        let two = strategies(r#"{"pid":1,"priority":0},{"pid":1,"priority":1}"#);
        assert_eq!(names(&file(MAX_RULES - 2), &two).unwrap().len(), MAX_RULES);
        let e = names(&file(MAX_RULES - 1), &two).unwrap_err();
        let why = "api rule 2: more than 128 rules, with the 127 of the policy file";
        assert_eq!(e, format!("{URL}:1:55: {why}"));
        assert!(names(&file(MAX_RULES), &two).unwrap_err().contains("api rule 1: more than"));
        assert_eq!(names(&file(MAX_RULES), &[]).unwrap().len(), MAX_RULES);
    }

    /// A process that a strategy names ends, and the policy file changes. A later process
    /// with the same id is another one.
    #[test]
    fn the_apis_rules_stay_with_their_processes() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let of_api = strategies(&format!(r#"{{"pid":{pid},"priority":1}}"#));
        let file = format!("strategies: [{{pid: {pid}, weight: 5}}]");
        let found = |loaded: &Loaded| -> Vec<bool> {
            loaded.compiled.rules.iter().map(|rule| rule.by_pid.is_some()).collect()
        };
        let live = with(&of_api, |context| {
            let mut live = LivePolicy::read(None, context).unwrap();
            live.now = load(file.clone(), None, context, Vec::new()).unwrap();
            live
        });
        assert_eq!(found(&live.now), [true, true]);
        child.kill().unwrap();
        child.wait().unwrap();
        with(&of_api, |context| {
            let again = || load(file.clone(), None, context, Vec::new()).unwrap();
            assert_eq!(found(&live.with_same_processes(again(), 1..)), [false, true]);
            assert_eq!(found(&live.with_same_processes(again(), 0..)), [true, true]);
        });
    }
}
