//! Real-time tasks: they are above sched_ext, and one that never sleeps can keep its CPU for itself.

use std::collections::BTreeSet;

use super::sight::Sight;
use crate::base::finding::Finding;
use crate::kernel::ext_server::EXT_SERVERS;
use crate::kernel::realtime;

const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// The names that a message lists; more would fill the line.
const MOST_NAMES: usize = 5;

pub fn finding(sight: &Sight<'_>) -> Finding {
    const CHECK: &str = "real-time";
    let threads = match realtime::threads(&sight.host.proc()) {
        Ok(threads) => threads,
        Err(e) => return Finding::note(CHECK, format!("the tasks are unknown: {}", e.what)),
    };
    let limited = sight.text(RUNTIME).is_none_or(|runtime| runtime != "-1");
    let served = limited || is_served(sight);
    let fix = "sysctl -w kernel.sched_rt_runtime_us=950000";
    let off = "kernel.sched_rt_runtime_us is -1";
    if threads.is_empty() {
        return match limited {
            true => Finding::ok(CHECK, "no program has real-time threads"),
            false => {
                Finding::note(CHECK, format!("{off}; no program has real-time threads")).fix(fix)
            }
        };
    }
    let mut names: Vec<&str> = threads.iter().map(|thread| thread.comm.as_str()).collect();
    let count = names.len();
    names = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let more = if names.len() > MOST_NAMES { ", ..." } else { "" };
    names.truncate(MOST_NAMES);
    let names = names.join(", ");
    let what = format!("real-time threads of programs: {count} ({names}{more})");
    match served {
        true => Finding::note(CHECK, format!("{what}; they go before all that gthctl schedules")),
        false => {
            let what =
                format!("{what}, and {off}: one that never sleeps stops all else on its CPU");
            Finding::warning(CHECK, what).fix(fix)
        }
    }
}

/// Whether the kernel itself gives the tasks of sched_ext a part of each CPU.
fn is_served(sight: &Sight<'_>) -> bool {
    let online = sight.host.topology().map(|topology| topology.online).unwrap_or_default();
    let runtime = |cpu| sight.text(&format!("{EXT_SERVERS}/cpu{cpu}/runtime"));
    sight.exists(EXT_SERVERS)
        && !online.is_empty()
        && online.iter().all(|cpu| runtime(cpu).is_some_and(|runtime| runtime != "0"))
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
        assert_eq!(level(&machine(1, "950000\n")), Level::Note);
        let bad = machine(1, "-1\n");
        assert_eq!(level(&bad), Level::Warning);
        let host = bad.host();
        let found = finding(&Sight::new(&host));
        assert!(
            found.what.starts_with("real-time threads of programs: 1 (upf), and kernel.sched_rt")
        );
        assert_eq!(found.fix.as_deref(), Some("sysctl -w kernel.sched_rt_runtime_us=950000"));
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
}
