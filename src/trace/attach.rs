//! Attaching to the kernel's functions: fentry and fexit with BTF, kprobe and kretprobe
//! without.

use std::ffi::{CStr, OsStr};
use std::io;
use std::iter;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{
    AsRawLibbpf, KprobeOpts, Link, MapCore, MapHandle, Object, ObjectBuilder, OpenObject,
    ProgramInput, ProgramMut,
};

use super::functions::Target;
use super::udp;
use super::verdicts::verdict;
use crate::base::error::{Error, ExitCode, Result};
use crate::gtp::{Direction, Function, GTPU_PORT, Stage};
use crate::kernel::btf::{BtfFunction, KernelBtf};
use crate::kernel::kallsyms::{KALLSYMS, Symbol, Symbols, place};
use crate::kernel::kprobes;
use crate::kernel::libbpf_log;
use crate::kernel::skeletons::tracer::OBJECT;
use crate::kernel::skeletons::tracer::types::{
    gth_packet_refusal as Refusal, gth_packet_what, gth_trace_cookie, gth_trace_limit,
    gth_trace_what,
};

/// How a function is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// fentry and fexit, by the function's BTF.
    Fentry,
    /// fexit only: what a socket has handed over is known only at the end.
    Fexit,
    /// kprobe and kretprobe on this symbol.
    Kprobe(String),
    /// Not at all: there is no such function.
    Missing,
    /// Not at all: the kernel refused for this reason.
    Refused(String),
}

impl How {
    pub fn is_traced(&self) -> bool {
        matches!(self, Self::Fentry | Self::Fexit | Self::Kprobe(_))
    }
}

/// What to count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Only this process or thread, by its id in the first PID namespace.
    pub pid: Option<u32>,
    /// Also send single packets to user space.
    pub events: bool,
    /// Use kprobes even if there is BTF: fentry keeps a module from being unloaded.
    pub kprobes: bool,
    /// The functions are those of sockets with this local UDP port.
    pub port: Option<u16>,
    pub extras: Extras,
}

/// What to show besides the tasks that handle packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Packets that are dropped, by reason.
    pub drops: bool,
    /// The time from a packet's arrival to the end of the data plane.
    pub latency: bool,
    /// The time in each function, as plots.
    pub histogram: bool,
    /// Packets by tunnel.
    pub teids: bool,
}

impl Extras {
    /// Whether to find out what becomes of packets.
    pub fn judges_packets(self) -> bool {
        self.drops || self.teids
    }
}

/// The BPF program and its attachments.
pub struct Tracer {
    settings: Settings,
    attached: Vec<Attached>,
    pub(super) counts: MapHandle,
    pub(super) events: MapHandle,
    pub(super) lost: MapHandle,
    pub(super) drops: MapHandle,
    pub(super) latencies: MapHandle,
    pub(super) wall_clock: MapHandle,
    pub(super) teids: MapHandle,
    /// Attached besides the functions: where the kernel receives and frees packets.
    #[allow(dead_code)]
    tracepoints: Vec<Link>,
    object: Object,
}

/// A function's attachment; dropping it ends the tracing.
enum Attached {
    #[allow(dead_code)]
    Fentry { links: Vec<OwnedFd> },
    #[allow(dead_code)]
    Fexit { link: OwnedFd },
    #[allow(dead_code)]
    Kprobe { links: Vec<Link> },
}

/// A function's part in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Its packets and its time are counted.
    Counted,
    /// It only tells whether it refuses a packet.
    Verdict,
}

const FENTRY: [&str; 2] = ["function_begins", "function_ends"];
/// Run once, before anything is attached.
const LOOK_UP: &str = "look_up_kernel";
const KPROBE: [&str; 2] = ["probed_function_begins", "probed_function_ends"];
/// Attached to the functions of sockets.
const FEXIT: [&str; 2] = ["datagram_received", "datagram_sent"];
/// The programs for [`Extras`].
const DROPS: [&str; 2] = ["skb_is_dropped", "skb_is_consumed"];
const LATENCY: [&str; 1] = ["skb_arrives"];
const TEIDS: [&str; 2] = ["tunnel_sends", "tunnel6_sends"];

/// The error when libbpf or the kernel does not take the program.
fn failed(e: &libbpf_rs::Error) -> Error {
    libbpf_log::refused("trace program", e)
}

