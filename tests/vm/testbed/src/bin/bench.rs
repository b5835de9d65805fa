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
use gthctl_testbed::bench::{crowd, page, plot, record, summary};
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
    /// The gthctl to measure
    #[arg(long)]
    gthctl: PathBuf,
    /// Its config file
    #[arg(long)]
    config: PathBuf,
    /// The directory with its policies
    #[arg(long)]
    policies: PathBuf,
    /// Another sched_ext scheduler; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = pair)]
    peer: Vec<(String, String)>,
    /// One that is not there, and why; may be repeated
    #[arg(long, value_name = "NAME=WHY", value_parser = pair)]
    absent: Vec<(String, String)>,
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
    let result = match Cli::parse().command {
        Command::Run(options) => measure(&options),
        Command::Page(options) => write(&options),
        Command::Spin { n } => crowd::spin(n),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
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

fn candidates(options: &Run) -> Result<Vec<Candidate>> {
    let mut others = Vec::new();
    for (name, file) in &options.peer {
        let program = Program { binary: absolute(Path::new(file))?, args: Vec::new() };
        others.push(Candidate { name: name.clone(), scheduler: Ok(Scheduler::Scx(program)) });
    }
    for (name, why) in &options.absent {
        others.push(Candidate { name: name.clone(), scheduler: Err(why.clone()) });
    }
    let gthctl = |policy: Option<&str>| {
        let policy = policy.map(|name| options.policies.join(name).with_extension("yaml"));
        let program = Program::gthctl(&options.gthctl, &options.config, policy.as_deref())?;
        Ok(Scheduler::Scx(program))
    };
    plan::candidates(gthctl, others)
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
