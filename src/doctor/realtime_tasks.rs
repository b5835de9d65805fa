//! Real-time tasks: they run before sched_ext's tasks, and one that never sleeps can keep its CPU
//! for itself.

use std::collections::BTreeSet;
use std::fs;

use super::sight::Sight;
use crate::base::finding::Finding;
use crate::kernel::ext_server::EXT_SERVERS;
use crate::kernel::kconfig::Kconfig;
use crate::kernel::realtime;
use crate::kernel::release::{OSRELEASE, version};

/// The scheduler's directory in debugfs.
const SCHED: &str = "/sys/kernel/debug/sched";
/// The first kernels with servers, by the first part of their version.
const FIRST_WITH_SERVERS: u32 = 7;
const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// The names that a message lists; more would fill the line.
const MOST_NAMES: usize = 5;

pub fn finding(sight: &Sight<'_>) -> Finding {
    const CHECK: &str = "real-time";
    let threads = match realtime::threads(&sight.host.proc()) {
        Ok(threads) => threads,
        Err(e) => return Finding::note(CHECK, format!("the tasks are unknown: {}", e.what)),
    };
    if threads.is_empty() {
        const NONE: &str = "no program has real-time threads";
        return match sight.text(RUNTIME).as_deref() {
            Some("-1") => Finding::note(CHECK, format!("kernel.sched_rt_runtime_us is -1; {NONE}")),
            _ => Finding::ok(CHECK, NONE),
        };
    }
    let mut names: Vec<&str> = threads.iter().map(|thread| thread.comm.as_str()).collect();
    let count = names.len();
    names = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let more = if names.len() > MOST_NAMES { ", ..." } else { "" };
    names.truncate(MOST_NAMES);
    let names = names.join(", ");
    let what = format!("real-time threads of programs: {count} ({names}{more})");
    if is_served(sight) || is_limited(sight) {
        return Finding::note(CHECK, format!("{what}; they go before all that gthctl schedules"));
    }
    if servers_are_hidden(sight) {
        let unknown =
            "this process cannot see whether the kernel leaves a part of each CPU to others";
        return Finding::note(CHECK, format!("{what}; {unknown}"));
    }
    let what = format!(
        "{what}, and kernel.sched_rt_runtime_us does not limit them: one that never sleeps stops all \
         else on its CPU"
    );
    Finding::warning(CHECK, what).fix(format!(
        "write a runtime, such as 50000000, to {EXT_SERVERS}/cpuN/runtime for each CPU; where that is \
         missing, boot Linux 7.0 or newer"
    ))
}

/// Whether the kernel itself reserves a part of each CPU for the tasks of sched_ext.
fn is_served(sight: &Sight<'_>) -> bool {
    let online = sight.host.topology().map(|topology| topology.online).unwrap_or_default();
    let runtime = |cpu| sight.text(&format!("{EXT_SERVERS}/cpu{cpu}/runtime"));
    sight.exists(EXT_SERVERS)
        && !online.is_empty()
        && online.iter().all(|cpu| runtime(cpu).is_some_and(|runtime| runtime != "0"))
}

/// Whether the kernel may have servers that this process cannot see: because of its user's rights
/// or of lockdown (debugfs_locked_down(), fs/debugfs/file.c), or in a container without debugfs.
fn servers_are_hidden(sight: &Sight<'_>) -> bool {
    let release = sight.text(OSRELEASE).unwrap_or_default();
    let major = version(&release).map(|(major, _)| major);
    let unseen = |dir: &str| match sight.path(dir).try_exists() {
        Ok(true) => fs::read_dir(sight.path(dir)).is_err(),
        Ok(false) => dir == SCHED && major.is_some_and(|major| major >= FIRST_WITH_SERVERS),
        Err(_) => true,
    };
    let of_cpu_0 = format!("{EXT_SERVERS}/cpu0/runtime");
    unseen(SCHED)
        || unseen(EXT_SERVERS)
        || (sight.exists(&of_cpu_0) && sight.text(&of_cpu_0).is_none())
}

