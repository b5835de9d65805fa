//! What this process may do: capabilities, user namespace, lockdown, memlock limit.

use super::sight::Sight;
use crate::base::finding::{Finding, Level};
use crate::kernel::capabilities::{
    CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SYSLOG, check_capabilities, has,
};

pub fn findings(sight: &Sight<'_>) -> Vec<Finding> {
    let status = sight.text("/proc/self/status").unwrap_or_default();
    let mut findings = capabilities(&status);
    findings.extend(user_namespace(sight));
    findings.extend(addresses(sight, &status));
    findings.push(lockdown(sight));
    findings.push(memlock(sight));
    findings
}

fn capabilities(status: &str) -> Vec<Finding> {
    const CHECK: &str = "capabilities";
    let loading = match check_capabilities("loading a scheduler", status) {
        Ok(()) => Finding::ok(CHECK, "this process may load a scheduler"),
        Err(e) => Finding::of(CHECK, Level::Error, &e),
    };
    // Some kernels require CAP_SYS_ADMIN to attach kprobes, and all require it to open BPF programs
    // of others (docs/kernels.md).
    let admin = (!has(status, CAP_SYS_ADMIN)).then(|| {
        let what = "trace xdp:DEV needs CAP_SYS_ADMIN, which this process lacks, and so do rules \
                    with gtp about a module where kernel.perf_event_paranoid is above 2";
        Finding::note(CHECK, what)
    });
    // store_rps_map() and xps_cpus_store(), net/core/net-sysfs.c.
    let masks = (!has(status, CAP_NET_ADMIN)).then(|| {
        let what = "RPS and XPS masks of NICs need CAP_NET_ADMIN, which this process lacks";
        Finding::note(CHECK, what)
    });
    let fix = "run it as root, or give it that capability";
    let notes = admin.into_iter().chain(masks).map(|note| note.fix(fix));
    [loading].into_iter().chain(notes).collect()
}

/// The kernel asks for capabilities in the first user namespace (bpf_capable(),
/// include/linux/capability.h).
fn user_namespace(sight: &Sight<'_>) -> Option<Finding> {
    let map = sight.text("/proc/self/uid_map")?;
    let numbers: Vec<&str> = map.split_whitespace().collect();
    (numbers != ["0", "0", "4294967295"]).then(|| {
        let what = "this is not the first user namespace: no capability here counts for BPF";
        Finding::error("user-namespace", what).fix("run it on the host, or with hostUsers: true")
    })
}

/// Whether the kernel tells this process where its functions are (kallsyms_show_value(),
/// kernel/ksyms_common.c). It tells every process if the sysctl kernel.perf_event_paranoid is low.
fn addresses(sight: &Sight<'_>, status: &str) -> Option<Finding> {
    const CHECK: &str = "kernel-addresses";
    let hidden = "rules with gtp and traces see no task process packets in its own softirqs";
    let number = |name: &str| sight.text(&format!("/proc/sys/kernel/{name}"))?.parse::<i32>().ok();
    let restrict = number("kptr_restrict").unwrap_or(0);
    if restrict >= 2 {
        let what = format!("kernel.kptr_restrict is {restrict}: {hidden}");
        return Some(Finding::note(CHECK, what).fix("sysctl -w kernel.kptr_restrict=1"));
    }
    let all_may = restrict == 0 && number("perf_event_paranoid").is_some_and(|level| level <= 1);
    (!all_may && !has(status, CAP_SYSLOG)).then(|| {
        let what = format!("this process lacks CAP_SYSLOG: {hidden}");
        Finding::note(CHECK, what).fix("run it as root, or give it that capability")
    })
}

/// In the mode `confidentiality`, the kernel lets no BPF program read kernel memory
/// (LOCKDOWN_BPF_READ_KERNEL, security/security.c), which gthctl's programs do.
fn lockdown(sight: &Sight<'_>) -> Finding {
    const CHECK: &str = "lockdown";
    let Some(modes) = sight.text("/sys/kernel/security/lockdown") else {
        return Finding::ok(CHECK, "none is shown (no /sys/kernel/security/lockdown)");
    };
    let mode = modes.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match mode.map(|(mode, _)| mode) {
        Some("confidentiality") => {
            let what = "confidentiality: the kernel lets no BPF program read its memory";
            Finding::error(CHECK, what).fix("boot with lockdown=integrity, or without lockdown")
        }
        Some(mode) => Finding::ok(CHECK, mode),
        None => Finding::note(CHECK, format!("unknown mode {modes:?}")),
    }
}

