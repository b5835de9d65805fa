//! How a trace is shown to people: as a table redrawn in place, and as lines.

use std::io::stdout;
use std::iter;

use super::attach::How;
use super::counts::Context;
use super::events::Event;
use super::feed::Feed;
use super::histogram::ENDLESS;
use super::rows::{CpuTotal, Row};
use super::sections::Section;
use crate::base::{columns, escape, output};
use crate::gtp::{Direction, Function, Stage};

/// The size if the terminal does not tell its own.
const SCREEN: (usize, usize) = (120, 40);

/// The width and height of the output: the terminal's if the output is redrawn in place, else as
/// wide as a table may be.
pub fn size(in_place: bool) -> (usize, usize) {
    match terminal_size::terminal_size_of(stdout()) {
        _ if !in_place => (output::width().unwrap_or(usize::MAX), usize::MAX),
        Some((width, height)) => (width.0.into(), height.0.into()),
        None => SCREEN,
    }
}

/// The table of rows and the lines below it, the `notes` last, in fewer than `height` lines of
/// `width` columns. The CPUs take at most a third of the lines, and the notes half of the rest.
pub fn screen(
    rows: &[Row],
    cpus: &[CpuTotal],
    notes: Vec<String>,
    (width, height): (usize, usize),
) -> String {
    let cpus = cut(cpus.iter().map(cpu_line).collect(), height / 3, "CPUs");
    // The head, the line under it, one for the rows left out, an empty one, and the cursor's line.
    let left = height.saturating_sub(cpus.len() + 5);
    let notes = cut(notes, (left / 2).max(2).min(left.saturating_sub(1)), "notes");
    let room = left.saturating_sub(notes.len()).max(1);
    let below: Vec<String> = cpus.into_iter().chain(notes).collect();
    let mut lines = table(&HEAD, rows.iter().take(room).map(cells));
    match rows.len() {
        0 => lines.push("no packets yet".into()),
        all if all > room => lines.push(format!("and {} more", all - room)),
        _ => {}
    }
    lines.push(String::new());
    lines.extend(below);
    lines.iter().map(|line| fitted(line, width)).collect::<Vec<_>>().join("\n")
}

/// The sections below the table, an empty line before each, in at most two thirds of `height`.
pub fn below(sections: &[Section], (width, height): (usize, usize)) -> Vec<String> {
    let lines = sections.iter().filter(|section| !section.table.is_empty());
    let lines = lines.flat_map(|section| iter::once("").chain(section.table.iter().map(|l| &**l)));
    let lines = cut(lines.map(Into::into).collect(), height / 3 * 2, "lines");
    lines.iter().map(|line| fitted(line, width)).collect()
}

/// At most `most` of the lines, and at least one. Where some are left out, the last says how many.
pub fn cut(mut lines: Vec<String>, most: usize, what: &str) -> Vec<String> {
    let all = lines.len();
    if all > most {
        lines.truncate(most.saturating_sub(1));
        lines.push(format!("and {} more {what}", all - lines.len()));
    }
    lines
}

/// `line`, cut to fit a terminal of this width.
fn fitted(line: &str, width: usize) -> String {
    columns::fit(&escape::line(line), width).to_owned()
}

/// A table's lines. Its longest cells are cut to fit the terminal.
pub fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    let rows = iter::once(head).chain(rows).collect();
    output::listing(rows).lines().map(Into::into).collect()
}

const HEAD: [&str; 13] = [
    "task", "TID", "process", "CPU", "as", "dir", "function", "packets", "per s", "bytes", "p50",
    "p99", "last",
];

fn cells(row: &Row) -> Vec<String> {
    let task = match row.home.short() {
        home if home.is_empty() => row.comm.clone(),
        home => format!("{} ({home})", row.comm),
    };
    vec![
        task,
        id(row.tid, row.tid_inside),
        id(row.tgid, row.tgid_inside),
        row.cpu.to_string(),
        context(row.context).into(),
        direction(row.direction).into(),
        indented(row),
        row.packets.to_string(),
        format!("{:.0}", row.packets_per_second),
        bytes(row.bytes),
        time(row.p50_ns),
        time(row.p99_ns),
        ago(row.last_seen_ms),
    ]
}

/// Indents stages of a packet's path under its entry.
fn indented(row: &Row) -> String {
    match row.stage {
        Stage::Entry => row.function.clone(),
        _ => format!(" {}", row.function),
    }
}

