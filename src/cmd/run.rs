//! `gthctl run`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::base::error::Result;
use crate::base::lock::Lock;
use crate::base::log;
use crate::cli::{DEFAULT_CONFIG, RunArgs};
use crate::cmd::metrics::{ask, current};
use crate::daemon::service::{Options, Service};
use crate::metrics::http_server::Server;
use crate::metrics::stats_socket::{self, StatsSocket};

/// Runs the scheduler until told to stop, or until the kernel ends it.
pub fn run(args: &RunArgs) -> Result<()> {
    // The reader of gthctl's output may go away. gthctl keeps running, and later leaves the machine
    // as it was. SAFETY: no other thread runs yet, and ignoring a signal takes no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    log::start()?;
    let options = Options {
        config: args.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG)),
        may_lack_config: args.config.is_none(),
        policy: args.policy.clone(),
        stats: args.stats.map(Duration::from_secs),
        gtp_time: args.gtp_time,
        pod_counters: args.pod_counters || args.metrics_compat.is_some(),
        debug: args.debug,
    };
    let since = SystemTime::now();
    match start(args, options) {
        Ok((service, lock, _metrics)) => {
            let mut stats = None;
            service.run(lock, &mut || stats = stats.take().or_else(serve_tools))
        }
        Err(e) => {
            let ended = Err(e);
            Service::note_failed_start(since, &ended);
            ended
        }
    }
}

/// Everything that comes before the interrupts and the scheduler.
fn start(args: &RunArgs, options: Options) -> Result<(Service, Lock, Option<Server>)> {
    let service = Service::read(options)?;
    // Before the metrics: otherwise a second gthctl would only say that their port is taken.
    let lock = Service::claim()?;
    let compat = args.metrics_compat;
    let start = |address| Server::start(address, move || current(compat));
    let metrics = args.metrics.map(start).transpose()?;
    if let Some(server) = &metrics {
        server.announce();
    }
    Ok((service, lock, metrics))
}

/// Serves sched_ext's tools. gthctl works as well without it.
fn serve_tools() -> Option<StatsSocket> {
    let path = Path::new(stats_socket::PATH);
    let socket = StatsSocket::start(path, ask);
    let note = |e| {
        let what = "sched_ext's tools do not see gthctl's counters";
        log::note(format_args!("{what}: {}: {e}", path.display()));
    };
    socket.map_err(note).ok()
}
