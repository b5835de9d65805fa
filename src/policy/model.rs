//! A policy as written in its file: rules, their conditions and effects, placements.
//!
//! How they are carried out is not decided here.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use regex_automata::util::syntax;
use serde::{Serialize, Serializer};

use crate::base::cpulist::CpuList;
use crate::base::error::{Location, Result};
use crate::gtp::Plane;
use crate::irq::place::wanted::Placement;
use crate::pods::{Pod, Selector, selects};

/// The most rules one policy may have.
pub const MAX_RULES: usize = 128;

/// The range of a slice, in nanoseconds: from 10 us, below which switching takes most of the time,
/// to 1 s, well within the kernel's watchdog.
pub const SLICE_RANGE: RangeInclusive<u64> = 10_000..=1_000_000_000;

/// An ordered list of rules, at most [`MAX_RULES`], and placements of interrupts. A task
/// gets the first rule that it matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub rules: Vec<Rule>,
    /// Where NICs' interrupts go.
    pub irq: Vec<IrqEntry>,
}

/// Where the interrupts of a NIC go. The NIC is one of this machine's or one of pods'.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IrqEntry {
    /// Labels of pods. With these or `k8s_namespace`, `nic` is a network of the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<Selector>,
    /// Kubernetes namespaces, any of which may hold the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub k8s_namespace: Vec<String>,
    #[serde(flatten)]
    pub placement: Placement,
}

impl IrqEntry {
    /// Whether the NIC belongs to pods.
    pub fn of_pods(&self) -> bool {
        !self.selectors.is_empty() || !self.k8s_namespace.is_empty()
    }
}

/// A task that meets all of the conditions gets the effects.
///
/// A parsed rule has at least one condition and one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As given, or `rule N` with N counting from 1; unique within the policy.
    pub name: String,
    pub conditions: Conditions,
    pub effects: Effects,
    /// Where in the file the rule begins.
    pub location: Location,
}

/// What a task must meet; `None`, empty and `false` set no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// Searched (not anchored) in the thread's comm and in its process leader's
    /// comm. Valid under [`regex_syntax_config`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_regex: Option<String>,
    /// Searched in the thread's own comm only. Valid under [`regex_syntax_config`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<String>,
    /// The thread id, or the process id for every thread of it; 1 to 4194304.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The executable's path, a glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// The name or number of the effective user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The path of the task's cgroup or of an ancestor, a glob that begins with `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The systemd unit that the task is in, directly or in a cgroup below it, a glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub systemd_unit: Option<String>,
    /// A container's id or its beginning: 8 to 64 lower-case hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The network namespace: a name under /run/netns, a path, or an inode number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Labels of the task's Kubernetes pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<Selector>,
    /// Kubernetes namespaces, any of which may hold the task's pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub k8s_namespace: Vec<String>,
    /// The task processes packets of this GTP data plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gtp: Option<Gtp>,
    /// All descendants of a task that meets the conditions meet them too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_children: bool,
}

/// A task that handles `min_pps` packets within a second matches for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gtp {
    #[serde(flatten)]
    pub plane: Plane,
    /// The module's functions whose calls count as packets; empty: its entry functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// Packets within a second, 1 to 1,000,000.
    pub min_pps: u32,
    /// How long the task matches after its last packet, in nanoseconds.
    #[serde(rename = "hold")]
    pub hold_ns: u64,
    /// How many tasks may match at a time, 1 to 4096; others wait.
    pub max_tasks: u32,
    /// Also match tasks that these tasks wake up, as often per second, to hand packets on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub woken: bool,
}

/// What a task gets; whatever is not set is as for any other task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effects {
    /// `None` leaves the task in fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The slice in nanoseconds, 10,000 to 1,000,000,000.
    #[serde(rename = "execution_time", skip_serializing_if = "Option::is_none")]
    pub execution_time_ns: Option<u64>,
    /// The weight in fair sharing, 1 to 10,000, as cgroup v2's cpu.weight; 100 if not
    /// set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// `None`: the limits of its cgroups hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// Where the task preferably runs; with `exclusive`, it runs only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Keep other tasks off the CPUs; set only if `cpus` is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

