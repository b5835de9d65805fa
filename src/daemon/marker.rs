//! Keeps bpf/mark.bpf.c attached to the functions that the live policy asks about, while
//! their modules come and go. marker_udp.rs handles the ports that it asks about.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::{KprobeOpts, Link, MapCore, Object, ObjectBuilder, OpenObject};

use super::marker_udp::UdpMarker;
use super::reports::GtpTraffic;
use crate::base::error::Result;
use crate::base::log;
use crate::base::root::Root;
use crate::gtp::{Module, Plane};
use crate::kernel::kallsyms::{self, KALLSYMS, Symbols, place};
use crate::kernel::kprobes;
use crate::kernel::modules::{self, Life, MODULES};
use crate::kernel::skeletons::MARK_OBJECT;
use crate::kernel::uevents::Uevents;
use crate::sched::Scheduler;
use crate::sched::passed::{self, Way};
use crate::sched::traffic::Traced;

/// The map in which bpf/mark.bpf.c and bpf/mark_udp.bpf.c count what has passed.
pub(super) const PASSED: &str = "passed";
const BEGINS: &str = "function_begins";
const ENDS: &str = "function_ends";

/// How often to check whether a module has come or gone, where the kernel sends no event.
const LOOK: Duration = Duration::from_millis(200);
/// How often to end expired marks, if there are marks.
const SWEEP: Duration = Duration::from_secs(1);

/// Does nothing while the policy has no traffic condition.
#[derive(Default)]
pub struct Marker {
    measures_time: bool,
    wanted: BTreeMap<Traced, u32>,
    /// Loaded when there is a first function to attach to.
    object: Option<std::result::Result<Object, Unattached>>,
    functions: BTreeMap<Traced, Tried>,
    /// Whether modules that were looked up are built into the kernel.
    built_in: BTreeMap<Module, bool>,
    notes: Vec<String>,
    udp: UdpMarker,
    /// `None` where they are not available.
    uevents: Option<Uevents>,
    looked: Option<Instant>,
    swept: Option<Instant>,
}

/// Where a module was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Missing,
    Loaded(Life),
    /// Built into the kernel.
    BuiltIn,
}

/// The result of attaching to a function of a loaded module.
struct Tried {
    number: u32,
    module: Found,
    links: std::result::Result<Vec<Link>, Unattached>,
}

/// Why a function's packets are not seen.
#[derive(Clone, Debug)]
enum Unattached {
    NotLoaded(Rc<libbpf_rs::Error>),
    Missing,
    Refused(Rc<libbpf_rs::Error>),
    NoKprobes,
}

impl fmt::Display for Unattached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(e) => write!(f, "the BPF program: {e}"),
            Self::Missing => f.write_str("no such function in this version of the module"),
            Self::Refused(e) => write!(f, "cannot be attached to: {e}"),
            Self::NoKprobes => f.write_str("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"),
        }
    }
}

impl Marker {
    /// With `measures_time`, a second probe at each function measures how long packets take.
    pub fn new(measures_time: bool) -> Self {
        Self { measures_time, ..Self::default() }
    }

    /// Attaches and detaches as the policy and the modules require, and ends expired marks.
    /// Returns the time until it is due again, unless [`Marker::fd`] becomes readable
    /// earlier; `None`: not before the policy changes.
    pub fn follow(&mut self, scheduler: &mut Scheduler<'_>) -> Result<Option<Duration>> {
        if scheduler.traced().is_empty() && scheduler.ports().is_empty() {
            *self = Self::new(self.measures_time);
            return Ok(None);
        }
        self.udp.follow(scheduler);
        let look_in = self.follow_modules(scheduler);
        if left(self.swept, SWEEP).is_zero() {
            if scheduler.has_marked() {
                scheduler.marks(None)?;
            }
            self.swept = Some(Instant::now());
        }
        let sweep_in = left(self.swept, SWEEP);
        Ok(Some(look_in.map_or(sweep_in, |look_in| look_in.min(sweep_in))))
    }

