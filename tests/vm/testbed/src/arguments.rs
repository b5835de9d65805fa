//! What the programs take on their command lines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file that is there, as a path that holds in every directory.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("no file {}", path.display()))
}

/// The two of NAME=VALUE.
pub fn pair(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
