//! A trace of the XDP program at a device, from start to end.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signalfd::SignalFd;
use serde::Serialize;

use super::feed::Feeds;
use super::messages::Messages;
use super::pace::Pace;
use super::screen::size;
use super::sections::json_line;
use super::session::Output;
use super::xdp_runs::{Counts, Runs, rows};
use super::xdp_screen;
use super::xdp_tracer::Tracer;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::base::escape;
use crate::base::output::{put_until, redrawn, wrapped};
use crate::base::signals::{catch_signals, sleep};
use crate::kernel::xdp::{self, Mode, XdpProgram};

/// The options of a trace of an XDP program.
pub struct Options<'a> {
    pub device: &'a str,
    /// Wait for a program if there is none.
    pub wait: bool,
    /// Show only these CPUs.
    pub cpus: Option<CpuList>,
    pub interval: Duration,
    pub duration: Option<Duration>,
    /// End after one interval.
    pub once: bool,
    pub output: Output,
}

/// How often to check whether the device has another program.
const PROGRAM_CHECK: Duration = Duration::from_millis(200);
const SYSFS: &str = "/sys";

/// Traces until SIGINT or SIGTERM, or for the requested time.
pub fn run(options: &Options<'_>) -> Result<()> {
    let device = options.device;
    let signals = catch_signals()?;
    if xdp::device_index(device).is_none() {
        let what = format!("there is no network device {}", escape::line(device));
        return Err(Error::failure(what).help("ip link lists those of this network namespace"));
    }
    let mut session = Session {
        options,
        signals,
        tracer: None,
        before: Vec::new(),
        until: None,
        is_cut_off: false,
        messages: Messages::new(options.is_in_place()),
    };
    session.follow_program()?;
    if session.tracer.is_none() {
        let what = format!("{device} has no XDP program");
        if !options.wait {
            let help = "start the user plane, or wait for it with --wait";
            return Err(Error::failure(what).help(help));
        }
        session.messages.info(format_args!("{what}; waiting for one"));
    }
    if session.wait()? { session.trace() } else { Ok(()) }
}

struct Session<'a> {
    options: &'a Options<'a>,
    signals: SignalFd,
    /// The tracer of the program that the device has now.
    tracer: Option<Tracer>,
    /// The counts at the last interval.
    before: Vec<Counts>,
    /// When the trace ends, if that is known.
    until: Option<Instant>,
    /// The trace has to end: not all of its output was read in time.
    is_cut_off: bool,
    messages: Messages,
}

impl Options<'_> {
    fn is_in_place(&self) -> bool {
        self.output.is_in_place(self.once)
    }
}

impl Session<'_> {
    /// Waits until the device has a program; false if told to stop meanwhile.
    fn wait(&mut self) -> Result<bool> {
        while self.tracer.is_none() {
            if sleep(&self.signals, None, PROGRAM_CHECK)? {
                return Ok(false);
            }
            self.follow_program()?;
        }
        Ok(true)
    }

    /// Attaches to the device's program, and detaches from one that it no longer has. The device
    /// may also be gone, or have other devices under it.
    fn follow_program(&mut self) -> Result<()> {
        let device = self.options.device;
        let index = xdp::device_index(device);
        let failed = |e| Error::because_of(format!("asking for the XDP program of {device}"), e);
        let found = index.map(xdp::program_at).transpose().map_err(failed)?.flatten();
        let Some((id, mode)) = found else {
            self.detach(None);
            return Ok(());
        };
        let devices = xdp::devices_of(Path::new(SYSFS), device);
        if self.tracer.as_ref().is_some_and(|tracer| tracer.is_of(id, &devices)) {
            return Ok(());
        }
        self.detach(Some(id));
        let Some(open) = xdp::open(id)? else { return Ok(()) };
        let program = xdp::program(id, &open)?;
        self.tracer = Some(Tracer::attach(&program, &open, devices)?);
        self.tell(&program, mode)
    }

    /// Ends the tracing, if there is one. The device has the program `next` now.
    fn detach(&mut self, next: Option<u32>) {
        if self.tracer.take().is_some_and(|tracer| Some(tracer.id()) != next) {
            self.messages.info(format_args!("{} has lost its XDP program", self.options.device));
        }
        self.before.clear();
    }

    /// Says what is traced.
    fn tell(&mut self, program: &XdpProgram, mode: Mode) -> Result<()> {
        #[derive(Serialize)]
        struct Traced<'a> {
            device: &'a str,
            mode: Mode,
            #[serde(flatten)]
            program: &'a XdpProgram,
        }
        let device = self.options.device;
        if self.options.output == Output::Json {
            return self.put(&json_line("program", &Traced { device, mode, program })?);
        }
        let XdpProgram { id, name, entry } = program;
        let (mode, entry) = (mode.name(), entry.as_deref().unwrap_or_default());
        let line = format!(
            "tracing: {name}, id {id}, at {device} ({mode} mode; fentry, fexit at {entry})"
        );
        self.messages.info(line);
        Ok(())
    }

    fn trace(&mut self) -> Result<()> {
        let mut feeds = Feeds::new(Path::new("/proc"), Path::new(SYSFS))?;
        let Options { interval, duration, once, .. } = *self.options;
        let start = Instant::now();
        let mut pace = Pace::new(start, interval, duration, once);
        self.until = duration.map(|all| start + all);
        if self.options.is_in_place() {
            self.messages.begin_to_draw();
            self.put("\x1b[2J")?;
        }
        loop {
            let wait = pace.left(PROGRAM_CHECK);
            let stop = sleep(&self.signals, None, wait)? || self.is_cut_off;
            self.follow_program()?;
            if !stop && !pace.is_due() {
                continue;
            }
            self.show(pace.show(), &mut feeds)?;
            if stop || pace.is_over() {
                return Ok(());
            }
        }
    }

    fn show(&mut self, since: Duration, feeds: &mut Feeds<'_>) -> Result<()> {
        let feeds = feeds.look()?;
        let (counts, devices) = match &self.tracer {
            Some(tracer) => (tracer.counts()?, tracer.devices()),
            None => (Vec::new(), &[][..]),
        };
        let mut all = rows(&counts, &self.before, since, &feeds, devices);
        let cpus = self.options.cpus.as_ref();
        all.retain(|runs| cpus.is_none_or(|cpus| cpus.contains(runs.cpu as u32)));
        self.before = counts;
        let active = all.iter().filter(|runs| runs.runs_per_second > 0.0);
        let in_place = self.options.is_in_place();
        let notes: Vec<String> = self.messages.last().flat_map(|note| wrapped(&note)).collect();
        let table = |all: &[Runs]| xdp_screen::screen(all, notes, size(in_place));
        let text = match self.options.output {
            Output::Table if in_place => redrawn(&table(&all)),
            Output::Table => table(&all) + "\n",
            Output::Lines => active.map(|runs| xdp_screen::line(runs) + "\n").collect(),
            Output::Json => {
                active.map(|runs| json_line("xdp", runs)).collect::<Result<String>>()?
            }
            Output::Quiet => String::new(),
        };
        self.put(&text)
    }

    /// Works like `put()` of a trace of functions.
    fn put(&mut self, text: &str) -> Result<()> {
        self.is_cut_off |= !put_until(text, &self.signals, self.until)?;
        Ok(())
    }
}
