//! Prints reports: as a table, or the same facts in JSON or YAML.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stdout};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::ValueEnum;
use nix::sys::signalfd::SignalFd;
use serde::Serialize;
use tabled::Table;
use tabled::builder::Builder;
use tabled::settings::peaker::Priority;
use tabled::settings::{Style, Width};

use super::error::{Error, Result};
use super::signals::may_write;
use super::{columns, escape};

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

/// Prints `report` on standard output; `table` makes its table.
pub fn print<T: Serialize>(
    format: Format,
    report: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<()> {
    put(&written(format, report, table)?)
}

/// Writes `text` to standard output. Fails if not all of it gets there, as on a full disk.
pub fn put(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    done.map_err(|e| Error::because_of("standard output", e))
}

/// As [`put`], for a command that has caught its signals. If one of them arrives, or `until`
/// passes, while nobody reads the output, returns false and does not write the rest.
pub fn put_until(text: &str, signals: &SignalFd, until: Option<Instant>) -> Result<bool> {
    write_until(&mut stdout().lock(), text, signals, until)
}

/// A pipe or terminal that poll(2) calls writable takes this many bytes without blocking (pipe(7),
/// PIPE_BUF).
const WITHOUT_WAIT: usize = 4096;

fn write_until(
    out: &mut (impl Write + AsFd),
    text: &str,
    signals: &SignalFd,
    until: Option<Instant>,
) -> Result<bool> {
    for part in text.as_bytes().chunks(WITHOUT_WAIT) {
        if !may_write(signals, out.as_fd(), until)? {
            return Ok(false);
        }
        let done = out.write_all(part).and_then(|()| out.flush());
        done.map_err(|e| Error::because_of("standard output", e))?;
    }
    Ok(true)
}

/// The output of [`print`]: fit for a terminal, whatever names it holds.
pub fn written<T: Serialize>(
    format: Format,
    report: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<String> {
    let failed = |e: &dyn std::fmt::Display| Error::failure(format!("writing the report: {e}"));
    let json = || {
        let json = serde_json::to_string_pretty(report).map_err(|e| failed(&e))?;
        Ok(escape::json(&json).into_owned() + "\n")
    };
    match format {
        Format::Table => Ok(escape::lines(&table(report)).into_owned() + "\n"),
        Format::Json => json(),
        Format::Yaml => {
            let yaml = serde_yaml::to_string(report).map_err(|e| failed(&e))?;
            // YAML has no escapes outside double quotes; JSON, which is also YAML, has
            // them in all text.
            if yaml.contains(escape::is_unfit_in_lines) { json() } else { Ok(yaml) }
        }
    }
}

/// `value` as one line of JSON, with its line feed.
pub fn json_line(value: &impl Serialize) -> Result<String> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|e| Error::failure(format!("writing JSON: {e}")))?;
    Ok(escape::json(&line).into_owned() + "\n")
}

/// `screen` as a terminal shows it in place of the previous one: it starts at the upper left, and
/// what is left below it is cleared.
pub fn redrawn(screen: &str) -> String {
    let screen = escape::lines(screen).replace('\n', "\x1b[K\n");
    format!("\x1b[H{screen}\x1b[K\n\x1b[J")
}

/// Such as "1 rule", "2 rules".
pub fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A table cell's text, fit for a terminal: its only line feeds are between its own lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell(String);

impl Cell {
    /// Several lines in one cell.
    pub fn lines(lines: &[String]) -> Self {
        let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| escape::line(line)).collect();
        Self(lines.join("\n"))
    }

    /// Adds text to its last line.
    pub fn push(&mut self, text: &str) {
        self.0 += &escape::line(text);
    }

    /// The old value, and on the next line its replacement.
    pub fn then(&self, after: &Self) -> Self {
        Self(format!("{}\n-> {}", self.0, after.0))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self(escape::line(text).into_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// A row of texts, such as the head.
pub fn row<T: From<&'static str>, const N: usize>(cells: [&'static str; N]) -> Vec<T> {
    cells.map(Into::into).into()
}

/// Whether tables may be wider than the terminal.
static WIDE: AtomicBool = AtomicBool::new(false);

/// From now on tables are as wide as their content.
pub fn be_wide() {
    WIDE.store(true, Ordering::Relaxed);
}

