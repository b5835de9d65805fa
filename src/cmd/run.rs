//! `gthctl run`.

use std::time::Duration;

use crate::cli::RunArgs;
use crate::error::Result;
use crate::service::{Options, Service};

/// Runs the scheduler until it is told to stop, or until the kernel ends it.
pub fn run(args: &RunArgs) -> Result<()> {
    let options = Options {
        config: args.config.clone(),
        policy: args.policy.clone(),
        stats: args.stats.map(Duration::from_secs),
        debug: args.debug,
    };
    Service::read(options)?.run()
}
