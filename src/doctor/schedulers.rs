//! Other schedulers: the one in the kernel, and services that load one or move tasks.

use super::sight::Sight;
use super::tuned;
use crate::base::finding::Finding;
use crate::kernel::procfs;
use crate::kernel::sched_ext::State;

/// The name of gthctl's own scheduler (bpf/sched.bpf.c).
const OWN: &str = "gthctl";
/// The services of the scx project that load schedulers (github.com/sched-ext/scx,
/// github.com/sched-ext/scx-loader).
const SERVICES: [&str; 2] = ["scx.service", "scx_loader.service"];

/// A process that may load a scheduler or move tasks.
struct Process {
    pid: u32,
    comm: String,
    /// The service that it belongs to, of [`SERVICES`].
    service: Option<&'static str>,
}

pub fn findings(sight: &Sight<'_>, state: &State) -> Vec<Finding> {
    let mut findings = vec![loaded(state)];
    let processes = processes(sight);
    let others: Vec<Finding> = processes.iter().filter_map(Process::finding).collect();
    if others.is_empty() {
        let what = "no service of scx and no scheduler of it is running";
        findings.push(Finding::ok("scheduler-services", what));
    }
    findings.extend(others);
    let tuned = processes.iter().find(|process| process.comm == "tuned");
    findings.push(tuned::finding(sight, tuned.map(|process| process.pid)));
    findings.extend(hidden(sight));
    findings
}

/// The scheduler in the kernel.
fn loaded(state: &State) -> Finding {
    const CHECK: &str = "sched_ext";
    match state {
        State::Missing => Finding::error(CHECK, "the kernel has none (no /sys/kernel/sched_ext)")
            .fix("boot Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y"),
        State::Disabled => Finding::ok(CHECK, "there, and no scheduler is loaded"),
        State::InUse { state, name } if name == OWN => {
            let what = format!("gthctl's scheduler is loaded ({state}): a gthctl run is active");
            Finding::note(CHECK, what)
                .fix("gthctl status shows it; stop it before you start another")
        }
        State::InUse { state, name } => {
            let what = format!("the scheduler `{name}` is loaded ({state})");
            Finding::error(CHECK, what).fix("stop the program or the service that loaded it")
        }
    }
}

fn processes(sight: &Sight<'_>) -> Vec<Process> {
    let proc = sight.host.proc();
    let process = |pid: u32| {
        // The kernel's own tasks for sched_ext have names such as scx_enable_helper.
        let stat = procfs::text(proc.join(format!("{pid}/stat"))).ok()?;
        if procfs::is_of_kernel(&stat) {
            return None;
        }
        let comm = procfs::text(proc.join(format!("{pid}/comm"))).ok()?.trim_end().to_owned();
        let cgroup = procfs::cgroup(&proc, pid).unwrap_or_default();
        let of = |service: &&str| cgroup.split('/').any(|part| part == *service);
        Some(Process { pid, comm, service: SERVICES.into_iter().find(of) })
    };
    procfs::processes(&proc).unwrap_or_default().into_iter().filter_map(process).collect()
}

impl Process {
    fn finding(&self) -> Option<Finding> {
        let Self { pid, comm, service } = self;
        // Any user can give a process any name, so no finding here is an error.
        let (what, fix) = match service {
            Some(service) => (
                format!("{comm} (PID {pid}) of {service} loads schedulers"),
                format!("systemctl disable --now {service}"),
            ),
            None if comm.starts_with("scx_") => (
                format!("{comm} (PID {pid}) has the name of a scheduler of scx"),
                format!("kill {pid}"),
            ),
            None => return None,
        };
        Some(Finding::warning("scheduler-services", what).fix(fix))
    }
}

/// Which processes /proc does not show.
fn hidden(sight: &Sight<'_>) -> Option<Finding> {
    (!procfs::is_of_first_namespace(&sight.host.proc())).then(|| {
        let what = "this PID namespace hides the host's other processes from the checks";
        Finding::note("pid-namespace", what).fix("run it on the host, or with hostPID: true")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    fn process(tree: &Tree, pid: u32, comm: &str, cgroup: &str) {
        let flags = if pid == 2 || comm == "scx_enable_help" { 0x0020_0000 } else { 0 };
        let stat = format!("{pid} ({comm}) S 0 0 0 0 0 {flags} 0\n");
        tree.write(&format!("proc/{pid}/stat"), &stat);
        tree.write(&format!("proc/{pid}/comm"), &format!("{comm}\n"));
        tree.write(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
    }

    fn all(tree: &Tree, state: &State) -> Vec<Finding> {
        let host = tree.host();
        findings(&Sight::new(&host), state)
    }

    #[test]
    fn the_scheduler_in_the_kernel() {
        let in_use = |name: &str| State::InUse { state: "enabled".into(), name: name.into() };
        let level = |state: &State| loaded(state).level;
        assert_eq!(level(&State::Missing), Level::Error);
        assert_eq!(level(&State::Disabled), Level::Ok);
        assert_eq!(level(&in_use("gthctl")), Level::Note);
        let other = loaded(&in_use("rusty_1.0"));
        assert_eq!(other.level, Level::Error);
        assert!(other.what.contains("`rusty_1.0` is loaded (enabled)"), "{}", other.what);
    }

    #[test]
    fn services_and_programs_of_scx() {
        let tree = Tree::new();
        process(&tree, 2, "kthreadd", "/");
        process(&tree, 3, "scx_enable_help", "/");
        process(&tree, 10, "bash", "/user.slice/scx.service.d");
        let services = |findings: &[Finding]| -> Vec<Finding> {
            let of = |finding: &&Finding| finding.check == "scheduler-services";
            findings.iter().filter(of).cloned().collect()
        };
        let found = all(&tree, &State::Disabled);
        assert_eq!(services(&found)[0].level, Level::Ok);
        assert!(found.iter().all(|finding| finding.level == Level::Ok), "{found:?}");
        process(&tree, 11, "scx_loader", "/system.slice/scx_loader.service");
        process(&tree, 12, "scx_lavd", "/user.slice");
        process(&tree, 13, "sh", "/system.slice/scx.service");
        let found = services(&all(&tree, &State::Disabled));
        assert!(found.iter().all(|finding| finding.level == Level::Warning), "{found:?}");
        let fixes: Vec<&str> = found.iter().filter_map(|finding| finding.fix.as_deref()).collect();
        let disable = "systemctl disable --now ";
        let expected = ["scx_loader.service", "scx.service"].map(|unit| format!("{disable}{unit}"));
        assert_eq!(fixes, [&expected[0], "kill 12", &expected[1]]);
    }

    #[test]
    fn a_pid_namespace_hides_processes() {
        let tree = Tree::new();
        process(&tree, 1, "pause", "/");
        let found = all(&tree, &State::Disabled);
        assert_eq!(found.last().unwrap().check, "pid-namespace");
    }
}
