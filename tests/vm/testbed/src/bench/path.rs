//! What the choice of a CPU at a wake-up costs on a machine of many CPUs
//! (tests/vm/testbed/bpf/wakeup.bpf.c).

use std::fs;
use std::mem::{MaybeUninit, offset_of};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject, ProgramInput, ProgramMut};

use super::record::Part;
use crate::stats::Summary;
use skeleton::types::{gth_counter, gth_machine, gth_rank, gth_stats, gth_wakeups};
use skeleton::{WakeupSkel, WakeupSkelBuilder};

mod skeleton {
    #![allow(clippy::all, clippy::undocumented_unsafe_blocks, dead_code, missing_docs)]

    include!(concat!(env!("OUT_DIR"), "/wakeup.skel.rs"));
}

/// How many CPUs share a last-level cache.
const LLC: usize = 16;
/// Wake-ups in a run. Runs are short because a task that is preempted in one can then run on one
/// CPU only.
const CALLS: u32 = 1_000;
const RUNS: u32 = 100;
/// Runs with an idle CPU, of one wake-up each.
const IDLE_RUNS: u32 = 1_000;
/// How long the idle CPU takes to be idle again after a kick.
const GOES_IDLE: Duration = Duration::from_micros(300);

const STRONG: u8 = 0;
const NORMAL: u8 = gth_rank::GTH_RANK_NORMAL.0 as u8;

/// A wake-up, and what runs on the CPUs.
struct Case {
    name: &'static str,
    /// The rank of the task that wakes up.
    rank: u8,
    /// The ranks of what runs on the last CPU, and on the others.
    last: u8,
    others: u8,
    /// Whether the others have run their tasks for a tick.
    ticked: bool,
    /// Whether one CPU is idle.
    idle: bool,
}

/// The names of the cases.
pub fn cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

const fn case(name: &'static str, rank: u8, last: u8, others: u8) -> Case {
    Case { name, rank, last, others, ticked: true, idle: false }
}

const CASES: [Case; 6] = [
    case("normal task, all CPUs run normal ones", NORMAL, NORMAL, NORMAL),
    case("priority task, all CPUs run normal ones", STRONG, NORMAL, NORMAL),
    case("priority task, one CPU runs a normal one", STRONG, NORMAL, STRONG),
    Case {
        ticked: false,
        ..case("priority task, one CPU runs a normal one, before a tick", STRONG, NORMAL, STRONG)
    },
    case("priority task, no CPU runs a normal one", STRONG, STRONG, STRONG),
    Case { idle: true, ..case("priority task, one CPU is idle", STRONG, STRONG, STRONG) },
];

/// How many CPUs there are or might be.
pub fn possible_cpus() -> Result<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    Ok(last.with_context(|| format!("possible CPUs: {list:?}"))? + 1)
}

/// A part for each case: ns of a wake-up, how many CPUs it looks at, and the share of wake-ups that
/// got one.
pub fn measure(cpus: usize) -> Result<Vec<Part>> {
    let mut object = MaybeUninit::uninit();
    let mut machine = Machine { skel: load(&mut object, cpus)?, cpus };
    let _link = machine.skel.progs.wake_up.attach()?;
    run(&machine.skel.progs.make_masks)?;
    CASES.iter().map(|case| machine.part(case)).collect()
}

/// A made-up machine.
struct Machine<'a> {
    skel: WakeupSkel<'a>,
    cpus: usize,
}

