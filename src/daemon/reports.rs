//! The reports of the running gthctl, in the form that `-o json` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::last_run::Run;
use crate::gtp::{Direction, Plane};
use crate::irq::place::kept::{IrqMove, Irqs};
use crate::policy::diff::ChangeKind;
use crate::sched::activity::Activity;
use crate::sched::passed::Passed;
use crate::sched::rule_stats::RuleStats;

/// Keys of a policy file with their values.
pub type Keys = Map<String, Value>;

/// Whether the running gthctl does its work. It answers only while its scheduler is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub generation: u32,
    /// Whether the kernel's tables hold exactly what the policy in force says.
    pub kernel_in_step: bool,
    /// The last step that failed, even if it has succeeded since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Failed>,
}

/// The state of the running gthctl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    /// When it was started. All times here are in RFC 3339, UTC.
    pub running_since: String,
    /// When it loaded its scheduler; it loads it again when a CPU goes online or offline.
    pub scheduler_since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_file: Option<PathBuf>,
    pub generation: u32,
    pub in_force_since: String,
    pub rules: usize,
    /// How many of them come from the policy file; the others come from the API.
    pub file_rules: usize,
    pub exclusive_cpus: String,
    /// The cpusets of the tasks of rules with `cpus: allocated`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocated: Vec<Allocated>,
    /// Threads that fall under some rule.
    pub tasks_matched: usize,
    pub tasks: usize,
    /// Whether the kernel's tables hold exactly what the policy in force says.
    pub kernel_in_step: bool,
    /// Why the file on disk is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Failed>,
    /// Why the config file on disk is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_rejected: Option<Failed>,
    /// The last step that failed, even if it has succeeded since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Failed>,
    /// The run of gthctl before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Run>,
    /// Gthulhu's API, if the config names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiStatus>,
    /// The state of the node's pods, if the policy asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Why pods may be missing from those that are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_doubt: Option<String>,
    /// What this kernel lacks, and what therefore does not work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_lacks: Vec<String>,
    /// The GTP traffic seen, if the policy asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The cgroups that have used up their `cpu.max` since the scheduler was loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttled_cgroups: Vec<ThrottledCgroup>,
    /// The NICs of pods whose interrupts the policy places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_nics: Vec<PodNic>,
    /// The state of the NICs' interrupts, if the policy places them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irqs: Option<Irqs>,
    /// Whether `policy rollback` has a policy to return to.
    pub can_roll_back: bool,
    pub notes: Vec<String>,
}

/// The source of the exported metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub status: Status,
    pub version: String,
    /// When gthctl was started. Times here are in seconds since 1970.
    pub started: f64,
    /// When it loaded its scheduler: its counters and those of cgroups begin there.
    pub scheduler_started: f64,
    pub in_force: f64,
    /// How often another policy came into force.
    pub policy_changes: u64,
    /// How often a policy file was rejected.
    pub policy_rejections: u64,
    /// The number of exclusive CPUs.
    pub exclusive_cpus: usize,
    /// The threads under each rule, in the policy's order.
    pub rules: Vec<RuleCount>,
    pub counters: Counters,
    /// What the tasks of each rule did, in the policy's order, followed by what tasks without a
    /// rule did.
    #[serde(default)]
    pub rule_counters: Vec<RuleCounters>,
    /// How long tasks ran on each CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuRun>,
    /// What the tasks of each pod did, if that is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodCounters>,
    /// The name of this node, if pods are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What has passed the data planes that the policy asks about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gtp: Vec<GtpTraffic>,
}

/// What has passed a data plane in one direction since gthctl began to count there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GtpTraffic {
    /// As in a policy: `gtp5g`, `gtp` or `udp:PORT`.
    pub plane: String,
    pub direction: String,
    pub packets: u64,
    pub bytes: u64,
    /// How long the packets took in the data plane, if that is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<u64>,
}

impl GtpTraffic {
    /// Traffic without a time.
    pub fn new(plane: Plane, direction: Direction, passed: Passed) -> Self {
        Self {
            plane: plane.to_string(),
            direction: direction.label().to_owned(),
            packets: passed.packets,
            bytes: passed.bytes,
            time_ns: None,
        }
    }
}

/// What the tasks of a rule did since the scheduler was loaded, or since the rule was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounters {
    /// Absent for the tasks without a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(flatten)]
    pub stats: RuleStats,
}

/// How long the tasks of this policy's rules and those without a rule ran on a CPU since the scheduler
/// was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRun {
    pub cpu: u32,
    /// The time of tasks under a rule with priority, even after they have used up their burst.
    pub priority_ns: u64,
    pub normal_ns: u64,
}

/// What the tasks of a pod did since gthctl began to count it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodCounters {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    /// How many threads it has.
    pub tasks: usize,
    #[serde(flatten)]
    pub did: Activity,
}

/// How many threads fall under a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    pub rule: String,
    pub tasks: usize,
}

/// The scheduler's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// How often tasks got a CPU, by path.
    pub paths: BTreeMap<String, u64>,
    pub counts: BTreeMap<String, u64>,
    /// Priority wake-ups that took `2^b` to `2^(b+1)` ns, for each b from 0.
    pub wakeups: Vec<u64>,
    pub wakeup_sum_ns: u64,
}

