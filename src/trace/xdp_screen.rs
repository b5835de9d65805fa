//! How a trace of an XDP program is shown to people.

use super::feed::Feed;
use super::screen::{cut, table, time};
use super::xdp_runs::{Runs, VERDICTS};
use crate::base::{columns, escape};

const HEAD: [&str; 6] = ["CPU", "runs", "per s", "mean", "longest", "CPU time"];

/// The table, with a line for each CPU, and the notes under it, in at most `height` lines of
/// `width` columns. The notes take at most half of the lines.
pub fn screen(all: &[Runs], notes: Vec<String>, (width, height): (usize, usize)) -> String {
    let notes = cut(notes, height / 2, "notes");
    let below = |mut lines: Vec<String>| {
        if !notes.is_empty() {
            lines.push(String::new());
            lines.extend(notes.iter().cloned());
        }
        let fitted = lines.iter().map(|line| columns::fit(line, width));
        fitted.collect::<Vec<_>>().join("\n")
    };
    if all.is_empty() {
        return below(vec!["no packets yet".into()]);
    }
    let head: Vec<&str> = HEAD.into_iter().chain(VERDICTS).chain(["interrupts"]).collect();
    // The head, the line under it, one for the CPUs left out, and the cursor's line.
    let other = 4 + if notes.is_empty() { 0 } else { 1 + notes.len() };
    let room = height.saturating_sub(other).max(1);
    let mut lines = table(&head, all.iter().take(room).map(cells));
    if all.len() > room {
        lines.push(format!("and {} more CPUs", all.len() - room));
    }
    below(lines)
}

fn cells(runs: &Runs) -> Vec<String> {
    let Runs { cpu, runs: count, runs_per_second, mean_ns, longest_ns, share, verdicts, irqs } =
        runs;
    let mut cells = vec![
        cpu.to_string(),
        count.to_string(),
        format!("{runs_per_second:.0}"),
        time(*mean_ns),
        time(Some(*longest_ns)),
        format!("{:.1}%", share * 100.0),
    ];
    cells.extend(verdicts.all().map(|n| n.to_string()));
    cells.push(interrupts(irqs));
    cells
}

/// A CPU's runs as one line.
pub fn line(runs: &Runs) -> String {
    let verdicts = VERDICTS.iter().zip(runs.verdicts.all());
    let verdicts: Vec<String> = verdicts.map(|(name, n)| format!("{name}={n}")).collect();
    let mut line = format!(
        "cpu={} runs={} per_s={:.0} mean={} longest={} cpu_time={:.1}% {}",
        runs.cpu,
        runs.runs,
        runs.runs_per_second,
        time(runs.mean_ns),
        time(Some(runs.longest_ns)),
        runs.share * 100.0,
        verdicts.join(" "),
    );
    if !runs.irqs.is_empty() {
        line += &format!(" irqs=\"{}\"", interrupts(&runs.irqs));
    }
    escape::line(&line).into_owned()
}

/// The first two interrupts.
fn interrupts(irqs: &[Feed]) -> String {
    let irqs = irqs.iter().take(2).map(|Feed { nic, irq, name, per_second, .. }| {
        format!("{nic} IRQ {irq} ({name}) {per_second:.0}/s")
    });
    irqs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape::NASTY;
    use crate::trace::xdp_runs::Verdicts;

    fn runs(cpu: usize, nic: &str) -> Runs {
        let (nic, name) = (nic.to_owned(), "virtio0-input.0".to_owned());
        Runs {
            cpu,
            runs: 120,
            runs_per_second: 99.6,
            mean_ns: Some(412),
            longest_ns: 12_300,
            share: 0.0419,
            verdicts: Verdicts { pass: 20, redirect: 100, ..Verdicts::default() },
            irqs: vec![Feed { cpu, nic, irq: 27, name, per_second: 98.0 }],
        }
    }

    #[test]
    fn a_line_has_every_number() {
        assert_eq!(
            line(&runs(1, "eth0")),
            "cpu=1 runs=120 per_s=100 mean=412ns longest=12us cpu_time=4.2% aborted=0 drop=0 \
             pass=20 tx=0 redirect=100 irqs=\"eth0 IRQ 27 (virtio0-input.0) 98/s\""
        );
        assert!(!line(&runs(1, NASTY)).contains(escape::is_unfit_in_lines));
    }

    #[test]
    fn a_screen_holds_what_fits() {
        let all: Vec<Runs> = (0..30).map(|cpu| runs(cpu, NASTY)).collect();
        let text = screen(&all, Vec::new(), (80, 12));
        assert!(text.lines().count() < 12, "{text}");
        assert!(text.ends_with("and 22 more CPUs"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert!(!text.replace('\n', "").contains(escape::is_unfit_in_lines), "{text:?}");
        assert_eq!(screen(&[], Vec::new(), (80, 12)), "no packets yet");
        let notes = ["eth0 has lost its XDP program".to_owned()];
        let text = screen(&all, notes.to_vec(), (80, 12));
        assert!(text.lines().count() < 12, "{text}");
        assert!(text.ends_with(&format!("and 24 more CPUs\n\n{}", notes[0])), "{text}");
        let many = vec![notes[0].clone(); 20];
        assert!(screen(&all, many, (80, 12)).lines().count() < 12);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let text = screen(&[runs(1, "中文字符号")], Vec::new(), (100, 12));
        assert!(text.contains('中'), "{text}");
        assert!(text.lines().all(|line| columns::width(line) <= 100), "{text}");
    }
}
