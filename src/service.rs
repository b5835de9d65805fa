//! The running service: the files, the scheduler that carries them out, and
//! what happens to both until it ends.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::lock::{Lock, RUN_LOCK};
use crate::policy::Policy;
use crate::policy::compile::{Compiled, Machine, compile};
use crate::policy::resolve::Root;
use crate::sched::exit::{Cause, Ended};
use crate::sched::stats::Stats;
use crate::sched::{Scheduler, Settings, kernel};
use crate::topology::{self, Topology};
use crate::watch::Watch;

/// What `gthctl run` was asked for.
pub struct Options {
    pub config: PathBuf,
    /// In place of the config's policy file.
    pub policy: Option<PathBuf>,
    /// How often the counters are printed.
    pub stats: Option<Duration>,
    pub debug: bool,
}

/// How often gthctl wakes up where the BPF program cannot wake an idle CPU: the
/// idle CPU that gthctl wakes up on looks for waiting tasks when it sleeps again,
/// which bounds how long a task waits that was queued just as a CPU went idle
/// (bpf/gthctl.bpf.c, enqueue_shared()).
const HEARTBEAT: Duration = Duration::from_millis(10);

/// Config and policy as they are in force, and the watch over their files.
pub struct Service {
    options: Options,
    config: Config,
    policy: Policy,
    signals: SignalFd,
    watch: Watch,
    config_file: usize,
    policy_file: Option<usize>,
}

impl Service {
    /// Reads the files. Notes go to standard error.
    pub fn read(options: Options) -> Result<Self> {
        // Before the watch starts a thread, which inherits what is blocked.
        let signals = catch_signals()?;
        // Watched before they are read: no change is missed in between.
        let mut watch = Watch::new()?;
        let config_file = watch.add(&options.config)?;
        let (config, notes) = Config::load(&options.config)?;
        print_notes(&notes);
        let mut service = Self {
            options,
            config,
            policy: Policy::default(),
            signals,
            watch,
            config_file,
            policy_file: None,
        };
        if let Some(path) = service.policy_path().map(Path::to_owned) {
            service.policy_file = Some(service.watch.add(&path)?);
            service.policy = load_policy(&path)?;
        }
        Ok(service)
    }

    fn policy_path(&self) -> Option<&Path> {
        self.options.policy.as_deref().or(self.config.policy.as_deref())
    }