/// A row as one line.
pub fn line(row: &Row) -> String {
    let mut line = format!(
        "{} tid={} pid={} cpu={} as={} dir={} function={} packets={} per_s={:.0} bytes={} p50={} p99={}",
        row.comm,
        id(row.tid, row.tid_inside),
        id(row.tgid, row.tgid_inside),
        row.cpu,
        context(row.context),
        direction(row.direction),
        row.function,
        row.packets,
        row.packets_per_second,
        row.bytes,
        time(row.p50_ns),
        time(row.p99_ns),
    );
    let home = row.home.short();
    if !home.is_empty() {
        line += &format!(" in=\"{home}\"");
    }
    escape::line(&line).into_owned()
}

/// A packet as one line, beginning with its time in seconds since boot.
pub fn event_line(event: &Event) -> String {
    let line = format!(
        "{}.{:09} {} tid={} pid={} cpu={} as={} dir={} function={} bytes={}",
        event.at_ns / 1_000_000_000,
        event.at_ns % 1_000_000_000,
        event.comm,
        id(event.tid, event.tid_inside),
        id(event.tgid, event.tgid_inside),
        event.cpu,
        context(event.context),
        direction(event.direction),
        event.function,
        event.bytes,
    );
    escape::line(&line).into_owned()
}

/// A CPU's totals.
pub fn cpu_line(total: &CpuTotal) -> String {
    let CpuTotal { cpu, packets_per_second, in_softirq, irqs } = total;
    let mut line = format!(
        "CPU {cpu}: {packets_per_second:.0} packets/s, {in_softirq:.0} of them for no task (softirq, idle)"
    );
    for Feed { nic, irq, name, per_second, .. } in irqs.iter().take(2) {
        line += &format!("; {nic} IRQ {irq} ({name}) {per_second:.0}/s");
    }
    line
}

/// How functions are traced: one line for the traced ones and one for the others; with
/// `verbose` a line for each.
pub fn attached(
    functions: &[Function],
    hows: &[How],
    module: Option<&str>,
    verbose: bool,
) -> Vec<String> {
    let all = || functions.iter().zip(hows);
    if verbose {
        return all().map(|(function, how)| super::screen::how(function, how, module)).collect();
    }
    let together = |is_traced: bool| {
        // Ordered by the first of each.
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for (function, how) in all().filter(|(_, how)| how.is_traced() == is_traced) {
            let means = means(&function.symbol, how, module);
            match groups.iter_mut().find(|(known, _)| *known == means) {
                Some((_, names)) => names.push(&function.symbol),
                None => groups.push((means, vec![&function.symbol])),
            }
        }
        let groups = groups.iter().map(|(means, names)| format!("{} ({means})", names.join(", ")));
        groups.collect::<Vec<_>>().join("; ")
    };
    let lines = [("tracing", together(true)), ("not traced", together(false))];
    let lines = lines.iter().filter(|(_, names)| !names.is_empty());
    lines.map(|(what, names)| format!("{what}: {names}")).collect()
}

/// How a function is traced or why not, in a few words.
fn means(symbol: &str, how: &How, module: Option<&str>) -> String {
    match how {
        How::Fentry => "fentry, fexit".into(),
        How::Fexit => "fexit".into(),
        How::Kprobe(on) if on == symbol => "kprobe, kretprobe".into(),
        How::Kprobe(on) => format!("kprobe, kretprobe on {on}; no byte counts"),
        How::Missing => {
            let place = module.map_or("this kernel".into(), |module| format!("this {module}"));
            format!("not in {place}, or inlined")
        }
        How::Refused(why) => format!("the kernel refused: {why}"),
    }
}

/// How a function is traced, and what to do if it is not.
fn how(function: &Function, how: &How, module: Option<&str>) -> String {
    let symbol = &function.symbol;
    match how {
        How::Fentry => format!("{symbol}: fentry, fexit"),
        How::Fexit => format!("{symbol}: fexit"),
        How::Kprobe(on) if on == symbol => format!("{symbol}: kprobe, kretprobe"),
        How::Kprobe(on) => format!("{symbol}: kprobe, kretprobe on {on} (no byte counts)"),
        How::Missing => {
            let place = module.map_or("this kernel".into(), |module| format!("this {module}"));
            format!(
                "{symbol}: not traced: not in {place}, or inlined; what it does counts in its caller"
            )
        }
        How::Refused(why) => format!(
            "{symbol}: not traced: the kernel refused ({why}); see \
             /sys/kernel/debug/kprobes/blacklist and available_filter_functions"
        ),
    }
}

