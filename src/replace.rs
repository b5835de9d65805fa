//! Replacing a file as a whole: what is read is the old content or the new one,
//! also after a crash.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file's new content, on disk beside it; dropped, it goes away again.
#[derive(Debug)]
pub struct Replacement {
    new: PathBuf,
    target: PathBuf,
}

impl Replacement {
    /// Writes `text` beside the file that `path` leads to, a symbolic link being
    /// followed, with that file's owner and mode; a new file is everybody's to read.
    pub fn prepare(path: &Path, text: &str) -> Result<Self> {
        Self::prepare_as(path, text, 0o644)
    }

    /// As [`Replacement::prepare`]; a new file gets the mode `mode`.
    pub fn prepare_as(path: &Path, text: &str, mode: u32) -> Result<Self> {
        let failed = |e: std::io::Error| Error::failure(format!("{}: {e}", path.display()));
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let new = target.with_file_name(format!(".{name}.gthctl-{}", std::process::id()));
        let replacement = Self { new, target };
        // One that a killed process left, or that somebody else put there.
        let _ = fs::remove_file(&replacement.new);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&replacement.new).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        match fs::metadata(&replacement.target) {
            Ok(old) => {
                chown(&replacement.new, Some(old.uid()), Some(old.gid())).map_err(failed)?;
                file.set_permissions(old.permissions()).map_err(failed)?;
            }
            Err(_) => file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?,
        }
        file.sync_all().map_err(failed)?;
        Ok(replacement)
    }

    /// Puts it in place.
    pub fn commit(self) -> Result<()> {
        let failed = |e: std::io::Error| Error::failure(format!("{}: {e}", self.target.display()));
        fs::rename(&self.new, &self.target).map_err(failed)?;
        let dir = self.target.parent().unwrap_or(Path::new("/"));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_changes_before_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let replacement = Replacement::prepare(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(replacement);
        assert_eq!(names(dir.path()), ["p.yaml"]);
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["p.yaml"]);
    }

    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real"), "old").unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        Replacement::prepare(&dir.path().join("link"), "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("real")).unwrap(), "new");
        assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(Replacement::prepare(&dir.path().join("none/p.yaml"), "new").is_err());
    }
}