/// Opens the program with its settings, and selects the parts of it to load.
fn open(settings: Settings, module: Option<&str>) -> Result<OpenObject> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|e| failed(&e))?;
    let what = gth_trace_what {
        tgid: settings.pid.unwrap_or(0),
        events: settings.events.into(),
        port: settings.port.unwrap_or(0).into(),
    };
    let packet_what = packet_what(settings, module);
    for mut map in open.maps_mut() {
        let value = match map.name().to_str() {
            Some(".rodata.what") => bytes_of(&what),
            Some(".rodata.packet_what") => bytes_of(&packet_what),
            _ => continue,
        };
        map.set_initial_value(value).map_err(|e| failed(&e))?;
    }
    // This map would take memory even if there is no tunnel in it.
    for mut map in open.maps_mut().filter(|map| map.name() == "teids") {
        let unused = !settings.extras.teids;
        unused.then(|| map.set_max_entries(1)).transpose().map_err(|e| failed(&e))?;
    }
    // Relocates all programs. Those attached by BTF are loaded once per function. SAFETY:
    // the object is open and not loaded.
    let prepared = unsafe { sys::bpf_object__prepare(open.as_libbpf_object().as_ptr()) };
    if prepared < 0 {
        return Err(failed(&libbpf_rs::Error::from_raw_os_error(-prepared)));
    }
    for mut program in open.progs_mut() {
        let is_by_btf = FENTRY.iter().chain(&FEXIT).any(|name| program.name() == *name);
        let is_wanted = wants_extra(program.name(), settings.extras).unwrap_or(true);
        program.set_autoload(is_wanted && !is_by_btf);
    }
    Ok(open)
}

/// Loads the program, and lets it look up what it needs from the kernel.
fn loaded(open: OpenObject) -> Result<Object> {
    let object = open.load().map_err(|e| failed(&e))?;
    for program in object.progs_mut().filter(|program| program.name() == LOOK_UP) {
        program.test_run(ProgramInput::default()).map_err(|e| failed(&e))?;
    }
    Ok(object)
}

