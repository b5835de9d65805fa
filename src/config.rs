//! The config file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What the config file says, with defaults for what it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A normal task's slice in nanoseconds when nobody waits. Default 2,000,000.
    pub slice_ns_default: u64,
    /// The least a slice shrinks to in nanoseconds; at most `slice_ns_default`. Default 500,000.
    pub slice_ns_min: u64,
    /// Idle CPUs are found by the kernel's own selection. Default false.
    pub builtin_idle: bool,
    /// More is logged. Default false.
    pub debug: bool,
    /// The policy file; a relative path in the file is taken from the file's directory.
    pub policy: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slice_ns_default: 2_000_000,
            slice_ns_min: 500_000,
            builtin_idle: false,
            debug: false,
            policy: None,
        }
    }
}

impl Config {
    /// Reads a config file. The second value holds notes for the user, one
    /// line each: keys that are accepted and not acted on.
    ///
    /// Every error is of [`ExitCode::Usage`](crate::error::ExitCode::Usage) and says where.
    pub fn load(_path: &Path) -> Result<(Config, Vec<String>)> {
        Err(Error::failure("reading configs is not written yet"))
    }

    /// As [`Config::load`] on `text`; `path` is for messages and relative paths.
    pub fn parse(_text: &str, _path: &Path) -> Result<(Config, Vec<String>)> {
        Err(Error::failure("reading configs is not written yet"))
    }
}
