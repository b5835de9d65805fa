//! `gthctl irq`.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::advice::placement::{self, NicFacts};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::log;
use crate::base::output::{self, Format, count};
use crate::base::root::Root;
use crate::base::signals::{catch_signals, sleep};
use crate::cli::{
    AdviseArgs, DriftArgs, IrqArgs, IrqCommand, ListViewArgs, MaskChoice, PinArgs, RestoreArgs,
};
use crate::daemon::control::{Reply, Request, SOCKET, client};
use crate::gtp::Module;
use crate::irq::host::Host;
use crate::irq::inventory::device::Device;
use crate::irq::inventory::list::Lister;
use crate::irq::place::plan::Plan;
use crate::irq::place::saved::By;
use crate::irq::place::wanted::{Masks, OnIrqbalance, Placement};
use crate::irq::place::{drift, pin, restore};
use crate::irq::show;
use crate::kernel::capabilities;
use crate::trace::attach::Settings;
use crate::trace::functions::Target;
use crate::trace::session::{Options, Output, TraceTotals, run as trace};

/// Runs one of the subcommands.
pub fn run(args: &IrqArgs) -> Result<()> {
    let host = Host::this();
    match &args.command {
        None => list(&host, None, &args.look),
        Some(IrqCommand::List(args)) => list(&host, args.nic.as_deref(), &args.look),
        Some(IrqCommand::Pin(args)) => place(&host, args),
        Some(IrqCommand::Restore(args)) => put_back(&host, args),
        Some(IrqCommand::Drift(args)) => look_for_drift(&host, args),
        Some(IrqCommand::Advise(args)) => advise(&host, args),
    }
}

fn list(host: &Host, nic: Option<&str>, args: &ListViewArgs) -> Result<()> {
    let mut lister = Lister::new(host, nic);
    let format = args.output.format;
    let list = lister.look()?;
    if !args.watch {
        return output::print(format, &list, show::list);
    }
    let end = args.duration.map(|ns| Instant::now() + Duration::from_nanos(ns));
    let signals = catch_signals()?;
    let in_place = stdout().is_terminal();
    let mut begin = Instant::now();
    loop {
        let next = begin + Duration::from_nanos(args.interval);
        let next = end.map_or(next, |end| end.min(next));
        if sleep(&signals, None, next.saturating_duration_since(Instant::now()))? {
            return Ok(());
        }
        begin = Instant::now();
        let list = lister.look()?;
        match format {
            Format::Json => output::put(&output::json_line(&list)?)?,
            Format::Table if in_place => output::put(&output::redrawn(&show::list(&list)))?,
            _ => output::print(format, &list, show::list)?,
        }
        if end.is_some_and(|end| begin >= end) {
            return Ok(());
        }
    }
}

fn place(host: &Host, args: &PinArgs) -> Result<()> {
    let cpus: CpuList = args
        .cpus
        .parse()
        .map_err(|e| Error::new(ExitCode::Usage, format!("--cpus {:?}: {e}", args.cpus)))?;
    let masks = |choice| match choice {
        None => Masks::Keep,
        Some(MaskChoice::Match) => Masks::Match,
        Some(MaskChoice::Off) => Masks::Off,
    };
    let placement = Placement {
        nic: args.nic.clone(),
        cpus,
        spread: args.spread,
        queues: args.queues.iter().copied().collect(),
        irqs: args.irqs.iter().copied().collect(),
        rps: masks(args.rps),
        xps: masks(args.xps),
        irqbalance: match (args.ban, args.force) {
            (true, _) => OnIrqbalance::Ban,
            (_, true) => OnIrqbalance::Ignore,
            _ => OnIrqbalance::Refuse,
        },
        ..Placement::default()
    };
    let plan = Plan::of(host, &[placement])?;
    let format = args.output.format;
    if args.dry_run {
        log::notes(&plan.notes);
        return output::print(format, &plan, show::plan);
    }
    let placed = pin::apply(host, &plan, By::Hand)?;
    log::notes(&placed.notes);
    output::print(format, &placed, show::placed)
}

