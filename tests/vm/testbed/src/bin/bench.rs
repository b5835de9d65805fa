//! Measures gthctl beside other schedulers in a VM in virtual time (`measure`), and writes what
//! was measured (`table`, `page`, `compare`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use gthctl_testbed::arguments::{absolute, pair};
use gthctl_testbed::bench::plan::{self, Candidate, Plan};
use gthctl_testbed::bench::record::{self, Record};
use gthctl_testbed::bench::run::{Extent, Run};
use gthctl_testbed::bench::{compare, crowd, page, path, plot, ratios, table};
use gthctl_testbed::cgroups::Pods;
use gthctl_testbed::plane::{self, Driver};
use gthctl_testbed::scheduler::Scheduler;
use gthctl_testbed::scx::Program;

#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, after several restarts of the data plane
    Measure(Measure),
    /// Print what was measured and the ratios that the bars are about
    Table(Table),
    /// Write README.md, results.json and rtt.svg of the records
    Page(Page),
    /// Print the ratios of two runs of one commit, and fail when some are too far apart
    Compare(Compare),
    /// Be N threads that spin once standard input has ended
    Spin { n: usize },
}

#[derive(Args)]
struct Measure {
    /// Where the records go
    records: PathBuf,
    /// Which virtual machine this is, from 1
    #[arg(long)]
    boot: usize,
    /// What is measured
    #[arg(long, value_enum)]
    plan: Plan,
    /// How often the data plane's processes start anew, for each candidate and load
    #[arg(long, default_value_t = 4)]
    restarts: usize,
    /// Probes after each restart, besides the first two
    #[arg(long, default_value_t = 40)]
    probes: usize,
    /// Milliseconds between them
    #[arg(long, default_value_t = 11)]
    interval: u64,
    /// Wake-ups after each restart, one a millisecond
    #[arg(long, default_value_t = 250)]
    wake_ups: u64,
    /// Run the data plane and the load's tasks in so many cgroups, as pods are
    #[arg(long, default_value_t = 0)]
    cgroups: usize,
    /// Only measures, settings and candidates whose joined names contain one of these
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    #[command(flatten)]
    gthctl: Gthctl,
    /// Another sched_ext scheduler; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = pair)]
    peer: Vec<(String, String)>,
    /// One that is not there, and why; may be repeated
    #[arg(long, value_name = "NAME=WHY", value_parser = pair)]
    absent: Vec<(String, String)>,
}

#[derive(Args)]
struct Gthctl {
    /// The gthctl to measure
    #[arg(long)]
    gthctl: PathBuf,
    /// Its config file
    #[arg(long)]
    config: PathBuf,
    /// The directory with its policies
    #[arg(long)]
    policies: PathBuf,
}

#[derive(Args)]
struct Table {
    /// Files of records
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Fail when a ratio of means exceeds its ceiling in this JSON file, or gthctl lost a probe
    #[arg(long)]
    ceilings: Option<PathBuf>,
}

#[derive(Args)]
struct Page {
    /// Files of records
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long)]
    to: PathBuf,
    /// On what was measured
    #[arg(long)]
    about: String,
    /// A file with what the suite's timing tests told
    #[arg(long)]
    times: PathBuf,
}

#[derive(Args)]
struct Compare {
    /// Files of the first run's records
    #[arg(long, required = true, num_args = 1..)]
    first: Vec<PathBuf>,
    /// Files of the second's
    #[arg(long, required = true, num_args = 1..)]
    second: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run_command(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(command: Command) -> Result<ExitCode> {
    match command {
        Command::Measure(options) => measure(&options)?,
        Command::Table(options) => return print(&options),
        Command::Page(options) => write(&options)?,
        Command::Compare(options) => return compare(&options),
        Command::Spin { n } => crowd::spin(n)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Measure) -> Result<()> {
    let candidates = candidates(options)?;
    let run = Run {
        plan: options.plan,
        extent: Extent {
            restarts: options.restarts,
            probes: options.probes,
            interval: Duration::from_millis(options.interval),
            duration: Duration::from_millis(options.wake_ups),
        },
        boot: options.boot,
        cpus: match options.plan {
            Plan::Path => path::possible_cpus()?,
            _ => thread::available_parallelism()?.get(),
        },
        only: &options.only,
        pods: (options.cgroups > 0).then(|| Pods::make(options.cgroups)).transpose()?,
    };
    let is_measured = |candidate: &Candidate| !run.steps(&candidate.name).is_empty();
    ensure!(candidates.iter().any(is_measured), "--only names nothing (Rtt/2x/EEVDF, for one)");
    plane::up(Driver::Gtp)?;
    run.all(&candidates, &options.records)?;
    plane::down()
}

fn candidates(options: &Measure) -> Result<Vec<Candidate>> {
    let mut peers = Vec::new();
    for (name, file) in &options.peer {
        let program = Program { binary: absolute(Path::new(file))?, args: Vec::new() };
        peers.push(Candidate { name: name.clone(), scheduler: Ok(Scheduler::Scx(program)) });
    }
    for (name, why) in &options.absent {
        peers.push(Candidate { name: name.clone(), scheduler: Err(why.clone()) });
    }
    plan::candidates(|policy| options.gthctl.scheduler(policy), peers)
}

impl Gthctl {
    /// The scheduler with one of its policies, or with none.
    fn scheduler(&self, policy: Option<&str>) -> Result<Scheduler> {
        let policy = policy.map(|name| self.policies.join(name).with_extension("yaml"));
        let program = Program::gthctl(&self.gthctl, &self.config, policy.as_deref())?;
        Ok(Scheduler::Scx(program))
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for path in paths {
        records.extend(record::read(path)?);
    }
    ensure!(!records.is_empty(), "nothing was measured");
    Ok(records)
}

fn print(options: &Table) -> Result<ExitCode> {
    let records = read(&options.records)?;
    print!("{}", table::table(&records));
    let Some(path) = &options.ceilings else { return Ok(ExitCode::SUCCESS) };
    let text = fs::read_to_string(path).with_context(|| format!("no file {}", path.display()))?;
    let ceilings = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let exceeded = ratios::exceeded(&records, &ceilings)?;
    for what in &exceeded {
        eprintln!("bench: {what}");
    }
    Ok(ExitCode::from(u8::from(!exceeded.is_empty())))
}

fn compare(options: &Compare) -> Result<ExitCode> {
    let (table, apart) = compare::compare(&read(&options.first)?, &read(&options.second)?);
    print!("{table}");
    Ok(ExitCode::from(u8::from(apart > 0)))
}

fn write(options: &Page) -> Result<()> {
    let records = read(&options.records)?;
    let ratios = ratios::ratios(&records);
    let times = fs::read_to_string(&options.times).context("the suite's times")?;
    fs::create_dir_all(&options.to)?;
    let to = |name: &str, text: String| {
        let path = options.to.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    to("README.md", page::page(&records, &ratios, &options.about, &times))?;
    to("rtt.svg", plot::plot(&records)?)?;
    let results = page::results(&records, &ratios, &options.about);
    to("results.json", serde_json::to_string(&results)? + "\n")
}
