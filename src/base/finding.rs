//! What a check has found, and findings as a table.

use serde::Serialize;

use super::error::Error;
use super::output::{count, row, table};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// gthctl works, but less well, or something may get in its way.
    Warning,
    /// `gthctl run` does not work.
    Error,
}

impl Level {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "ERROR",
        }
    }
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked. The name stays the same from release to release.
    pub check: &'static str,
    pub level: Level,
    /// In one line without a full stop.
    pub what: String,
    /// The command, the kernel option or the setting that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn new(check: &'static str, level: Level, what: impl Into<String>) -> Self {
        Self { check, level, what: what.into(), fix: None }
    }

    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, what)
    }

    pub fn note(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Note, what)
    }

    pub fn warning(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, what)
    }

    pub fn error(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Error, what)
    }

    /// Makes a finding of an error. The error's advice becomes the fix.
    pub fn of(check: &'static str, level: Level, e: &Error) -> Self {
        let what = Error { help: None, ..e.clone() }.to_string();
        Self { fix: e.help.clone(), ..Self::new(check, level, what) }
    }

    /// Adds how to fix it.
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// The number of findings at each level that needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub errors: usize,
    pub warnings: usize,
    pub notes: usize,
}

impl Counts {
    pub fn of(findings: &[Finding]) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            notes: count(Level::Note),
        }
    }
}

/// A row for each finding, then the number of findings at each level.
pub fn table_of(findings: &[Finding]) -> String {
    let mut rows = vec![row(["", "check", "found", "how to fix it"])];
    for finding in findings {
        let fix = finding.fix.clone().unwrap_or_default();
        rows.push(vec![
            finding.level.name().into(),
            finding.check.into(),
            finding.what.clone(),
            fix,
        ]);
    }
    let Counts { errors, warnings, notes } = Counts::of(findings);
    let counts = [count(errors, "error"), count(warnings, "warning"), count(notes, "note")];
    format!("{}\n{}", table(rows), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_finding_and_their_counts() {
        let findings = [
            Finding::ok("kernel", "Linux 7.2"),
            Finding::error("bpf-jit", "off").fix("switch it on"),
            Finding::note("data-plane", "none"),
            Finding::note("unread", "a file"),
        ];
        let text = table_of(&findings);
        let cells = |line: usize| -> Vec<&str> {
            text.lines().nth(line).unwrap().split('|').map(str::trim).collect()
        };
        assert_eq!(cells(2), ["OK", "kernel", "Linux 7.2", ""], "{text}");
        assert_eq!(cells(3), ["ERROR", "bpf-jit", "off", "switch it on"], "{text}");
        assert_eq!(text.lines().last(), Some("1 error, 0 warnings, 2 notes"));
    }
}
