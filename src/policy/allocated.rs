//! The CPUs of `cpus: allocated`: those of the cpusets that a rule's tasks are in.
//!
//! A cpuset is allocated to its cgroup when no other cgroup with a cpuset of its own has one of its
//! CPUs. The kubelet's static CPU manager works like that: a guaranteed container with whole CPUs
//! gets a cpuset of its own, and it takes these CPUs out of the cpuset that it writes for every
//! other container (kubernetes, pkg/kubelet/cm/cpumanager). So does AllowedCPUs= of systemd. A pod's
//! container has as many CPUs of its own as its limit says, which is its request.
//!
//! A cgroup whose CPUs are those of its parent, such as system.slice, claims none of them: its
//! tasks are the ones to keep off.

use std::collections::BTreeMap;

use crate::base::cpulist::CpuList;
use crate::kernel::cpusets::{Cpusets, is_in};

/// A cpuset that tasks of a rule are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The cgroup that has the cpuset.
    pub cgroup: String,
    pub cpus: CpuList,
    /// Why its CPUs cannot be exclusive.
    pub shared: Option<String>,
}

/// The cpusets of tasks in these cgroups, each once.
pub fn of<'a>(cpusets: &Cpusets, cgroups: impl IntoIterator<Item = &'a str>) -> Vec<Allocation> {
    let found: BTreeMap<&str, &CpuList> =
        cgroups.into_iter().filter_map(|cgroup| cpusets.nearest(cgroup)).collect();
    let allocation = |(path, cpus): (&str, &CpuList)| Allocation {
        cgroup: path.into(),
        cpus: cpus.clone(),
        shared: why_shared(cpusets, path, cpus),
    };
    found.into_iter().map(allocation).collect()
}

fn why_shared(cpusets: &Cpusets, cgroup: &str, cpus: &CpuList) -> Option<String> {
    if is_burstable(cgroup) {
        return Some("the kubelet gives CPUs of their own to guaranteed pods only".into());
    }
    // A container that asks for part of a CPU is in the cpuset that containers share, perhaps as
    // the only one.
    let limit = cpusets.limit(cgroup).filter(|_| cgroup.contains("kubepods"));
    if let Some(limit) = limit.filter(|limit| limit.cpus != limit.given as f64) {
        return Some(format!(
            "the kubelet gives as many CPUs of their own as the limit says, which is {}",
            limit.cpus
        ));
    }
    cpusets.iter().find_map(|(other, its)| {
        let common = its.common(cpus);
        let related = is_in(other, cgroup) || is_in(cgroup, other);
        // Otherwise a user with a delegated controller could take CPUs away from anybody. The
        // scheduler keeps users' tasks off as it does all others.
        let is_users = is_in(other, "/user.slice");
        (!related && !is_users && !common.is_empty())
            .then(|| format!("CPUs {common} are also in the cpuset of {other}"))
    })
}

