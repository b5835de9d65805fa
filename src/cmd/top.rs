//! `gthctl top`.

use std::env;
use std::path::Path;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::output::{self, Format};
use crate::cli::TopArgs;
use crate::daemon::control::SOCKET;
use crate::top::drawing::Look;
use crate::top::sample::Source;
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

/// For a terminal without a cursor: the text again and again, until Ctrl-C.
fn scroll(source: &Source, interval: Duration) -> Result<()> {
    loop {
        output::print(Format::Table, &once(source, interval)?, tables::text)?;
        output::put("\n")?;
    }
}
