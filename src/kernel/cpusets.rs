//! The cgroups that have a cpuset of their own (cpuset(7), cgroup v2's cpuset.cpus).
//!
//! A cgroup whose CPUs are those of its parent has none: it runs wherever its parent may.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::procfs::{self, if_there};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};
use crate::base::root::Root;

/// Where cgroups are mounted.
const MOUNTED_AT: &str = "/sys/fs/cgroup";

/// The hierarchy with the cpuset controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    dir: PathBuf,
    /// The file with the CPUs that a cgroup's tasks may run on.
    effective: &'static str,
    /// True for cgroup v2.
    unified: bool,
}

/// The limit of a cgroup with a cpuset of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLimit {
    /// How many CPUs' time it may use (cpu.max).
    pub cpus: f64,
    /// How many CPUs it was given (cpuset.cpus), online or not.
    pub given: usize,
}

/// The cpusets that differ from their parents', by the path of their cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpusets {
    own: BTreeMap<String, CpuList>,
    /// The limits of those cgroups whose CPU time cpu.max limits.
    limits: BTreeMap<String, CpuLimit>,
    unified: bool,
}

impl Cpusets {
    /// Reads the cpusets of cgroups with tasks, in them or below; under cgroup v1, of all cgroups.
    ///
    /// Reads only the cgroups with the cpuset controller: one file each, and up to three more for each
    /// cgroup with a cpuset of its own.
    ///
    /// # Errors
    ///
    /// A file cannot be read, for example because there are no more descriptors.
    pub fn read(root: &Root) -> Result<Self> {
        let hierarchy = Hierarchy::find(root);
        let mut found =
            Self { own: BTreeMap::new(), limits: BTreeMap::new(), unified: hierarchy.unified };
        if let Some(all) = hierarchy.cpus(&hierarchy.dir)? {
            found.add_below(&hierarchy, &hierarchy.dir, &all)?;
        }
        Ok(found)
    }

    fn add_below(&mut self, hierarchy: &Hierarchy, dir: &Path, above: &CpuList) -> Result<()> {
        for child in hierarchy.children(dir)? {
            // Without the controller here, nothing below has it.
            let Some(cpus) = hierarchy.cpus(&child)? else { continue };
            if cpus != *above && !cpus.is_empty() && hierarchy.has_tasks(&child)? {
                let path = hierarchy.path(&child);
                if let Some(limit) = hierarchy.limit(&child)? {
                    let given = hierarchy.given(&child)?.unwrap_or(cpus.len());
                    self.limits.insert(path.clone(), CpuLimit { cpus: limit, given });
                }
                self.own.insert(path, cpus.clone());
            }
            self.add_below(hierarchy, &child, &cpus)?;
        }
        Ok(())
    }

    /// The nearest cgroup with a cpuset of its own: `cgroup` itself or one above it.
    pub fn nearest(&self, cgroup: &str) -> Option<(&str, &CpuList)> {
        let mut path = cgroup;
        loop {
            if let Some((path, cpus)) = self.own.get_key_value(path) {
                return Some((path, cpus));
            }
            path = &path[..path.rfind('/').filter(|&at| at > 0)?];
        }
    }

    /// All cpusets, each with the path of its cgroup.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &CpuList)> {
        self.own.iter().map(|(path, cpus)| (path.as_str(), cpus))
    }

    /// The limit of a cgroup with a cpuset of its own. `None` if it is `max`, or under cgroup v1.
    pub fn limit(&self, cgroup: &str) -> Option<CpuLimit> {
        self.limits.get(cgroup).copied()
    }

    /// The thread's cgroup in this hierarchy; `None` when there is no such thread.
    pub fn cgroup(&self, root: &Root, tid: u32) -> Option<String> {
        let controller = if self.unified { "" } else { "cpuset" };
        procfs::cgroup_with(&root.proc(), tid, controller)
    }
}