/// Whether the kernel limits real-time tasks to a part of each CPU. Since Linux 6.12 the sysctl does
/// that only with CONFIG_RT_GROUP_SCHED (commit 5f6bd380c7bd, kernel/sched/rt.c).
fn is_limited(sight: &Sight<'_>) -> bool {
    let release = sight.text(OSRELEASE).unwrap_or_default();
    let config = Kconfig::read(&sight.host.root, &release);
    config.is_some_and(|config| config.has("CONFIG_RT_GROUP_SCHED"))
        && sight.text(RUNTIME).is_some_and(|runtime| runtime != "-1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    /// A machine whose process 7 is scheduled by that policy (proc_pid_stat(5), field 41).
    fn machine(policy: u32, runtime: &str) -> Tree {
        let tree = Tree::new();
        let stat = format!("7 (upf) S {}{policy} 0\n", "0 ".repeat(37));
        for file in ["proc/7/stat", "proc/7/task/7/stat"] {
            tree.write(file, &stat);
        }
        tree.write("proc/7/task/7/comm", "upf\n");
        tree.write("proc/sys/kernel/sched_rt_runtime_us", runtime);
        for file in ["possible", "online"] {
            tree.write(&format!("sys/devices/system/cpu/{file}"), "0-1\n");
        }
        tree
    }

    fn level(tree: &Tree) -> Level {
        let host = tree.host();
        finding(&Sight::new(&host)).level
    }

    #[test]
    fn only_unlimited_threads_are_a_danger() {
        assert_eq!(level(&machine(0, "950000\n")), Level::Ok);
        assert_eq!(level(&machine(0, "-1\n")), Level::Note);
        let bad = machine(1, "-1\n");
        assert_eq!(level(&bad), Level::Warning);
        let host = bad.host();
        let found = finding(&Sight::new(&host));
        assert!(
            found.what.starts_with("real-time threads of programs: 1 (upf), and kernel.sched_rt")
        );
        let fix = "write a runtime, such as 50000000, to /sys/kernel/debug/sched/ext_server/cpuN/runtime \
                   for each CPU; where that is missing, boot Linux 7.0 or newer";
        assert_eq!(found.fix.as_deref(), Some(fix));
    }

    #[test]
    fn the_sysctl_limits_threads_only_on_kernels_built_for_it() {
        let with = |config: &str, runtime: &str| {
            let tree = machine(1, runtime);
            tree.write("proc/config.gz", config);
            level(&tree)
        };
        assert_eq!(level(&machine(1, "950000\n")), Level::Warning);
        assert_eq!(with("CONFIG_BPF=y\n", "950000\n"), Level::Warning);
        assert_eq!(with("CONFIG_RT_GROUP_SCHED=y\n", "950000\n"), Level::Note);
        assert_eq!(with("CONFIG_RT_GROUP_SCHED=y\n", "-1\n"), Level::Warning);
    }

    #[test]
    fn the_kernels_servers_make_it_harmless_if_every_cpu_has_one() {
        let tree = machine(2, "-1\n");
        let server = |cpu: u32, runtime: &str| {
            tree.write(&format!("sys/kernel/debug/sched/ext_server/cpu{cpu}/runtime"), runtime);
        };
        server(0, "50000000\n");
        assert_eq!(level(&tree), Level::Warning);
        server(1, "50000000\n");
        assert_eq!(level(&tree), Level::Note);
        server(1, "0\n");
        assert_eq!(level(&tree), Level::Warning);
    }

    /// Root may read everything, so a link to itself stands for what another user may not read.
    #[test]
    fn servers_that_cannot_be_seen_are_not_called_missing() {
        let tree = machine(1, "950000\n");
        tree.link("sys/kernel/debug", "sys/kernel/debug");
        assert_eq!(level(&tree), Level::Note);
        // A file that the kernel lets nobody read, as under lockdown.
        let tree = machine(1, "950000\n");
        tree.link("sys/kernel/debug/sched/ext_server/cpu0/runtime", "sys");
        assert_eq!(level(&tree), Level::Note);
        // A container without debugfs.
        let tree = machine(1, "950000\n");
        tree.write("proc/sys/kernel/osrelease", "7.2.13-amd64\n");
        assert_eq!(level(&tree), Level::Note);
        tree.write("sys/kernel/debug/sched/features", "");
        assert_eq!(level(&tree), Level::Warning);
        let tree = machine(1, "950000\n");
        tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n");
        assert_eq!(level(&tree), Level::Warning);
    }
}
