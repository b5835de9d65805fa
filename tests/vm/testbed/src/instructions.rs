//! What a round trip waits for, from QEMU's log of the kernel's instructions (tests/vm/instructions).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::stats::median;

/// ping's packet goes to nr-gnb; the trip begins as the kernel enters this function.
const BEGIN: &str = "tun_net_xmit";
/// nr-gnb hands the reply to ping's kernel.
const END: &str = "tun_get_user";
/// The waker asks the CPU of nr-gnb to reschedule. From then on the trip waits for that CPU.
const HANDED_ON: &str = "native_smp_send_reschedule";
/// That CPU takes the interrupt.
const TAKEN: &str = "asm_sysvec_reschedule_ipi";
/// A trip this much longer than the median met a tick or another interrupt.
const USUAL: f64 = 1.02;
/// How many functions a table has.
const SHOWN: usize = 40;

/// The functions of a kernel: /proc/kallsyms.
struct Symbols(Vec<(u64, String)>);

impl Symbols {
    fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("symbols");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut fields = line.split_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_code = fields.next()?.eq_ignore_ascii_case("t");
            is_code.then_some((address, name(fields.next()?)))
        };
        let mut symbols: Vec<_> = text.lines().filter_map(symbol).collect();
        symbols.sort();
        symbols.dedup_by_key(|symbol| symbol.0);
        Self(symbols)
    }

    /// The function at this address, and whether it begins there.
    fn function(&self, address: u64) -> Option<(&str, bool)> {
        let after = self.0.partition_point(|symbol| symbol.0 <= address);
        let (begin, name) = self.0.get(after.checked_sub(1)?)?;
        Some((name, *begin == address))
    }
}

/// A BPF program's name is bpf_prog_TAG_NAME; kernel functions begin like that, too.
fn name(symbol: &str) -> String {
    let program = symbol.strip_prefix("bpf_prog_").and_then(|rest| rest.split_once('_'));
    match program {
        Some((tag, name)) if u64::from_str_radix(tag, 16).is_ok() => format!("bpf: {name}"),
        _ => symbol.into(),
    }
}

/// CPU and address of a line such as
/// `Trace 1: 0x7fcd437fa580 [00000000/ffffffff822ab968/18c0c290/ff022201]`.
fn instruction(line: &str) -> Option<(u32, u64)> {
    let (cpu, rest) = line.strip_prefix("Trace ")?.split_once(':')?;
    Some((cpu.parse().ok()?, u64::from_str_radix(rest.split('/').nth(1)?, 16).ok()?))
}

/// How many instructions of each function a round trip waits for.
type Counts<'a> = BTreeMap<&'a str, f64>;

/// A round trip under way.
struct Trip<'a> {
    waker: u32,
    counts: Counts<'a>,
    /// The waker has asked another CPU to go on. From then on its instructions do not count.
    handed_on: bool,
    /// The other CPU has taken the interrupt. From then on its instructions count.
    taken: bool,
}

impl<'a> Trip<'a> {
    fn begin(waker: u32) -> Self {
        Self { waker, counts: Counts::new(), handed_on: false, taken: false }
    }

    fn add(&mut self, cpu: u32, function: &'a str, begins: bool) {
        let is_wakers = cpu == self.waker;
        self.handed_on |= is_wakers && begins && function == HANDED_ON;
        self.taken |= !is_wakers && begins && function == TAKEN;
        let is_waited_for = if is_wakers { !self.handed_on } else { self.taken };
        if is_waited_for {
            *self.counts.entry(function).or_default() += 1.0;
        }
    }

    /// `None` if the CPU that was asked is not that of nr-gnb, or nr-gnb's task was running there
    /// already.
    fn end(self, cpu: u32) -> Option<Counts<'a>> {
        (cpu != self.waker && self.taken).then_some(self.counts)
    }
}

fn trips<'a>(lines: impl Iterator<Item = String>, symbols: &'a Symbols) -> Vec<Counts<'a>> {
    let (mut trips, mut current) = (Vec::new(), None);
    for line in lines {
        let Some((cpu, address)) = instruction(&line) else { continue };
        let Some((function, begins)) = symbols.function(address) else { continue };
        if begins && function == BEGIN {
            current = Some(Trip::begin(cpu));
        }
        if let Some(trip) = &mut current {
            trip.add(cpu, function, begins);
        }
        if begins && function == END {
            trips.extend(current.take().and_then(|trip| trip.end(cpu)));
        }
    }
    trips
}

fn total(counts: &Counts<'_>) -> f64 {
    counts.values().sum()
}

/// The trips of one log.
struct Measured<'a> {
    /// The mean of the usual trips.
    mean: Counts<'a>,
    usual: usize,
    all: usize,
}