    /// Returns the time until the next look at the modules, if no events report their changes.
    fn follow_modules(&mut self, scheduler: &Scheduler<'_>) -> Option<Duration> {
        let new = *scheduler.traced() != self.wanted;
        if new && self.uevents.is_none() {
            // Opened before the first check, so that every later change sends an event.
            self.uevents = Uevents::open().ok();
        }
        let due = match &self.uevents {
            Some(uevents) => uevents.take(),
            None => !self.wanted.is_empty() && left(self.looked, LOOK).is_zero(),
        };
        if new || due {
            self.wanted.clone_from(scheduler.traced());
            self.look(scheduler);
            self.looked = Some(Instant::now());
        }
        let polls = self.uevents.is_none() && !self.wanted.is_empty();
        polls.then(|| left(self.looked, LOOK))
    }

    /// Readable when a module may have come or gone.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.uevents.as_ref().map(Uevents::fd)
    }

    fn look(&mut self, scheduler: &Scheduler<'_>) {
        let mut modules: Vec<Module> = self.wanted.keys().map(|traced| traced.module).collect();
        modules.dedup();
        let mut notes = Vec::new();
        for module in modules {
            let found = self.find(module);
            self.functions.retain(|traced, tried| {
                let is_wanted = self.wanted.get(traced) == Some(&tried.number);
                traced.module != module || (is_wanted && tried.module == found)
            });
            match found {
                Found::Missing => notes.push(format!(
                    "the kernel module {0} is not loaded; rules with gtp: {0} match nothing until it is",
                    module.name()
                )),
                Found::Loaded(_) | Found::BuiltIn => self.attach(module, found, scheduler),
            }
        }
        // Drops the functions of modules that the policy no longer asks about.
        self.functions.retain(|traced, _| self.wanted.contains_key(traced));
        notes.extend(self.functions.iter().filter_map(|(traced, tried)| {
            let why = tried.links.as_ref().err()?;
            Some(format!("{}: {}: {why}", traced.module.name(), traced.symbol))
        }));
        let sees = self.functions.values().any(|tried| tried.links.is_ok());
        if sees && kallsyms::are_hidden(Path::new(KALLSYMS)) {
            notes.push(kallsyms::HIDDEN.into());
        }
        for note in notes.iter().filter(|note| !self.notes.contains(note)) {
            log::note(note);
        }
        self.notes = notes;
    }

    fn find(&mut self, module: Module) -> Found {
        if let Some(life) = modules::life(Path::new(MODULES), module.name()) {
            return Found::Loaded(life);
        }
        let built_in = self.built_in.entry(module);
        let built_in = built_in.or_insert_with(|| module.is_built_in(&Root::default()));
        if *built_in { Found::BuiltIn } else { Found::Missing }
    }

    /// Attaches to a module's wanted functions that have not been tried yet.
    fn attach(&mut self, module: Module, found: Found, scheduler: &Scheduler<'_>) {
        let mut now = Vec::new();
        for (traced, &number) in self.wanted.iter().filter(|(traced, _)| traced.module == module) {
            if self.functions.contains_key(traced) {
                continue;
            }
            let object = self.object.get_or_insert_with(|| load(scheduler, self.measures_time));
            let programs: &[&str] = match self.measures_time && Way::of(traced).is_some() {
                true => &[ENDS, BEGINS],
                false => &[BEGINS],
            };
            let mut links: std::result::Result<Vec<Link>, Unattached> = match object {
                Ok(object) => programs
                    .iter()
                    .map(|program| attach(object, program, traced, number, found))
                    .collect(),
                Err(why) => Err(why.clone()),
            };
            // The links are dropped in this order, so that no call is seen at its beginning only.
            links.iter_mut().for_each(|links| links.reverse());
            if links.is_ok() {
                now.push(traced.symbol.as_str());
            }
            self.functions.insert(traced.clone(), Tried { number, module: found, links });
        }
        if !now.is_empty() {
            log::info(format_args!("{}: packets are seen by {}", module.name(), now.join(", ")));
        }
    }

    /// What prevents seeing packets.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(self.udp.note())
    }

    /// The functions and ports where packets are seen.
    pub fn functions(&self) -> Vec<String> {
        let attached = self.functions.iter().filter(|(_, tried)| tried.links.is_ok());
        let attached =
            attached.map(|(traced, _)| format!("{}:{}", traced.module.name(), traced.symbol));
        attached.chain(self.udp.ports()).collect()
    }

    /// What has passed the data planes where packets are or were seen.
    pub fn passed(&self) -> Result<Vec<GtpTraffic>> {
        let mut all = self.udp.passed()?;
        let mut maps = self.object.iter().flatten().flat_map(Object::maps);
        let Some(map) = maps.find(|map| map.name() == PASSED) else { return Ok(all) };
        for traced in self.wanted.keys() {
            let Some(way) = Way::of(traced) else { continue };
            let passed = passed::read(&map, way.row)?;
            let tried = self.functions.get(traced);
            if passed.packets > 0 || tried.is_some_and(|tried| tried.links.is_ok()) {
                let plane = Plane::Module(traced.module);
                let time_ns = self.measures_time.then_some(passed.time_ns);
                all.push(GtpTraffic { time_ns, ..GtpTraffic::new(plane, way.direction, passed) });
            }
        }
        Ok(all)
    }
}

