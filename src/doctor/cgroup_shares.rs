//! Which cgroups there are, and whether they share the CPUs.

use super::sight::Sight;
use crate::base::finding::Finding;
use crate::kernel::cgroupfs::{Mode, hierarchy, mode};

const CHECK: &str = "cgroups";

/// What is found, and whether cgroup v2 alone is in use.
pub fn findings(sight: &Sight<'_>) -> (Vec<Finding>, bool) {
    let mounts = sight.text("/proc/self/mountinfo").unwrap_or_default();
    let mode = mode(&mounts);
    let version = match mode {
        Mode::V2 => Finding::ok(CHECK, "version 2"),
        Mode::Hybrid => Finding::note(CHECK, "hybrid: version 2, and controllers of version 1")
            .fix("boot with systemd.unified_cgroup_hierarchy=1 for version 2 alone"),
        Mode::V1 => Finding::note(CHECK, "version 1")
            .fix("boot with systemd.unified_cgroup_hierarchy=1 for version 2"),
        Mode::None => Finding::note(CHECK, "no cgroups are mounted")
            .fix("mount -t cgroup2 cgroup2 /sys/fs/cgroup"),
    };
    let findings = [Some(version), controller(sight, &mounts)];
    (findings.into_iter().flatten().collect(), mode == Mode::V2)
}

/// Whether cgroups have the cpu controller, with `cpu.weight` and `cpu.max`
/// (Documentation/admin-guide/cgroup-v2.rst).
fn controller(sight: &Sight<'_>, mounts: &str) -> Option<Finding> {
    const CHECK: &str = "cpu-controller";
    let at = hierarchy(mounts)?.display().to_string();
    let has_cpu = |file: &str| {
        let names = sight.text(&format!("{at}/{file}"))?;
        Some(names.split_whitespace().any(|name| name == "cpu"))
    };
    // Only the root cgroup has no cgroup.type.
    if sight.exists(&format!("{at}/cgroup.type")) {
        let what = format!("unknown: {at} shows this process's own cgroup and those below only");
        return Some(Finding::note(CHECK, what));
    }
    Some(match (has_cpu("cgroup.controllers"), has_cpu("cgroup.subtree_control")) {
        (None, _) if sight.exists(&format!("{at}/cpu.shares")) => {
            Finding::ok(CHECK, format!("there, of version 1, at {at}"))
        }
        (None, _) => Finding::note(CHECK, format!("unknown: {at}/cgroup.controllers is not there")),
        (Some(false), _) => {
            Finding::warning(CHECK, format!("missing in {at}: cgroups have no weights and limits"))
                .fix("boot a kernel that was built with CONFIG_CGROUP_SCHED=y")
        }
        (Some(true), Some(true)) => Finding::ok(CHECK, format!("on in {at}")),
        (Some(true), _) => {
            let what =
                format!("off in {at}: the cgroups below share the CPUs by their number of tasks");
            Finding::note(CHECK, what).fix(format!("echo +cpu > {at}/cgroup.subtree_control"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
    const V1: &str = "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

    fn found(mounts: &str, files: &[(&str, &str)]) -> (Vec<(Level, String)>, bool) {
        let tree = Tree::new();
        tree.write("proc/self/mountinfo", mounts);
        for (file, text) in files {
            tree.write(&format!("sys/fs/cgroup/{file}"), text);
        }
        let host = tree.host();
        let (findings, v2) = findings(&Sight::new(&host));
        (findings.into_iter().map(|finding| (finding.level, finding.what)).collect(), v2)
    }

    fn levels(mounts: &str, files: &[(&str, &str)]) -> Vec<Level> {
        found(mounts, files).0.into_iter().map(|(level, _)| level).collect()
    }

    #[test]
    fn version_2_with_and_without_the_controller() {
        let [all, none] = ["cpuset cpu io memory\n", "cpuset memory\n"];
        let files = |here, below| [("cgroup.controllers", here), ("cgroup.subtree_control", below)];
        assert_eq!(levels(V2, &files(all, all)), [Level::Ok, Level::Ok]);
        assert_eq!(levels(V2, &files(all, none)), [Level::Ok, Level::Note]);
        assert_eq!(levels(V2, &files(none, "\n")), [Level::Ok, Level::Warning]);
        assert!(found(V2, &files(all, all)).1);
        // In a container.
        let own = [("cgroup.type", "domain\n"), ("cgroup.controllers", all)];
        assert!(found(V2, &own).0[1].1.starts_with("unknown: /sys/fs/cgroup shows"));
    }

    #[test]
    fn version_1_and_hybrid() {
        let files = [("cpu,cpuacct/cpu.shares", "1024\n"), ("cgroup.controllers", "\n")];
        let (hybrid, v2) = found(&format!("{V2}{V1}"), &files);
        assert!(hybrid[0].1.starts_with("hybrid") && !v2, "{hybrid:?}");
        assert_eq!(hybrid[1].0, Level::Ok);
        assert_eq!(levels(V1, &files), [Level::Note, Level::Ok]);
        assert_eq!(levels("", &[]), [Level::Note]);
    }
}
