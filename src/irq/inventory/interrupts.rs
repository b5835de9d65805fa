//! The counts in /proc/interrupts (proc_interrupts(5)).
//!
//! `show_interrupts()` writes the file (kernel/irq/proc.c). A heading names the CPUs that are
//! online. Each IRQ in use has a line `IRQ: COUNT... CHIP HWIRQ-TRIGGER  ACTION, ACTION...`,
//! with a count for each CPU of the heading. The last lines have a name instead of a number
//! (NMI, LOC, ERR). They are not IRQs, and this module skips them.

use std::fs;
use std::path::Path;

use super::source::Source;
use crate::base::error::{Error, Result};

/// How many times to read a malformed file before giving up.
const READS: usize = 4;

/// One reading of /proc/interrupts, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// The CPUs that were online, ascending.
    pub cpus: Vec<u32>,
    /// Ascending by number.
    pub irqs: Vec<Interrupt>,
}

/// An IRQ that has a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    pub irq: u32,
    /// How many interrupts each CPU of [`Interrupts::cpus`] has taken. The kernel's 32-bit
    /// counts wrap around.
    pub counts: Vec<u32>,
    pub source: Source,
    /// The handlers' names. A shared line has several.
    pub names: Vec<String>,
}

impl Interrupt {
    /// The sum over all CPUs.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

/// What is wrong with /proc/interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the first line does not name the CPUs")]
    Heading,
    #[error("IRQ {0} has fewer counts than the first line has CPUs")]
    FewerCounts(u32),
    #[error("IRQ {0} has more counts than the first line has CPUs")]
    MoreCounts(u32),
}

impl Interrupts {
    /// Reads `interrupts` in `proc_root` (/proc except in tests).
    ///
    /// Fails when the file cannot be read or is malformed.
    pub fn read(proc_root: &Path) -> Result<Self> {
        let path = proc_root.join("interrupts");
        let mut reads = 1;
        loop {
            let text = fs::read(&path).map_err(|e| Error::because_of(path.display(), e))?;
            match Self::parse(&text) {
                Ok(interrupts) => return Ok(interrupts),
                Err(e) if reads == READS => {
                    return Err(Error::because_of(path.display(), e));
                }
                // The kernel writes the file in pieces. A CPU may have come or gone since the
                // heading.
                Err(_) => reads += 1,
            }
        }
    }

    /// Parses the text of /proc/interrupts.
    pub fn parse(text: &[u8]) -> std::result::Result<Self, Malformed> {
        let mut lines = text.split(|&byte| byte == b'\n');
        let cpus = heading(lines.next().unwrap_or_default())?;
        let mut irqs = Vec::new();
        for text in lines {
            irqs.extend(line(text, cpus.len())?);
        }
        // The kernel writes them in this order. `get` relies on it.
        irqs.sort_by_key(|interrupt: &Interrupt| interrupt.irq);
        Ok(Self { cpus, irqs })
    }

    /// The IRQ with that number.
    pub fn get(&self, irq: u32) -> Option<&Interrupt> {
        let at = self.irqs.binary_search_by_key(&irq, |interrupt| interrupt.irq).ok()?;
        Some(&self.irqs[at])
    }

    /// Each CPU with its count of `interrupt`, which is one of [`Self::irqs`].
    pub fn per_cpu<'a>(&'a self, interrupt: &'a Interrupt) -> impl Iterator<Item = (u32, u32)> {
        self.cpus.iter().copied().zip(interrupt.counts.iter().copied())
    }

    /// The interrupts since `before`, of the IRQs in use now, on the CPUs that were online both
    /// times.
    ///
    /// An IRQ that was not in use before counts from 0. So does one that was released and requested
    /// again in between, for example by a reset of the NIC, if the counts show that.
    pub fn since(&self, before: &Self) -> Self {
        // The index of each CPU now and before.
        let columns: Vec<(usize, usize)> = self
            .cpus
            .iter()
            .enumerate()
            .filter_map(|(now, cpu)| Some((now, before.cpus.binary_search(cpu).ok()?)))
            .collect();
        let cpus = columns.iter().map(|&(now, _)| self.cpus[now]).collect();
        let irqs = self.irqs.iter().map(|now| {
            // A number may pass to another device.
            let same = before.get(now.irq).filter(|before| now.source == before.source);
            let counts: Option<Vec<u32>> = same.and_then(|before| {
                columns.iter().map(|&(n, b)| counted(now.counts[n], before.counts[b])).collect()
            });
            let anew = || columns.iter().map(|&(n, _)| now.counts[n]).collect();
            Interrupt { counts: counts.unwrap_or_else(anew), ..now.clone() }
        });
        Self { cpus, irqs: irqs.collect() }
    }
}

