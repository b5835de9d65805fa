//! CPUs that the kernel keeps apart: isolcpus=, cpuset partitions, nohz_full=.

use super::sight::Sight;
use crate::base::finding::Finding;
use crate::kernel::isolation::isolates_domains;

pub fn findings(sight: &Sight<'_>) -> Vec<Finding> {
    vec![isolated(sight), tickless(sight)]
}

/// The kernel loads no sched_ext scheduler while `isolcpus=` isolates CPUs from scheduling domains
/// (scx_enable(), kernel/sched/ext.c). The first releases of 7.0 count cpuset partitions, too.
fn isolated(sight: &Sight<'_>) -> Finding {
    const CHECK: &str = "isolcpus";
    let cpus = list(sight, "/sys/devices/system/cpu/isolated");
    let command_line = sight.text("/proc/cmdline").unwrap_or_default();
    match cpus {
        Some(cpus) if isolates_domains(&command_line) => {
            let what = format!("isolcpus= isolates the CPUs {cpus}: the kernel loads no scheduler");
            Finding::error(CHECK, what)
                .fix("boot without isolcpus= and give rules exclusive CPUs (gthctl-policy(5))")
        }
        Some(cpus) => {
            let what =
                format!("a cpuset partition isolates the CPUs {cpus}: only its tasks use them");
            Finding::note(CHECK, what).fix("give rules exclusive CPUs instead (gthctl-policy(5))")
        }
        None => Finding::ok(CHECK, "no CPU is isolated"),
    }
}

fn tickless(sight: &Sight<'_>) -> Finding {
    let what = match list(sight, "/sys/devices/system/cpu/nohz_full") {
        Some(cpus) => {
            format!("a task that is alone on one of the exclusive CPUs {cpus} has no tick there")
        }
        None => "no CPU can do without its tick".into(),
    };
    Finding::ok("nohz_full", what)
}

/// The CPUs that the file lists, if there are any: "(null)" or nothing means none.
fn list(sight: &Sight<'_>, file: &str) -> Option<String> {
    sight.text(file).filter(|cpus| cpus.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    fn found(command_line: &str, isolated: &str) -> Finding {
        let tree = Tree::new();
        tree.write("proc/cmdline", command_line);
        tree.write("sys/devices/system/cpu/isolated", isolated);
        let host = tree.host();
        self::isolated(&Sight::new(&host))
    }

    #[test]
    fn isolated_domains_keep_every_scheduler_out() {
        for (command_line, isolated, level) in [
            ("quiet", "\n", Level::Ok),
            ("quiet isolcpus=2-3", "2-3\n", Level::Error),
            ("isolcpus=nohz,domain,2", "2\n", Level::Error),
            ("isolcpus=managed_irq,nohz,2", "\n", Level::Ok),
            ("isolcpus=managed_irq,2", "3\n", Level::Note),
            ("xisolcpus=1", "3\n", Level::Note),
        ] {
            assert_eq!(found(command_line, isolated).level, level, "{command_line}");
        }
        assert!(found("isolcpus=2-3", "2-3\n").what.contains("CPUs 2-3"));
    }

    #[test]
    fn cpus_without_a_tick_are_named() {
        let tree = Tree::new();
        let host = tree.host();
        let what = || tickless(&Sight::new(&host)).what;
        for none in [None, Some("(null)\n"), Some("\n")] {
            none.iter().for_each(|text| tree.write("sys/devices/system/cpu/nohz_full", text));
            assert!(what().starts_with("no CPU"), "{none:?}");
        }
        tree.write("sys/devices/system/cpu/nohz_full", "1-3\n");
        assert!(what().contains("1-3"));
    }
}
