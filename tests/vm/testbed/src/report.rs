//! The results: Markdown tables, and JSON with every sample.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::host::Usage;
use crate::stats::Summary;

/// The pooled samples of one row.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    pub name: String,
    pub sent: usize,
    pub rtt_ms: Vec<f64>,
    pub error: Option<String>,
    /// How long the virtual CPUs ran and waited meanwhile, where known.
    #[serde(serialize_with = "as_percent", rename = "host_wait_percent")]
    pub host: Option<Usage>,
}

fn as_percent<S: Serializer>(host: &Option<Usage>, serializer: S) -> Result<S::Ok, S::Error> {
    host.and_then(Usage::waited_percent).serialize(serializer)
}

impl Row {
    pub fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// `None` if the row failed or nothing came back.
    fn summary(&self) -> Option<Summary> {
        if self.error.is_some() { None } else { Summary::of(&self.rtt_ms) }
    }

    pub fn failed(&self) -> bool {
        self.summary().is_none()
    }

    fn loss_percent(&self) -> f64 {
        (self.sent - self.rtt_ms.len()) as f64 * 100.0 / self.sent as f64
    }

    fn why(&self) -> &str {
        self.error.as_deref().unwrap_or("no replies")
    }
}

/// Round-trip times of every row.
pub fn times(rows: &[Row]) -> String {
    let mut table = String::from(
        "| RTT in ms | min | avg | p99 | max | loss |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let line = match row.summary() {
            Some(Summary { min, avg, p99, max, .. }) => {
                let loss = row.loss_percent();
                format!("{min:.3} | {avg:.3} | {p99:.3} | {max:.3} | {loss:.1} %")
            }
            None => format!("failed: {} | | | |", row.why()),
        };
        let _ = writeln!(table, "| {} | {line} |", row.name);
    }
    table
}

/// Every row's average and p99 as multiples of those of the rows named in `bases`,
/// and how much of the time its virtual CPUs waited for a CPU of the host.
pub fn multiples(rows: &[Row], bases: &[&str]) -> String {
    let bases: Vec<(&str, Summary)> = bases
        .iter()
        .filter_map(|&name| Some((name, rows.iter().find(|r| r.name == name)?.summary()?)))
        .collect();
    let mut table = String::from("| multiples |");
    for (name, _) in &bases {
        let _ = write!(table, " avg / {name} | p99 / {name} |");
    }
    let _ =
        writeln!(table, " waited for the host |\n|---|{}---:|", "---:|---:|".repeat(bases.len()));
    for row in rows {
        let Some(summary) = row.summary() else { continue };
        let _ = write!(table, "| {} |", row.name);
        for (_, base) in &bases {
            let (avg, p99) = (summary.avg / base.avg, summary.p99 / base.p99);
            let _ = write!(table, " {avg:.2} | {p99:.2} |");
        }
        let _ = match row.host.and_then(Usage::waited_percent) {
            Some(percent) => writeln!(table, " {percent:.0} % |"),
            None => writeln!(table, " unknown |"),
        };
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, sent: usize, rtt_ms: &[f64], error: Option<&str>) -> Row {
        Row {
            name: name.into(),
            sent,
            rtt_ms: rtt_ms.into(),
            error: error.map(str::to_owned),
            host: None,
        }
    }

    #[test]
    fn a_table_of_times() {
        let rows = [
            row("idle", 4, &[1.0, 2.0, 3.0], None),
            row("broken", 4, &[1.0], Some("why")),
            row("silent", 4, &[], None),
        ];
        assert_eq!(
            times(&rows),
            "\
| RTT in ms | min | avg | p99 | max | loss |
|---|---:|---:|---:|---:|---:|
| idle | 1.000 | 2.000 | 3.000 | 3.000 | 25.0 % |
| broken | failed: why | | | | |
| silent | failed: no replies | | | | |
"
        );
        assert_eq!(rows.map(|r| r.failed()), [false, true, true]);
    }

    #[test]
    fn a_table_of_multiples_leaves_out_what_failed() {
        let rows = [
            row("idle", 1, &[1.0], None),
            row("load", 1, &[2.5], None),
            row("fifo", 1, &[2.0], Some("why")),
        ];
        assert_eq!(
            multiples(&rows, &["idle", "fifo"]),
            "\
| multiples | avg / idle | p99 / idle | waited for the host |
|---|---:|---:|---:|
| idle | 1.00 | 1.00 | unknown |
| load | 2.50 | 2.50 | unknown |
"
        );
    }
}