/// How many interrupts arrived between two counts; `None` when the count restarted from 0.
fn counted(now: u32, before: u32) -> Option<u32> {
    let counted = now.wrapping_sub(before);
    // A count that went down has wrapped around if the wrapping difference is small. At a million
    // interrupts a second, a quarter of the range takes a quarter of an hour.
    (now >= before || counted < u32::MAX / 4).then_some(counted)
}

/// The CPUs in the first line.
fn heading(line: &[u8]) -> std::result::Result<Vec<u32>, Malformed> {
    let line = String::from_utf8_lossy(line);
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse().ok();
    let cpus: Option<Vec<u32>> = line.split_ascii_whitespace().map(cpu).collect();
    cpus.filter(|cpus| !cpus.is_empty() && cpus.is_sorted_by(|a, b| a < b))
        .ok_or(Malformed::Heading)
}

/// Parses a line with the counts of `cpus` CPUs; `None` when the line is not an IRQ's.
fn line(line: &[u8], cpus: usize) -> std::result::Result<Option<Interrupt>, Malformed> {
    let Some((irq, rest)) = number(line) else { return Ok(None) };
    let Some(mut rest) = rest.strip_prefix(b":") else { return Ok(None) };
    let mut counts = Vec::with_capacity(cpus);
    while let Some((count, after)) = column(rest) {
        counts.push(count);
        rest = after;
        // No controller's name is a number, so one more number is one more CPU.
        if counts.len() > cpus {
            break;
        }
    }
    if counts.len() != cpus {
        let more = counts.len() > cpus;
        return Err(if more { Malformed::MoreCounts(irq) } else { Malformed::FewerCounts(irq) });
    }
    let rest = String::from_utf8_lossy(rest);
    let (source, names) = description(rest.trim_start());
    Ok(Some(Interrupt { irq, counts, source, names }))
}

/// Parses what follows the counts: the source, and the names of the handlers.
fn description(text: &str) -> (Source, Vec<String>) {
    // Two spaces precede the actions. A line without actions ends with the padding of the trigger.
    let split = text.rsplit_once("  ").filter(|_| !text.ends_with(' '));
    let (source, actions) = split.unwrap_or((text, ""));
    let names = actions.split(", ").filter(|name| !name.is_empty()).map(Into::into).collect();
    (Source::parse(source), names)
}

/// A number that ends at a space or the end of the line, and what follows.
fn column(text: &[u8]) -> Option<(u32, &[u8])> {
    let (value, rest) = number(text)?;
    matches!(rest.first(), None | Some(b' ')).then_some((value, rest))
}

