//! The running service: the files, the scheduler that puts them into force, and all
//! events until the end.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use super::again::{self, Again, Step};
use super::allocations::Allocations;
use super::config::Config;
use super::control::server::{Asked, Server};
use super::control::{self, RUN_LOCK, Reply, Request};
use super::explain::explain;
use super::ext_servers::ExtServers;
use super::last_run::{self, Run};
use super::live::{LivePolicy, PolicyContext, failed};
use super::manager::Manager;
use super::marker::Marker;
use super::missed::Missed;
use super::node_pods::Pods;
use super::outcome::outcome;
use super::pod_counters::CountedPods;
use super::pod_nic_looks::PodNics;
use super::reports::{Counters, CpuRun, Metrics, RuleCounters, Status};
use super::rule_tasks;
use super::strategies::Api;
use super::watch::Watch;
use crate::base::error::{Error, Result};
use crate::base::lock::Lock;
use crate::base::log;
use crate::base::output::count;
use crate::base::ownership;
use crate::base::signals::{catch_signals, terminal_has_hung_up};
use crate::base::time::{rfc3339, rounded_up};
use crate::kernel::capabilities;
use crate::kernel::sched_ext;
use crate::kernel::topology::{self, Topology};
use crate::sched::exit::Cause;
use crate::sched::stats::Stats;
use crate::sched::verdict::Verdict;
use crate::sched::{Scheduler, Settings};

/// The options of `gthctl run`.
pub struct Options {
    pub config: PathBuf,
    /// Whether the config file need not exist.
    pub may_lack_config: bool,
    /// Overrides the config's policy file.
    pub policy: Option<PathBuf>,
    /// How often to print the counters.
    pub stats: Option<Duration>,
    /// Whether to measure how long GTP packets take.
    pub gtp_time: bool,
    /// Whether to count what the tasks of each pod do.
    pub pod_counters: bool,
    pub debug: bool,
}

/// How often gthctl wakes up where the BPF program cannot wake an idle CPU. When gthctl
/// sleeps again, its CPU looks for waiting tasks. This bounds the wait of a task that was
/// queued just as a CPU went idle (bpf/sched/queue.bpf.h, enqueue_shared()).
const HEARTBEAT: Duration = Duration::from_millis(10);

/// How long the start waits for interrupts to be placed.
const PLACED: Duration = Duration::from_secs(2);

/// How often to check whether a network namespace has been mounted over its file.
const MOUNT_CHECK: Duration = Duration::from_millis(100);

/// The config and policy in force, and the watch on their files.
pub struct Service {
    options: Options,
    config: Config,
    /// There has been no config file so far.
    lacks_config: bool,
    policy: LivePolicy,
    pods: Pods,
    /// The pods' counters in the loaded scheduler, if it counts what their tasks do.
    counted_pods: Option<CountedPods>,
    api: Api,
    signals: SignalFd,
    manager: Manager,
    watch: Watch,
    /// What each watched file is, by number.
    watched: Vec<Watched>,
    /// Failed steps to retry.
    again: Again,
    /// Why file changes may be noticed late, as last reported.
    late: Option<String>,
    /// Reread both files, changed or not.
    reread: bool,
    /// Why the config file on disk is not in force.
    rejected: Option<(Error, SystemTime)>,
    started: SystemTime,
    /// When the scheduler was last loaded.
    loaded: SystemTime,
    /// The run of gthctl before this one.
    before: Option<Run>,
    /// The signal that told gthctl to stop.
    stopped_by: Option<Signal>,
}

/// What a watched file is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Watched {
    Config,
    Policy,
    /// A file that resolves names in the policy.
    Reference(PathBuf),
}

