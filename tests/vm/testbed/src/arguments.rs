//! The values on the programs' command lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// An existing file, as an absolute path.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("no file {}", path.display()))
}

/// Both parts of NAME=VALUE.
pub fn pair(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