impl Tracer {
    /// Loads the program for the functions of `module`, if given; none is attached yet.
    pub fn load(settings: Settings, module: Option<&str>) -> Result<Self> {
        libbpf_log::capture(false);
        if !kprobes::are_there(Path::new("/sys")) {
            let what = "this kernel cannot trace its functions";
            let help = "tracing needs CONFIG_BPF_EVENTS=y and CONFIG_KPROBE_EVENTS=y";
            return Err(Error::new(ExitCode::KernelUnsupported, what).help(help));
        }
        let object = open(settings, module).and_then(loaded)?;
        let tracepoints = attach_tracepoints(&object, settings.extras).map_err(|e| failed(&e))?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).expect("the program has it");
            MapHandle::try_from(&map).map_err(|e| failed(&e))
        };
        Ok(Self {
            settings,
            attached: Vec::new(),
            counts: map("counts")?,
            events: map("events")?,
            lost: map(".bss.lost")?,
            drops: map("drops")?,
            latencies: map("latencies")?,
            wall_clock: map(".bss.wall_clock")?,
            teids: map("teids")?,
            tracepoints,
            object,
        })
    }

    /// Attaches to those of these functions of `target` that exist, and detaches from all
    /// others. Returns for each function how it is traced. The numbers in the counts are indices
    /// into `functions`. The functions from `counted` on only tell which packets they refuse.
    ///
    /// The counts are kept.
    pub fn attach(
        &mut self,
        target: &Target,
        functions: &[Function],
        counted: usize,
    ) -> Result<Vec<How>> {
        self.detach();
        let names = functions.iter().map(|function| function.symbol.as_str());
        let symbols = Symbols::read(Path::new(KALLSYMS), names)?;
        let mut btf = if self.settings.kprobes { None } else { KernelBtf::load() };
        let most = gth_trace_limit::GTH_TRACE_FUNCTIONS.0 as usize;
        let how = |(index, function): (usize, &Function)| match symbols
            .of(&function.symbol, target.module)
        {
            None => How::Missing,
            Some(_) if index >= most => How::Refused(format!("at most {most} functions")),
            Some(symbol) => {
                let part = if index < counted { Part::Counted } else { Part::Verdict };
                let cookie = cookie(index, function, target.module);
                self.attach_one(part, cookie, function, symbol, btf.as_mut())
            }
        };
        let hows: Vec<How> = functions.iter().enumerate().map(how).collect();
        if self.settings.extras.teids && hows.iter().any(How::is_traced) {
            self.attach_tunnels()?;
        }
        Ok(hows)
    }

    /// Attaches where packets get their outer UDP header: in a module that the data plane's module
    /// needs.
    fn attach_tunnels(&mut self) -> Result<()> {
        let [ipv4, ipv6] = TEIDS.map(|name| self.program(name).attach());
        let failed = |e| Error::failure(format!("tracing udp_tunnel_xmit_skb: {e}"));
        // A kernel may lack tunnels over IPv6.
        let links = iter::once(ipv4.map_err(failed)?).chain(ipv6.ok()).collect();
        self.attached.push(Attached::Kprobe { links });
        Ok(())
    }

    /// Detaches from everything.
    pub fn detach(&mut self) {
        self.attached.clear();
    }

    fn attach_one(
        &mut self,
        part: Part,
        cookie: u64,
        function: &Function,
        symbol: &Symbol,
        btf: Option<&mut KernelBtf>,
    ) -> How {
        let is_whole = symbol.name == function.symbol;
        let btf = btf.filter(|_| is_whole);
        let known = btf.and_then(|btf| btf.function(&symbol.name, symbol.module.as_deref()));
        if self.settings.port.is_some() {
            return self.attach_socket(cookie, function, known);
        }
        if let Some(known) = known
            && let Ok(links) = self.attach_fentry(part, known, cookie | argument_bits(known.packet))
        {
            self.attached.push(Attached::Fentry { links });
            return How::Fentry;
        }
        // The arguments of a compiler-made variant are unknown.
        let packet = known.map_or(function.packet, |known| known.packet).filter(|_| is_whole);
        match self.attach_kprobe(part, symbol, cookie | argument_bits(packet)) {
            Ok(links) => {
                self.attached.push(Attached::Kprobe { links });
                How::Kprobe(symbol.name.clone())
            }
            Err(e) => How::Refused(e.to_string()),
        }
    }

    fn attach_socket(
        &mut self,
        cookie: u64,
        function: &Function,
        known: Option<BtfFunction>,
    ) -> How {
        let Some(known) = known else { return How::Refused("it has no BTF".into()) };
        let program = self.program(FEXIT[usize::from(function.direction == Direction::Sent)]);
        let kind = sys::BPF_TRACE_FEXIT;
        let cookie = cookie | argument_bits(Some(udp::family(function)));
        match load_for(&program, kind, known).and_then(|program| link(&program, kind, cookie)) {
            Ok(link) => {
                self.attached.push(Attached::Fexit { link });
                How::Fexit
            }
            Err(e) => How::Refused(e.to_string()),
        }
    }

    fn attach_fentry(
        &self,
        part: Part,
        function: BtfFunction,
        cookie: u64,
    ) -> io::Result<Vec<OwnedFd>> {
        let kinds = [sys::BPF_TRACE_FENTRY, sys::BPF_TRACE_FEXIT];
        let attach = |i: usize| {
            let program = self.program(FENTRY[i]);
            let program = load_for(&program, kinds[i], function)?;
            link(&program, kinds[i], cookie)
        };
        part.programs().iter().map(|&i| attach(i)).collect()
    }

    fn attach_kprobe(
        &self,
        part: Part,
        symbol: &Symbol,
        cookie: u64,
    ) -> libbpf_rs::Result<Vec<Link>> {
        let place = place(&symbol.name, symbol.module.as_deref());
        let attach = |i: usize| {
            let options = KprobeOpts { cookie, ..Default::default() };
            self.program(KPROBE[i]).attach_kprobe_with_opts(i == 1, &place, options)
        };
        part.programs().iter().map(|&i| attach(i)).collect()
    }

    fn program(&self, name: &str) -> ProgramMut<'_> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        program.expect("bpf/trace.bpf.c has it")
    }
}

impl Part {
    /// The programs of a pair to attach, in this order: the one for the end first, so that no call
    /// has only a beginning.
    fn programs(self) -> &'static [usize] {
        match self {
            Part::Counted => &[1, 0],
            Part::Verdict => &[1],
        }
    }
}