/// A number after spaces, and what follows.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let text = text.trim_ascii_start();
    let mut value: u32 = 0;
    let mut digits = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then(|| (value, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    fn parse(text: &str) -> Interrupts {
        Interrupts::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn counts_and_descriptions() {
        let all = parse(concat!(
            "            CPU0       CPU1       \n",
            "   4:          3          0  IR-IO-APIC    4-edge      ttyS0\n",
            "  16:    1040217        112  IR-IO-APIC   16-fasteoi   i801_smbus, eth1\n",
            " 128:          0 4294967295  IR-PCI-MSIX-0000:07:00.0    0-edge      eth0-TxRx-0\n",
            " NMI:          1          2   Non-maskable interrupts\n",
            " LOC:   12110882   12468534   Local timer interrupts\n",
            "IPI0:         0          0       Rescheduling interrupts\n",
            " ERR:          0\n",
            " MIS:          0\n",
        ));
        assert_eq!(all.cpus, [0, 1]);
        assert_eq!(all.irqs.iter().map(|irq| irq.irq).collect::<Vec<_>>(), [4, 16, 128]);
        let shared = all.get(16).unwrap();
        assert_eq!(shared.counts, [1_040_217, 112]);
        assert_eq!(shared.total(), 1_040_329);
        let source = |chip: &str, hwirq| Source { chip: chip.into(), hwirq: Some(hwirq) };
        assert_eq!(shared.source, source("IR-IO-APIC", 16));
        assert_eq!(shared.names, ["i801_smbus", "eth1"]);
        let msi = all.get(128).unwrap();
        assert_eq!(msi.source, source("IR-PCI-MSIX-0000:07:00.0", 0));
        assert_eq!(all.per_cpu(msi).collect::<Vec<_>>(), [(0, 0), (1, u32::MAX)]);
        assert!(all.get(17).is_none());
    }

    #[test]
    fn formats_of_many_controllers() {
        for (line, chip, hwirq, name) in [
            ("GIC-0  27 Level     arch_timer", "GIC-0", Some(27), "arch_timer"),
            (
                "ITS-PCI-MSIX-0006:01:00.0   1 Edge      mlx5_comp0@pci:0006:01:00.0",
                "ITS-PCI-MSIX-0006:01:00.0",
                Some(1),
                "mlx5_comp0@pci:0006:01:00.0",
            ),
            (
                "9030000.pl061   3 Edge      GPIO Key Poweroff",
                "9030000.pl061",
                Some(3),
                "GPIO Key Poweroff",
            ),
            ("SiFive PLIC   8 Edge      virtio0", "SiFive PLIC", Some(8), "virtio0"),
            ("xen-dyn    -event     eth0-q0-tx", "xen-dyn", None, "eth0-q0-tx"),
            ("xen-percpu    -virq      timer0", "xen-percpu", None, "timer0"),
            ("PCI-MSI-edge      virtio0-input.0", "PCI-MSI-edge", None, "virtio0-input.0"),
            ("None          foo", "None", None, "foo"),
            ("IO-APIC   9-fasteoi ", "IO-APIC", Some(9), ""),
            ("IR-PCI-MSI 524288-edge      eth0", "IR-PCI-MSI", Some(524_288), "eth0"),
        ] {
            let all = parse(&format!("           CPU0       \n  7:          0  {line}\n"));
            let irq = all.get(7).unwrap();
            let found = irq.names.first().map_or("", String::as_str);
            let source = Source { chip: chip.into(), hwirq };
            assert_eq!((&irq.source, found), (&source, name));
        }
    }

    /// A reading with these CPUs; the count of IRQ i on CPU c is `count(i, c)`.
    fn reading(cpus: &[u32], irqs: u32, count: impl Fn(u32, u32) -> u32) -> Vec<u8> {
        use std::io::Write;
        let mut text = b"            ".to_vec();
        cpus.iter().for_each(|cpu| write!(text, "CPU{cpu:<8}").unwrap());
        for irq in 0..irqs {
            write!(text, "\n{irq:>4}:").unwrap();
            cpus.iter().for_each(|&cpu| write!(text, " {:>10}", count(irq, cpu)).unwrap());
            write!(text, "  PCI-MSIX-0000:07:00.0 {irq:>4}-edge      eth0-TxRx-{irq}").unwrap();
        }
        text.push(b'\n');
        text
    }

    #[test]
    fn a_large_machine_with_some_cpus_offline() {
        let cpus: Vec<u32> = (0..515).filter(|cpu| ![3, 64, 100].contains(cpu)).collect();
        let all = Interrupts::parse(&reading(&cpus, 1000, |irq, cpu| irq * 1000 + cpu)).unwrap();
        assert_eq!((&all.cpus, all.irqs.len()), (&cpus, 1000));
        let expected: Vec<_> = cpus.iter().map(|&cpu| (cpu, 999_000 + cpu)).collect();
        assert_eq!(all.per_cpu(&all.irqs[999]).collect::<Vec<_>>(), expected);
        assert!(all.since(&all).irqs.iter().all(|irq| irq.total() == 0));
    }

    #[test]
    fn the_difference_of_two_readings() {
        let parse = |cpus: &[u32], irqs, count: &dyn Fn(u32, u32) -> u32| {
            Interrupts::parse(&reading(cpus, irqs, count)).unwrap()
        };
        // CPU 2 goes offline, CPU 3 comes online, and IRQ 2 appears.
        let before = parse(&[0, 1, 2], 2, &|irq, cpu| 10 * irq + cpu);
        let now = parse(&[0, 1, 3], 3, &|irq, cpu| 10 * irq + cpu + 5);
        let since = now.since(&before);
        assert_eq!(since.cpus, [0, 1]);
        let counts: Vec<_> = since.irqs.iter().map(|irq| irq.counts.clone()).collect();
        assert_eq!(counts, [[5, 5], [5, 5], [25, 26]]);
        assert_eq!(since.irqs[2].names, ["eth0-TxRx-2"]);
        assert_eq!(before.since(&now).irqs.len(), 2);
    }

    #[test]
    fn counts_that_wrap_around_and_counts_that_begin_again() {
        let parse = |on_0: u32, on_1: u32| {
            let count = |_, cpu| [on_0, on_1][cpu as usize];
            Interrupts::parse(&reading(&[0, 1], 1, count)).unwrap()
        };
        let since =
            |now: &Interrupts, before: &Interrupts| now.since(before).irqs[0].counts.clone();
        assert_eq!(since(&parse(4, 7), &parse(u32::MAX, 7)), [5, 0]);
        // The vectors were freed and allocated again: all CPUs count from 0.
        assert_eq!(since(&parse(4, 900), &parse(5000, 800)), [4, 900]);
        assert_eq!(since(&parse(4, 900), &parse(3_000_000_000, 800)), [4, 900]);
        // The number has passed to another device.
        let mut other = parse(10, 10);
        other.irqs[0].source.chip = "PCI-MSIX-0000:08:00.0".into();
        assert_eq!(since(&parse(12, 13), &other), [12, 13]);
        // A renamed network device keeps its counts.
        let mut renamed = parse(10, 10);
        renamed.irqs[0].names = vec!["eth7-TxRx-0".into()];
        assert_eq!(since(&parse(12, 13), &renamed), [2, 3]);
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, what) in [
            ("", "the first line does not name the CPUs"),
            ("  1: 0 IO-APIC\n", "the first line does not name the CPUs"),
            ("  CPU1 CPU0\n", "the first line does not name the CPUs"),
            (
                "  CPU0 CPU1\n  1: 0 IO-APIC 1-edge  x\n",
                "IRQ 1 has fewer counts than the first line has CPUs",
            ),
            (
                "  CPU0\n  1: 0 0 IO-APIC 1-edge  x\n",
                "IRQ 1 has more counts than the first line has CPUs",
            ),
        ] {
            assert_eq!(Interrupts::parse(text.as_bytes()).unwrap_err().to_string(), what, "{text}");
        }
        let tree = Tree::new();
        assert!(Interrupts::read(&tree.proc()).unwrap_err().what.contains("proc/interrupts: "));
        tree.write("proc/interrupts", "");
        let what = Interrupts::read(&tree.proc()).unwrap_err().what;
        assert!(what.ends_with("proc/interrupts: the first line does not name the CPUs"), "{what}");
    }

    #[test]
    fn of_this_machine() {
        let all = Interrupts::read(Path::new("/proc")).unwrap();
        assert!(all.irqs.iter().all(|irq| irq.counts.len() == all.cpus.len()));
        assert!(all.since(&all).irqs.iter().all(|irq| irq.total() == 0));
    }
}
