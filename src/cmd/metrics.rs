//! `gthctl metrics`, and the metrics of `gthctl run`.

use std::path::Path;
use std::time::Duration;

use crate::base::atomic_file::Replacement;
use crate::base::error::Result;
use crate::base::log;
use crate::base::output;
use crate::cli::MetricsArgs;
use crate::daemon::control::{Reply, Request, SOCKET, client};
use crate::daemon::reports::Metrics;
use crate::metrics::text::{self, Compat};

/// How long the running gthctl may take to answer: it does so between two of its steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints the metrics of the running gthctl, or replaces a file with them.
pub fn run(args: &MetricsArgs) -> Result<()> {
    let text = current(args.metrics_compat)?;
    match &args.file {
        None => output::put(&text),
        Some(file) => {
            let note = Replacement::prepare_without_links(file, &text)?.commit()?;
            log::notes(note.as_slice());
            Ok(())
        }
    }
}

/// The text of the metrics; with `compat`, also what another program exports.
pub fn current(compat: Option<Compat>) -> Result<String> {
    text::write(ask()?, compat)
}

/// The metrics, asked of the running gthctl.
pub fn ask() -> Result<Metrics> {
    let reply = client::ask_within(Path::new(SOCKET), &Request::Metrics, PATIENCE)?;
    let Reply::Metrics(metrics) = reply else { return Err(client::puzzled()) };
    Ok(*metrics)
}
