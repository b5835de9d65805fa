//! Finds the paths of cgroups by their ids.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use super::procfs;

/// The paths of the cgroups with these ids, below the root of the hierarchy that has the cpu
/// controller. A cgroup that is gone, or outside of the caller's cgroup namespace, is missing.
///
/// An id is the inode number of the cgroup's directory (kernel/cgroup/cgroup.c, `cgroup_id()`).
pub fn paths(ids: impl IntoIterator<Item = u64>) -> BTreeMap<u64, String> {
    let mut paths = ids.into_iter().map(|id| (id, None)).collect::<BTreeMap<_, _>>();
    let mounts = procfs::text("/proc/self/mountinfo").unwrap_or_default();
    if let (Some(root), false) = (hierarchy(&mounts), paths.is_empty()) {
        find(&root, &root, &mut paths);
    }
    paths.into_iter().filter_map(|(id, path)| Some((id, path?))).collect()
}

/// Which versions of cgroups are mounted (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    None,
    V1,
    V2,
    /// Version 2, and controllers of version 1.
    Hybrid,
}

/// Which versions are mounted; `mounts` is the text of /proc/self/mountinfo.
pub fn mode(mounts: &str) -> Mode {
    let kinds = mounts.lines().filter_map(|line| line.split_once(" - ")?.1.split(' ').next());
    let (mut v1, mut v2) = (false, false);
    for kind in kinds {
        v1 |= kind == "cgroup";
        v2 |= kind == "cgroup2";
    }
    match (v1, v2) {
        (false, false) => Mode::None,
        (true, false) => Mode::V1,
        (false, true) => Mode::V2,
        (true, true) => Mode::Hybrid,
    }
}

/// Where the cpu controller's hierarchy is mounted (proc_pid_mountinfo(5)): its own one
/// (cgroup v1), or else the unified one.
pub fn hierarchy(mounts: &str) -> Option<PathBuf> {
    let mount = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let [kind, _, options] = *after.split(' ').collect::<Vec<_>>() else { return None };
            wanted(kind, options).then(|| before.split(' ').nth(4).map(PathBuf::from))?
        })
    };
    mount(&|kind, options| kind == "cgroup" && options.split(',').any(|option| option == "cpu"))
        .or_else(|| mount(&|kind, _| kind == "cgroup2"))
}

/// Fills in the paths of those cgroups that are below `dir`.
fn find(root: &Path, dir: &Path, paths: &mut BTreeMap<u64, Option<String>>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        let path = entry.path();
        if let (Some(found), Ok(below)) = (paths.get_mut(&entry.ino()), path.strip_prefix(root)) {
            *found = Some(format!("/{}", below.display()));
        }
        find(root, &path, paths);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const UNIFIED: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_hierarchy_is_the_cpu_controllers() {
        assert_eq!(hierarchy("24 1 8:1 / / rw - ext4 /dev/vda rw\n"), None);
        assert_eq!(hierarchy(UNIFIED), Some("/sys/fs/cgroup".into()));
        let hybrid = "31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let own = Some("/sys/fs/cgroup/cpu,cpuacct".into());
        assert_eq!(hierarchy(&(UNIFIED.to_owned() + hybrid)), own);
        assert_eq!([UNIFIED, hybrid, ""].map(mode), [Mode::V2, Mode::V1, Mode::None]);
        assert_eq!(mode(&(UNIFIED.to_owned() + hybrid)), Mode::Hybrid);
    }

    #[test]
    fn a_cgroup_is_found_by_its_inode_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("kubepods/pod1");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("cpu.max"), "").unwrap();
        let id = fs::metadata(&inner).unwrap().ino();
        let mut paths = BTreeMap::from([(id, None), (u64::MAX, None)]);
        find(root.path(), root.path(), &mut paths);
        assert_eq!(paths[&id].as_deref(), Some("/kubepods/pod1"));
        assert_eq!(paths[&u64::MAX], None);
    }
}