impl Service {
    /// Reads the files. Notes go to standard error.
    pub fn read(options: Options) -> Result<Self> {
        // Before the watch starts a thread, which inherits the blocked signals.
        let signals = catch_signals()?;
        // Watched before they are read, so that no change is missed.
        let mut watch = Watch::new()?;
        let mut watched = vec![Watched::Config];
        watch.add(&options.config)?;
        let loaded = load_config(&options)?;
        let lacks_config = loaded.is_none();
        let (config, notes) = loaded.unwrap_or_else(|| (Config::default(), no_config(&options)));
        log::notes(&notes);
        log::notes(ownership::note(&options.config).as_slice());
        let file = options.policy.clone().or_else(|| config.policy.clone());
        if let Some(file) = &file {
            watch.add(file)?;
            watched.push(Watched::Policy);
        }
        let mut pods = Pods::new(config.kubeconfig.clone());
        let topology = Topology::read(Path::new(topology::SYSFS))?;
        let mut api = Api::default();
        let context = policy_context(&config, &topology, &pods, &api);
        let policy = LivePolicy::read(file, &context)?;
        log::notes(policy.file().and_then(ownership::note).as_slice());
        pods.follow(options.pod_counters || policy.asks_for_pods())?;
        api.follow(config.api.as_ref())?;
        let started = SystemTime::now();
        Ok(Self {
            options,
            config,
            lacks_config,
            policy,
            pods,
            counted_pods: None,
            api,
            signals,
            manager: Manager::of_environment(),
            watch,
            watched,
            again: Again::default(),
            late: None,
            reread: false,
            rejected: None,
            started,
            loaded: started,
            before: None,
            stopped_by: None,
        })
    }

