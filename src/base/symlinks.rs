//! The symbolic links that a path leads through.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The most symbolic links that a path may lead through (MAXSYMLINKS, include/linux/namei.h).
const MAX_LINKS: usize = 40;

/// The directory entries that the content at `path`, an absolute path, depends on.
pub fn entries(path: &Path) -> BTreeSet<PathBuf> {
    let mut entries = BTreeSet::new();
    let mut rest: Vec<PathBuf> = parts(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            here.pop();
            continue;
        }
        let entry = here.join(&part);
        match fs::symlink_metadata(&entry) {
            Ok(metadata) if metadata.is_symlink() && links < MAX_LINKS => {
                links += 1;
                let target = fs::read_link(&entry).unwrap_or_default();
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                rest.extend(parts(&target));
                entries.insert(entry);
            }
            Ok(_) if !rest.is_empty() => here = entry,
            // The file itself, or the first missing part.
            _ => {
                entries.insert(entry);
                break;
            }
        }
    }
    entries
}

/// The components of a path, last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(named).map(|part| PathBuf::from(part.as_os_str())).rev().collect()
}