/// The cookie in the BPF program's form (enum gth_trace_cookie), without the packet's argument.
fn cookie(index: usize, function: &Function, module: Option<&str>) -> u64 {
    let verdict = verdict(module, &function.symbol);
    let refusal = verdict.map_or(Refusal::GTH_REFUSES_NEVER, |verdict| verdict.refuses);
    let is_entry = function.stage == Stage::Entry;
    // The callback of a UDP socket.
    let has_gtpu = is_entry && module.is_some() && function.direction == Direction::Uplink;
    index as u64
        | u64::from(refusal.0) << gth_trace_cookie::GTH_TRACE_REFUSAL_SHIFT.0
        | u64::from(is_entry) << gth_trace_cookie::GTH_TRACE_ENTRY_SHIFT.0
        | u64::from(has_gtpu) << gth_trace_cookie::GTH_TRACE_GTPU_SHIFT.0
}

fn argument_bits(argument: Option<u8>) -> u64 {
    let argument = argument.map_or(gth_trace_limit::GTH_TRACE_NO_ARG.0, u32::from);
    u64::from(argument) << gth_trace_cookie::GTH_TRACE_ARG_SHIFT.0
}

/// What to look for besides the functions. The devices of a module have its name as their kind.
fn packet_what(settings: Settings, module: Option<&str>) -> gth_packet_what {
    let Settings { port, extras, .. } = settings;
    let mut what = gth_packet_what {
        drops: extras.drops.into(),
        latency: extras.latency.into(),
        teids: extras.teids.into(),
        port: port.or(module.map(|_| GTPU_PORT)).unwrap_or(0),
        ..Default::default()
    };
    if let Some(module) = module {
        let last = what.kind.len() - 1;
        what.kind[..last].iter_mut().zip(module.bytes()).for_each(|(to, byte)| *to = byte as _);
    }
    what
}

/// Whether `extras` want the program `name`; `None` if it is for none of them.
fn wants_extra(name: &OsStr, extras: Extras) -> Option<bool> {
    let is_one = |names: &[&str]| names.iter().any(|known| name == *known);
    match () {
        () if is_one(&DROPS) => Some(extras.judges_packets()),
        () if is_one(&LATENCY) => Some(extras.latency),
        () if is_one(&TEIDS) => Some(extras.teids),
        () => None,
    }
}

/// Attaches the programs for extras to the kernel's tracepoints.
fn attach_tracepoints(object: &Object, extras: Extras) -> libbpf_rs::Result<Vec<Link>> {
    let is_wanted = |program: &ProgramMut<'_>| {
        let is_probe = TEIDS.iter().any(|name| program.name() == *name);
        wants_extra(program.name(), extras) == Some(true) && !is_probe
    };
    object.progs_mut().filter(is_wanted).map(|program| program.attach()).collect()
}

/// Loads a program for one function: such a program has to be loaded for each function separately
/// (bpf(2), attach_btf_id).
fn load_for(
    program: &ProgramMut<'_>,
    kind: sys::bpf_attach_type,
    function: BtfFunction,
) -> io::Result<OwnedFd> {
    const NAME: &CStr = c"gth_trace";
    const LICENSE: &CStr = c"GPL";
    let instructions = program.insns();
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: kind,
        attach_btf_id: function.id,
        attach_btf_obj_fd: function.object as u32,
        ..Default::default()
    };
    // SAFETY: the instructions are a slice and the options are complete.
    let fd = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_TRACING,
            NAME.as_ptr(),
            LICENSE.as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            &raw mut options,
        )
    };
    owned(fd)
}

fn link(program: &OwnedFd, kind: sys::bpf_attach_type, cookie: u64) -> io::Result<OwnedFd> {
    let mut options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    options.__bindgen_anon_1.tracing.cookie = cookie;
    // SAFETY: a valid program descriptor and complete options.
    owned(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, kind, &raw const options) })
}

/// libbpf's result: a descriptor, or a negative error number.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    match fd {
        ..0 => Err(io::Error::from_raw_os_error(-fd)),
        // SAFETY: libbpf has just made it; it is ours.
        _ => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: a shared struct, all integers without padding.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}
