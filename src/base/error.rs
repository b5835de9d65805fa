//! The one error type of gthctl and its exit codes.
//!
//! An error says what is wrong, where, and what to do. `main` prints it as one
//! line on standard error and exits with [`Error::exit_code`]; the man page
//! lists the same table ([`ExitCode::ALL`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::escape;

/// Exit codes of gthctl, each with the meaning the man page prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Stopped by the user, or the command did what it was asked.
    Success = 0,
    /// Any error without its own code (I/O, the loader).
    Failure = 1,
    /// Bad command line, config or policy file; nothing was loaded.
    Usage = 2,
    /// A needed capability is missing.
    Permission = 3,
    /// The kernel has no sched_ext.
    NoSchedExt = 4,
    /// Another sched_ext scheduler is loaded.
    OtherScheduler = 5,
    /// Another `gthctl run` holds the lock.
    AlreadyRunning = 6,
    /// The kernel's BTF or sched_ext interface cannot carry the scheduler.
    KernelUnsupported = 7,
    /// The kernel ended the scheduler because of an error in it (or the watchdog).
    SchedulerError = 8,
    /// The kernel ended the scheduler on an outside request (sysrq-S, another program).
    SchedulerEvicted = 9,
    /// No `gthctl run` is active to ask.
    NotRunning = 10,
    /// What was compared differs; no error.
    Differs = 11,
    /// What was looked at works, but not in every respect; no error.
    Warnings = 12,
}

impl ExitCode {
    /// Every exit code with its meaning, in numeric order.
    pub const ALL: [(ExitCode, &'static str); 13] = [
        (ExitCode::Success, "success, or stopped by the user (SIGINT, SIGTERM)"),
        (ExitCode::Failure, "any error without its own code"),
        (ExitCode::Usage, "bad command line, config file or policy file; nothing was loaded"),
        (ExitCode::Permission, "a capability is missing; the message names it"),
        (ExitCode::NoSchedExt, "the kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)"),
        (ExitCode::OtherScheduler, "another sched_ext scheduler is loaded; the message names it"),
        (ExitCode::AlreadyRunning, "another gthctl run is active; the message gives its PID"),
        (
            ExitCode::KernelUnsupported,
            "the kernel's BTF or sched_ext interface cannot carry the scheduler",
        ),
        (
            ExitCode::SchedulerError,
            "the kernel ended the scheduler because of an error in it (its reason is printed)",
        ),
        (
            ExitCode::SchedulerEvicted,
            "the kernel ended the scheduler on an outside request (such as sysrq-S)",
        ),
        (ExitCode::NotRunning, "no gthctl run is active to ask"),
        (ExitCode::Differs, "gthctl policy diff: the file would change something; no error"),
        (ExitCode::Warnings, "gthctl status: it works, but there are warnings; no error"),
    ];
}

impl From<i32> for ExitCode {
    /// The exit code of another gthctl; [`ExitCode::Failure`] for an unknown number.
    fn from(number: i32) -> Self {
        let is_its = |(code, _): &&(Self, _)| *code as i32 == number;
        Self::ALL.iter().find(is_its).map_or(Self::Failure, |(code, _)| *code)
    }
}

/// An error for the user: one line that says what is wrong, where, and what to do.
#[derive(Clone, Debug)]
pub struct Error {
    /// Decides the process's exit code.
    pub code: ExitCode,
    /// Where in an input file, when the error is about one.
    pub at: Option<Location>,
    /// What is wrong, in one line without a full stop.
    pub what: String,
    /// What to do about it, if anything.
    pub help: Option<String>,
    /// The error that caused it; `what` includes it.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// The next mistake in the same file, if several were found ([`super::mistakes`]).
    pub next: Option<Box<Error>>,
}

/// A place in an input file; `line` and `column` count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with `code`, no place and no advice.
    pub fn new(code: ExitCode, what: impl Into<String>) -> Self {
        Self { code, at: None, what: what.into(), help: None, source: None, next: None }
    }

    /// A general failure ([`ExitCode::Failure`]).
    pub fn failure(what: impl Into<String>) -> Self {
        Self::new(ExitCode::Failure, what)
    }

    /// A general failure in `what`, caused by `source`.
    pub fn because_of(
        what: impl fmt::Display,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let source: Box<dyn std::error::Error + Send + Sync> = source.into();
        let what = format!("{what}: {source}");
        Self { source: Some(source.into()), ..Self::failure(what) }
    }

    /// Adds what to do about it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the place in an input file.
    pub fn at(mut self, at: Location) -> Self {
        self.at = Some(at);
        self
    }

    /// This error and the others found with it.
    pub fn all(&self) -> impl Iterator<Item = &Error> {
        std::iter::successors(Some(self), |e| e.next.as_deref())
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.code as u8
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// Always one line, whatever the names in it contain; leaves out [`Error::next`].
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.at.as_ref().map_or(String::new(), |at| format!("{at}: "));
        text += &self.what;
        if let Some(help) = &self.help {
            text += &format!("; {help}");
        }
        f.write_str(&escape::line(&text.replace('\n', " ")))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&**self.source.as_ref()?)
    }
}

/// Whether both have the same code and text.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.code, &self.at, &self.what, &self.help)
            == (other.code, &other.at, &other.what, &other.help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape::NASTY;

    #[test]
    fn the_table_is_complete_and_in_order() {
        for (i, (code, _)) in ExitCode::ALL.iter().enumerate() {
            assert_eq!(*code as usize, i);
        }
    }

    #[test]
    fn one_line_that_moves_no_cursor() {
        let e = Error::failure(format!("{NASTY}: bad\nname")).help(NASTY);
        let text = e.to_string();
        assert!(!text.contains(['\n', '\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
        assert!(text.contains("a\\u{1b}[2J\\u{9b}2J\\r \\t"), "{text}");
    }

    #[test]
    fn place_then_what_then_advice() {
        let e = Error::new(ExitCode::Usage, "slice_ns_min: 0 is not a slice")
            .at(Location { file: "c.yaml".into(), line: 3, column: 5 })
            .help("use 100us or more");
        assert_eq!(e.to_string(), "c.yaml:3:5: slice_ns_min: 0 is not a slice; use 100us or more");
        assert_eq!(e.exit_code(), 2);
    }

    #[test]
    fn what_it_comes_of_is_told_and_kept() {
        use std::error::Error as _;
        let e = Error::because_of("/etc/x", std::io::Error::from_raw_os_error(2));
        assert_eq!(e.what, "/etc/x: No such file or directory (os error 2)");
        let source = e.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(e.clone(), e);
    }
}
