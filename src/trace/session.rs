//! One trace from start to end: attach, show the counts, stop.

use std::collections::HashSet;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signalfd::SignalFd;
use serde::Serialize;
use serde_json::json;

use super::attach::{How, Settings, Tracer};
use super::counts::{Count, Lost};
use super::events::Events;
use super::feed::{Feed, Feeds};
use super::functions::Target;
use super::messages::Messages;
use super::pace::Pace;
use super::rows::{CpuTotal, Reporter, Row, by_cpu};
use super::screen;
use super::sections::{Interval, Section, Sections, json_line};
use super::udp::{self, Socket, Sockets};
use super::verdicts;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::output::{put_until, redrawn, wrapped};
use crate::base::signals::{self, catch_signals};
use crate::base::time;
use crate::gtp::Function;
use crate::kernel::kallsyms::{self, KALLSYMS};
use crate::kernel::modules::{self, Life};
use crate::kernel::procfs;
use crate::policy::cgroups::Home;

/// The options of a trace.
pub struct Options {
    pub target: Target,
    /// Trace every known function, not only those that each packet passes.
    pub stages: bool,
    /// Wait for the module if it is not loaded.
    pub wait: bool,
    pub settings: Settings,
    /// Show only these CPUs.
    pub cpus: Option<CpuList>,
    pub interval: Duration,
    pub duration: Option<Duration>,
    /// End after one interval.
    pub once: bool,
    /// Report for each function how it is traced.
    pub verbose: bool,
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table, redrawn in place on a terminal.
    Table,
    /// A line for each task, CPU and function with packets in an interval.
    Lines,
    /// The same as JSON objects.
    Json,
    /// Nothing.
    Quiet,
}

impl Output {
    /// Whether to redraw one table in place: this needs a terminal, and more than one table to show.
    pub fn is_in_place(self, once: bool) -> bool {
        self == Self::Table && !once && stdout().is_terminal()
    }
}

/// How often to check whether the module has been loaded or unloaded.
const MODULE_CHECK: Duration = Duration::from_millis(200);
/// How often to check for events that are too few to cause a wake-up.
const EVENTS_CHECK: Duration = Duration::from_millis(50);
/// How long to show a task after it has ended.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// Everything that a quiet trace has seen, with rates over its whole time. Empty for other
/// traces, which have already shown what they saw.
#[derive(Default)]
pub struct TraceTotals {
    pub rows: Vec<Row>,
    pub feeds: Vec<Feed>,
    pub time: Duration,
}

/// Traces until SIGINT or SIGTERM, or for the requested time.
pub fn run(options: &Options) -> Result<TraceTotals> {
    let signals = catch_signals()?;
    let mut functions: Vec<Function> = options.target.selected(options.stages).cloned().collect();
    let counted = functions.len();
    let module = options.target.module;
    if options.settings.extras.judges_packets() {
        let more = verdicts::functions(module);
        let more: Vec<Function> =
            more.filter(|new| !functions.iter().any(|old| old.symbol == new.symbol)).collect();
        functions.extend(more);
    }
    let tracer = Tracer::load(options.settings, module)?;
    let sections = Sections::new(options.settings.extras, module, &tracer)?;
    let events = options.settings.events.then(|| Events::new(&tracer)).transpose()?;
    let life = options.target.life();
    let mut session = Session {
        options,
        functions: &functions,
        counted,
        tracer,
        sections,
        events,
        signals,
        life,
        hows: Vec::new(),
        reported: Lost::default(),
        until: None,
        is_cut_off: false,
        sockets: options.settings.port.map(|port| Sockets::new(Path::new("/proc"), port)),
        messages: Messages::new(options.is_in_place()),
    };
    match session.begin()? {
        Some(start) => session.trace(start),
        None => Ok(TraceTotals::default()),
    }
}

/// The state when the trace began.
struct Start {
    at: Instant,
    /// What was counted while the trace was attaching.
    counts: Vec<Count>,
}

struct Session<'a> {
    options: &'a Options,
    functions: &'a [Function],
    /// How many of the functions count packets; the others tell which packets they refuse.
    counted: usize,
    tracer: Tracer,
    sections: Sections,
    events: Option<Events>,
    signals: SignalFd,
    /// The traced module's life.
    life: Option<Life>,
    hows: Vec<How>,
    /// The losses reported so far.
    reported: Lost,
    /// When the trace ends, if that is known.
    until: Option<Instant>,
    /// The trace has to end: not all of its output was read in time.
    is_cut_off: bool,
    /// The sockets with the traced port.
    sockets: Option<Sockets>,
    messages: Messages,
}

