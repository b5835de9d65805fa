//! Measures gthctl beside other schedulers in the VM (`run`), and writes the tables of what
//! was measured (`page`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use gthctl_testbed::arguments::{absolute, pair};
use gthctl_testbed::bench::plan::{self, Block, Candidate, Group};
use gthctl_testbed::bench::run::{Extent, run};
use gthctl_testbed::bench::{crowd, page, plot, quick, ratios, record, summary};
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
    /// Measure; what RECORDS has already is not measured again
    Run(Run),
    /// Measure, in virtual time and after several restarts, what the bars are about
    Restarts(Restarts),
    /// Print what `bench restarts` measured and the ratios that the bars are about
    Quick(Quick),
    /// Write README.md, results.json and rtt.svg of the records
    Page(Page),
    /// Be N threads that spin once standard input has ended
    Spin { n: usize },
}

#[derive(Args)]
struct Run {
    /// Where the records go
    records: PathBuf,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Probes of each measurement of round-trip times
    #[arg(long, default_value_t = 700)]
    probes: usize,
    /// Milliseconds between them
    #[arg(long, default_value_t = 5)]
    interval: u64,
    /// Seconds of each measurement that takes a time
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Take a measurement again, up to twice, in which the VM waited for the host's CPUs for more
    /// than this share of its time; the least disturbed one counts
    #[arg(long, value_name = "PERCENT")]
    calm: Option<f64>,
    /// Only measures, settings and candidates whose joined names contain one of these
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    /// Only what tells how more CPUs do
    #[arg(long)]
    more_cpus: bool,
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
struct Restarts {
    /// Where the records go
    records: PathBuf,
    /// Which virtual machine this is, from 1
    #[arg(long)]
    boot: usize,
    /// How often the data plane's processes start anew
    #[arg(long, default_value_t = 4)]
    restarts: usize,
    /// Probes after each restart
    #[arg(long, default_value_t = 40)]
    probes: usize,
    /// Milliseconds between them
    #[arg(long, default_value_t = 11)]
    interval: u64,
    /// Wake-ups after each restart, one a millisecond
    #[arg(long, default_value_t = 250)]
    wake_ups: u64,
    /// Only candidates whose names contain one of these
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    #[command(flatten)]
    gthctl: Gthctl,
}

#[derive(Args)]
struct Quick {
    /// Files of records
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Fail when a ratio of means exceeds its ceiling in this JSON file
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
        Command::Run(options) => measure(&options)?,
        Command::Restarts(options) => restarts(&options)?,
        Command::Quick(options) => return quick(&options),
        Command::Page(options) => write(&options)?,
        Command::Spin { n } => crowd::spin(n)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Run) -> Result<()> {
    let candidates = candidates(options)?;
    let cpus = std::thread::available_parallelism()?.get();
    let mut blocks: Vec<Block> =
        if options.more_cpus { plan::of_more_cpus(cpus) } else { plan::all(&candidates, cpus) };
    if !options.only.is_empty() {
        for Group { measure, setting, candidates } in blocks.iter_mut().flatten() {
            candidates.retain(|candidate| {
                let name = format!("{measure:?}/{}/{candidate}", setting.name);
                options.only.iter().any(|only| name.contains(only.as_str()))
            });
        }
    }
    let extent = Extent {
        rounds: options.rounds,
        probes: options.probes,
        interval: Duration::from_millis(options.interval),
        duration: Duration::from_secs(options.seconds),
        calm: options.calm,
    };
    plane::up(Driver::Gtp)?;
    run(&blocks, &candidates, extent, &options.records)?;
    plane::down()
}

fn restarts(options: &Restarts) -> Result<()> {
    let mut candidates = plan::candidates(|policy| options.gthctl.scheduler(policy), Vec::new())?;
    if !options.only.is_empty() {
        candidates.retain(|candidate| {
            options.only.iter().any(|only| candidate.name.contains(only.as_str()))
        });
    }
    ensure!(!candidates.is_empty(), "--only names nobody (gthctl, policy, for one)");
    let extent = Extent {
        rounds: options.restarts,
        probes: options.probes,
        interval: Duration::from_millis(options.interval),
        duration: Duration::from_millis(options.wake_ups),
        calm: None,
    };
    plane::up(Driver::Gtp)?;
    quick::run(&candidates, extent, options.boot, &options.records)?;
    plane::down()
}

fn quick(options: &Quick) -> Result<ExitCode> {
    let mut records = Vec::new();
    for path in &options.records {
        records.extend(record::read(path)?);
    }
    print!("{}", ratios::table(&records));
    let Some(path) = &options.ceilings else { return Ok(ExitCode::SUCCESS) };
    let text = fs::read_to_string(path).with_context(|| format!("no file {}", path.display()))?;
    let ceilings = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let exceeded = ratios::exceeded(&ratios::ratios(&records), &ceilings)?;
    for what in &exceeded {
        eprintln!("bench: {what}");
    }
    Ok(ExitCode::from(u8::from(!exceeded.is_empty())))
}

fn candidates(options: &Run) -> Result<Vec<Candidate>> {
    let mut others = Vec::new();
    for (name, file) in &options.peer {
        let program = Program { binary: absolute(Path::new(file))?, args: Vec::new() };
        others.push(Candidate { name: name.clone(), scheduler: Ok(Scheduler::Scx(program)) });
    }
    for (name, why) in &options.absent {
        others.push(Candidate { name: name.clone(), scheduler: Err(why.clone()) });
    }
    plan::candidates(|policy| options.gthctl.scheduler(policy), others)
}

impl Gthctl {
    /// With one of its policies, or with none.
    fn scheduler(&self, policy: Option<&str>) -> Result<Scheduler> {
        let policy = policy.map(|name| self.policies.join(name).with_extension("yaml"));
        let program = Program::gthctl(&self.gthctl, &self.config, policy.as_deref())?;
        Ok(Scheduler::Scx(program))
    }
}

fn write(options: &Page) -> Result<()> {
    let mut records = Vec::new();
    for path in &options.records {
        records.extend(record::read(path)?);
    }
    ensure!(!records.is_empty(), "nothing was measured (--only names Rtt/2x/EEVDF, for one)");
    let cells = summary::cells(&records);
    let bars = summary::bars(&records, &cells);
    let times = fs::read_to_string(&options.times).context("the suite's times")?;
    fs::create_dir_all(&options.to)?;
    let to = |name: &str, text: String| {
        let path = options.to.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    to("README.md", page::page(&cells, &bars, &options.about, &times))?;
    to("rtt.svg", plot::plot(&cells)?)?;
    let results = serde_json::json!({"about": options.about, "bars": bars, "cells": cells});
    to("results.json", serde_json::to_string(&results)? + "\n")
}
