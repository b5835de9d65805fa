//! Checks of the machine before anything is loaded. They only read.

mod cgroup_shares;
mod cpus;
mod data_plane;
pub mod features;
mod files;
pub mod nic_interrupts;
mod privileges;
mod realtime_tasks;
mod report;
mod running_kernel;
mod schedulers;
mod sight;
mod tuned;

use std::collections::BTreeMap;
use std::path::Path;

use crate::gtp::Module;
use crate::irq::host::Host;
use report::Report;
use running_kernel::Kernel;
use sight::Sight;

/// Checks the machine, and the config file if one is given.
pub fn examine(host: &Host, config: Option<&Path>) -> Report {
    let sight = Sight::new(host);
    let kernel = Kernel::look(&sight);
    let mut findings = kernel.findings();
    findings.extend(schedulers::findings(&sight, &kernel.sched_ext));
    findings.extend(privileges::findings(&sight));
    let (of_cgroups, cgroup_v2) = cgroup_shares::findings(&sight);
    findings.extend(of_cgroups);
    findings.extend(cpus::findings(&sight));
    findings.push(realtime_tasks::finding(&sight));
    findings.extend(data_plane::findings(&sight));
    findings.extend(nic_interrupts::findings(&sight));
    findings.extend(config.map(files::findings).unwrap_or_default());
    findings.extend(sight.findings());
    let features = [
        ("sched_ext", Some(kernel.has_sched_ext())),
        ("btf_sound", kernel.has_sound_btf()),
        ("ext_group_sched", kernel.has_cgroups()),
        ("cgroup_v2", Some(cgroup_v2)),
        ("gtp", Some(Module::Gtp.is_there(&host.root))),
        ("gtp5g", Some(Module::Gtp5g.is_there(&host.root))),
    ];
    let known: BTreeMap<_, _> =
        features.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    Report::new(kernel.release, findings, known)
}