impl Session<'_> {
    /// Attaches, or waits for the module; `None` if told to stop meanwhile.
    fn begin(&mut self) -> Result<Option<Start>> {
        if !self.attach()? && !self.wait_for_module()? {
            return Ok(None);
        }
        self.tell_sections(Sections::begin)?;
        let start = Start { counts: self.tracer.counts()?, at: Instant::now() };
        self.tell_attached()?;
        Ok(Some(start))
    }

    /// Waits until the module is loaded, if waiting is allowed, and attaches. Returns false if told
    /// to stop meanwhile.
    fn wait_for_module(&mut self) -> Result<bool> {
        let Some(module) = self.options.target.module.filter(|_| self.life.is_none()) else {
            return Err(self.nothing_to_trace());
        };
        if !self.options.wait {
            let what = format!("the kernel module {module} is not loaded");
            let help = format!("load it (modprobe {module}), or wait for it with --wait");
            return Err(Error::failure(what).help(help));
        }
        self.messages.info(format_args!("waiting for the kernel module {module}"));
        while self.life.is_none() {
            if self.sleep(MODULE_CHECK)? {
                return Ok(false);
            }
            self.life = self.options.target.life();
        }
        match self.attach_to_loaded(module)? {
            true => Ok(true),
            false => Err(self.nothing_to_trace()),
        }
    }

    /// Attaches to all functions that exist. Returns whether there is at least one.
    fn attach(&mut self) -> Result<bool> {
        self.hows = self.tracer.attach(&self.options.target, self.functions, self.counted)?;
        Ok(self.hows.iter().any(How::is_traced))
    }

    /// Attaches to a module that was just loaded. Returns whether to any of its functions.
    fn attach_to_loaded(&mut self, module: &str) -> Result<bool> {
        self.messages.info(format_args!("the kernel module {module} was loaded"));
        self.tell_sections(Sections::forget_places)?;
        self.attach()
    }

    /// Calls `tell` with the sections and the counts so far, which are not shown then.
    fn tell_sections(
        &mut self,
        tell: impl FnOnce(&mut Sections, &Interval<'_>) -> Result<()>,
    ) -> Result<()> {
        let so_far = Interval {
            tracer: &self.tracer,
            functions: self.functions,
            rows: &[],
            seconds: 1.0,
            is_wanted: &|cpu| is_wanted(self.options, cpu as u32),
        };
        tell(&mut self.sections, &so_far)
    }

    fn nothing_to_trace(&self) -> Error {
        let why = screen::attached(self.functions, &self.hows, self.options.target.module, true);
        let what = format!("nothing to trace: {}", why.join("; "));
        Error::new(ExitCode::KernelUnsupported, what)
    }

    /// Reports how the functions are traced, or why they are not.
    fn tell_attached(&mut self) -> Result<()> {
        let module = self.options.target.module;
        let is_json = self.options.output == Output::Json;
        let lines =
            screen::attached(self.functions, &self.hows, module, self.options.verbose || is_json);
        if is_json {
            let traced: Vec<bool> = self.hows.iter().map(How::is_traced).collect();
            for ((function, traced), line) in self.functions.iter().zip(traced).zip(lines) {
                let function = &function.symbol;
                let object = json!({"function": function, "traced": traced, "how": line});
                self.put_json("function", &object)?;
            }
        } else if self.hows.iter().any(How::is_traced) {
            lines.iter().for_each(|line| self.messages.info(line));
        } else {
            lines.iter().for_each(|line| self.messages.note(line));
        }
        if let (Some(module), Some(_), true) = (module, self.life, self.hows.contains(&How::Fentry))
        {
            self.messages.note(format_args!(
                "fentry keeps {module} from being unloaded meanwhile; --kprobe does not"
            ));
        }
        Ok(())
    }

    /// Detaches from a module that was unloaded, or attaches to one that was loaded.
    fn follow_module(&mut self) -> Result<()> {
        let life = self.options.target.life();
        if life == self.life {
            return Ok(());
        }
        self.life = life;
        let module = self.options.target.module.unwrap_or_default();
        if life.is_some() {
            self.attach_to_loaded(module)?;
            return self.tell_attached();
        }
        self.messages.info(format_args!("the kernel module {module} was unloaded; waiting for it"));
        self.tracer.detach();
        Ok(())
    }

    fn trace(&mut self, start: Start) -> Result<TraceTotals> {
        let is_quiet = self.options.output == Output::Quiet;
        self.say_what_is_missing()?;
        // In another PID namespace, /proc has the threads under other ids, or does not have them.
        let are_shown = procfs::is_of_first_namespace(Path::new("/proc"));
        let home = if are_shown { home_of } else { |_| Home::default() };
        let mut reporter = Reporter::new(self.functions, home, start.counts);
        let mut feeds = Feeds::new(Path::new("/proc"), Path::new("/sys"))?;
        let Options { interval, duration, once, .. } = *self.options;
        let mut pace = Pace::new(start.at, interval, duration, once);
        self.until = duration.map(|all| start.at + all);
        if self.options.is_in_place() {
            self.messages.begin_to_draw();
            self.put("\x1b[2J")?;
        }
        loop {
            let most = if self.events.is_some() { EVENTS_CHECK } else { MODULE_CHECK };
            let stop = self.sleep(pace.left(most))? || self.is_cut_off;
            self.follow_module()?;
            self.show_events()?;
            if !stop && !pace.is_due() {
                continue;
            }
            let since = pace.show();
            let is_end = stop || pace.is_over();
            let counts = self.tracer.counts()?;
            reporter.meet(&counts);
            let clock = Duration::from_nanos(time::monotonic()?);
            let is_gone = |tid: u32| are_shown && !Path::new(&format!("/proc/{tid}")).exists();
            let ended = ended_tasks(self.options.output, &counts, clock, is_gone);
            if !ended.is_empty() {
                self.tracer.forget(&ended);
            }
            let rows = |reporter: &mut Reporter<'_>, time| {
                let mut rows = reporter.rows(counts, clock, time);
                rows.retain(|row| is_wanted(self.options, row.cpu as u32));
                rows
            };
            if is_quiet && is_end {
                let time = pace.elapsed();
                let rows = rows(&mut reporter, time);
                self.tell_lost()?;
                return Ok(TraceTotals { rows, feeds: feeds.look()?, time });
            }
            if !is_quiet && self.events.is_none() {
                let rows = rows(&mut reporter, since);
                self.show_interval(&rows, since, &mut feeds)?;
            }
            self.tell_lost()?;
            if is_end {
                return Ok(TraceTotals::default());
            }
        }
    }

    /// Reports whether names of functions, or sockets with the traced port, are missing.
    fn say_what_is_missing(&mut self) -> Result<()> {
        if kallsyms::are_hidden(Path::new(KALLSYMS)) {
            self.messages.note(kallsyms::HIDDEN);
        }
        if let Some(sockets) = &mut self.sockets {
            if sockets.look()?.is_empty() {
                self.messages.info(sockets.none());
            }
            sockets.missing().into_iter().for_each(|missing| self.messages.note(missing));
        }
        Ok(())
    }

    fn show_interval(&mut self, rows: &[Row], took: Duration, feeds: &mut Feeds) -> Result<()> {
        let sections = self.sections.take(&Interval {
            tracer: &self.tracer,
            functions: self.functions,
            rows,
            seconds: took.as_secs_f64(),
            is_wanted: &|cpu| is_wanted(self.options, cpu as u32),
        })?;
        self.show(rows, &sections, feeds)
    }

    /// Writes to standard output. The trace ends in time even if the reader stops reading.
    fn put(&mut self, text: &str) -> Result<()> {
        self.is_cut_off |= !put_until(text, &self.signals, self.until)?;
        Ok(())
    }

    fn put_json(&mut self, kind: &str, value: &impl Serialize) -> Result<()> {
        self.put(&json_line(kind, value)?)
    }

    fn show_events(&mut self) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        let events = events.take(self.functions)?;
        let mut text = String::new();
        for event in events.iter().filter(|event| is_wanted(self.options, event.cpu)) {
            match self.options.output {
                Output::Json => text += &json_line("event", event)?,
                _ => text += &(screen::event_line(event) + "\n"),
            }
        }
        self.put(&text)
    }

    fn show(&mut self, rows: &[Row], sections: &[Section], feeds: &mut Feeds<'_>) -> Result<()> {
        // Lines have no room for the CPUs.
        let cpus = match self.options.output {
            Output::Table | Output::Json => by_cpu(rows, &feeds.look()?),
            Output::Lines | Output::Quiet => Vec::new(),
        };
        let sockets = self.sockets.as_mut().map(Sockets::look).transpose()?.unwrap_or_default();
        let active = rows.iter().filter(|row| row.is_active());
        let mut text = String::new();
        match self.options.output {
            Output::Table => text = self.table(rows, &cpus, &sockets, sections),
            Output::Lines => {
                active.for_each(|row| text += &(screen::line(row) + "\n"));
                let dropping = sockets.iter().filter(|socket| socket.new_drops > 0);
                dropping.for_each(|socket| text += &(udp::line(socket) + "\n"));
                let lines = sections.iter().flat_map(|section| &section.lines);
                lines.for_each(|line| text += &(line.clone() + "\n"));
            }
            Output::Json => {
                for row in active {
                    text += &json_line("count", row)?;
                }
                for cpu in cpus.iter().filter(|cpu| cpu.packets_per_second > 0.0) {
                    text += &json_line("cpu", cpu)?;
                }
                for socket in &sockets {
                    text += &json_line("socket", socket)?;
                }
                sections.iter().flat_map(|section| &section.json).for_each(|line| text += line);
            }
            Output::Quiet => {}
        }
        self.put(&text)
    }

    /// All tables, in the terminal's size if they are redrawn in place.
    fn table(
        &self,
        rows: &[Row],
        cpus: &[CpuTotal],
        sockets: &[Socket],
        sections: &[Section],
    ) -> String {
        let none = self.sockets.as_ref().filter(|_| sockets.is_empty()).map(Sockets::none);
        let notes = sockets.iter().map(udp::line).chain(none).chain(self.untraced());
        let notes = notes.chain(self.messages.last());
        let notes = notes.flat_map(|note| wrapped(&note)).collect();
        let in_place = self.options.is_in_place();
        let size = screen::size(in_place);
        let below = screen::below(sections, size);
        let (width, height) = size;
        let size = (width, height.saturating_sub(below.len()));
        let mut screen = screen::screen(rows, cpus, notes, size);
        below.iter().for_each(|line| screen += &format!("\n{line}"));
        if in_place { redrawn(&screen) } else { screen + "\n" }
    }

    /// The functions that are not traced, as a line.
    fn untraced(&self) -> Option<String> {
        let counted = self.functions.iter().zip(&self.hows).take(self.counted);
        let untraced: Vec<&str> = counted
            .filter(|(_, how)| !how.is_traced())
            .map(|(function, _)| function.symbol.as_str())
            .collect();
        (!untraced.is_empty()).then(|| format!("not traced: {}", untraced.join(", ")))
    }

    /// Reports losses since the last report.
    fn tell_lost(&mut self) -> Result<()> {
        let lost = self.tracer.lost()?;
        let news = [
            (
                lost.counts - self.reported.counts,
                "packets were not counted: no room for more tasks",
            ),
            (
                lost.events - self.reported.events,
                "packets were not shown: they came faster than gthctl read them",
            ),
            (
                lost.drops - self.reported.drops,
                "drops were not counted: no room for more reasons and places",
            ),
        ];
        for (n, what) in news.iter().filter(|(n, _)| *n > 0) {
            match self.options.output {
                Output::Json => self.put_json("lost", &json!({"packets": n, "why": what}))?,
                _ => self.messages.info(format_args!("{n} {what}")),
            }
        }
        self.reported = lost;
        Ok(())
    }

    /// Waits at most that long, or for events; true if a signal came.
    fn sleep(&self, timeout: Duration) -> Result<bool> {
        signals::sleep(&self.signals, self.events.as_ref().map(Events::fd), timeout)
    }
}

