//! `gthctl run`.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::base::error::Result;
use crate::base::log;
use crate::cli::{DEFAULT_CONFIG, RunArgs};
use crate::cmd::metrics::current;
use crate::daemon::service::{Options, Service};
use crate::metrics::server::Server;

/// Runs the scheduler until told to stop, or until the kernel ends it.
pub fn run(args: &RunArgs) -> Result<()> {
    // The reader of its output may go; gthctl stays, and later leaves the machine as it
    // was. SAFETY: no other thread runs yet, and ignoring a signal takes no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    log::start()?;
    let options = Options {
        config: args.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG)),
        may_lack_config: args.config.is_none(),
        policy: args.policy.clone(),
        stats: args.stats.map(Duration::from_secs),
        debug: args.debug,
    };
    let service = Service::read(options)?;
    let metrics = args.metrics.map(|address| Server::start(address, current)).transpose()?;
    if let Some(server) = &metrics {
        server.announce();
    }
    service.run()
}
