//! The findings as a table.

use super::finding::{Level, Report};
use crate::base::output::{count, row, table};

/// A row for each finding, and what there is in all.
pub fn table_of(report: &Report) -> String {
    let mut rows = vec![row(["", "check", "found", "what mends it"])];
    for finding in &report.findings {
        let level = match finding.level {
            Level::Ok => "OK",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "ERROR",
        };
        let fix = finding.fix.clone().unwrap_or_default();
        rows.push(vec![level.into(), finding.check.into(), finding.what.clone(), fix]);
    }
    let Report { errors, warnings, notes, .. } = *report;
    let counts = [count(errors, "error"), count(warnings, "warning"), count(notes, "note")];
    format!("{}\n{}", table(rows), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::finding::Finding;
    use super::*;

    #[test]
    fn a_row_for_each_finding_and_their_counts() {
        let findings = vec![
            Finding::ok("kernel", "Linux 7.2"),
            Finding::error("bpf-jit", "off").fix("switch it on"),
            Finding::note("data-plane", "none"),
            Finding::note("unread", "a file"),
        ];
        let report = Report::new("7.2".into(), findings, BTreeMap::from([("sched_ext", true)]));
        let text = table_of(&report);
        let cells = |line: usize| -> Vec<&str> {
            text.lines().nth(line).unwrap().split('|').map(str::trim).collect()
        };
        assert_eq!(cells(2), ["OK", "kernel", "Linux 7.2", ""], "{text}");
        assert_eq!(cells(3), ["ERROR", "bpf-jit", "off", "switch it on"], "{text}");
        assert_eq!(text.lines().last(), Some("1 error, 0 warnings, 2 notes"));
        assert_eq!(report.features, BTreeMap::from([("sched_ext", true), ("ready", false)]));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["findings"][1]["level"], "error");
        assert_eq!(json["findings"][0].get("fix"), None);
    }
}