/// Since Linux 5.11 the kernel charges the memory of BPF to cgroups and does not count it for
/// RLIMIT_MEMLOCK (probe_memcg_account() in libbpf). This holds for every kernel with sched_ext.
fn memlock(sight: &Sight<'_>) -> Finding {
    let limits = sight.text("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown");
    let what = format!("{soft}; kernels with sched_ext do not count BPF's memory by it");
    Finding::ok("memlock", what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    fn process(effective: u64, uid_map: &str) -> Tree {
        let tree = Tree::new();
        tree.write("proc/self/status", &format!("CapEff:\t{effective:016x}\n"));
        tree.write("proc/self/uid_map", uid_map);
        tree.write("proc/sys/kernel/perf_event_paranoid", "1\n");
        let limit =
            "Max locked memory         8388608              unlimited            bytes     \n";
        tree.write("proc/self/limits", limit);
        tree
    }

    fn found(tree: &Tree) -> Vec<(&'static str, Level)> {
        let host = tree.host();
        let findings = findings(&Sight::new(&host));
        let not_ok = findings.iter().filter(|finding| finding.level != Level::Ok);
        not_ok.map(|finding| (finding.check, finding.level)).collect()
    }

    const FIRST: &str = "         0          0 4294967295\n";
    const BPF_AND_PERFMON: u64 = 1 << 39 | 1 << 38;

    #[test]
    fn who_is_told_the_kernels_addresses() {
        let found = |effective, restrict: &str, paranoid: &str| {
            let tree = process(effective, FIRST);
            tree.write("proc/sys/kernel/kptr_restrict", restrict);
            tree.write("proc/sys/kernel/perf_event_paranoid", paranoid);
            let host = tree.host();
            let status = format!("CapEff:\t{effective:016x}\n");
            addresses(&Sight::new(&host), &status).map(|finding| finding.what)
        };
        let starts = |what: Option<String>, with| what.is_some_and(|what| what.starts_with(with));
        let lacks = "this process lacks CAP_SYSLOG: ";
        assert!(starts(found(BPF_AND_PERFMON, "0\n", "2\n"), lacks));
        assert!(starts(found(BPF_AND_PERFMON, "1\n", "1\n"), lacks));
        assert!(starts(found(u64::MAX, "2\n", "1\n"), "kernel.kptr_restrict is 2: "));
        assert_eq!(found(BPF_AND_PERFMON, "0\n", "1\n"), None);
        assert_eq!(found(1 << CAP_SYSLOG, "1\n", "4\n"), None);
    }

    #[test]
    fn capabilities_as_far_as_they_are_needed() {
        let note = ("capabilities", Level::Note);
        assert_eq!(found(&process(u64::MAX, FIRST)), []);
        assert_eq!(found(&process(BPF_AND_PERFMON, FIRST)), [note, note]);
        assert_eq!(found(&process(BPF_AND_PERFMON | 1 << CAP_NET_ADMIN, FIRST)), [note]);
        assert_eq!(found(&process(0, FIRST)), [("capabilities", Level::Error), note, note]);
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let tree = process(u64::MAX, "         0     100000      65536\n");
        assert_eq!(found(&tree), [("user-namespace", Level::Error)]);
    }

    #[test]
    fn lockdowns() {
        let level = |modes: &str| {
            let tree = process(u64::MAX, FIRST);
            tree.write("sys/kernel/security/lockdown", modes);
            found(&tree)
        };
        assert_eq!(level("[none] integrity confidentiality\n"), []);
        assert_eq!(level("none [integrity] confidentiality\n"), []);
        let error = [("lockdown", Level::Error)];
        assert_eq!(level("none integrity [confidentiality]\n"), error);
    }

    #[test]
    fn the_memlock_limit_is_told() {
        let host = process(0, FIRST).host();
        assert!(memlock(&Sight::new(&host)).what.starts_with("unknown;"));
        let tree = process(0, FIRST);
        let host = tree.host();
        assert!(memlock(&Sight::new(&host)).what.starts_with("8388608;"));
    }
}
