//! The measured times as a table.

use super::{Report, Row};
use crate::base::output::{count, listing, row};
use crate::base::units::Nanoseconds;

/// A row for each situation.
pub fn table(report: &Report) -> String {
    let head = ["", "scheduler", "probes", "lost", "average", "p50", "p99", "worst"];
    let mut rows = vec![row(head)];
    rows.extend(report.rows.iter().map(cells));
    let mut text = listing(rows);
    if report.rows.iter().any(|row| row.loaded) {
        let cpus = count(report.cpus, "CPU");
        text += &format!("\nload: {} spinning on {cpus}", count(report.threads, "thread"));
    }
    text
}

fn cells(Row { name, scheduler, times, .. }: &Row) -> Vec<String> {
    let time = |ns: Option<u64>| ns.map_or("-".into(), milliseconds);
    let mut cells = vec![name.clone(), scheduler.clone()];
    cells.extend([times.sent, times.lost].map(|count| count.to_string()));
    cells.extend([times.average_ns, times.p50_ns, times.p99_ns, times.worst_ns].map(time));
    cells
}

/// To the microsecond.
fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", Nanoseconds(ns).0 as f64 / 1e6)
}
