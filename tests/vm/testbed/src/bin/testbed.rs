//! Builds the test VM's data plane and measures round-trip times on it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use gthctl_testbed::arguments::{absolute, pair};
use gthctl_testbed::boost::Boost;
use gthctl_testbed::load::Amount;
use gthctl_testbed::plane::Driver;
use gthctl_testbed::rtt::{Plan, Row};
use gthctl_testbed::scheduler::Scheduler;
use gthctl_testbed::scx::Program;
use gthctl_testbed::{instructions, plane, profile, report, rtt};

#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the data plane: the namespaces ran, upf and dn, the tunnel, nr-gnb
    Up(Up),
    /// Take the data plane down
    Down,
    /// Measure round-trip times through the tunnel and print them as tables
    Rtt(Rtt),
    /// Trace round trips and print where their time goes, row beside row (in virtual time)
    Profile(Profile),
    /// Compare what round trips wait for, by QEMU's logs of instructions
    Instructions(Instructions),
}

#[derive(Args)]
struct Up {
    /// What carries the tunnel
    #[arg(long, value_enum, default_value_t)]
    driver: Driver,
}

#[derive(Args)]
struct Rtt {
    /// Probes of each row in each round
    #[arg(long, default_value_t = 200)]
    probes: usize,
    /// Milliseconds between probes; with 10 or less, ping spins in sched_yield(2)
    /// while it waits instead of sleeping
    #[arg(long, default_value_t = 20)]
    interval: u32,
    /// Rounds; each measures every row once, in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    rows: Rows,
    /// Write every sample to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What is measured, and beside which load.
#[derive(Args)]
struct Rows {
    /// Tasks of the load that spin; two for each CPU unless given
    #[arg(long)]
    spinners: Option<usize>,
    /// Pairs of tasks that wake each other through a pipe; one for each CPU unless given
    #[arg(long)]
    pipes: Option<usize>,
    /// Only the rows whose names contain one of these (separated by semicolons). `cpuset` and
    /// `pinned FIFO`, the data plane on one CPU, are shown only if named
    #[arg(long, value_delimiter = ';')]
    rows: Vec<String>,
    /// The gthctl to measure
    #[arg(long)]
    gthctl: Option<PathBuf>,
    /// A row for gthctl with the config FILE, named after NAME; may be repeated
    #[arg(long, requires = "gthctl", value_name = "NAME=FILE", value_parser = pair)]
    config: Vec<(String, String)>,
    /// A row for another sched_ext scheduler, the program FILE; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = pair)]
    peer: Vec<(String, String)>,
}

#[derive(Args)]
struct Profile {
    /// How often the data plane's processes start anew for each row
    #[arg(long, default_value_t = 4)]
    restarts: usize,
    /// Probes of each restart: as many without tracing, then as many with it; after the last
    /// one once more as many, while BPF programs are counted
    #[arg(long, default_value_t = 20)]
    probes: usize,
    /// Milliseconds between probes, 11 or more
    #[arg(long, default_value_t = 20)]
    interval: u32,
    /// Show calls of these kernel functions too (separated by commas)
    #[arg(long, value_delimiter = ',')]
    functions: Vec<String>,
    #[command(flatten)]
    rows: Rows,
}

/// Directories with QEMU's `log`, and the kernel's /proc/kallsyms as `symbols`.
#[derive(Args)]
struct Instructions {
    /// With gthctl
    ours: PathBuf,
    /// With SCHED_FIFO
    theirs: PathBuf,
}

const IDLE: &str = "idle";
const FIFO: &str = "SCHED_FIFO, load";

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(options) => plane::up(options.driver)?,
        Command::Down => plane::down()?,
        Command::Rtt(options) => {
            plane::up(Driver::Gtp)?;
            let code = measure(&options);
            plane::down()?;
            return code;
        }
        Command::Profile(options) => {
            plane::up(Driver::Gtp)?;
            let done = trace(&options);
            plane::down()?;
            done?;
        }
        Command::Instructions(dirs) => {
            print!("{}", instructions::compare(&dirs.ours, &dirs.theirs)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Rtt) -> Result<ExitCode> {
    let plan = Plan {
        probes: options.probes,
        interval_ms: options.interval,
        rounds: options.rounds,
        amount: amount(&options.rows)?,
    };
    let rows = rows(&options.rows)?;
    let results = rtt::measure(&rows, &plan);
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string(&results)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{}\n{}", report::times(&results), report::multiples(&results, &[IDLE, FIFO]));
    Ok(ExitCode::from(u8::from(results.iter().any(report::Row::failed))))
}

fn trace(options: &Profile) -> Result<()> {
    let plan = profile::Plan {
        restarts: options.restarts,
        probes: options.probes,
        interval_ms: options.interval,
        amount: amount(&options.rows)?,
        functions: options.functions.clone(),
    };
    let profiles = profile::measure(&rows(&options.rows)?, &plan)?;
    println!("{}\n{}", profile::table(&profiles), profile::bpf(&profiles));
    println!("{}", profile::sequences(&profiles));
    Ok(())
}

fn amount(options: &Rows) -> Result<Amount> {
    let cpus = std::thread::available_parallelism()?.get();
    Ok(Amount {
        spinners: options.spinners.unwrap_or(2 * cpus),
        pipes: options.pipes.unwrap_or(cpus),
        forks: 0,
    })
}

/// Every row the options allow, in the table's order.
fn rows(options: &Rows) -> Result<Vec<Row>> {
    let row = |name: &str, scheduler, load| Row { name: name.to_owned(), scheduler, load };
    let eevdf = |name: &str, boost, load| row(name, Scheduler::Eevdf(boost), load);
    let mut rows = vec![eevdf(IDLE, Boost::None, false), eevdf("EEVDF, load", Boost::None, true)];
    for (name, config) in &options.config {
        let binary = options.gthctl.as_deref().context("--gthctl is missing")?;
        let program = Program::gthctl(binary, config.as_ref(), None)?;
        rows.push(row(&format!("gthctl, {name}, load"), Scheduler::Scx(program), true));
    }
    rows.push(eevdf(FIFO, Boost::Fifo, true));
    for (name, file) in &options.peer {
        let program = Program { binary: absolute(file.as_ref())?, args: Vec::new() };
        rows.push(row(&format!("{name}, load"), Scheduler::Scx(program), true));
    }
    if !options.rows.is_empty() {
        rows.push(row("cpuset, load", Scheduler::Isolated, true));
        rows.push(row("pinned FIFO, load", Scheduler::Pinned(Boost::Fifo), true));
        rows.retain(|row| options.rows.iter().any(|name| row.name.contains(name.as_str())));
    }
    ensure!(!rows.is_empty(), "no row is left to measure");
    Ok(rows)
}
