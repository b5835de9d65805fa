//! Records what became of `gthctl run` in a file that outlives it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::base::atomic_file::Replacement;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::lock::make_private_dir;
use crate::base::time::rfc3339;

/// The file, in the directory of the lock.
pub const FILE: &str = "/run/gthctl/last-run.json";

/// One run of gthctl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub pid: u32,
    /// When it was started. All times here are in RFC 3339, UTC.
    pub since: String,
    /// Absent while it runs, and if it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub at: String,
    /// The process's exit code.
    pub exit_code: u8,
    /// The reason. If the kernel ended the scheduler, it includes the kernel's message, which names
    /// the task if one stalled.
    pub why: String,
}

impl End {
    /// The record of a run that ends now with the result `ended`, perhaps because of `signal`.
    pub fn of(ended: &Result<()>, signal: Option<&str>) -> Self {
        let (exit_code, why) = match (ended, signal) {
            (Err(e), _) => (e.exit_code(), e.to_string()),
            (Ok(()), Some(signal)) => (ExitCode::Success as u8, format!("stopped by {signal}")),
            (Ok(()), None) => (ExitCode::Success as u8, "stopped".into()),
        };
        Self { at: rfc3339(SystemTime::now()), exit_code, why }
    }
}

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    run: Run,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Run>,
}

impl Record {
    fn write(&self, path: &Path) -> Result<()> {
        let failed = |e| Error::because_of(path.display(), e);
        let text = serde_json::to_string(self).map_err(|e| failed(e.into()))?;
        make_private_dir(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        Replacement::prepare_as(path, &text, 0o600)?.commit().map(drop)
    }
}

/// Records at `path` that this process has run since `started`. Returns the run before this one.
/// The caller holds the lock, so that run has ended.
pub fn begin(path: &Path, started: SystemTime) -> Result<Option<Run>> {
    let before = read(path).unwrap_or_default();
    let run = Run { pid: std::process::id(), since: rfc3339(started), ended: None };
    Record { run, before: before.clone() }.write(path)?;
    Ok(before)
}

/// Records at `path` how this process's run ends.
pub fn end(path: &Path, started: SystemTime, before: Option<Run>, end: End) -> Result<()> {
    let run = Run { pid: std::process::id(), since: rfc3339(started), ended: Some(end) };
    Record { run, before }.write(path)
}

/// The last run recorded at `path`; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<Run>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::because_of(path.display(), e)),
    };
    let record: Record =
        serde_json::from_str(&text).map_err(|e| Error::because_of(path.display(), e))?;
    Ok(Some(record.run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_knows_the_one_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/last-run.json");
        assert_eq!(read(&path), Ok(None));
        let started = SystemTime::UNIX_EPOCH;
        assert_eq!(begin(&path, started), Ok(None));
        let killed = read(&path).unwrap().unwrap();
        assert_eq!((killed.since.as_str(), &killed.ended), ("1970-01-01T00:00:00Z", &None));
        assert_eq!(begin(&path, started), Ok(Some(killed.clone())));
        let e = Error::new(ExitCode::SchedulerError, "the kernel ended the scheduler: stall");
        end(&path, started, Some(killed), End::of(&Err(e), None)).unwrap();
        let ended = read(&path).unwrap().unwrap().ended.unwrap();
        assert_eq!((ended.exit_code, &*ended.why), (8, "the kernel ended the scheduler: stall"));
        assert_eq!(End::of(&Ok(()), Some("SIGTERM")).why, "stopped by SIGTERM");
    }

    #[test]
    fn a_file_that_says_nothing_is_an_error_and_stops_no_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last-run.json");
        fs::write(&path, "{").unwrap();
        assert!(read(&path).unwrap_err().what.starts_with(&path.display().to_string()));
        assert_eq!(begin(&path, SystemTime::UNIX_EPOCH), Ok(None));
    }
}