/// Whether the cgroup `below` is the cgroup `path` or is below it.
pub fn is_in(below: &str, path: &str) -> bool {
    below.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Hierarchy {
    fn find(root: &Root) -> Self {
        let v1 = root.path(MOUNTED_AT).join("cpuset");
        if v1.join("cpuset.cpus").exists() {
            return Self { dir: v1, effective: "cpuset.effective_cpus", unified: false };
        }
        Self { dir: root.path(MOUNTED_AT), effective: "cpuset.cpus.effective", unified: true }
    }

    /// The CPUs of a cgroup; `None` if it is gone or does not have the controller.
    fn cpus(&self, dir: &Path) -> Result<Option<CpuList>> {
        let text = self.text(dir, self.effective)?;
        Ok(text.map(|text| text.trim_end().parse().unwrap_or_default()))
    }

    /// The cgroup's limit in CPUs. cpu.max contains `QUOTA PERIOD`, in microseconds, or `max
    /// PERIOD` (Documentation/admin-guide/cgroup-v2.rst).
    fn limit(&self, dir: &Path) -> Result<Option<f64>> {
        let text = self.text(dir, "cpu.max")?.unwrap_or_default();
        let mut words = text.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
        let (quota, period) = (words.next().flatten(), words.next().flatten());
        Ok(quota.zip(period).map(|(quota, period)| quota / period))
    }

    /// How many CPUs the cgroup was given; `None` if it was given none itself.
    fn given(&self, dir: &Path) -> Result<Option<usize>> {
        let text = self.text(dir, "cpuset.cpus")?.unwrap_or_default();
        let given: CpuList = text.trim_end().parse().unwrap_or_default();
        Ok(Some(given.len()).filter(|&given| given > 0))
    }

    /// Whether there are tasks in the cgroup or below; true if unknown.
    fn has_tasks(&self, dir: &Path) -> Result<bool> {
        let events = self.text(dir, "cgroup.events")?;
        Ok(!events.is_some_and(|events| events.lines().any(|line| line == "populated 0")))
    }

    fn text(&self, dir: &Path, file: &str) -> Result<Option<String>> {
        let path = dir.join(file);
        let read = if_there(fs::read_to_string(&path)).or_else(unless_removed);
        read.map_err(|e| Error::because_of(path.display(), e))
    }

    fn children(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let failed = |e: io::Error| Error::because_of(dir.display(), e);
        let Some(entries) = if_there(fs::read_dir(dir)).map_err(failed)? else {
            return Ok(Vec::new());
        };
        let mut children = Vec::new();
        for entry in entries {
            let Some(entry) = Some(entry).transpose().or_else(unless_removed).map_err(failed)?
            else {
                continue;
            };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                children.push(entry.path());
            }
        }
        Ok(children)
    }

    /// The cgroup's path, as /proc/PID/cgroup shows it.
    fn path(&self, dir: &Path) -> String {
        let below = dir.strip_prefix(&self.dir).unwrap_or(dir);
        format!("/{}", below.display())
    }
}