    /// Makes this process the one that schedules, until the lock is dropped.
    ///
    /// Fails without the capabilities, and if another process already schedules.
    pub fn claim() -> Result<Lock> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        capabilities::check_capabilities("loading a scheduler", &status)?;
        Lock::take(Path::new(RUN_LOCK))
    }

    /// Records for `gthctl status` that a start failed before anything was placed or loaded.
    /// While another gthctl runs, leaves that one's record alone.
    pub fn note_failed_start(since: SystemTime, ended: &Result<()>) {
        let Ok(_lock) = Lock::take(Path::new(RUN_LOCK)) else { return };
        let record = Path::new(last_run::FILE);
        let before = last_run::read(record).unwrap_or_default();
        // The caller reports the error itself.
        let _ = last_run::end(record, since, before, last_run::End::of(ended, None));
    }

    /// Schedules until SIGINT or SIGTERM, a hang-up of its terminal, or an end by the
    /// kernel. Calls `loaded` each time the scheduler has been loaded.
    pub fn run(mut self, _lock: Lock, loaded: &mut dyn FnMut()) -> Result<()> {
        let record = Path::new(last_run::FILE);
        match last_run::begin(record, self.started) {
            Ok(before) => self.before = before,
            Err(e) => log::note(e),
        }
        let ended = self.serve(loaded);
        let end = last_run::End::of(&ended, self.stopped_by.map(Signal::as_str));
        if let Err(e) = last_run::end(record, self.started, self.before.take(), end) {
            log::note(e);
        }
        ended
    }

    fn serve(&mut self, loaded: &mut dyn FnMut()) -> Result<()> {
        let mut server = Server::listen(Path::new(control::SOCKET))?;
        // Checked before interrupts are placed, in case no scheduler can be loaded.
        sched_ext::check_sched_ext(Path::new(sched_ext::SCHED_EXT))?;
        self.manager.status("Loading the scheduler");
        self.policy.place(self.signals.as_fd(), PLACED)?;
        let ended = self.schedule(&mut server, loaded);
        self.manager.stopping();
        if let Err(e) = &ended {
            self.manager.status(&e.to_string());
        }
        self.policy.put_back();
        ended
    }

    fn schedule(&mut self, server: &mut Server, loaded: &mut dyn FnMut()) -> Result<()> {
        while self.load_and_watch(server, loaded)? == Cause::Restart {
            // A restart and a signal to stop may coincide.
            if self.stopped_by.is_some() {
                break;
            }
            log::info("a CPU went on- or offline; loading again");
            self.manager.status("Loading the scheduler again");
        }
        Ok(())
    }

    /// One life of the scheduler in the kernel; returns what ended it.
    fn load_and_watch(&mut self, server: &mut Server, loaded: &mut dyn FnMut()) -> Result<Cause> {
        let hotplug_seq = sched_ext::hotplug_seq(Path::new(sched_ext::SCHED_EXT));
        let topology = Topology::read(Path::new(topology::SYSFS))?;
        self.policy.settle(&policy_context(&self.config, &topology, &self.pods, &self.api))?;
        sched_ext::check_sched_ext(Path::new(sched_ext::SCHED_EXT))?;
        let settings = Settings {
            slice_ns: self.config.slice_ns_default,
            slice_min_ns: self.config.slice_ns_min,
            builtin_idle: self.config.builtin_idle,
            count_pods: self.options.pod_counters,
            debug: self.config.debug || self.options.debug,
            hotplug_seq,
        };
        let mut object = MaybeUninit::uninit();
        let mut scheduler =
            Scheduler::load(&mut object, &settings, &topology, self.policy.compiled())?;
        self.loaded = SystemTime::now();
        self.counted_pods =
            self.options.pod_counters.then(|| CountedPods::new(&self.config.kubelet_cgroup_roots));
        log::notes(&lacks(&scheduler));
        log::info(format_args!(
            "scheduling {} CPUs in {}, {}",
            topology.online.len(),
            count(topology.nr_llcs(), "pool"),
            self.policy.summary(),
        ));
        loaded();
        let begin = Instant::now();
        let watched = self.watch(&mut scheduler, &topology, server);
        let stats = scheduler.stats();
        let ended = scheduler.unload();
        match stats {
            Ok(stats) => {
                log::out(format_args!("{}", stats.report(&Stats::default(), begin.elapsed())));
            }
            Err(e) => log::note(e),
        }
        outcome(watched, ended)
    }

    /// Returns when told to stop or when the kernel has ended the scheduler.
    fn watch(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
        server: &mut Server,
    ) -> Result<()> {
        let event = scheduler.event()?;
        let heartbeat = (!scheduler.can_kick()).then_some(HEARTBEAT);
        let mut missed = Missed::default();
        let mut allocations = Allocations::default();
        let mut ext_servers = scheduler.has_ext_servers().then(ExtServers::default);
        let mut pod_nics = PodNics::default();
        let mut marker = Marker::new(self.options.gtp_time);
        let mut printed = (Stats::default(), Instant::now());
        while !self.is_told_to_stop() && scheduler.ended().is_none() {
            scheduler.check_cgroups()?;
            let (changed, settles_at) = self.watch.changed();
            self.reload(&changed, scheduler, topology);
            let seen = marker.follow(scheduler);
            self.again.note_due(Step::Marks, seen);
            for asked in server.take() {
                self.answer(asked, scheduler, topology, &marker);
            }
            self.follow_references(scheduler, topology);
            // The request just answered may have changed the policy.
            let marker_due = marker.follow(scheduler);
            let made_up = missed.make_up_for(scheduler, self.policy.compiled());
            let context = policy_context(&self.config, topology, &self.pods, &self.api);
            let allocated = allocations.follow(scheduler, &mut self.policy, &context);
            let pod_nics_due = pod_nics.follow(&mut self.policy, &context);
            let servers_due =
                ext_servers.as_mut().map(|servers| servers.follow(scheduler)).transpose();
            let (_, half_made) = self.policy.missing_netns();
            let timeouts = [
                self.tell_manager(scheduler.generation()),
                self.print_stats(scheduler, &mut printed),
                settles_at.map(|at| at.saturating_duration_since(Instant::now())),
                half_made.then_some(MOUNT_CHECK),
                self.again.note_due(Step::Missed, made_up),
                self.again.note_due(Step::Cpusets, allocated),
                self.again.note_due(Step::ExtServers, servers_due),
                pod_nics_due,
                self.again.note_due(Step::Marks, marker_due),
                self.policy.note_shared_cpus(topology),
                self.again.left(),
                heartbeat,
            ];
            let timeout = timeouts.into_iter().flatten().min();
            self.wait(scheduler, &event, server, &marker, timeout);
        }
        Ok(())
    }

    /// Waits for an event, or until `timeout` has passed.
    fn wait(
        &mut self,
        scheduler: &Scheduler<'_>,
        event: &OwnedFd,
        server: &Server,
        marker: &Marker,
        timeout: Option<Duration>,
    ) {
        let fds = [
            self.signals.as_fd(),
            event.as_fd(),
            self.watch.as_fd(),
            server.as_fd(),
            scheduler.changes(),
        ];
        let others = [self.pods.fd(), self.api.fd(), self.policy.irqs_fd(), marker.fd()];
        let mut fds: Vec<PollFd<'_>> = fds
            .into_iter()
            .chain(others.into_iter().flatten())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, rounded_up(timeout)) {
            Ok(_) => self.again.note(Step::Wait, Ok(())),
            Err(Errno::EINTR) => {}
            Err(e) => {
                self.again.note(Step::Wait, Err(Error::failure(format!("poll: {e}"))));
                std::thread::sleep(HEARTBEAT);
            }
        }
    }

    /// Tells the service manager the current state; returns when to call again.
    fn tell_manager(&mut self, generation: u32) -> Option<Duration> {
        if self.manager.listens() {
            let mut status = self.policy.status_line(generation);
            if let Some((e, _)) = &self.rejected {
                status += &format!("; rejected: {e}");
            }
            match self.policy.is_waiting() {
                true => self.manager.status(&status),
                false => self.manager.ready(&status),
            }
        }
        self.manager.go_on()
    }

    /// Takes the pending signals. Returns whether one of them tells gthctl to stop.
    fn is_told_to_stop(&mut self) -> bool {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo != Signal::SIGHUP as u32 || terminal_has_hung_up() {
                self.stopped_by = Signal::try_from(signal.ssi_signo as i32).ok();
                self.manager.stopping();
                self.policy.begin_to_put_back();
                return true;
            }
            self.manager.reloading();
            log::info("SIGHUP: reading config and policy again");
            self.reread = true;
        }
        false
    }

    /// Prints the counters since `earlier` if it is time; returns the time until it is next due.
    fn print_stats(
        &mut self,
        scheduler: &Scheduler<'_>,
        (earlier, at): &mut (Stats, Instant),
    ) -> Option<Duration> {
        let every = self.options.stats?;
        let elapsed = at.elapsed();
        if elapsed < every {
            return Some(every - elapsed);
        }
        let read = scheduler.stats().map(|now| {
            log::out(format_args!("{}", now.report(earlier, elapsed)));
            *earlier = now;
        });
        self.again.note(Step::Stats, read);
        *at = Instant::now();
        Some(every)
    }

    /// Brings changes in the files, and in what they refer to, into force. A file with a
    /// mistake changes nothing.
    fn reload(&mut self, changed: &[usize], scheduler: &mut Scheduler<'_>, topology: &Topology) {
        if self.watch.problem() != self.late.as_deref() {
            self.late = self.watch.problem().map(Into::into);
            log::notes(self.late.as_slice());
        }
        let changed: Vec<Watched> = changed.iter().map(|&i| self.watched[i].clone()).collect();
        let again = self.again.due();
        let reread = std::mem::take(&mut self.reread);
        // A file that is still changing is not retried here: the watch will report it.
        let is_again = |what: &Watched, step| {
            let file = number_of(&self.watched, what);
            again.contains(&step) && file.is_none_or(|file| self.watch.is_settled(file))
        };
        let is_due = |what, step| reread || changed.contains(&what) || is_again(&what, step);
        let (config_due, policy_due) =
            (is_due(Watched::Config, Step::Config), is_due(Watched::Policy, Step::Policy));
        if config_due {
            match self.reload_config(scheduler, topology) {
                Ok(false) => {}
                done => {
                    let before = self.rejected.take();
                    self.rejected = done.as_ref().err().map(|e| again::since_when(before, e));
                    self.again.note(Step::Config, done.map(|_| ()));
                }
            }
        }
        let pods_changed = self.pods.update();
        if policy_due {
            self.reload_policy(scheduler, topology);
        }
        let context = policy_context(&self.config, topology, &self.pods, &self.api);
        if let Err(e) = self.policy.go_on(scheduler, &context) {
            self.again.note(Step::Policy, Err(e));
        }
        let reference = |watched: &Watched| matches!(watched, Watched::Reference(_));
        let (netns_came, _) = self.policy.missing_netns();
        if pods_changed
            || netns_came
            || changed.iter().any(reference)
            || again.contains(&Step::Refresh)
        {
            self.again.note(Step::Refresh, self.policy.refresh(scheduler, &context));
        }
        if pods_changed {
            let counted = self.follow_counted_pods(scheduler);
            self.again.note(Step::PodCounters, counted);
        }
        self.follow_api(scheduler, topology);
        // The retry refreshes the policy. By then the file may be as before, and reading it
        // again would repair nothing.
        if self.policy.is_out_of_step() {
            self.again.add(Step::Refresh);
        }
    }

    /// Brings strategies that the API has sent into force.
    fn follow_api(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) {
        let Some(strategies) = self.api.update(scheduler.generation()) else { return };
        let context = policy_context(&self.config, topology, &self.pods, &self.api);
        let context = PolicyContext { strategies: &strategies, ..context };
        let done = self.policy.take_strategies(scheduler, &context, &self.api.name());
        let done = self.api.settle(strategies, done, scheduler.generation());
        self.again.note(Step::Strategies, done);
    }

    fn reload_policy(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) {
        let context = policy_context(&self.config, topology, &self.pods, &self.api);
        let is_being_written =
            || is_being_written(&mut self.watch, &self.watched, &Watched::Policy);
        let done = self.policy.reload(scheduler, &context, is_being_written);
        self.again.note(Step::Policy, done);
    }

    /// Reads the config file again. Returns false if the result says nothing yet: the file has a mistake, but
    /// a program is still writing it.
    fn reload_config(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
    ) -> Result<bool> {
        let loaded = match self.lacks_config {
            true => load_config(&self.options),
            false => Config::load(&self.options.config).map(Some),
        };
        if loaded.is_err() && is_being_written(&mut self.watch, &self.watched, &Watched::Config) {
            return Ok(false);
        }
        let Some((config, notes)) = loaded? else { return Ok(true) };
        if std::mem::take(&mut self.lacks_config) {
            log::notes(ownership::note(&self.options.config).as_slice());
        }
        log::notes(&notes);
        self.note_what_waits(&config);
        let path = self.options.config.display();
        if config.api != self.config.api {
            self.api.follow(config.api.as_ref())?;
            self.config.api = config.api;
            log::info(format_args!("{path}: api is in force"));
        }
        let slices = (config.slice_ns_default, config.slice_ns_min);
        if slices != (self.config.slice_ns_default, self.config.slice_ns_min) {
            // The credit of weak priorities is measured in slices.
            let context = policy_context(&self.config, topology, &self.pods, &self.api);
            let context = PolicyContext { slice_ns: slices.0, ..context };
            self.policy.refresh(scheduler, &context)?;
            scheduler.set_slices(slices.0, slices.1);
            // Stored only once both are in force; otherwise gthctl would not try again.
            (self.config.slice_ns_default, self.config.slice_ns_min) = slices;
            log::info(format_args!("{path}: slices are in force"));
        }
        if let Some(file) = config.policy.filter(|_| self.policy.file().is_none()) {
            self.follow_policy(file, scheduler, topology)?;
        }
        Ok(true)
    }

    /// Follows the policy file that the config now names.
    fn follow_policy(
        &mut self,
        file: PathBuf,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
    ) -> Result<()> {
        self.watch.add(&file)?;
        self.watched.push(Watched::Policy);
        log::info(format_args!("{}: is the policy file from now on", file.display()));
        log::notes(ownership::note(&file).as_slice());
        self.config.policy = Some(file.clone());
        self.policy.follow(file);
        self.reload_policy(scheduler, topology);
        Ok(())
    }

    /// Notes what in `config` takes effect only when gthctl restarts.
    fn note_what_waits(&self, config: &Config) {
        let path = self.options.config.display();
        let follows_policy = self.policy.file().is_none() || self.options.policy.is_some();
        for (key, differs) in [
            ("builtin_idle", config.builtin_idle != self.config.builtin_idle),
            ("debug", config.debug != self.config.debug),
            ("policy", config.policy != self.config.policy && !follows_policy),
            ("monitor.kubeconfig_path", config.kubeconfig != self.config.kubeconfig),
            (
                "kubelet_cgroup_root",
                config.kubelet_cgroup_roots != self.config.kubelet_cgroup_roots,
            ),
        ] {
            if differs {
                log::note(format_args!("{path}: {key}: takes effect when gthctl restarts"));
            }
        }
    }

    /// Watches the files the policy in force refers to, and the pods if it asks for them.
    fn follow_references(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) {
        let wanted = self.options.pod_counters || self.policy.asks_for_pods();
        let pods = self.pods.follow(wanted);
        self.forget_references();
        let known = self.watched.len();
        let mut watching = Ok(());
        for file in &self.policy.compiled().refers_to {
            let watched = Watched::Reference(file.clone());
            if !self.watched.contains(&watched) && watching.is_ok() {
                watching = self.watch.add(file).map(|_| self.watched.push(watched));
            }
        }
        self.again.note(Step::References, pods.and(watching));
        if self.watched.len() > known {
            // They may have changed after they were read and before they were watched.
            let context = policy_context(&self.config, topology, &self.pods, &self.api);
            self.again.note(Step::Refresh, self.policy.refresh(scheduler, &context));
        }
    }

    /// Stops watching the files that only earlier policies referred to.
    fn forget_references(&mut self) {
        let wanted = &self.policy.compiled().refers_to;
        let is_kept = |watched: &Watched| !matches!(watched, Watched::Reference(file) if !wanted.contains(file));
        if !self.watched.iter().all(is_kept) {
            self.watch.retain(|file| is_kept(&self.watched[file]));
            self.watched.retain(is_kept);
        }
    }

    /// Answers another gthctl's requests.
    fn answer(
        &mut self,
        Asked { request, reply }: Asked,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
        marker: &Marker,
    ) {
        let context = policy_context(&self.config, topology, &self.pods, &self.api);
        let policy = &mut self.policy;
        let answer = match request {
            Request::Health => policy.health(scheduler, self.again.last_error()).map(Reply::Health),
            Request::Status => {
                let verdicts = scheduler.verdicts(None);
                let status =
                    verdicts.and_then(|tasks| self.status(scheduler, topology, marker, &tasks));
                status.map(|status| Reply::Status(Box::new(status)))
            }
            Request::Metrics => {
                let metrics = self.metrics(scheduler, topology, marker);
                metrics.map(|metrics| Reply::Metrics(Box::new(metrics)))
            }
            Request::Show => policy.show(scheduler).map(Reply::Show),
            Request::Explain { tid } => {
                explain(policy, scheduler, &context, tid).map(Reply::Explain)
            }
            Request::Tasks => rule_tasks::list(policy, scheduler, &context).map(Reply::Tasks),
            Request::Plan(proposal) => policy
                .target()
                .and_then(|_| policy.plan(scheduler, &context, &proposal))
                .map(Reply::Plan),
            Request::Diff(proposal) => policy.plan(scheduler, &context, &proposal).map(Reply::Plan),
            Request::Apply { proposal, generation } => {
                policy.apply(scheduler, &context, &proposal, generation, reply);
                if policy.is_out_of_step() {
                    self.again.add(Step::Refresh);
                }
                return;
            }
        };
        reply.send(answer.unwrap_or_else(|e| Reply::Failed(e.into())));
    }

    fn status(
        &self,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
        marker: &Marker,
        verdicts: &[Verdict],
    ) -> Result<Status> {
        let context = policy_context(&self.config, topology, &self.pods, &self.api);
        let mut status = self.policy.status(scheduler, &context, marker, verdicts, self.started)?;
        let files = [Some(self.options.config.as_path()), self.policy.file()];
        status.scheduler_since = rfc3339(self.loaded);
        status.config_rejected = self.rejected.as_ref().map(failed);
        status.last_error = self.again.last_error().map(failed);
        status.last_run = self.before.clone();
        status.kernel_lacks = lacks(scheduler);
        status.api = self.api.status();
        status.notes.extend(files.into_iter().flatten().filter_map(ownership::note));
        status.notes.extend(self.late.clone());
        Ok(status)
    }

    fn metrics(
        &mut self,
        scheduler: &mut Scheduler<'_>,
        topology: &Topology,
        marker: &Marker,
    ) -> Result<Metrics> {
        // Must come before the tasks of each cgroup are counted.
        self.follow_counted_pods(scheduler)?;
        let verdicts = scheduler.verdicts(None)?;
        let changes = self.policy.changes();
        let pods = self.pods.state.pods.as_deref().unwrap_or_default();
        let pods =
            self.counted_pods.as_ref().map(|counted| counted.counters(scheduler, pods, &verdicts));
        let (rule_counters, cpus) = self.rule_counters(scheduler, topology)?;
        Ok(Metrics {
            status: self.status(scheduler, topology, marker, &verdicts)?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: since_1970(self.started),
            scheduler_started: since_1970(self.loaded),
            in_force: since_1970(self.policy.since()),
            policy_changes: changes.taken,
            policy_rejections: changes.rejected,
            exclusive_cpus: self.policy.compiled().reserved.len(),
            rules: self.policy.rule_counts(&verdicts),
            counters: counters(&scheduler.stats()?),
            rule_counters,
            cpus,
            pods: pods.transpose()?.unwrap_or_default(),
            node: self.counted_pods.as_ref().map(|_| self.pods.node()).transpose()?,
            gtp: marker.passed()?,
        })
    }

    /// Gives new pods their counters.
    fn follow_counted_pods(&mut self, scheduler: &mut Scheduler<'_>) -> Result<()> {
        let pods = self.pods.state.pods.as_deref().unwrap_or_default();
        self.counted_pods.as_mut().map_or(Ok(()), |counted| counted.follow(scheduler, pods))
    }

    /// What the tasks of each rule did, and how long tasks ran on each CPU.
    fn rule_counters(
        &self,
        scheduler: &Scheduler<'_>,
        topology: &Topology,
    ) -> Result<(Vec<RuleCounters>, Vec<CpuRun>)> {
        let run = |cpu| CpuRun { cpu, ..CpuRun::default() };
        let mut cpus: Vec<CpuRun> = topology.possible.iter().map(run).collect();
        let mut counters = Vec::new();
        let rules = self.policy.compiled().rules.iter();
        let rules = rules.map(|rule| (Some(rule.name.as_str()), rule.rank.is_some()));
        for (rule, has_priority) in rules.chain([(None, false)]) {
            let row = scheduler.rule_row(rule)?;
            for (cpu, ns) in cpus.iter_mut().zip(row.run_ns) {
                *(if has_priority { &mut cpu.priority_ns } else { &mut cpu.normal_ns }) += ns;
            }
            counters.push(RuleCounters { rule: rule.map(ToOwned::to_owned), stats: row.stats });
        }
        Ok((counters, cpus))
    }
}

