//! Parses the command line, calls the subcommand, prints its error.

use std::process::ExitCode;

use clap::Parser;
use gthctl::cli::{Cli, Command};
use gthctl::cmd;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Run(args) => cmd::run::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gthctl: error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
