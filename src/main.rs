//! Parses the command line, calls the subcommand, prints its error.

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use gthctl::base::{error, log, output};
use gthctl::cli::{Cli, Command};
use gthctl::cmd;
use nix::sys::signal::{SigHandler, Signal, signal};

/// How long to wait at the end for the reader of the last output.
const LAST_WORDS: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    // Rust ignores SIGPIPE, so `gthctl --help | head -1` would panic. SAFETY: no other
    // thread runs yet, and the default action is no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let cli = Cli::read();
    let colored = cli.colored(&stderr());
    if cli.wide {
        output::be_wide();
    }
    let succeeds = |()| error::ExitCode::Success;
    let done = match &cli.command {
        Command::Run(args) => cmd::run::run(args).map(succeeds),
        Command::Policy(command) => cmd::policy::run(command, colored),
        Command::Status(args) => cmd::status::run(args),
        Command::Doctor(args) => cmd::doctor::run(args).map(succeeds),
        Command::Metrics(args) => cmd::metrics::run(args).map(succeeds),
        Command::Top(args) => cmd::top::run(args, cli.colored(&stdout())).map(succeeds),
        Command::Test(args) => cmd::test::run(args).map(succeeds),
        Command::Trace(args) => cmd::trace::run(args).map(succeeds),
        Command::Irq(args) => cmd::irq::run(args).map(succeeds),
    };
    let code = match done {
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => {
            log::report(&error, colored);
            ExitCode::from(error.exit_code())
        }
    };
    log::finish(LAST_WORDS);
    code
}