/// What is left of `time` after `since`.
fn left(since: Option<Instant>, time: Duration) -> Duration {
    since.map_or(Duration::ZERO, |since| time.saturating_sub(since.elapsed()))
}

/// Attaches a program to one function, or returns why that is not possible.
fn attach(
    object: &Object,
    name: &str,
    traced: &Traced,
    number: u32,
    found: Found,
) -> std::result::Result<Link, Unattached> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.expect("bpf/mark.bpf.c has it");
    let attach = |symbol: &str, module: Option<&str>| {
        let options = KprobeOpts { cookie: passed::cookie(traced, number), ..Default::default() };
        program.attach_kprobe_with_opts(name == ENDS, place(symbol, module), options)
    };
    let module = traced.module.name();
    let here = Some(module).filter(|_| found != Found::BuiltIn);
    attach(&traced.symbol, here).or_else(|e| {
        // The compiler may have given the function another name.
        match symbols([traced.symbol.as_str()].into_iter()).of(&traced.symbol, Some(module)) {
            None => Err(Unattached::Missing),
            Some(symbol) if symbol.name == traced.symbol && symbol.module.as_deref() == here => {
                Err(refused(e))
            }
            Some(symbol) => attach(&symbol.name, symbol.module.as_deref()).map_err(refused),
        }
    })
}

/// Where the kernel has these functions; empty if it does not say.
fn symbols<'a>(names: impl Iterator<Item = &'a str>) -> Symbols {
    Symbols::read(Path::new(KALLSYMS), names).unwrap_or_default()
}

fn load(scheduler: &Scheduler<'_>, measures_time: bool) -> std::result::Result<Object, Unattached> {
    let object = load_sharing(MARK_OBJECT, scheduler, |open| {
        for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.measures") {
            map.set_initial_value(&[measures_time.into()])?;
        }
        for mut program in open.progs_mut().filter(|program| program.name() == ENDS) {
            program.set_autoload(measures_time);
        }
        Ok(())
    });
    object.map_err(|e| Unattached::NotLoaded(Rc::new(e)))
}

/// Loads an object that shares the scheduler's maps, after `prepare`.
pub(super) fn load_sharing(
    object: &[u8],
    scheduler: &Scheduler<'_>,
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut map in open.maps_mut() {
        if let Some(shared) = scheduler.map(map.name()) {
            map.reuse_fd(shared)?;
        }
    }
    prepare(&mut open)?;
    open.load()
}

fn refused(e: libbpf_rs::Error) -> Unattached {
    let older = Path::new("/sys/kernel/tracing/kprobe_events");
    match kprobes::are_there(Path::new("/sys")) || older.exists() {
        true => Unattached::Refused(Rc::new(e)),
        false => Unattached::NoKprobes,
    }
}
