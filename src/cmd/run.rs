//! `gthctl run`: load the scheduler, watch it, unload it.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::cli::RunArgs;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::lock::{Lock, RUN_LOCK};
use crate::policy::{Policy, compile};
use crate::sched::exit::Cause;
use crate::sched::stats::Stats;
use crate::sched::{Scheduler, Settings, kernel};
use crate::topology::{self, Topology};

/// How a loaded scheduler came to its end.
enum End {
    Signal,
    /// The kernel wants it loaded again.
    Restart,
}

/// Runs the scheduler until SIGINT or SIGTERM, or until the kernel ends it.
pub fn run(args: &RunArgs) -> Result<()> {
    let (config, notes) = Config::load(&args.config)?;
    print_notes(&notes);
    let policy = load_policy(args.policy.as_ref().or(config.policy.as_ref()))?;
    let settings = Settings {
        slice_ns: config.slice_ns_default,
        slice_min_ns: config.slice_ns_min,
        builtin_idle: config.builtin_idle,
        debug: config.debug || args.debug,
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kernel::check_capabilities(&status)?;
    let _lock = Lock::take(Path::new(RUN_LOCK))?;
    let signals = catch_signals()?;
    while let End::Restart = load_and_watch(args, &settings, &policy, &signals)? {
        eprintln!("gthctl: a CPU went on- or offline; loading again");
    }
    Ok(())
}

fn load_policy(path: Option<&PathBuf>) -> Result<Policy> {
    let Some(path) = path else { return Ok(Policy::default()) };
    let (policy, notes) = Policy::load(path)?;
    print_notes(&notes);
    Ok(policy)
}

/// One life of the scheduler in the kernel.
fn load_and_watch(
    args: &RunArgs,
    settings: &Settings,
    policy: &Policy,
    signals: &SignalFd,
) -> Result<End> {
    let topology = Topology::read(Path::new(topology::SYSFS))?;
    let (compiled, notes) =
        compile::compile(policy, &topology, settings.slice_ns, Path::new("/proc"))?;
    print_notes(&notes);
    kernel::check_sched_ext(Path::new(kernel::SCHED_EXT))?;
    let mut object = MaybeUninit::uninit();
    let mut scheduler = Scheduler::load(&mut object, settings, &topology, &compiled)?;
    let malformed = scheduler.malformed_kfuncs();
    if !malformed.is_empty() {
        eprintln!(
            "gthctl: note: this kernel's BTF is malformed for {} (they keep the implicit `aux` argument); working without them",
            malformed.join(", ")
        );
    }
    eprintln!(
        "gthctl: scheduling {} CPUs in {} LLC{}, {} rule{}{}",
        topology.online.len(),
        topology.nr_llcs(),
        plural(topology.nr_llcs()),
        policy.rules.len(),
        plural(policy.rules.len()),
        match compiled.reserved.is_empty() {
            true => String::new(),
            false => format!(", CPUs {} exclusive", compiled.reserved),
        }
    );
    let begin = Instant::now();
    let every = args.stats.map(Duration::from_secs);
    let watched = watch(&scheduler, every, can_kick(&malformed), signals);
    let stats = scheduler.stats();
    let ended = scheduler.unload();
    println!("{}", stats?.report(&Stats::default(), begin.elapsed()));
    watched?;
    let Some(ended) = ended else {
        return Err(Error::failure("the kernel did not say why the scheduler ended"));
    };
    if let Some(error) = ended.error() {
        for line in ended.backtrace_lines() {
            eprintln!("gthctl:   {line}");
        }
        return Err(error);
    }
    Ok(if ended.cause == Cause::Restart { End::Restart } else { End::Signal })
}

/// Whether the BPF program can wake an idle CPU.
fn can_kick(malformed: &[&str]) -> bool {
    !malformed.contains(&"scx_bpf_kick_cpu")
}

/// How often gthctl wakes up where it cannot: the idle CPU it wakes up on looks
/// for waiting tasks when gthctl sleeps again, which bounds how long a task
/// waits that was queued just as a CPU went idle (bpf/gthctl.bpf.c, enqueue_shared).
const HEARTBEAT: Duration = Duration::from_millis(10);

/// Returns on a signal or when the kernel has ended the scheduler.
fn watch(
    scheduler: &Scheduler<'_>,
    every: Option<Duration>,
    can_kick: bool,
    signals: &SignalFd,
) -> Result<()> {
    let events = scheduler.events()?;
    let mut earlier = Stats::default();
    let mut last = Instant::now();
    loop {
        let report_in = every.map(|every| every.saturating_sub(last.elapsed()));
        let heartbeat = (!can_kick).then_some(HEARTBEAT);
        let timeout = match report_in.into_iter().chain(heartbeat).min() {
            None => PollTimeout::NONE,
            Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        };
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(events.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(Error::failure(format!("poll: {e}"))),
        }
        if fds[0].any().unwrap_or(false) {
            let _ = signals.read_signal();
            return Ok(());
        }
        if scheduler.ended().is_some() {
            return Ok(());
        }
        if every.is_some_and(|every| last.elapsed() >= every) {
            let now = scheduler.stats()?;
            println!("{}", now.report(&earlier, last.elapsed()));
            earlier = now;
            last = Instant::now();
        }
    }
}

fn catch_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    let failed = |e| Error::failure(format!("signals: {}", io::Error::from(e)));
    set.thread_block().map_err(failed)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

fn print_notes(notes: &[String]) {
    for note in notes {
        eprintln!("gthctl: note: {note}");
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