/// Tasks that rules hold for because they process packets (`gtp`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The functions, each after its module, and the ports where packets are seen.
    pub functions: Vec<String>,
    /// How often a task was marked since the scheduler was loaded.
    pub marked: u64,
    /// How many of these marks have ended.
    pub ended: u64,
    /// How often a task was not marked because `max_tasks` tasks were marked already.
    pub refused: u64,
    /// The tasks marked now.
    pub tasks: Vec<MarkedTask>,
}

/// A marked task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedTask {
    pub tid: u32,
    pub pid: u32,
    pub comm: String,
    /// The rules with the condition that it was marked for.
    pub rules: Vec<String>,
    pub since: String,
    /// Where its packets were seen.
    pub function: String,
    /// Packets since it was marked, including those that led to the mark.
    pub packets: u64,
    /// How soon the mark ends if no further packet comes.
    pub ends_in_ms: u64,
}

/// A cgroup that its CPU limit has throttled. The counts are named as in cpu.stat, but
/// gthctl keeps them: the kernel counts nothing there while a sched_ext scheduler runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThrottledCgroup {
    /// Its path below the root, or `inode N` if it cannot be seen from here.
    pub cgroup: String,
    /// The CPUs that it may use on average: quota divided by period.
    pub limit_cpus: f64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_usec: u64,
    /// Whether its tasks are waiting for the next period.
    pub throttled: bool,
}

/// Gthulhu's API as a source of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiStatus {
    pub url: String,
    /// How many of the rules in force come from it.
    pub rules: usize,
    /// The time since its last good answer; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_age_ms: Option<u64>,
    /// Why there is no answer now, or why the last answer is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failed>,
}

/// A cpuset with tasks of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    pub rule: String,
    /// The cgroup that has it.
    pub cgroup: String,
    pub cpus: String,
    pub exclusive: bool,
    /// Why its CPUs are not exclusive, if others share them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
}

/// What an entry of `irq` means for one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNic {
    /// Its namespace and name; empty if the node has no such pod.
    pub pod: String,
    /// The network, as in the policy.
    pub nic: String,
    /// How the network leads to devices of this machine.
    pub found: Vec<String>,
    /// Network devices, or addresses of PCI functions.
    pub devices: Vec<String>,
    /// Why something is not known.
    pub missing: Vec<String>,
}

/// What failed, such as reading a file that is therefore not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub why: String,
    pub since: String,
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Absent if the policy was only checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    pub rules: Vec<Rule>,
    pub exclusive_cpus: String,
    /// Its placements of NICs' interrupts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq: Vec<Keys>,
    pub notes: Vec<String>,
}

/// A rule of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    pub name: String,
    pub conditions: Keys,
    pub effects: Keys,
    /// Threads that fall under it, if counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<usize>,
}

/// What a policy would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The generation of the live policy, which the plan starts from.
    pub generation: u32,
    /// In the order of the new policy; removed rules come last.
    pub changes: Vec<Change>,
    pub exclusive_cpus_before: String,
    pub exclusive_cpus: String,
    /// The placements of NICs' interrupts, before and after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq_before: Vec<Keys>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq: Vec<Keys>,
    /// The interrupts and masks that would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqMove>,
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(|change| change.kind == ChangeKind::Kept)
            && self.exclusive_cpus_before == self.exclusive_cpus
            && self.irq_before == self.irq
            && self.irqs.is_empty()
    }
}

/// How one rule changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub kind: ChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Rule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Rule>,
}

/// A policy that has become the live one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    pub generation: u32,
    pub policy_file: PathBuf,
    /// Time from the request until the kernel scheduled by the policy.
    pub took_ms: f64,
}

/// The threads that fall under a rule, sorted by rule, process and thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTasks {
    pub generation: u32,
    pub tasks: Vec<RuleTask>,
}

/// A thread and its rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTask {
    pub tid: u32,
    pub pid: u32,
    pub comm: String,
    /// Its pod's namespace and name, or its uid if the policy does not ask for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    pub rule: String,
    /// The generation by which the kernel schedules it; 0 if none, for example just after the
    /// thread's name has changed.
    pub generation: u32,
    /// False while the kernel still schedules it by an older match, until it next runs.
    pub in_force: bool,
}

/// Which rule a thread falls under, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub tid: u32,
    pub pid: u32,
    pub generation: u32,
    /// What the kernel and /proc say about it.
    pub task: Keys,
    /// The rule that it falls under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// False while the kernel still schedules it by an older match, until it next runs.
    pub in_force: bool,
    /// Every rule, in order.
    pub rules: Vec<RuleCheck>,
    /// The other threads of its process.
    pub threads: Vec<ThreadRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How a thread meets one rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleCheck {
    pub name: String,
    pub matches: bool,
    /// It matches as the child of a task that does.
    pub inherited: bool,
    pub conditions: Vec<ConditionCheck>,
}

/// Whether a thread meets one condition of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionCheck {
    /// The keys of the policy file with their values.
    pub asks: Keys,
    pub holds: bool,
    /// What the result depends on, if not on a fact about the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Another thread and its rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRule {
    pub tid: u32,
    pub comm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}