/// A table of sentences, no wider than the terminal: long cells continue on the next line.
pub fn table<T: Into<Cell>>(rows: Vec<Vec<T>>) -> String {
    let mut table = built(rows);
    if let Some(width) = width() {
        table.with(Width::wrap(width).priority(Priority::max(true)).keep_words(true));
    }
    table.to_string()
}

/// A table with a line for each row, no wider than the terminal: long cells are cut.
pub fn listing<T: Into<Cell> + Clone>(rows: Vec<Vec<T>>) -> String {
    listing_without(&[], rows)
}

/// As [`listing`]. While the table is too wide, columns whose head is in `spare` are left out, in
/// this order. A line under the table names them.
pub fn listing_without<T: Into<Cell> + Clone>(spare: &[&str], rows: Vec<Vec<T>>) -> String {
    listing_within(width(), spare, rows)
}

fn listing_within<T: Into<Cell> + Clone>(
    width: Option<usize>,
    spare: &[&str],
    mut rows: Vec<Vec<T>>,
) -> String {
    let Some(width) = width else { return built(rows).to_string() };
    let mut left_out = Vec::new();
    for head in spare {
        if built(rows.clone()).total_width() <= width {
            break;
        }
        let heads = rows.first().into_iter().flatten().cloned().map(Into::into);
        let Some(column) = heads.into_iter().position(|cell: Cell| cell.0 == *head) else {
            continue;
        };
        rows.iter_mut().filter(|row| row.len() > column).for_each(|row| drop(row.remove(column)));
        left_out.push(*head);
    }
    let mut table = built(rows);
    table.with(Width::truncate(width).suffix("…").priority(Priority::max(true)));
    match left_out.is_empty() {
        true => table.to_string(),
        false => format!("{table}\n--wide also shows: {}", left_out.join(", ")),
    }
}

fn built<T: Into<Cell>>(rows: Vec<Vec<T>>) -> Table {
    let mut builder = Builder::default();
    for row in rows {
        builder.push_record(row.into_iter().map(|cell| cell.into().0));
    }
    let mut table = builder.build();
    table.with(Style::psql());
    table
}

/// A sentence in lines no wider than the terminal.
pub fn wrapped(text: &str) -> Vec<String> {
    let text = escape::line(text);
    width().map_or_else(|| vec![text.to_string()], |width| columns::wrapped(&text, width))
}

/// The terminal's width; `None` without a terminal, or if tables may be wider.
pub fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size().filter(|_| stdout().is_terminal())?;
    (!WIDE.load(Ordering::Relaxed)).then_some(usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use nix::sys::signal::SigSet;

    use super::*;

    #[test]
    fn a_reader_that_stops_reading_keeps_nobody_from_ending() {
        let signals = SignalFd::new(&SigSet::empty()).unwrap();
        let text = "0123456789".repeat(100_000);
        let write = |until: Duration| {
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let is_read = until > BRIEF;
            let read = std::thread::spawn(move || {
                let mut read = String::new();
                if is_read {
                    reader.read_to_string(&mut read).unwrap();
                }
                (read, reader)
            });
            let done = write_until(&mut writer, &text, &signals, Some(Instant::now() + until));
            drop(writer);
            (done.unwrap(), read.join().unwrap().0)
        };
        const BRIEF: Duration = Duration::from_millis(50);
        assert_eq!(write(BRIEF), (false, String::new()));
        assert!(write(Duration::from_secs(600)) == (true, text.clone()));
        // A reader that is gone is an error.
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(write_until(&mut writer, &text, &signals, None).is_err());
    }

    #[test]
    fn a_listing_fits_and_shows_what_it_cuts() {
        let rows = || {
            let long = "/kubepods.slice/kubepods-pod0a1b2c3d.slice/cri-containerd-4e5f.scope";
            let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
            vec![row(["TID", "cgroup", "rule"]), row(["4711", long, "upf"])]
        };
        let text = listing_within(Some(40), &[], rows());
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        let last = text.lines().last().unwrap();
        assert!(
            last.contains("4711") && last.contains("/kubepods") && last.contains("…"),
            "{text}"
        );
        assert!(last.trim_end().ends_with("upf"), "{text}");
        assert!(!listing_within(None, &["cgroup"], rows()).contains("…"));
        let spare = listing_within(Some(40), &["rule", "cgroup", "TID"], rows());
        let lines: Vec<&str> = spare.lines().map(str::trim).collect();
        assert_eq!(lines, ["TID", "------", "4711", "--wide also shows: rule, cgroup"]);
    }
}