impl Machine<'_> {
    fn part(&mut self, case: &Case) -> Result<Part> {
        let cpus = self.cpus;
        let wakeups = self.wakeups()?;
        wakeups.rank = case.rank.into();
        wakeups.generation = if case.idle { 3 } else { 2 };
        wakeups.ticked = case.ticked.into();
        wakeups.turn = 0;
        wakeups.ranks.fill(case.others);
        wakeups.ranks[cpus - 1] = case.last;
        let looks = self.looks()?;
        let (runs, calls) = if case.idle { (IDLE_RUNS, 1) } else { (RUNS, CALLS) };
        let (mut ns, mut chosen) = (Vec::new(), 0);
        for _ in 0..runs {
            let empty = self.wake_up(0)?.0;
            if case.idle {
                run(&self.skel.progs.kick)?;
                thread::sleep(GOES_IDLE);
            }
            let (took, got) = self.wake_up(calls)?;
            ns.push((took - empty.min(took)) as f64 / f64::from(calls));
            chosen += got;
        }
        let of_call = |count: u64| count as f64 / f64::from(runs * calls);
        Ok(Part {
            part: case.name.into(),
            ..Part::of([
                ("ns", Summary::of(&ns).context("no runs")?.p50),
                ("CPUs looked at", of_call(self.looks()? - looks)),
                ("got a CPU, %", of_call(chosen) * 100.0),
            ])
        })
    }

    /// Makes `calls` wake-ups. Returns the ns that they took, and how many got a CPU.
    fn wake_up(&mut self, calls: u32) -> Result<(u64, u64)> {
        self.wakeups()?.calls = calls;
        self.skel.progs.wake_up.test_run(ProgramInput::default())?;
        let wakeups = self.wakeups()?;
        Ok((wakeups.ns, wakeups.chosen.into()))
    }

    fn wakeups(&mut self) -> Result<&mut gth_wakeups> {
        Ok(&mut self.skel.maps.bss_wakeups_data.as_mut().context("no .bss.wakeups")?.wakeups)
    }

    /// CPUs looked at so far.
    fn looks(&self) -> Result<u64> {
        let stats = self.skel.maps.stats.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let at = offset_of!(gth_stats, counters) + 8 * gth_counter::GTH_COUNT_LOOKS.0 as usize;
        let looks =
            |of: &Vec<u8>| of[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        Ok(stats.context("no counters")?.iter().map(looks).sum())
    }
}

fn load(object: &mut MaybeUninit<OpenObject>, cpus: usize) -> Result<WakeupSkel<'_>> {
    ensure!(
        cpus.is_multiple_of(LLC) && cpus >= 3 * LLC,
        "{cpus} CPUs: not {LLC} in each of several LLCs"
    );
    let mut open = WakeupSkelBuilder::default().open(object)?;
    describe(&mut open.maps.rodata_data.as_mut().context("no .rodata")?.machine, cpus);
    let tunables = &mut open.maps.data_tunables_data.as_mut().context("no tunables")?.tunables;
    tunables.generation = 2;
    tunables.slice_ns = 20_000_000;
    tunables.slice_min_ns = 1_000_000;
    let mut skel = open.load()?;
    let tables = &mut skel.maps.bss_tables_data.as_mut().context("no tables")?.tables;
    for table in &mut tables[..2] {
        for (cpu, pool) in table.cpu_pool[..cpus].iter_mut().enumerate() {
            *pool = (cpu / LLC) as u16;
        }
        table.pool_cpus[..cpus / LLC].fill(LLC as u16);
    }
    Ok(skel)
}

/// Describes a machine whose cores have two CPUs each.
fn describe(machine: &mut gth_machine, cpus: usize) {
    machine.nr_cpus = cpus as u32;
    machine.nr_possible = cpus as u32;
    machine.nr_llcs = (cpus / LLC) as u32;
    machine.smt = 1;
    for cpu in 0..cpus {
        machine.cpu_llc[cpu] = (cpu / LLC) as u16;
        machine.cpu_sibling[cpu] = cpu as u16 ^ 1;
    }
}

fn run(program: &ProgramMut<'_>) -> Result<()> {
    let code = program.test_run(ProgramInput::default())?.return_value as i32;
    ensure!(code == 0, "{:?}: {}", program.name(), std::io::Error::from_raw_os_error(-code));
    Ok(())
}
