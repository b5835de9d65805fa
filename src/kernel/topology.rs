//! The machine's CPUs: which exist, which share a core, which share a last-level cache.
//!
//! Source: `/sys/devices/system/cpu` (`Documentation/ABI/testing/
//! sysfs-devices-system-cpu`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, Result};

/// Where the kernel describes the CPUs.
pub const SYSFS: &str = "/sys/devices/system/cpu";

/// The most CPUs that share run queues: with more, CPUs would contend for the queues' locks.
pub const MOST_IN_A_POOL: usize = 32;

/// CPUs by number; the vectors have one entry for each id up to the highest possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// CPUs that exist or may be plugged in.
    pub possible: CpuList,
    /// CPUs in use.
    pub online: CpuList,
    /// The last-level cache of each CPU, numbered from 0; 0 for a CPU that is not online. A cache
    /// of more than [`MOST_IN_A_POOL`] CPUs counts as several.
    pub llc: Vec<u16>,
    /// The next CPU of the same core, in a ring; a CPU alone on its core is its own sibling.
    pub sibling: Vec<u16>,
    /// The NUMA node of each CPU; -1 without one, and for a CPU that is not online.
    pub node: Vec<i16>,
    /// CPUs on which the kernel can stop the tick (`nohz_full=`, Documentation/timers/no_hz.rst).
    pub tickless: CpuList,
}

impl Topology {
    /// Reads the topology from `root` ([`SYSFS`] except in tests).
    ///
    /// Fails when the CPU lists cannot be read or have more than [`CpuList::MAX`] CPUs.
    pub fn read(root: &Path) -> Result<Self> {
        let possible = read_list(&root.join("possible"))?;
        let online = read_list(&root.join("online"))?;
        let ids = possible.iter().last().map_or(0, |last| last as usize + 1);
        let mut llc = vec![0; ids];
        let mut sibling: Vec<u16> = (0..ids).map(|cpu| cpu as u16).collect();
        let mut node = vec![-1; ids];
        let mut caches: Vec<CpuList> = Vec::new();
        for cpu in online.iter().filter(|&cpu| (cpu as usize) < ids) {
            let dir = root.join(format!("cpu{cpu}"));
            let cache = last_level_cache(&dir).unwrap_or_else(|| online.clone());
            let known = caches.iter().position(|known| known.contains(cpu));
            llc[cpu as usize] = known.unwrap_or_else(|| {
                caches.push(cache);
                caches.len() - 1
            }) as u16;
            node[cpu as usize] = node_of(&dir).unwrap_or(-1);
            let core = read_list(&dir.join("topology/thread_siblings_list"));
            if let Ok(core) = core {
                let next = core.iter().find(|&other| other > cpu).or(core.iter().next());
                sibling[cpu as usize] = next.unwrap_or(cpu) as u16;
            }
        }
        // "(null)" or nothing if there are none; no file in a kernel without NO_HZ_FULL.
        let tickless = read_list(&root.join("nohz_full")).unwrap_or_default();
        let mut topology = Self { possible, online, llc, sibling, node, tickless };
        topology.split_llcs();
        Ok(topology)
    }

    /// Renumbers the caches: splits one of more than [`MOST_IN_A_POOL`] CPUs into several of
    /// about the same size, with whole cores.
    fn split_llcs(&mut self) {
        let mut caches: BTreeMap<u16, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for cpu in self.online.iter().filter(|&cpu| (cpu as usize) < self.llc.len()) {
            let core = self.siblings(cpu).min().map_or(cpu, |least| least.min(cpu));
            let cores = caches.entry(self.llc[cpu as usize]).or_default();
            cores.entry(core).or_default().push(cpu);
        }
        let mut first = 0;
        for cores in caches.values() {
            let cpus: usize = cores.values().map(Vec::len).sum();
            let parts = cpus.div_ceil(MOST_IN_A_POOL).min(cores.len());
            for (at, cpus) in cores.values().enumerate() {
                for &cpu in cpus {
                    self.llc[cpu as usize] = (first + at * parts / cores.len()) as u16;
                }
            }
            first += parts;
        }
    }

    /// One past the highest possible CPU number.
    pub fn nr_cpus(&self) -> usize {
        self.llc.len()
    }

    /// How many last-level caches there are; at least 1.
    pub fn nr_llcs(&self) -> usize {
        self.llc.iter().max().map_or(1, |&max| max as usize + 1)
    }

    /// The NUMA node of the first CPU of a last-level cache.
    pub fn node_of_llc(&self, llc: u16) -> i16 {
        let first = self.online.iter().find(|&cpu| self.llc.get(cpu as usize) == Some(&llc));
        first.map_or(-1, |cpu| self.node[cpu as usize])
    }

    /// The CPUs of a NUMA node that are online.
    pub fn of_node(&self, node: u32) -> CpuList {
        let its = |cpu: u32| self.node.get(cpu as usize).copied().map(i64::from);
        let is_there = |cpu: &u32| its(*cpu) == Some(node.into());
        self.online.iter().filter(is_there).collect()
    }

    /// Whether the CPUs are on several NUMA nodes.
    pub fn numa(&self) -> bool {
        let mut nodes = self.node.iter().filter(|&&node| node >= 0);
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }

    /// The other CPUs of the same core.
    pub fn siblings(&self, cpu: u32) -> impl Iterator<Item = u32> + '_ {
        let next =
            move |&at: &u32| Some(u32::from(self.sibling[at as usize])).filter(|&next| next != cpu);
        // Also ends a broken ring (sysfs changed meanwhile).
        std::iter::successors(Some(cpu), next).take(self.sibling.len()).skip(1)
    }

    /// True when some core has more than one CPU.
    pub fn smt(&self) -> bool {
        self.sibling.iter().enumerate().any(|(cpu, &sibling)| cpu != sibling as usize)
    }
}

