//! The file by which node-feature-discovery labels a Kubernetes node.
//!
//! Its format, a feature and its value on each line, is that of the local feature source
//! (kubernetes-sigs.github.io/node-feature-discovery, "Customization guide").

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::base::atomic_file::Replacement;
use crate::base::error::{Error, Result};
use crate::base::log;

/// Where node-feature-discovery looks for such files.
pub const FILE: &str = "/etc/kubernetes/node-feature-discovery/features.d/gthctl";

/// Replaces the file at `path` in one step; makes its directory if need be.
pub fn write(path: &Path, features: &BTreeMap<&'static str, bool>) -> Result<()> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir).map_err(|e| Error::because_of(dir.display(), e))?;
    }
    let note = Replacement::prepare_without_links(path, &lines(features))?.commit()?;
    log::notes(note.as_slice());
    Ok(())
}

fn lines(features: &BTreeMap<&'static str, bool>) -> String {
    features.iter().map(|(name, value)| format!("gthctl.{name}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_in_a_new_directory_then_another_content() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("features.d/gthctl");
        write(&file, &BTreeMap::from([("sched_ext", true), ("btf_sound", false)])).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, "gthctl.btf_sound=false\ngthctl.sched_ext=true\n");
        write(&file, &BTreeMap::from([("sched_ext", false)])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "gthctl.sched_ext=false\n");
        assert_eq!(fs::read_dir(dir.path().join("features.d")).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let e = write(&file.path().join("gthctl"), &BTreeMap::new()).unwrap_err();
        assert!(e.what.starts_with(&file.path().display().to_string()), "{e}");
    }
}