impl Options {
    fn is_in_place(&self) -> bool {
        !self.settings.events && self.output.is_in_place(self.once)
    }
}

impl Target {
    fn life(&self) -> Option<Life> {
        modules::life(Path::new(modules::MODULES), self.module?)
    }
}

/// Whether to show this CPU.
fn is_wanted(options: &Options, cpu: u32) -> bool {
    options.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
}

/// The threads to forget at `now`: all their packets were more than [`FORGET_AFTER`] ago, and they
/// have ended, according to `is_gone`. A quiet trace forgets none: it reports all when it ends.
fn ended_tasks(
    output: Output,
    counts: &[Count],
    now: Duration,
    is_gone: impl Fn(u32) -> bool,
) -> HashSet<u32> {
    if output == Output::Quiet {
        return HashSet::new();
    }
    let is_old = |count: &&Count| now.saturating_sub(count.last) > FORGET_AFTER;
    let (old, recent): (Vec<&Count>, Vec<&Count>) = counts.iter().partition(is_old);
    let tids = |counts: Vec<&Count>| -> HashSet<u32> {
        counts.into_iter().map(|count| count.key.tid).collect()
    };
    let mut idle = &tids(old) - &tids(recent);
    // The softirqs on idle CPUs belong to no task.
    idle.retain(|&tid| tid != 0 && is_gone(tid));
    idle
}

fn home_of(tid: u32) -> Home {
    let cgroup = procfs::cgroup(Path::new("/proc"), tid);
    cgroup.map(|path| Home::of(&path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_forgotten_once_it_has_ended_and_all_its_packets_are_old() {
        let count = |tid, cpu, seconds| {
            let mut count = Count::of_packets(tid, 1);
            count.key.cpu = cpu;
            count.last = Duration::from_secs(seconds);
            count
        };
        let counts = [
            // Both counts of thread 7 are old; one of thread 8's is not.
            count(7, 0, 1),
            count(7, 1, 2),
            count(8, 0, 1),
            count(8, 1, 60),
            // Thread 9 still runs.
            count(9, 0, 1),
            count(0, 0, 1),
        ];
        let now = Duration::from_secs(61);
        let forgotten = |output| ended_tasks(output, &counts, now, |tid| tid != 9);
        assert_eq!(forgotten(Output::Table), HashSet::from([7]));
        assert!(forgotten(Output::Quiet).is_empty());
    }
}