/// If a cgroup is removed while one of its files is open, reading the file fails with ENODEV
/// (kernfs).
fn unless_removed<T>(e: io::Error) -> io::Result<Option<T>> {
    if e.raw_os_error() == Some(libc::ENODEV) { Ok(None) } else { Err(e) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of cgroups in a temporary directory.
    pub(crate) struct Tree {
        dir: tempfile::TempDir,
    }

    impl Tree {
        /// The root has CPUs 0-7.
        pub(crate) fn new() -> Self {
            let tree = Self { dir: tempfile::tempdir().unwrap() };
            tree.set("", "0-7");
            tree
        }

        pub(crate) fn root(&self) -> Root {
            Root::at(self.dir.path())
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Makes a cgroup with tasks and these effective CPUs, or changes its CPUs.
        pub(crate) fn set(&self, cgroup: &str, cpus: &str) {
            let dir = format!("sys/fs/cgroup{cgroup}");
            self.write(&format!("{dir}/cpuset.cpus.effective"), &format!("{cpus}\n"));
            self.write(&format!("{dir}/cgroup.events"), "populated 1\nfrozen 0\n");
        }
    }

    fn own(tree: &Tree) -> Vec<(String, String)> {
        let found = Cpusets::read(&tree.root()).unwrap();
        found.iter().map(|(path, cpus)| (path.to_owned(), cpus.to_string())).collect()
    }

    #[test]
    fn those_that_differ_from_their_parents() {
        let tree = Tree::new();
        tree.set("/system.slice", "0-7");
        // A directory without the controller, which systemd makes for a service.
        tree.write("sys/fs/cgroup/system.slice/a.service/cgroup.events", "populated 1\n");
        tree.set("/kubepods", "0-7");
        tree.set("/kubepods/pod1", "0-7");
        tree.set("/kubepods/pod1/c", "2-3");
        tree.set("/kubepods/pod1/c/inner", "2-3");
        tree.set("/kubepods/pod1/c/inner/one", "3");
        tree.set("/kubepods/pod2/old", "4");
        tree.set("/kubepods/pod2", "0-7");
        tree.write("sys/fs/cgroup/kubepods/pod2/old/cgroup.events", "populated 0\nfrozen 0\n");
        let found = [("/kubepods/pod1/c", "2-3"), ("/kubepods/pod1/c/inner/one", "3")];
        assert_eq!(own(&tree), found.map(|(path, cpus)| (path.into(), cpus.into())));

        let cpusets = Cpusets::read(&tree.root()).unwrap();
        let nearest = |of: &str| cpusets.nearest(of).map(|(path, _)| path.to_owned());
        assert_eq!(nearest("/kubepods/pod1/c/inner").as_deref(), Some("/kubepods/pod1/c"));
        assert_eq!(nearest("/kubepods/pod1/c").as_deref(), Some("/kubepods/pod1/c"));
        for none in ["/kubepods/pod1", "/kubepods/pod1/cc", "/system.slice/a.service", "/"] {
            assert_eq!(nearest(none), None, "{none}");
        }
        tree.write("sys/fs/cgroup/kubepods/pod1/c/cpu.max", "150000 100000\n");
        tree.write("sys/fs/cgroup/kubepods/pod1/c/inner/one/cpu.max", "max 100000\n");
        let cpusets = Cpusets::read(&tree.root()).unwrap();
        let limits = ["/kubepods/pod1/c", "/kubepods/pod1/c/inner/one"].map(|of| cpusets.limit(of));
        assert_eq!(limits, [Some(CpuLimit { cpus: 1.5, given: 2 }), None]);
        assert!(is_in("/a/b", "/a") && is_in("/a", "/a") && !is_in("/ab", "/a"));
    }

    #[test]
    fn of_a_machine_without_cpusets() {
        let dir = tempfile::tempdir().unwrap();
        let found = Cpusets::read(&Root::at(dir.path())).unwrap();
        assert_eq!(found.iter().count(), 0);
    }

    #[test]
    fn in_cgroup_v1() {
        let tree = Tree { dir: tempfile::tempdir().unwrap() };
        for (cgroup, cpus) in [("", "0-7"), ("/kubepods", "0-7"), ("/kubepods/pod1", "2")] {
            let dir = format!("sys/fs/cgroup/cpuset{cgroup}");
            tree.write(&format!("{dir}/cpuset.cpus"), "0-7\n");
            tree.write(&format!("{dir}/cpuset.effective_cpus"), &format!("{cpus}\n"));
        }
        assert_eq!(own(&tree), [("/kubepods/pod1".into(), "2".into())]);
        tree.write("proc/7/cgroup", "5:cpu:/x\n4:cpuset:/kubepods/pod1\n0::/y\n");
        let cpusets = Cpusets::read(&tree.root()).unwrap();
        assert_eq!(cpusets.cgroup(&tree.root(), 7).as_deref(), Some("/kubepods/pod1"));
        let tree = Tree::new();
        tree.write("proc/7/cgroup", "4:cpuset:/x\n0::/y\n");
        let cpusets = Cpusets::read(&tree.root()).unwrap();
        assert_eq!(cpusets.cgroup(&tree.root(), 7).as_deref(), Some("/y"));
        assert_eq!(cpusets.cgroup(&tree.root(), 8), None);
    }
}