/// The time since 1970, in seconds.
fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn counters(stats: &Stats) -> Counters {
    let named = |(name, count): (&str, u64)| (name.to_owned(), count);
    Counters {
        paths: stats.paths().map(named).collect(),
        counts: stats.counters().map(named).collect(),
        wakeups: stats.wakeups().to_vec(),
        wakeup_sum_ns: stats.wakeup_sum_ns(),
    }
}

fn policy_context<'a>(
    config: &'a Config,
    topology: &'a Topology,
    pods: &'a Pods,
    api: &'a Api,
) -> PolicyContext<'a> {
    PolicyContext {
        topology,
        slice_ns: config.slice_ns_default,
        follows_pods: pods.are_followed(),
        pods: pods.state.pods.as_deref(),
        pods_problem: pods.state.problem.as_deref(),
        kubelets: &config.kubelet_cgroup_roots,
        strategies: api.rules(),
    }
}

/// Reads the config file; `None` if it does not exist and need not exist.
fn load_config(options: &Options) -> Result<Option<(Config, Vec<String>)>> {
    match options.may_lack_config {
        true => Config::load_if_any(&options.config),
        false => Config::load(&options.config).map(Some),
    }
}

/// The note about a start without a config file.
fn no_config(options: &Options) -> Vec<String> {
    let file = options.config.display();
    let note = match &options.policy {
        Some(_) => format!("there is no {file}: every setting has its default"),
        None => format!(
            "there is no {file}: all tasks are scheduled fairly; for a policy, run gthctl policy \
             init, and write \"policy: policy.yaml\" into {file}"
        ),
    };
    vec![note]
}

/// Whether a writer has not closed `file` yet, so that its content is incomplete.
fn is_being_written(watch: &mut Watch, watched: &[Watched], file: &Watched) -> bool {
    number_of(watched, file).is_some_and(|file| watch.is_being_written(file))
}

/// The number of `file` in [`Watch`].
fn number_of(watched: &[Watched], file: &Watched) -> Option<usize> {
    watched.iter().position(|watched| watched == file)
}

/// What this kernel lacks, and what therefore does not work.
fn lacks(scheduler: &Scheduler<'_>) -> Vec<String> {
    let malformed = scheduler.malformed_kfuncs();
    let note = (!malformed.is_empty()).then(|| {
        format!(
            "this kernel's BTF is malformed for {} (they keep the implicit `aux` argument); working \
             without them",
            malformed.join(", ")
        )
    });
    note.into_iter().chain(scheduler.lacks_for_cgroups().map(Into::into)).collect()
}
