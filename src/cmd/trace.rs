//! `gthctl trace`.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use crate::advice::suggested_policy::{self, TraceFacts};
use crate::base::error::{Error, ExitCode, Result};
use crate::base::output;
use crate::cli::{TraceArgs, TraceBy, TraceFormat};
use crate::gtp::Plane;
use crate::irq::host::Host;
use crate::irq::inventory::list::Lister;
use crate::kernel::capabilities::{self, CAP_SYS_ADMIN};
use crate::kernel::procfs;
use crate::kernel::topology::{self, Topology};
use crate::trace::attach::{Extras, Settings};
use crate::trace::functions::Target;
use crate::trace::session::{Options, Output, run as trace};
use crate::trace::traced::TraceTarget;
use crate::trace::{udp, xdp_session};

/// How long `--suggest` watches.
const SUGGEST_AFTER: Duration = Duration::from_secs(10);

/// Traces until told to stop, or for the requested time.
pub fn run(args: &TraceArgs) -> Result<()> {
    let plane = match &args.target {
        Some(TraceTarget::Xdp(device)) => return run_xdp(device, args),
        Some(TraceTarget::Plane(plane)) => Some(*plane),
        None => None,
    };
    let port = plane.and_then(Plane::port);
    if let Some(port) = port {
        check_options_of_port(port, args)?;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    capabilities::check_capabilities("tracing", &status)?;
    check_pid(args.pid, Path::new("/proc"))?;
    let target = match plane {
        Some(Plane::Module(module)) => Target::of_module(module),
        Some(Plane::Port(_)) => udp::target(),
        None => Target::functions(&args.functions),
    };
    let duration = args.duration.map(Duration::from_nanos);
    let options = Options {
        target,
        stages: args.stages,
        wait: args.wait,
        settings: Settings {
            pid: args.pid,
            events: args.events,
            kprobes: args.kprobe,
            port,
            extras: extras(args),
        },
        cpus: args.cpus.clone(),
        interval: Duration::from_nanos(args.interval),
        duration: duration.or(args.suggest.then_some(SUGGEST_AFTER)),
        once: args.once,
        verbose: args.verbose,
        output: output(args),
    };
    let seen = trace(&options)?;
    if !args.suggest {
        return Ok(());
    }
    let traced = match plane {
        Some(plane) => plane.to_string(),
        None => format!("--function {}", args.functions.join(",")),
    };
    let topology = Topology::read(Path::new(topology::SYSFS))?;
    let list = Lister::new(&Host::this(), None).look()?;
    let facts = TraceFacts {
        traced: &traced,
        plane,
        seconds: seen.time.as_secs_f64(),
        online: &topology.online,
        feeds: &seen.feeds,
        list: &list,
    };
    let policy = suggested_policy::policy(&seen.rows, &facts).ok_or_else(|| {
        Error::failure("no packet was seen")
            .help("trace while there is traffic, or longer (--duration)")
    })?;
    output::put(&policy)
}

/// Traces the XDP program of a device.
fn run_xdp(device: &str, args: &TraceArgs) -> Result<()> {
    check_options_of_xdp(device, args)?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !capabilities::has(&status, CAP_SYS_ADMIN) {
        // bpf(2), BPF_PROG_GET_FD_BY_ID
        let what = "tracing an XDP program needs CAP_SYS_ADMIN";
        return Err(Error::new(ExitCode::Permission, what).help("run it as root, with sudo"));
    }
    xdp_session::run(&xdp_session::Options {
        device,
        wait: args.wait,
        cpus: args.cpus.clone(),
        interval: Duration::from_nanos(args.interval),
        duration: args.duration.map(Duration::from_nanos),
        once: args.once,
        output: output(args),
    })
}

fn output(args: &TraceArgs) -> Output {
    match args.format {
        _ if args.suggest => Output::Quiet,
        Some(TraceFormat::Json) => Output::Json,
        Some(TraceFormat::Lines) => Output::Lines,
        Some(TraceFormat::Table) => Output::Table,
        // Events scroll.
        None if stdout().is_terminal() && !args.events => Output::Table,
        None => Output::Lines,
    }
}

fn extras(args: &TraceArgs) -> Extras {
    Extras {
        drops: args.drops,
        latency: args.latency,
        histogram: args.histogram,
        teids: args.by == Some(TraceBy::Teid),
    }
}

/// Refuses a PID that the kernel may take for another task.
fn check_pid(pid: Option<u32>, proc_root: &Path) -> Result<()> {
    if pid.is_none() || procfs::is_of_first_namespace(proc_root) {
        return Ok(());
    }
    let what = "--pid takes the host's PIDs, and /proc here has others";
    let help = "run it on the host, or in a pod with hostPID: true";
    Err(Error::new(ExitCode::Usage, what).help(help))
}

/// Refuses options that need more than the functions of sockets show.
fn check_options_of_port(port: u16, args: &TraceArgs) -> Result<()> {
    let no_times = "no times are taken: a receiver waits within the function";
    let others = [
        ("--kprobe", args.kprobe, "its functions have BTF and are traced by fexit"),
        ("--latency", args.latency, no_times),
        ("--histogram", args.histogram, no_times),
        ("--by", args.by.is_some(), "only the program knows which tunnel a datagram belongs to"),
        (
            "--drops --pid",
            args.drops && args.pid.is_some(),
            "what is dropped before a socket belongs to no process",
        ),
    ];
    match others.into_iter().find(|(_, is_given, _)| *is_given) {
        Some((option, _, why)) => {
            let what = format!("{option} cannot be combined with udp:{port}: {why}");
            Err(Error::new(ExitCode::Usage, what))
        }
        None => Ok(()),
    }
}

/// Refuses what needs a task, a function or a single packet.
fn check_options_of_xdp(device: &str, args: &TraceArgs) -> Result<()> {
    let others = [
        ("--stages", args.stages),
        ("--pid", args.pid.is_some()),
        ("--verbose", args.verbose),
        ("--events", args.events),
        ("--drops", args.drops),
        ("--latency", args.latency),
        ("--histogram", args.histogram),
        ("--by", args.by.is_some()),
        ("--kprobe", args.kprobe),
        ("--suggest", args.suggest),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            let what = format!("{option} cannot be combined with xdp:{device}");
            Err(Error::new(ExitCode::Usage, what))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_needs_the_hosts_proc() {
        let proc_root = tempfile::tempdir().unwrap();
        let check = |pid| check_pid(pid, proc_root.path());
        assert_eq!(check(Some(7)).unwrap_err().code, ExitCode::Usage);
        assert_eq!(check(None), Ok(()));
        fs::create_dir(proc_root.path().join("2")).unwrap();
        let comm = proc_root.path().join("2/comm");
        fs::write(&comm, "sh\n").unwrap();
        assert!(check(Some(7)).is_err());
        fs::write(&comm, "kthreadd\n").unwrap();
        assert_eq!(check(Some(7)), Ok(()));
    }
}