impl<'a> Measured<'a> {
    /// None without a trip.
    fn of(trips: &[Counts<'a>]) -> Option<Self> {
        let totals: Vec<f64> = trips.iter().map(total).collect();
        let most = median(&totals)? * USUAL;
        let usual: Vec<_> = trips.iter().filter(|trip| total(trip) <= most).collect();
        let mut mean = Counts::new();
        for (function, count) in usual.iter().copied().flatten() {
            *mean.entry(function).or_default() += count / usual.len() as f64;
        }
        Some(Self { mean, usual: usual.len(), all: trips.len() })
    }

    fn read(dir: &Path, symbols: &'a Symbols) -> Result<Self> {
        let path = dir.join("log");
        let context = || path.display().to_string();
        let lines = BufReader::new(File::open(&path).with_context(context)?).lines();
        let measured = Self::of(&trips(lines.map_while(Result::ok), symbols));
        let measured = measured.context("no round trip").with_context(context)?;
        ensure!(measured.usual > 1, "{}: too few round trips", path.display());
        Ok(measured)
    }
}

/// `ours` beside `theirs`, with the largest differences first.
fn table(ours: &Counts<'_>, theirs: &Counts<'_>) -> String {
    let of = |counts: &Counts<'_>, function: &str| counts.get(function).copied().unwrap_or(0.0);
    let functions: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    let mut rows: Vec<_> =
        functions.into_iter().map(|name| (name, of(ours, name), of(theirs, name))).collect();
    rows.sort_by(|a, b| (b.1 - b.2).abs().total_cmp(&(a.1 - a.2).abs()));
    let (shown, rest) = rows.split_at(SHOWN.min(rows.len()));
    let sum = |of: &dyn Fn(&(&str, f64, f64)) -> f64| rest.iter().map(of).sum::<f64>();
    let mut text =
        String::from("instructions a round trip waits for\n   gthctl  SCHED_FIFO  difference\n");
    let mut line = |name: &str, ours: f64, theirs: f64| {
        let _ = writeln!(text, "{ours:>9.0} {theirs:>11.0} {:>+11.0}  {name}", ours - theirs);
    };
    line("all", total(ours), total(theirs));
    for (name, ours, theirs) in shown {
        line(name, *ours, *theirs);
    }
    line("the others", sum(&|row| row.1), sum(&|row| row.2));
    text
}

/// Compares two directories, each with a log and the symbols of its kernel, in a table.
///
/// # Errors
///
/// If a file is missing, or a log has no round trip.
pub fn compare(ours: &Path, theirs: &Path) -> Result<String> {
    let (our_symbols, their_symbols) = (Symbols::read(ours)?, Symbols::read(theirs)?);
    let ours = Measured::read(ours, &our_symbols)?;
    let theirs = Measured::read(theirs, &their_symbols)?;
    let ratio = total(&ours.mean) / total(&theirs.mean);
    let counts = format!(
        "{} of {} round trips and {} of {}; ratio {ratio:.3}\n",
        ours.usual, ours.all, theirs.usual, theirs.all
    );
    Ok(table(&ours.mean, &theirs.mean) + &counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000010 T native_smp_send_reschedule
ffffffff81000000 t tun_net_xmit\t[tun]
ffffffff81000020 D a_variable
ffffffff81000030 T asm_sysvec_reschedule_ipi
ffffffff81000040 t bpf_prog_09890b3c0634fbf7_gth_enqueue\t[bpf]
ffffffff81000050 t tun_get_user\t[tun]
ffffffff81000060 T bpf_prog_get_assoc_struct_ops
";

    fn log(instructions: &[(u32, u64)]) -> Vec<String> {
        let line = |&(cpu, offset): &(u32, u64)| {
            format!(
                "Trace {cpu}: 0x7f [00000000/{:x}/18c0c290/ff022201] ",
                0xffff_ffff_8100_0000 + offset
            )
        };
        instructions.iter().map(line).collect()
    }

    #[test]
    fn functions_by_address() {
        let symbols = Symbols::parse(SYMBOLS);
        assert_eq!(symbols.function(0xffff_ffff_8100_0000), Some(("tun_net_xmit", true)));
        assert_eq!(symbols.function(0xffff_ffff_8100_0024), Some((HANDED_ON, false)));
        assert_eq!(symbols.function(0xffff_ffff_8100_0041), Some(("bpf: gth_enqueue", false)));
        let last = Some(("bpf_prog_get_assoc_struct_ops", false));
        assert_eq!(symbols.function(0xffff_ffff_8100_0061), last);
        assert_eq!(symbols.function(0x1000), None);
    }

    #[test]
    fn what_the_two_cpus_do_one_after_the_other() {
        let symbols = Symbols::parse(SYMBOLS);
        // This includes what each CPU does while the trip waits for the other one.
        let whole = [
            (1, 0x42),
            (0, 0x00),
            (0, 0x41),
            (1, 0x43),
            (0, 0x10),
            (0, 0x44),
            (1, 0x30),
            (1, 0x31),
            (0, 0x45),
            (1, 0x50),
        ];
        let cut_off = [(0, 0x00), (0, 0x41)];
        let lines = log(&[whole.as_slice(), &cut_off].concat());
        let trips = trips(lines.into_iter(), &symbols);
        assert_eq!(trips.len(), 1);
        let counts: Vec<_> = trips[0].iter().map(|(&name, &count)| (name, count)).collect();
        let expected = [(TAKEN, 2.0), ("bpf: gth_enqueue", 1.0), (END, 1.0), (BEGIN, 1.0)];
        assert_eq!(counts, expected);
    }

    #[test]
    fn trips_that_met_a_tick_do_not_count() {
        let trip = |count| Counts::from([("f", count)]);
        let Measured { mean, usual, .. } =
            Measured::of(&[trip(100.0), trip(101.0), trip(200.0)]).unwrap();
        assert_eq!((usual, mean["f"]), (2, 100.5));
        let text = table(&mean, &Counts::from([("f", 90.0), ("g", 4.0)]));
        assert!(text.contains("      100          90         +10  f\n"), "{text}");
        assert!(text.contains("        0           4          -4  g\n"), "{text}");
    }
}