/// Whether the cgroup is below the kubelet's cgroup for burstable or best-effort pods, with either
/// of the kubelet's cgroup drivers.
fn is_burstable(cgroup: &str) -> bool {
    let slices = ["kubepods-burstable.slice", "kubepods-besteffort.slice"];
    let parts: Vec<&str> = cgroup.split('/').collect();
    parts.windows(2).any(|pair| {
        pair[0] == "kubepods" && ["burstable", "besteffort"].contains(&pair[1])
            || slices.iter().any(|slice| pair[1].ends_with(slice))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpusets::tests::Tree;

    /// The cgroup and CPUs of each allocation, and why it is shared.
    fn found(tree: &Tree, cgroups: &[&str]) -> Vec<(String, String, Option<String>)> {
        let cpusets = Cpusets::read(&tree.root()).unwrap();
        let found = of(&cpusets, cgroups.iter().copied()).into_iter();
        found.map(|one| (one.cgroup, one.cpus.to_string(), one.shared)).collect()
    }

    /// A node with the static CPU manager: two guaranteed pods, and two in the shared pool.
    fn node() -> Tree {
        let tree = Tree::new();
        for (cgroup, cpus) in [
            ("/system.slice", "0-7"),
            ("/kubepods", "0-7"),
            ("/kubepods/burstable", "0-7"),
            ("/kubepods/podA", "0-7"),
            ("/kubepods/podA/pause", "0-7"),
            ("/kubepods/podA/c", "2-3"),
            ("/kubepods/podA/c/inner", "2-3"),
            ("/kubepods/podB/c", "4"),
            ("/kubepods/podB", "0-7"),
            ("/kubepods/burstable/podC", "0-7"),
            ("/kubepods/burstable/podC/c", "0-1,5-7"),
            ("/kubepods/podD", "0-7"),
            ("/kubepods/podD/c", "0-1,5-7"),
        ] {
            tree.set(cgroup, cpus);
        }
        tree
    }

    #[test]
    fn guaranteed_containers_have_their_cpus_alone() {
        let tree = node();
        let own = |cgroup: &str, cpus: &str| (cgroup.to_owned(), cpus.to_owned(), None);
        assert_eq!(
            found(&tree, &["/kubepods/podA/c", "/kubepods/podA/c/inner", "/kubepods/podB/c"]),
            [own("/kubepods/podA/c", "2-3"), own("/kubepods/podB/c", "4")]
        );
        // The sandbox and system services run anywhere and have no CPUs of their own.
        assert_eq!(found(&tree, &["/kubepods/podA/pause", "/system.slice/a.service", "/"]), []);
    }

    #[test]
    fn the_shared_pool_is_nobodys() {
        let tree = node();
        let shared = |cgroup: &str| found(&tree, &[cgroup]).remove(0).2.unwrap();
        let other = "CPUs 0-1,5-7 are also in the cpuset of /kubepods/burstable/podC/c";
        // A guaranteed pod that asks for part of a CPU.
        assert_eq!(shared("/kubepods/podD/c"), other);
        assert!(shared("/kubepods/burstable/podC/c").starts_with("the kubelet gives CPUs"));
        // With both drivers, even alone on the machine.
        for class in ["burstable", "besteffort"] {
            let tree = Tree::new();
            let pod = format!("/kubepods-{class}.slice/kubepods-{class}-podC.slice");
            for cgroup in [format!("/kubepods/{class}/podC"), format!("/kubepods.slice{pod}")] {
                let above = cgroup.match_indices('/').skip(1).map(|(end, _)| &cgroup[..end]);
                above.chain([cgroup.as_str()]).for_each(|dir| tree.set(dir, "0-7"));
                tree.set(&format!("{cgroup}/c"), "0-1");
                let one = found(&tree, &[&format!("{cgroup}/c")]).remove(0);
                assert!(one.2.is_some(), "{one:?}");
            }
        }
    }

    /// In a guaranteed pod, beside a container that has whole CPUs, for example in the same pod.
    #[test]
    fn the_only_container_in_the_shared_pool() {
        let tree = Tree::new();
        for (cgroup, cpus, max) in [
            ("/kubepods", "0-7", "max 100000"),
            ("/kubepods/podA", "0-7", "250000 100000"),
            ("/kubepods/podA/upf", "2-3", "200000 100000"),
            ("/kubepods/podA/sidecar", "0-1,4-7", "50000 100000"),
        ] {
            tree.set(cgroup, cpus);
            tree.write(&format!("sys/fs/cgroup{cgroup}/cpu.max"), &format!("{max}\n"));
        }
        let all = ["/kubepods/podA/upf", "/kubepods/podA/sidecar"];
        let whys: Vec<_> = found(&tree, &all).into_iter().map(|one| (one.1, one.2)).collect();
        let why = "the kubelet gives as many CPUs of their own as the limit says, which is 0.5";
        assert_eq!(whys, [("0-1,4-7".into(), Some(why.into())), ("2-3".into(), None)]);
        // One of its CPUs goes offline.
        tree.write("sys/fs/cgroup/kubepods/podA/upf/cpuset.cpus", "2-3\n");
        tree.set("/kubepods/podA/upf", "2");
        let whys: Vec<_> = found(&tree, &all[..1]).into_iter().map(|one| (one.1, one.2)).collect();
        assert_eq!(whys, [("2".into(), None)]);
        // Since 1.33 the kubelet may leave out the limit of a container with whole CPUs.
        tree.write("sys/fs/cgroup/kubepods/podA/upf/cpu.max", "max 100000\n");
        assert_eq!(found(&tree, &all[..1]).remove(0).2, None);
        // A service's limit is up to its administrator.
        tree.set("/system.slice", "0-7");
        tree.set("/system.slice/a.service", "1");
        tree.write("sys/fs/cgroup/system.slice/a.service/cpu.max", "50000 100000\n");
        tree.set("/kubepods/podA/sidecar", "0,4-7");
        assert_eq!(found(&tree, &["/system.slice/a.service"]).remove(0).2, None);
    }

    #[test]
    fn cpus_that_the_kubelet_has_not_taken_from_the_others_yet() {
        let tree = node();
        tree.set("/kubepods/podE", "0-7");
        tree.set("/kubepods/podE/c", "5");
        let why = found(&tree, &["/kubepods/podE/c"]).remove(0).2.unwrap();
        assert_eq!(why, "CPUs 5 are also in the cpuset of /kubepods/burstable/podC/c");
        for shared in ["/kubepods/burstable/podC/c", "/kubepods/podD/c"] {
            tree.set(shared, "0-1,6-7");
        }
        assert_eq!(found(&tree, &["/kubepods/podE/c"]).remove(0).2, None);
    }

    #[test]
    fn users_take_nobodys_cpus() {
        let tree = node();
        let users = "/user.slice/user-1000.slice/user@1000.service";
        tree.set("/user.slice", "0-7");
        tree.set("/user.slice/user-1000.slice", "0-7");
        tree.set(users, "0-7");
        tree.set(&format!("{users}/x"), "2");
        assert_eq!(found(&tree, &["/kubepods/podA/c"]).remove(0).2, None);
        assert!(found(&tree, &[&format!("{users}/x")]).remove(0).2.is_some());
    }

    #[test]
    fn a_cpuset_within_another_and_one_of_systemd() {
        let tree = node();
        tree.set("/kubepods/podA/c/inner/one", "3");
        let cgroups = ["/kubepods/podA/c/inner/one", "/kubepods/podA/c"];
        let own: Vec<String> = found(&tree, &cgroups).into_iter().map(|one| one.1).collect();
        assert_eq!(own, ["2-3", "3"]);
        tree.set("/system.slice/upf.service", "5");
        let service = found(&tree, &["/system.slice/upf.service"]).remove(0);
        assert!(service.2.is_some(), "the shared pool has it");
        assert_eq!(found(&Tree::new(), &["/system.slice/upf.service"]), []);
    }
}