fn id(outside: u32, inside: u32) -> String {
    match outside == inside {
        true => outside.to_string(),
        false => format!("{outside} ({inside} inside)"),
    }
}

fn context(context: Context) -> &'static str {
    match context {
        Context::Task => "task",
        Context::Softirq => "softirq",
        Context::Idle => "idle",
    }
}

pub fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Uplink => "up",
        Direction::Downlink => "down",
        Direction::Both => "-",
        Direction::Received => "in",
        Direction::Sent => "out",
    }
}

pub fn direction_in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::Uplink => "uplink",
        Direction::Downlink => "downlink",
        Direction::Both => "both directions",
        Direction::Received => "received",
        Direction::Sent => "sent",
    }
}

pub fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ENDLESS) => ">3s".into(),
        Some(ns) if ns < 10_000 => format!("{ns}ns"),
        Some(ns) if ns < 10_000_000 => format!("{}us", ns / 1_000),
        Some(ns) => format!("{}ms", ns / 1_000_000),
    }
}

pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes}"),
        10_000..10_000_000 => format!("{}k", bytes / 1_000),
        10_000_000..10_000_000_000 => format!("{}M", bytes / 1_000_000),
        _ => format!("{}G", bytes / 1_000_000_000),
    }
}

fn ago(ms: u64) -> String {
    match ms {
        0..1_000 => "now".into(),
        1_000..60_000 => format!("{}s", ms / 1_000),
        60_000..3_600_000 => format!("{}min", ms / 60_000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape::NASTY;
    use crate::policy::cgroups::Home;
    use crate::trace::functions::Target;
    use crate::trace::histogram::Histogram;

    fn row(tid: u32) -> Row {
        Row {
            comm: "nr-gnb".into(),
            tid,
            tgid: 164,
            tid_inside: tid,
            tgid_inside: 7,
            cpu: 1,
            context: Context::Task,
            function: "gtp_encap_recv".into(),
            direction: Direction::Uplink,
            stage: Stage::Entry,
            packets: 1_200,
            bytes: 123_456,
            packets_per_second: 99.6,
            bytes_per_second: 1e4,
            p50_ns: Some(1_024),
            p99_ns: Some(12_288),
            times: Histogram::default(),
            last_seen_ms: 1_500,
            home: Home { unit: Some("upf.service".into()), ..Home::default() },
        }
    }

    #[test]
    fn a_screen_holds_what_fits() {
        let rows: Vec<Row> = (1..=30).map(row).collect();
        let cpus =
            [CpuTotal { cpu: 1, packets_per_second: 99.6, in_softirq: 0.0, irqs: Vec::new() }];
        let text = screen(&rows, &cpus, vec!["not traced: gtp_rx".into()], (200, 12));
        assert!(text.lines().count() < 12, "{text}");
        assert!(text.contains("and 25 more"), "{text}");
        assert!(text.contains("CPU 1: 100 packets/s, 0 of them"), "{text}");
        assert!(text.ends_with("not traced: gtp_rx"), "{text}");
        for cell in [
            "nr-gnb (upf.service)",
            "164 (7 inside)",
            "task",
            "up",
            "1200",
            "100",
            "123k",
            "1024ns",
            "12us",
            "1s",
        ] {
            assert!(
                text.contains(&format!(" {cell} ")) || text.contains(&format!(" {cell}\n")),
                "{cell}: {text}"
            );
        }
        let narrow = screen(&rows, &cpus, Vec::new(), (40, 12));
        assert!(narrow.lines().all(|line| columns::width(line) <= 40));
        let wide = Row { comm: "中文字符号".into(), ..row(171) };
        let narrow = screen(&[wide], &cpus, vec!["中".repeat(30)], (40, 12));
        assert!(narrow.contains("中文字符号 (upf.service)"), "{narrow}");
        assert!(narrow.lines().all(|line| columns::width(line) <= 40), "{narrow}");
        assert!(screen(&[], &[], Vec::new(), (80, 24)).contains("no packets yet"));
    }

    #[test]
    fn what_is_below_the_table_leaves_room_for_it_and_says_what_is_left_out() {
        let rows: Vec<Row> = (1..=30).map(row).collect();
        let cpu = |cpu| CpuTotal { cpu, packets_per_second: 9.0, in_softirq: 0.0, irqs: vec![] };
        let cpus: Vec<CpuTotal> = (0..30).map(cpu).collect();
        let text = screen(&rows, &cpus, Vec::new(), (200, 12));
        assert!(text.lines().count() < 12, "{text}");
        assert!(text.contains("CPU 2: ") && !text.contains("CPU 3: "), "{text}");
        assert!(text.ends_with("and 27 more CPUs"), "{text}");
        let whole = screen(&rows, &cpus, Vec::new(), (usize::MAX, usize::MAX));
        assert!(whole.contains("CPU 29: ") && !whole.contains("more"), "{whole}");
        let notes = (0..9).map(|port| format!("socket {port}")).collect();
        let text = screen(&rows, &cpus, notes, (200, 12));
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.ends_with("\nsocket 0\nand 8 more notes"), "{text}");
        let table = (0..30).map(|i| format!("line {i}")).collect();
        let section = Section { table, ..Section::default() };
        let lines = below(std::slice::from_ref(&section), (6, 12));
        assert_eq!(lines.len(), 8, "{lines:?}");
        assert_eq!((&*lines[0], &*lines[6], &*lines[7]), ("", "line 5", "and 24"));
        assert_eq!(below(&[section], (200, 60)).len(), 31);
        let wide = Section { table: vec!["中文字符号".into()], ..Section::default() };
        assert_eq!(below(&[wide], (7, 12)), ["", "中文字"]);
    }

    #[test]
    fn no_name_moves_the_cursor() {
        let home = Home { unit: Some(format!("{NASTY}.service")), ..Home::default() };
        let row = Row { comm: NASTY.into(), home, ..row(171) };
        let (nic, name) = (NASTY.to_owned(), NASTY.to_owned());
        let feed = Feed { cpu: 1, nic, irq: 34, name, per_second: 1.0 };
        let cpu = CpuTotal { cpu: 1, packets_per_second: 9.0, in_softirq: 9.0, irqs: vec![feed] };
        let screen = screen(std::slice::from_ref(&row), &[cpu], Vec::new(), (400, 40));
        // The head, the line under it, the row, an empty line, the CPU.
        assert_eq!(screen.lines().count(), 5, "{screen}");
        let event = Event {
            at_ns: 1,
            comm: NASTY.into(),
            tid: 7,
            tgid: 7,
            tid_inside: 7,
            tgid_inside: 7,
            cpu: 1,
            context: Context::Task,
            function: "f".into(),
            direction: Direction::Both,
            bytes: 1,
        };
        for text in [screen, line(&row), event_line(&event)] {
            assert!(text.contains("a\\u{1b}[2J"), "{text}");
            assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
        }
        assert_eq!(line(&row).lines().count() + event_line(&event).lines().count(), 2);
    }

    #[test]
    fn a_line_for_what_is_traced_and_one_for_what_is_not() {
        let names: Vec<String> = (0..6).map(|i| format!("f{i}")).collect();
        let target = Target::functions(&names);
        let functions: Vec<Function> = target.selected(true).cloned().collect();
        let hows = [
            How::Fentry,
            How::Missing,
            How::Fentry,
            How::Missing,
            How::Kprobe("f4.isra.0".into()),
            How::Refused("EINVAL".into()),
        ];
        assert_eq!(
            attached(&functions, &hows, Some("gtp5g"), false),
            [
                "tracing: f0, f2 (fentry, fexit); \
                 f4 (kprobe, kretprobe on f4.isra.0; no byte counts)",
                "not traced: f1, f3 (not in this gtp5g, or inlined); f5 (the kernel refused: EINVAL)",
            ]
        );
        assert_eq!(
            attached(&functions[..1], &hows[..1], None, false),
            ["tracing: f0 (fentry, fexit)"]
        );
        let each = attached(&functions, &hows, Some("gtp5g"), true);
        assert_eq!(each.len(), 6, "{each:?}");
        assert!(each[1].starts_with("f1: not traced: not in this gtp5g, or inlined;"), "{each:?}");
    }

    #[test]
    fn a_line_has_every_number() {
        assert_eq!(
            line(&row(171)),
            "nr-gnb tid=171 pid=164 (7 inside) cpu=1 as=task dir=up function=gtp_encap_recv \
             packets=1200 per_s=100 bytes=123456 p50=1024ns p99=12us in=\"upf.service\""
        );
    }

    #[test]
    fn numbers_stay_short() {
        assert_eq!(
            [time(None), time(Some(9_999)), time(Some(10_000_000))],
            ["-", "9999ns", "10ms"]
        );
        assert_eq!([bytes(9_999), bytes(10_000), bytes(12_345_678_901)], ["9999", "10k", "12G"]);
        assert_eq!(
            [ago(999), ago(59_999), ago(60_000), ago(7_200_000)],
            ["now", "59s", "1min", "2h"]
        );
    }
}
