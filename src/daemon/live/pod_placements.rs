//! Which devices the networks of pods stand for now, in entries of `irq` with `selectors`.

use super::{LivePolicy, Loaded, PolicyContext};
use crate::base::log;
use crate::base::root::Root;
use crate::daemon::reports;
use crate::irq::place::wanted::Placement;
use crate::kernel::{links, procfs};
use crate::policy::cgroups::Home;
use crate::policy::pod_nics::{self, Node, PodNic};

impl Loaded {
    /// Returns the policy with the NICs of pods as they are now; `before` is how they were.
    pub(super) fn with_pod_nics(mut self, context: &PolicyContext<'_>, before: &[PodNic]) -> Self {
        self.find_pod_nics(context, before);
        let why = self.pod_nics.iter().flat_map(|nic| self.why_missing(nic)).collect::<Vec<_>>();
        self.notes.extend(why);
        self
    }

    fn find_pod_nics(&mut self, context: &PolicyContext<'_>, before: &[PodNic]) {
        if !self.policy.of_nics_of_pods() {
            return;
        }
        let (root, kubelets) = (&Root::default(), context.kubelets);
        let node = Node { root, kubelets, links: links::links };
        let irq = &self.policy.irq;
        self.pod_nics = match context.pods {
            Some(pods) => pod_nics::find(irq, pods, &node, before),
            None => pod_nics::unknown(irq, context.pods_doubt().unwrap_or_default()),
        };
    }

    /// A note for each part of a pod's NIC that is not known.
    fn why_missing(&self, nic: &PodNic) -> Vec<String> {
        let placement = &self.policy.irq[nic.entry].placement;
        let at = placement.location.iter().map(|at| format!("{at}: ")).collect::<String>();
        let of = if nic.pod.is_empty() { String::new() } else { format!(" of {}", nic.pod) };
        let note = |why: &String| format!("{at}{}{of}: {why}", nic.nic);
        nic.missing.iter().map(note).collect()
    }

    /// The devices that the placement at this index of `irq` stands for now, if it is about pods.
    pub(super) fn devices_of_pods(&self, index: usize) -> Option<Vec<String>> {
        let its = self.pod_nics.iter().filter(|nic| nic.entry == index);
        let mut devices: Vec<String> = its.flat_map(|nic| nic.devices.clone()).collect();
        devices.sort();
        devices.dedup();
        self.policy.irq[index].of_pods().then_some(devices)
    }
}

impl LivePolicy {
    /// The NICs of pods whose interrupts the policy places.
    pub fn pod_nics(&self) -> &[PodNic] {
        &self.now.pod_nics
    }

    /// Whether the policy places the interrupts of pods' NICs.
    pub fn follows_pod_nics(&self) -> bool {
        self.now.policy.of_nics_of_pods()
    }

    /// Follows the NICs of pods even if no pod has changed: a device may have come or gone.
    pub fn follow_pod_nics(&mut self, context: &PolicyContext<'_>) {
        let before = self.now.pod_nics.clone();
        let placements = self.now.placements();
        self.now.find_pod_nics(context, &before);
        if self.now.pod_nics == before {
            return;
        }
        let notes = |nics: &[PodNic], of: &Loaded| -> Vec<String> {
            nics.iter().flat_map(|nic| of.why_missing(nic)).collect()
        };
        let (old, new) = (notes(&before, &self.now), notes(&self.now.pod_nics, &self.now));
        log::notes(&new.iter().filter(|note| !old.contains(note)).cloned().collect::<Vec<_>>());
        self.now.notes.retain(|note| !old.contains(note));
        self.now.notes.extend(new);
        self.say_pod_nics(&before);
        if self.now.placements() != placements {
            self.keep_irqs();
        }
    }

    /// Logs how pods' networks lead to devices, where that differs from `before`.
    pub(super) fn say_pod_nics(&self, before: &[PodNic]) {
        let lines = |nics: &[PodNic]| -> Vec<String> {
            nics.iter().flat_map(|nic| nic.found.iter().map(|how| line(nic, how))).collect()
        };
        let old = lines(before);
        for line in lines(&self.now.pod_nics).iter().filter(|line| !old.contains(line)) {
            log::info(line);
        }
    }

    /// For the status.
    pub(super) fn report_pod_nics(&self) -> Vec<reports::PodNic> {
        let report = |nic: &PodNic| reports::PodNic {
            pod: nic.pod.clone(),
            nic: nic.nic.clone(),
            found: nic.found.clone(),
            devices: nic.devices.clone(),
            missing: nic.missing.clone(),
        };
        self.now.pod_nics.iter().map(report).collect()
    }

    /// What the policy does with the NICs of the thread's pod.
    pub fn nics_of(&self, tid: u32) -> Vec<String> {
        if !self.follows_pod_nics() {
            return Vec::new();
        }
        let cgroup = procfs::cgroup(&Root::default().proc(), tid);
        let Some(uid) = cgroup.and_then(|path| Home::of(&path).pod) else { return Vec::new() };
        let its = self.now.pod_nics.iter().filter(|nic| nic.uid == uid);
        its.flat_map(|nic| {
            let placement = &self.now.policy.irq[nic.entry].placement;
            let found =
                nic.found.iter().map(|how| format!("{}: {}", line(nic, how), goal(placement)));
            found.chain(self.now.why_missing(nic)).collect::<Vec<_>>()
        })
        .collect()
    }
}

fn line(nic: &PodNic, how: &str) -> String {
    format!("{} of {}: {how}", nic.nic, nic.pod)
}

/// Where a placement wants interrupts.
fn goal(placement: &Placement) -> String {
    match placement.avoid {
        Some(_) => "interrupts off exclusive CPUs".into(),
        None => format!("interrupts on CPUs {}", placement.cpus),
    }
}