/// A rule's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// These, at least one.
    List(CpuList),
    /// Those of the task's own cpuset.
    Allocated,
}

impl Cpus {
    /// The CPUs, if the policy names them.
    pub fn list(&self) -> Option<&CpuList> {
        match self {
            Cpus::List(list) => Some(list),
            Cpus::Allocated => None,
        }
    }
}

impl fmt::Display for Cpus {
    /// As in a policy file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpus::List(list) => list.fmt(f),
            Cpus::Allocated => f.write_str("allocated"),
        }
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Effects {
    /// Whether the task's cpuset says which CPUs are exclusive.
    pub fn allocated(&self) -> bool {
        self.exclusive && self.cpus == Some(Cpus::Allocated)
    }
}

/// What the limits of a task's cgroups (cpu.max) mean to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuLimit {
    /// Nothing: the task is not throttled, and what it runs is not charged to the quota.
    Ignore,
}

impl Conditions {
    /// Whether the rule asks about Kubernetes pods.
    pub fn of_pods(&self) -> bool {
        !self.selectors.is_empty() || !self.k8s_namespace.is_empty()
    }

    /// Whether the rule asks about pods, and none of `pods` matches.
    pub fn is_of_none(&self, pods: &[Pod]) -> bool {
        let is_meant = |pod| selects(&self.selectors, &self.k8s_namespace, pod);
        self.of_pods() && !pods.iter().any(is_meant)
    }
}

/// The text about a rule or entry that no pod matches.
pub const NO_POD: &str = "no pod of this node has these labels and namespaces";

/// How strong a task is: 0 to [`Priority::MAX`], lower is stronger.
///
/// 0 to 9 preempt strictly weaker tasks; 10 to 20 only get a better deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Priority(u8);

impl Priority {
    /// What `priority: true` means.
    pub const STRONGEST: Priority = Priority(0);
    /// The weakest level.
    pub const MAX: u8 = 20;
    /// The weakest level that preempts.
    pub const MAX_PREEMPTING: u8 = 9;

    /// The priority at `level`, or `None` when that is above [`Priority::MAX`].
    pub fn new(level: u64) -> Option<Self> {
        u8::try_from(level).ok().filter(|&level| level <= Self::MAX).map(Self)
    }

    /// The level: 0 to [`Priority::MAX`], lower is stronger.
    pub fn level(self) -> u8 {
        self.0
    }

    /// True when a waking task of this priority preempts strictly weaker ones.
    pub fn preempts(self) -> bool {
        self.0 <= Self::MAX_PREEMPTING
    }
}

impl Policy {
    /// Whether a rule or an entry of `irq` asks about Kubernetes pods.
    pub fn of_pods(&self) -> bool {
        self.rules.iter().any(|rule| rule.conditions.of_pods()) || self.of_nics_of_pods()
    }

    /// Whether an entry of `irq` asks about Kubernetes pods.
    pub fn of_nics_of_pods(&self) -> bool {
        self.irq.iter().any(IrqEntry::of_pods)
    }

    /// Reads a policy file. The second value holds notes for the user, one line each.
    ///
    /// Every error is of [`ExitCode::Usage`](crate::base::error::ExitCode::Usage) and says where.
    pub fn load(path: &Path) -> Result<(Policy, Vec<String>)> {
        super::parse::load(path)
    }

    /// As [`Policy::load`] on `text`; `path` is only for messages.
    pub fn parse(text: &str, path: &Path) -> Result<(Policy, Vec<String>)> {
        super::parse::parse(text, path)
    }

    /// Reads the strategies in `text`, an answer of Gthulhu's API, as in one of Gthulhu's files.
    ///
    /// Every error says where in the answer of `url`.
    pub fn parse_answer(text: &str, url: &str) -> Result<Vec<Rule>> {
        super::parse::answer(text, Path::new(url))
    }
}

/// How patterns are read: over bytes, as comms and paths need not be UTF-8.
///
/// Code that compiles a rule's pattern must use it too, or it would reject patterns
/// accepted here.
pub fn regex_syntax_config() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}
