//! Programs under other names, which their tasks take.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A link to `program` with the name `name`.
pub fn alias(program: &Path, name: &str) -> Result<PathBuf> {
    let path = Path::new("/tmp").join(name);
    if !path.exists() {
        symlink(program, &path)?;
    }
    Ok(path)
}
