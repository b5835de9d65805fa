//! `gthctl top`.

use std::env;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::base::error::{ExitCode, Result};
use crate::base::escape;
use crate::base::output::{self, Format};
use crate::cli::TopArgs;
use crate::daemon::control::SOCKET;
use crate::top::drawing::Look;
use crate::top::sample::{Sample, Source};
use crate::top::trends::Report;
use crate::top::{full_screen, once, tables};

/// Shows what the scheduler does: on a full screen until the user quits, or once.
pub fn run(args: &TopArgs, colored: bool) -> Result<()> {
    let interval = Duration::from_secs_f64(args.delay);
    let source = Source { socket: SOCKET.into(), proc_root: Path::new("/proc").into() };
    if args.once || args.format.is_some() {
        let report = once(&source, interval)?;
        return output::print(args.format.unwrap_or(Format::Table), &report, tables::text);
    }
    if env::var_os("TERM").is_none_or(|term| term == "dumb") {
        return scroll(&source, interval);
    }
    full_screen::run(&source, interval, Look::of_terminal(colored))
}

/// For a terminal without a cursor: the text again and again, until Ctrl-C. While no gthctl
/// answers, it says so and waits, as the full screen does.
fn scroll(source: &Source, interval: Duration) -> Result<()> {
    let mut before: Option<Sample> = None;
    loop {
        let sample = source.sample()?;
        match (&sample.gthctl, &before) {
            (Err(e), _) if e.code == ExitCode::Permission => return Err(e.clone()),
            (Err(e), _) => output::put(&format!("waiting: {}\n", escape::line(&e.to_string())))?,
            (Ok(_), Some(before)) => {
                let report = Report::between(Some(before), &sample);
                output::print(Format::Table, &report, tables::text)?;
                output::put("\n")?;
            }
            // There is nothing to compare it with.
            (Ok(_), None) => {}
        }
        before = Some(sample);
        thread::sleep(interval);
    }
}
