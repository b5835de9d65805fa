//! `gthctl run`.

use crate::cli::RunArgs;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::policy::Policy;

/// Reads the config and the policy. Loading the scheduler is not written yet.
pub fn run(args: &RunArgs) -> Result<()> {
    let (config, mut notes) = Config::load(&args.config)?;
    if let Some(path) = args.policy.as_ref().or(config.policy.as_ref()) {
        notes.extend(Policy::load(path)?.1);
    }
    for note in notes {
        eprintln!("gthctl: note: {note}");
    }
    Err(Error::failure("the scheduler is not built yet"))
}