    /// Schedules until SIGINT, SIGTERM or SIGHUP, or until the kernel ends it.
    pub fn run(mut self) -> Result<()> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        kernel::check_capabilities(&status)?;
        let _lock = Lock::take(Path::new(RUN_LOCK))?;
        while self.load_and_watch()? == Cause::Restart {
            eprintln!("gthctl: a CPU went on- or offline; loading again");
        }
        Ok(())
    }

    /// One life of the scheduler in the kernel; returns what ended it.
    fn load_and_watch(&mut self) -> Result<Cause> {
        let topology = Topology::read(Path::new(topology::SYSFS))?;
        let compiled = self.compile(&self.policy, &topology)?;
        kernel::check_sched_ext(Path::new(kernel::SCHED_EXT))?;
        let settings = Settings {
            slice_ns: self.config.slice_ns_default,
            slice_min_ns: self.config.slice_ns_min,
            builtin_idle: self.config.builtin_idle,
            debug: self.config.debug || self.options.debug,
        };
        let mut object = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(&mut object, &settings, &topology, &compiled)?;
        note_malformed(&scheduler);
        eprintln!(
            "gthctl: scheduling {} CPUs in {}, {}",
            topology.online.len(),
            count(topology.nr_llcs(), "LLC"),
            summary(&self.policy, &compiled),
        );
        let begin = Instant::now();
        let watched = self.watch(&mut scheduler, &topology);
        let stats = scheduler.stats();
        let ended = scheduler.unload();
        println!("{}", stats?.report(&Stats::default(), begin.elapsed()));
        watched?;
        let ended = ended
            .ok_or_else(|| Error::failure("the kernel did not say why the scheduler ended"))?;
        report(&ended)?;
        Ok(ended.cause)
    }

    /// Returns on a signal or when the kernel has ended the scheduler.
    fn watch(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) -> Result<()> {
        let event = scheduler.event()?;
        let heartbeat = (!scheduler.can_kick()).then_some(HEARTBEAT);
        let mut earlier = Stats::default();
        let mut reported = Instant::now();
        loop {
            let (changed, settles_at) = self.watch.changed();
            self.reload(&changed, scheduler, topology);
            let report_in =
                self.options.stats.map(|every| every.saturating_sub(reported.elapsed()));
            let settles_in = settles_at.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = report_in.into_iter().chain(settles_in).chain(heartbeat).min();
            let mut fds = [self.signals.as_fd(), event.as_fd(), self.watch.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, rounded_up(timeout)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(Error::failure(format!("poll: {e}"))),
            }
            if fds[0].any().unwrap_or(false) {
                let _ = self.signals.read_signal();
                return Ok(());
            }
            if scheduler.ended().is_some() {
                return Ok(());
            }
            if self.options.stats.is_some_and(|every| reported.elapsed() >= every) {
                let now = scheduler.stats()?;
                println!("{}", now.report(&earlier, reported.elapsed()));
                earlier = now;
                reported = Instant::now();
            }
        }
    }

    /// Brings what changed in the files into force. A file with a mistake
    /// changes nothing; what was in force stays.
    fn reload(&mut self, changed: &[usize], scheduler: &mut Scheduler<'_>, topology: &Topology) {
        let refused = |e: Error| eprintln!("gthctl: error: {e}; what was in force before stays");
        if changed.contains(&self.config_file) {
            if let Err(e) = self.reload_config(scheduler, topology) {
                refused(e);
            }
        }
        if self.policy_file.is_some_and(|file| changed.contains(&file)) {
            if let Err(e) = self.reload_policy(scheduler, topology) {
                refused(e);
            }
        }
    }

    fn reload_config(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) -> Result<()> {
        let (config, notes) = Config::load(&self.options.config)?;
        print_notes(&notes);
        let path = self.options.config.display();
        for (key, differs) in [
            ("builtin_idle", config.builtin_idle != self.config.builtin_idle),
            ("debug", config.debug != self.config.debug),
            ("policy", config.policy != self.config.policy && self.options.policy.is_none()),
        ] {
            if differs {
                eprintln!("gthctl: note: {path}: {key}: takes effect when gthctl is started again");
            }
        }
        if (config.slice_ns_default, config.slice_ns_min)
            == (self.config.slice_ns_default, self.config.slice_ns_min)
        {
            return Ok(());
        }
        self.config.slice_ns_default = config.slice_ns_default;
        self.config.slice_ns_min = config.slice_ns_min;
        scheduler.set_slices(config.slice_ns_default, config.slice_ns_min);
        // The credit of weak priorities is measured in slices.
        scheduler.set_policy(&self.compile(&self.policy, topology)?)?;
        eprintln!("gthctl: {path}: slices are in force");
        Ok(())
    }

    fn reload_policy(&mut self, scheduler: &mut Scheduler<'_>, topology: &Topology) -> Result<()> {
        let Some(path) = self.policy_path() else { return Ok(()) };
        let begin = Instant::now();
        let policy = load_policy(path)?;
        if policy == self.policy {
            return Ok(());
        }
        let compiled = self.compile(&policy, topology)?;
        scheduler.set_policy(&compiled)?;
        eprintln!(
            "gthctl: {}: {} in force as generation {} after {:.1} ms",
            path.display(),
            summary(&policy, &compiled),
            scheduler.generation(),
            begin.elapsed().as_secs_f64() * 1e3,
        );
        self.policy = policy;
        Ok(())
    }

    fn compile(&self, policy: &Policy, topology: &Topology) -> Result<Compiled> {
        let machine = Machine {
            topology,
            root: Root(Path::new("/")),
            pods: &[],
            slice_ns: self.config.slice_ns_default,
        };
        let (compiled, notes) = compile(policy, &machine)?;
        print_notes(&notes);
        Ok(compiled)
    }
}

fn load_policy(path: &Path) -> Result<Policy> {
    let (policy, notes) = Policy::load(path)?;
    print_notes(&notes);
    Ok(policy)
}

fn note_malformed(scheduler: &Scheduler<'_>) {
    let malformed = scheduler.malformed_kfuncs();
    if !malformed.is_empty() {
        eprintln!(
            "gthctl: note: this kernel's BTF is malformed for {} (they keep the implicit `aux` \
             argument); working without them",
            malformed.join(", ")
        );
    }
}

/// Prints the kernel's backtrace, if any, and turns an end that nobody asked
/// for into its error.
fn report(ended: &Ended) -> Result<()> {
    let Some(error) = ended.error() else { return Ok(()) };
    for line in ended.backtrace_lines() {
        eprintln!("gthctl:   {line}");
    }
    Err(error)
}

fn catch_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    let failed = |e| Error::failure(format!("signals: {e}"));
    set.thread_block().map_err(failed)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

/// A timeout for poll(2), which counts milliseconds, that does not end early.
fn rounded_up(timeout: Option<Duration>) -> PollTimeout {
    let Some(timeout) = timeout else { return PollTimeout::NONE };
    PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX)
}

fn summary(policy: &Policy, compiled: &Compiled) -> String {
    let rules = count(policy.rules.len(), "rule");
    match compiled.reserved.is_empty() {
        true => rules,
        false => format!("{rules}, CPUs {} exclusive", compiled.reserved),
    }
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn print_notes(notes: &[String]) {
    for note in notes {
        eprintln!("gthctl: note: {note}");
    }
}
