//! Whether a module is in the kernel, and whether it is still the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where the kernel shows its modules (Documentation/ABI/testing/sysfs-module).
pub const MODULES: &str = "/sys/module";

/// One life of a module: each load begins a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u64);

/// The current life of the module `name`; `None` while it is not loaded. A built-in module has a
/// life, too, if it has parameters. `root` is [`MODULES`] except in tests.
///
/// A module that is being unloaded loses its files before the kernel announces the unload, and its
/// directory after it (mod_sysfs_teardown(), kernel/module/sysfs.c; __kobject_del(),
/// lib/kobject.c). A built-in module has no `initstate`, but it has `uevent`, which a loadable
/// module loses first.
pub fn life(root: &Path, name: &str) -> Option<Life> {
    let dir = root.join(name);
    let inode = fs::metadata(&dir).ok()?.ino();
    let there = match fs::read_to_string(dir.join("initstate")) {
        Ok(state) => state.trim() == "live",
        Err(_) => dir.join("uevent").exists(),
    };
    there.then_some(Life(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_and_goes() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("gtp");
        assert_eq!(life(root.path(), "gtp"), None);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("initstate"), "coming\n").unwrap();
        assert_eq!(life(root.path(), "gtp"), None);
        fs::write(dir.join("initstate"), "live\n").unwrap();
        let first = life(root.path(), "gtp");
        assert!(first.is_some() && first == life(root.path(), "gtp"));
        // The unload is announced: the kernel has removed the files but not yet the directory.
        fs::remove_file(dir.join("initstate")).unwrap();
        assert_eq!(life(root.path(), "gtp"), None);
        fs::create_dir(root.path().join("other")).unwrap();
        fs::rename(&dir, root.path().join("gone")).unwrap();
        assert_eq!(life(root.path(), "gtp"), None);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("initstate"), "live\n").unwrap();
        assert!(life(root.path(), "gtp").is_some_and(|second| Some(second) != first));
    }

    #[test]
    fn what_is_built_in_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("gtp/parameters")).unwrap();
        fs::write(root.path().join("gtp/uevent"), "").unwrap();
        assert!(life(root.path(), "gtp").is_some());
    }
}
