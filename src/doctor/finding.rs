//! What a check has found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::error::Error;

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

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked. The name stays the same from release to release.
    pub check: &'static str,
    pub level: Level,
    /// In one line without a full stop.
    pub what: String,
    /// The command, the kernel option or the setting that mends it.
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

    /// What an error says; its advice is what mends it.
    pub fn of(check: &'static str, level: Level, e: &Error) -> Self {
        let what = Error { help: None, ..e.clone() }.to_string();
        Self { fix: e.help.clone(), ..Self::new(check, level, what) }
    }

    /// Adds what mends it.
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// All findings about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    pub errors: usize,
    pub warnings: usize,
    pub notes: usize,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// What the machine has, by the names for node-feature-discovery. What is unknown is missing.
    pub features: BTreeMap<&'static str, bool>,
}

impl Report {
    /// Counts the findings. The feature `ready` says that none is an error.
    pub fn new(
        kernel: String,
        findings: Vec<Finding>,
        mut features: BTreeMap<&'static str, bool>,
    ) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        let [errors, warnings, notes] = [Level::Error, Level::Warning, Level::Note].map(count);
        features.insert("ready", errors == 0);
        Self { kernel, errors, warnings, notes, findings, features }
    }
}