fn read_list(path: &Path) -> Result<CpuList> {
    let text = fs::read_to_string(path).map_err(|e| Error::because_of(path.display(), e))?;
    text.trim_end()
        .parse()
        .map_err(|e| Error::because_of(format_args!("{}: not a CPU list", path.display()), e))
}

/// The number of the NUMA node that the CPU at `dir` is on: `nodeN` links to it (drivers/base/node.c).
fn node_of(dir: &Path) -> Option<i16> {
    let names = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name());
    let mut numbers = names.filter_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok());
    numbers.next()
}

/// The CPUs that share the highest level of cache with the CPU at `dir`.
fn last_level_cache(dir: &Path) -> Option<CpuList> {
    let indices = fs::read_dir(dir.join("cache")).ok()?;
    let levels = indices.flatten().filter_map(|index| {
        let level: u32 =
            fs::read_to_string(index.path().join("level")).ok()?.trim().parse().ok()?;
        Some((level, index.path()))
    });
    let (_, last) = levels.max_by_key(|(level, _)| *level)?;
    read_list(&last.join("shared_cpu_list")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a sysfs tree: for each online CPU its core and its L3.
    fn tree(possible: &str, cpus: &[(u32, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let online: CpuList = cpus.iter().map(|(cpu, ..)| *cpu).collect();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        write("possible".into(), possible);
        write("online".into(), &online.to_string());
        for (cpu, core, l3) in cpus {
            write(format!("cpu{cpu}/topology/thread_siblings_list"), core);
            for (index, level, shared) in [(0, "1", *core), (2, "2", *core), (3, "3", *l3)] {
                write(format!("cpu{cpu}/cache/index{index}/level"), level);
                write(format!("cpu{cpu}/cache/index{index}/shared_cpu_list"), shared);
            }
        }
        root
    }

    #[test]
    fn two_caches_of_two_cores_of_two_threads() {
        let cpu = |n: u32| {
            let core = ["0,4", "1,5", "2,6", "3,7"][n as usize % 4];
            (n, core, if n % 4 < 2 { "0-1,4-5" } else { "2-3,6-7" })
        };
        let t = Topology::read(tree("0-7", &(0..8).map(cpu).collect::<Vec<_>>()).path()).unwrap();
        assert_eq!(t.llc, [0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(t.sibling, [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!((t.nr_cpus(), t.nr_llcs(), t.smt()), (8, 2, true));
    }

    #[test]
    fn four_threads_a_core_form_a_ring() {
        let cpus: Vec<_> = (0..4).map(|n| (n, "0-3", "0-3")).collect();
        assert_eq!(Topology::read(tree("0-3", &cpus).path()).unwrap().sibling, [1, 2, 3, 0]);
    }

    #[test]
    fn a_large_cache_counts_as_several_of_whole_cores() {
        let cores: Vec<String> = (0..40).map(|core| format!("{core},{}", core + 40)).collect();
        let cpus: Vec<_> = (0..80).map(|n| (n, cores[n as usize % 40].as_str(), "0-79")).collect();
        let t = Topology::read(tree("0-79", &cpus).path()).unwrap();
        assert_eq!(t.nr_llcs(), 3);
        for llc in 0..3 {
            let size = t.llc.iter().filter(|&&of| of == llc).count();
            assert!((26..=MOST_IN_A_POOL).contains(&size), "{size}");
        }
        assert!((0..40).all(|core| t.llc[core] == t.llc[core + 40]));
    }

    #[test]
    fn numa_nodes() {
        let root =
            tree("0-3", &[(0, "0", "0-1"), (1, "1", "0-1"), (2, "2", "2-3"), (3, "3", "2-3")]);
        let read = || Topology::read(root.path()).unwrap();
        assert_eq!((read().node, read().numa(), read().node_of_llc(1)), (vec![-1; 4], false, -1));
        for cpu in 0..4 {
            fs::create_dir(root.path().join(format!("cpu{cpu}/node{}", cpu / 2))).unwrap();
        }
        assert_eq!((read().node, read().numa()), (vec![0, 0, 1, 1], true));
        assert_eq!((read().node_of_llc(0), read().node_of_llc(1)), (0, 1));
        assert_eq!([0, 1, 2].map(|node| read().of_node(node).to_string()), ["0-1", "2-3", ""]);
    }

    #[test]
    fn cpus_without_a_tick() {
        let root = tree("0-3", &[(0, "0", "0-3"), (1, "1", "0-3")]);
        let tickless = || Topology::read(root.path()).unwrap().tickless.to_string();
        assert_eq!(tickless(), "");
        fs::write(root.path().join("nohz_full"), "(null)\n").unwrap();
        assert_eq!(tickless(), "");
        fs::write(root.path().join("nohz_full"), "1-3\n").unwrap();
        assert_eq!(tickless(), "1-3");
    }

    #[test]
    fn offline_cpus_and_no_cache_directory() {
        let root = tree("0-3", &[(0, "0", "0,2"), (2, "2", "0,2")]);
        fs::remove_dir_all(root.path().join("cpu0/cache")).unwrap();
        fs::remove_dir_all(root.path().join("cpu2/cache")).unwrap();
        let t = Topology::read(root.path()).unwrap();
        assert_eq!((t.nr_cpus(), t.nr_llcs(), t.smt()), (4, 1, false));
        assert_eq!(t.online.to_string(), "0,2");
    }

    #[test]
    fn a_missing_list_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(Topology::read(root.path()).unwrap_err().what.contains("possible"));
    }
}