fn put_back(host: &Host, args: &RestoreArgs) -> Result<()> {
    let restored = restore::restore(host, args.nic.as_deref())?;
    log::notes(&restored.notes);
    output::print(args.output.format, &restored, show::restored)?;
    match restored.failed() {
        0 => Ok(()),
        failed => {
            let what = format!("{} could not be put back", count(failed, "IRQ, mask or ban"));
            Err(Error::failure(what).help("the reasons are above; the old settings stay saved"))
        }
    }
}

fn look_for_drift(host: &Host, args: &DriftArgs) -> Result<()> {
    let drift = drift::look(host)?;
    log::notes(&drift.notes);
    output::print(args.output.format, &drift, show::drift)?;
    match drift.away().count() {
        0 => Ok(()),
        away => {
            let what = format!("{away} of {} are not where they were placed", drift.placed.len());
            Err(Error::failure(what)
                .help("`gthctl irq pin` places them again; a running policy does so by itself"))
        }
    }
}

fn advise(host: &Host, args: &AdviseArgs) -> Result<()> {
    let device = Device::with_nics(host, &args.nic)?;
    let topology = host.topology()?;
    let time = Duration::from_nanos(args.duration);
    let mut how = Vec::new();
    let exclusive = match client::ask(Path::new(SOCKET), &Request::Show) {
        Ok(Reply::Show(shown)) => shown.exclusive_cpus.parse().unwrap_or_default(),
        Ok(_) => CpuList::default(),
        Err(e) if e.code == ExitCode::NotRunning => CpuList::default(),
        Err(e) => {
            how.push(format!("exclusive CPUs are unknown: {}", e.what));
            CpuList::default()
        }
    };
    let mut lister = Lister::new(host, Some(&args.nic));
    let signals = catch_signals()?;
    lister.look()?;
    let end = Instant::now() + time;
    let (rows, traced) = match trace_gtp(time) {
        Ok(Some((module, seen))) => {
            (seen.rows, format!("traced {module} for {:.1} s", seen.time.as_secs_f64()))
        }
        Ok(None) => (Vec::new(), "no GTP module is loaded: only the interrupts count".into()),
        Err(e) => (Vec::new(), format!("not traced: {}: only the interrupts count", e.what)),
    };
    how.push(traced);
    // A signal that has ended the trace ends this wait, too.
    while !sleep(&signals, None, end.saturating_duration_since(Instant::now()))?
        && Instant::now() < end
    {}
    let list = lister.look()?;
    let near = list.nics.iter().filter_map(|nic| {
        let cpus = topology.of_node(nic.numa_node?);
        (!cpus.is_empty()).then(|| (nic.name.clone(), cpus))
    });
    let advice = placement::advise(&NicFacts {
        device: &device,
        list: &list,
        near: &near.collect(),
        online: &topology.online,
        tickless: &topology.tickless,
        exclusive: &exclusive,
        rows: &rows,
        how,
    });
    output::print(args.output.format, &advice, placement::script)
}

/// What a trace of the loaded GTP module sees within `time`, or until a signal; `None` if none is
/// loaded.
fn trace_gtp(time: Duration) -> Result<Option<(&'static str, TraceTotals)>> {
    let root = Root::default();
    let Some(traced) = Module::ALL.into_iter().find(|of| of.is_there(&root)) else {
        return Ok(None);
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    capabilities::check_capabilities("tracing", &status)?;
    let seen = trace(&Options {
        target: Target::of_module(traced),
        stages: false,
        wait: false,
        settings: Settings::default(),
        cpus: None,
        interval: time,
        duration: Some(time),
        once: false,
        verbose: false,
        output: Output::Quiet,
    })?;
    Ok(Some((traced.name(), seen)))
}
