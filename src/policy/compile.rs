//! Compiles a policy for a machine into what the scheduler's BPF program reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::allocated::Allocation;
use super::patterns::{self, Budget, Dfa};
use super::reserve::{Reserved, check_cpus, note_siblings, reserve};
use super::resolve;
use super::{CpuLimit, Cpus, Gtp, Policy, Rule, cgroups, globs};
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::mistakes::Mistakes;
use crate::base::root::Root;
use crate::gtp::{Module, Plane};
use crate::kernel::procfs::Process;
use crate::kernel::topology::Topology;
use crate::pods::{self, Pod};
use crate::sched::layout::{Limits, MaskIndex, RuleSet};

/// What a rule may ask about a task (enum gth_condition in bpf/intf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Condition {
    Comm,
    Thread,
    Cgroup,
    Unit,
    Container,
    Pod,
    Exe,
    Pid,
    User,
    Netns,
    Gtp,
}

impl Condition {
    pub const ALL: [Condition; 11] = [
        Condition::Comm,
        Condition::Thread,
        Condition::Cgroup,
        Condition::Unit,
        Condition::Container,
        Condition::Pod,
        Condition::Exe,
        Condition::Pid,
        Condition::User,
        Condition::Netns,
        Condition::Gtp,
    ];

    /// The conditions before this index are patterns.
    pub const PATTERNS: usize = Condition::Exe as usize + 1;

    /// The keys of the policy file that set it.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Condition::Comm => &["command_regex"],
            Condition::Thread => &["threads"],
            Condition::Cgroup => &["cgroup"],
            Condition::Unit => &["systemd_unit"],
            Condition::Container => &["container"],
            Condition::Pod => &["selectors", "k8s_namespace"],
            Condition::Exe => &["exe"],
            Condition::Pid => &["pid"],
            Condition::User => &["user"],
            Condition::Netns => &["netns"],
            Condition::Gtp => &["gtp"],
        }
    }
}

/// One rule's numeric conditions and its effects, in the scheduler's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledRule {
    /// As in the policy.
    pub name: String,
    /// The process or thread `pid`, if it exists.
    pub by_pid: Option<Process>,
    /// The user `user`, if it exists.
    pub uid: Option<u32>,
    /// The network namespace's inode number, if it exists.
    pub netns: Option<u32>,
    /// 0 to 9 if the rule gives a preempting priority.
    pub rank: Option<u8>,
    /// The slice, if not the default.
    pub slice_ns: Option<u64>,
    /// How far ahead of its virtual time the task is queued (priorities 10 to 20).
    pub credit_ns: u64,
    /// The weight in fair sharing, if not the task's own.
    pub weight: Option<u32>,
    /// Whether the task is exempt from the limits of its cgroups.
    pub ignores_limits: bool,
    /// Whether the rule has a CPU mask.
    pub has_cpus: bool,
    /// Whether the CPUs of the mask are exclusive to the rule's tasks.
    pub exclusive: bool,
    /// Whether the exclusive CPUs are those of the cpusets of the rule's tasks (`cpus: allocated`).
    pub allocated: bool,
}

/// A condition that marks tasks by their traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficCondition {
    pub plane: Plane,
    /// The module's functions; at least one, sorted.
    pub functions: Vec<String>,
    pub min_packets: u32,
    pub hold_ns: u64,
    pub max_tasks: u32,
    pub woken: bool,
    /// The rules with this condition.
    pub rules: RuleSet,
}

impl TrafficCondition {
    fn new(gtp: &Gtp) -> Self {
        let mut functions = gtp.functions.clone();
        if let (Plane::Module(module), true) = (gtp.plane, functions.is_empty()) {
            functions = module.entries();
            functions.sort();
        }
        Self {
            plane: gtp.plane,
            functions,
            min_packets: gtp.min_pps,
            hold_ns: gtp.hold_ns,
            max_tasks: gtp.max_tasks,
            woken: gtp.woken,
            rules: 0,
        }
    }

    /// The functions with their module; none for a port.
    pub fn traced(&self) -> impl Iterator<Item = (Module, &String)> {
        let module = self.plane.module();
        self.functions.iter().filter_map(move |symbol| Some((module?, symbol)))
    }

    /// Whether both mark the same tasks.
    pub fn is_same(&self, other: &TrafficCondition) -> bool {
        TrafficCondition { rules: 0, ..self.clone() }
            == TrafficCondition { rules: 0, ..other.clone() }
    }
}

/// A policy ready to be loaded; positions are those of `gth_tables` in bpf/intf.h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    pub rules: Vec<CompiledRule>,
    /// The rules with each [`Condition`].
    pub has: [RuleSet; Condition::ALL.len()],
    /// The rules that include children.
    pub children: RuleSet,
    /// The DFAs of each condition that is a pattern.
    pub dfas: [Vec<Dfa>; Condition::PATTERNS],
    /// The pool of each CPU. Numbers below `nr_llcs` are LLCs' pools, the others are exclusive
    /// pools.
    pub cpu_pool: Vec<u16>,
    /// How many online CPUs each pool has.
    pub pool_cpus: Vec<u16>,
    /// CPU masks by index.
    pub masks: BTreeMap<u32, CpuList>,
    /// All exclusive CPUs of any rule.
    pub reserved: CpuList,
    /// The distinct traffic conditions, in rule order.
    pub traffic_conditions: Vec<TrafficCondition>,
    /// Files that resolve the policy's names: if one changes, the policy's meaning may
    /// change.
    pub refers_to: Vec<PathBuf>,
}

/// What a policy is compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    pub topology: &'a Topology,
    pub root: &'a Root,
    /// This node's pods.
    pub pods: &'a [Pod],
    /// Globs on where kubelets keep their kubepods cgroup, besides the root.
    pub kubelets: &'a [String],
    /// The cpusets that the tasks of rules with `cpus: allocated` are in, with the rule's index.
    pub allocated: &'a [(usize, Vec<Allocation>)],
    /// The default slice. The credit of priorities 10 to 20 is counted in it: half a slice for the
    /// weakest, and half a slice more per step.
    pub slice_ns: u64,
}

impl Compiled {
    /// Whether some rule has this condition.
    pub fn asks(&self, condition: Condition) -> bool {
        self.has[condition as usize] != 0
    }
}

/// Compiles `policy` for `machine`. The second value is notes for the user.
///
/// Fails with [`ExitCode::Usage`] and the rule's place when its CPUs do not exist on the
/// machine or clash with another rule's, when no CPU would be left for other tasks, or
/// when its pattern is too large.
pub fn compile(policy: &Policy, machine: &Machine<'_>) -> Result<(Compiled, Vec<String>)> {
    let topology = machine.topology;
    let mut notes = Vec::new();
    let patterns = patterns(policy, machine);
    let dfas = compile_patterns(policy, &patterns)?;
    let mut mistakes = Mistakes::default();
    let Reserved { pools, cpu_pool, exclusive } =
        reserve(policy, machine, &mut notes, &mut mistakes);
    let reserved: CpuList = pools.iter().flat_map(|pool| pool.iter()).collect();
    let nr_llcs = topology.nr_llcs();

    let mut masks = BTreeMap::new();
    let normal = |cpu: &u32| !reserved.contains(*cpu);
    masks.insert(MaskIndex::NORMAL, topology.online.iter().filter(normal).collect());
    for llc in 0..nr_llcs {
        let members =
            topology.online.iter().filter(|&cpu| topology.llc[cpu as usize] == llc as u16);
        masks.insert(MaskIndex::llc(llc), members.filter(normal).collect());
    }
    let mut rules = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        mistakes.take(check_cpus(rule, topology, &reserved, &mut notes));
        let compiled = mistakes.take(compiled_rule(rule, machine, &mut notes));
        let Some(mut compiled) = compiled else { continue };
        if let Some(cpus) = exclusive.get(&index) {
            note_siblings(rule, cpus, topology, &mut notes);
            masks.insert(MaskIndex::rule(index), cpus.clone());
            (compiled.has_cpus, compiled.exclusive) = (true, true);
        } else if let Some(cpus) = rule.effects.cpus.as_ref().and_then(Cpus::list) {
            let usable = cpus.iter().filter(|&cpu| topology.online.contains(cpu)).filter(normal);
            masks.insert(MaskIndex::rule(index), usable.collect());
            compiled.has_cpus = true;
        }
        rules.push(compiled);
    }
    mistakes.check()?;
    let mut pool_cpus = vec![0; nr_llcs + pools.len()];
    for cpu in topology.online.iter() {
        pool_cpus[usize::from(cpu_pool[cpu as usize])] += 1;
    }
    let children = rule_set(policy, |rule| rule.conditions.include_children);
    let has = has(policy);
    let compiled = Compiled {
        rules,
        has,
        children,
        dfas,
        cpu_pool,
        pool_cpus,
        masks,
        reserved,
        traffic_conditions: traffic_conditions(policy)?,
        refers_to: refers_to(policy, machine.root),
    };
    Ok((compiled, notes))
}

/// Compiles one rule without its CPUs; resolves its names.
fn compiled_rule(
    rule: &Rule,
    machine: &Machine<'_>,
    notes: &mut Vec<String>,
) -> Result<CompiledRule> {
    let (conditions, effects) = (&rule.conditions, &rule.effects);
    let root = machine.root;
    let mut missing = |what: String| {
        notes
            .push(format!("{}: {}: no {what}; the rule matches nothing", rule.location, rule.name));
    };
    let process = |pid| resolve::process(root, pid);
    let by_pid = conditions.pid.map(process).transpose()?.flatten();
    if let (Some(pid), None) = (conditions.pid, by_pid) {
        missing(format!("process {pid}"));
    }
    let uid =
        conditions.user.as_deref().map(|user| resolve::uid(root, user)).transpose()?.flatten();
    if let (Some(user), None) = (&conditions.user, uid) {
        missing(format!("user {user} in {}", resolve::PASSWD));
    }
    let netns = conditions.netns.as_deref().and_then(|netns| resolve::netns(root, netns));
    if let (Some(netns), None) = (&conditions.netns, netns) {
        missing(format!("network namespace {} yet", resolve::netns_path(netns)));
    }
    let level = effects.priority.map(|priority| priority.level());
    let preempts = effects.priority.is_some_and(|priority| priority.preempts());
    let credit_steps = level.filter(|_| !preempts).map_or(0, |level| 21 - u64::from(level));
    Ok(CompiledRule {
        name: rule.name.clone(),
        by_pid,
        uid,
        netns,
        rank: level.filter(|_| preempts),
        slice_ns: effects.execution_time_ns,
        credit_ns: credit_steps * machine.slice_ns / 2,
        weight: effects.weight,
        ignores_limits: effects.cpu_limit == Some(CpuLimit::Ignore),
        has_cpus: false,
        exclusive: false,
        allocated: effects.allocated(),
    })
}

fn rule_set(policy: &Policy, is_in: impl Fn(&Rule) -> bool) -> RuleSet {
    let indices = (0..policy.rules.len()).filter(|&i| is_in(&policy.rules[i]));
    indices.fold(0, |set, i| set | 1 << i)
}

fn traffic_conditions(policy: &Policy) -> Result<Vec<TrafficCondition>> {
    let mut conditions: Vec<TrafficCondition> = Vec::new();
    let mut functions: Vec<(Module, String)> = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let Some(condition) = rule.conditions.gtp.as_ref().map(TrafficCondition::new) else {
            continue;
        };
        let same = conditions.iter().position(|other| other.is_same(&condition));
        let place = same.unwrap_or_else(|| {
            functions.extend(condition.traced().map(|(module, symbol)| (module, symbol.clone())));
            conditions.push(condition);
            conditions.len() - 1
        });
        conditions[place].rules |= 1 << index;
        functions.sort();
        functions.dedup();
        if conditions.len() > Limits::TRAFFIC_CONDITIONS {
            let max = Limits::TRAFFIC_CONDITIONS;
            let what = format!("gtp: more than {max} different conditions by traffic in a policy");
            return Err(bad(rule, what).help("give several rules the same"));
        }
        if functions.len() > Limits::FUNCTIONS {
            let max = Limits::FUNCTIONS;
            return Err(bad(rule, format!("gtp: more than {max} functions in a policy")));
        }
    }
    Ok(conditions)
}

fn has(policy: &Policy) -> [RuleSet; Condition::ALL.len()] {
    Condition::ALL.map(|condition| rule_set(policy, |rule| rule.conditions.asks(condition)))
}

impl super::Conditions {
    /// Whether the rule has this condition.
    pub fn asks(&self, condition: Condition) -> bool {
        match condition {
            Condition::Comm => self.command_regex.is_some(),
            Condition::Thread => self.threads.is_some(),
            Condition::Cgroup => self.cgroup.is_some(),
            Condition::Unit => self.systemd_unit.is_some(),
            Condition::Container => self.container.is_some(),
            Condition::Pod => self.of_pods(),
            Condition::Exe => self.exe.is_some(),
            Condition::Pid => self.pid.is_some(),
            Condition::User => self.user.is_some(),
            Condition::Netns => self.netns.is_some(),
            Condition::Gtp => self.gtp.is_some(),
        }
    }

    /// The condition as a pattern; `None` if the rule does not have it or it matches no pod.
    fn pattern(&self, condition: usize, machine: &Machine<'_>) -> Option<String> {
        // The glob can be translated: that was checked when the file was read.
        let glob = |glob: &Option<String>, translate: Translate| {
            glob.as_deref().and_then(|glob| translate(glob).ok())
        };
        match Condition::ALL[condition] {
            Condition::Comm => self.command_regex.clone(),
            Condition::Thread => self.threads.clone(),
            Condition::Cgroup => glob(&self.cgroup, globs::cgroup),
            Condition::Unit => glob(&self.systemd_unit, cgroups::unit),
            Condition::Container => {
                self.container.as_deref().map(|id| cgroups::container(id, machine.kubelets))
            }
            Condition::Pod => {
                let meant = |pod: &&Pod| pods::selects(&self.selectors, &self.k8s_namespace, pod);
                let uids: Vec<&str> =
                    machine.pods.iter().filter(meant).map(|pod| pod.uid.as_str()).collect();
                (self.of_pods() && !uids.is_empty()).then(|| cgroups::pods(uids, machine.kubelets))
            }
            Condition::Exe => glob(&self.exe, globs::exe),
            Condition::Pid | Condition::User | Condition::Netns | Condition::Gtp => None,
        }
    }
}

type Translate = fn(&str) -> std::result::Result<String, globs::BadGlob>;

/// The files in which the policy's names are looked up.
fn refers_to(policy: &Policy, root: &Root) -> Vec<PathBuf> {
    let number = |text: &str| text.parse::<u32>().is_ok();
    let mut files: Vec<PathBuf> = Vec::new();
    for conditions in policy.rules.iter().map(|rule| &rule.conditions) {
        if conditions.user.as_deref().is_some_and(|user| !number(user)) {
            files.push(root.path(resolve::PASSWD));
        }
        let by_name = conditions.netns.as_deref().filter(|netns| !number(netns));
        files.extend(by_name.map(|netns| root.path(&resolve::netns_path(netns))));
    }
    files.sort();
    files.dedup();
    files
}

pub(super) fn bad(rule: &Rule, what: String) -> Error {
    Error::new(ExitCode::Usage, format!("{}: {what}", rule.name)).at(rule.location.clone())
}

/// The patterns of each kind, each with the index of its rule.
type Patterns = [Vec<(usize, String)>; Condition::PATTERNS];

fn patterns(policy: &Policy, machine: &Machine<'_>) -> Patterns {
    std::array::from_fn(|condition| {
        let of =
            |(i, rule): (usize, &Rule)| Some((i, rule.conditions.pattern(condition, machine)?));
        policy.rules.iter().enumerate().filter_map(of).collect()
    })
}

fn compile_patterns(
    policy: &Policy,
    patterns: &Patterns,
) -> Result<[Vec<Dfa>; Condition::PATTERNS]> {
    let mut dfas: [Vec<Dfa>; Condition::PATTERNS] = Default::default();
    let mut budget = Budget::default();
    for (condition, patterns) in patterns.iter().enumerate() {
        let texts: Vec<(usize, &str)> =
            patterns.iter().map(|(rule, text)| (*rule, text.as_str())).collect();
        dfas[condition] = patterns::compile(&texts, &mut budget)
            .map_err(|(index, _)| too_large(&policy.rules[patterns[index].0], condition))?;
    }
    Ok(dfas)
}

fn too_large(rule: &Rule, condition: usize) -> Error {
    let condition = Condition::ALL[condition];
    let help = match condition {
        Condition::Pod => "narrow it: it selects too many pods of this node",
        _ => "use a shorter pattern, or fewer repetitions",
    };
    bad(rule, format!("{}: too large to match in the kernel", condition.keys()[0])).help(help)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn machine(cpus: u32, llcs: u32) -> Topology {
        let all: CpuList = (0..cpus).collect();
        Topology {
            possible: all.clone(),
            online: all,
            llc: (0..cpus).map(|cpu| (cpu * llcs / cpus) as u16).collect(),
            sibling: (0..cpus as u16).collect(),
            node: vec![0; cpus as usize],
            tickless: CpuList::default(),
        }
    }

    fn try_compile(yaml: &str, topology: &Topology) -> Result<(Compiled, Vec<String>)> {
        let (policy, _) = Policy::parse(yaml, Path::new("p.yaml"))?;
        let root = &Root::default();
        let (allocated, slice_ns) = (&[], 2_000_000);
        compile(&policy, &Machine { topology, root, pods: &[], kubelets: &[], allocated, slice_ns })
    }

    fn error(rules: &str) -> String {
        let yaml = format!("strategies:\n{rules}");
        try_compile(&yaml, &machine(4, 2)).unwrap_err().to_string()
    }

    fn set(list: &str) -> CpuList {
        list.parse().unwrap()
    }

    #[test]
    fn exclusive_cpus_leave_the_llc_pools() {
        let yaml = "strategies:
- {command_regex: a, cpus: 1-2, exclusive: true, priority: 3}
- {command_regex: b, cpus: 0, execution_time: 1ms}
- {command_regex: c, cpus: 1-2, exclusive: true}";
        let (c, notes) = try_compile(yaml, &machine(4, 2)).unwrap();
        assert!(notes.is_empty());
        assert_eq!(c.cpu_pool, [0, 2, 2, 1]);
        assert_eq!(c.pool_cpus, [1, 1, 2]);
        assert_eq!(c.reserved, set("1-2"));
        assert_eq!(c.masks[&MaskIndex::NORMAL], set("0,3"));
        assert_eq!(c.masks[&MaskIndex::llc(0)], set("0"));
        assert_eq!(c.masks[&MaskIndex::llc(1)], set("3"));
        assert_eq!(c.masks[&MaskIndex::rule(0)], set("1-2"));
        assert_eq!((c.rules[0].exclusive, c.rules[0].rank), (true, Some(3)));
        assert_eq!((c.rules[1].exclusive, c.rules[1].slice_ns), (false, Some(1_000_000)));
        assert!(c.rules[2].exclusive && !c.rules[2].allocated);
    }

    #[test]
    fn weak_priorities_become_credit() {
        let of = |level: u8| {
            let yaml = format!("strategies: [{{command_regex: a, priority: {level}}}]");
            let rule = try_compile(&yaml, &machine(2, 1)).unwrap().0.rules[0].clone();
            (rule.rank, rule.credit_ns)
        };
        assert_eq!(of(0), (Some(0), 0));
        assert_eq!(of(9), (Some(9), 0));
        assert_eq!(of(10), (None, 11_000_000));
        assert_eq!(of(20), (None, 1_000_000));
    }

    #[test]
    fn cpus_that_do_not_fit() {
        assert_eq!(
            error("- {name: n, command_regex: a, cpus: 3-4}"),
            "p.yaml:2:4: n: cpus: CPU 4 does not exist here; online are 0-3"
        );
        assert_eq!(
            error("- {name: n, command_regex: a, cpus: 9, exclusive: true}"),
            "p.yaml:2:4: n: cpus: CPU 9 does not exist here; online are 0-3"
        );
        assert_eq!(
            error("- {name: n, command_regex: a, cpus: 0-3, exclusive: true}"),
            "p.yaml:2:4: n: cpus: no CPU would be left for other tasks; this machine has 0-3; leave at least one"
        );
        assert_eq!(
            error(
                "- {name: m, command_regex: a, cpus: 1, exclusive: true}\n- {name: n, command_regex: a, cpus: 1-2, exclusive: true}"
            ),
            "p.yaml:3:4: n: cpus: CPU 1 is exclusive to `m` already; give both the same cpus, or none in common"
        );
    }

    #[test]
    fn an_offline_cpu_cannot_be_exclusive() {
        let mut topology = machine(4, 1);
        topology.online = set("0-2");
        let yaml = "strategies: [{name: n, command_regex: a, cpus: 3, exclusive: true}]";
        let e = try_compile(yaml, &topology).unwrap_err().to_string();
        assert_eq!(e, "p.yaml:1:15: n: cpus: CPU 3 is offline; online are 0-2");
    }

    #[test]
    fn exclusive_cpus_whose_siblings_are_not() {
        let topology = Topology { sibling: vec![2, 3, 0, 1], ..machine(4, 1) };
        let notes = |cpus: &[&str]| {
            let rule = |(name, cpus): (char, &&str)| {
                format!("- {{name: {name}, command_regex: x, cpus: '{cpus}', exclusive: true}}\n")
            };
            let rules: String = ('m'..).zip(cpus).map(rule).collect();
            try_compile(&format!("strategies:\n{rules}"), &topology).unwrap().1
        };
        let of_1 =
            "p.yaml:2:4: m: cpus: 1 share cores with 3; other tasks run there and slow them down";
        assert_eq!(notes(&["1"]), [of_1]);
        assert!(notes(&["1,3"]).is_empty());
        // Two rules with a CPU of the core each, and two that have both.
        let of_3 =
            "p.yaml:3:4: n: cpus: 3 share cores with 1; other tasks run there and slow them down";
        assert_eq!(notes(&["1", "3"]), [of_1, of_3]);
        assert!(notes(&["1,3", "1,3"]).is_empty());
    }

    #[test]
    fn offline_cpus_are_in_no_mask() {
        let mut topology = machine(4, 1);
        topology.online = set("0-2");
        let yaml = "strategies: [{name: n, command_regex: a, cpus: 2-3}]";
        let (c, notes) = try_compile(yaml, &topology).unwrap();
        assert_eq!(c.masks[&MaskIndex::NORMAL], set("0-2"));
        assert_eq!(c.masks[&MaskIndex::llc(0)], set("0-2"));
        assert_eq!(c.masks[&MaskIndex::rule(0)], set("2"));
        assert_eq!(notes, ["p.yaml:1:15: n: cpus: 3: not online, so not used now"]);
    }

    #[test]
    fn a_preference_for_reserved_cpus_is_noted() {
        let yaml = "strategies:
- {name: m, command_regex: a, cpus: 1, exclusive: true}
- {name: n, command_regex: b, cpus: 0-1}";
        let (c, notes) = try_compile(yaml, &machine(4, 2)).unwrap();
        assert_eq!(c.masks[&MaskIndex::rule(1)], set("0"));
        assert_eq!(notes, ["p.yaml:3:4: n: cpus: 1: exclusive to another rule, so not used here"]);
    }

    #[test]
    fn rules_with_the_same_traffic_share_a_condition() {
        let yaml = "strategies:
- {gtp: gtp, priority: 1}
- {command_regex: a, priority: 1}
- {gtp: {module: gtp, hold: 1s, functions: [gtp_rx]}, priority: 1}
- {gtp: {module: gtp, min_pps: 1, functions: [gtp_encap_recv, gtp_dev_xmit]}, priority: 2}
- {gtp: {port: 2152}, priority: 1}
- {gtp: {port: 8805}, priority: 1}
- {gtp: {hold: 30s, port: 2152}, weight: 9}";
        let c = try_compile(yaml, &machine(2, 1)).unwrap().0;
        let conditions: Vec<_> = c
            .traffic_conditions
            .iter()
            .map(|g| (g.functions.join(" "), g.plane.port(), g.rules))
            .collect();
        assert_eq!(
            conditions,
            [
                ("gtp_dev_xmit gtp_encap_recv".into(), None, 0b1001),
                ("gtp_rx".into(), None, 0b100),
                (String::new(), Some(2152), 0b1010000),
                (String::new(), Some(8805), 0b100000),
            ]
        );
        assert_eq!(
            (c.traffic_conditions[1].min_packets, c.traffic_conditions[1].hold_ns),
            (1, 1_000_000_000)
        );
        assert_eq!(c.has[Condition::Gtp as usize], 0b1111101);
    }

    #[test]
    fn too_much_traffic() {
        let rules = |of: &dyn Fn(usize) -> String, count: usize| -> String {
            let rule =
                |i| format!("- {{name: n{i}, gtp: {{module: gtp, {}}}, weight: 1}}\n", of(i));
            (1..=count).map(rule).collect()
        };
        let by_rate = |i| format!("min_pps: {i}");
        assert!(
            try_compile(&format!("strategies:\n{}", rules(&by_rate, 8)), &machine(2, 1)).is_ok()
        );
        assert_eq!(
            error(&rules(&by_rate, 9)),
            "p.yaml:10:4: n9: gtp: more than 8 different conditions by traffic in a policy; give several rules the same"
        );
        let functions = |i| {
            let names: Vec<String> = (0..16).map(|f| format!("f{i}_{f}")).collect();
            format!("functions: [{}]", names.join(", "))
        };
        assert_eq!(
            error(&rules(&functions, 3)),
            "p.yaml:4:4: n3: gtp: more than 32 functions in a policy"
        );
    }

    #[test]
    fn a_pid_is_known_by_its_start_time() {
        let me = std::process::id();
        let yaml = format!(
            "strategies: [{{pid: {me}, priority: true}}, {{name: n, pid: 4194304, priority: true}}]"
        );
        let (c, notes) = try_compile(&yaml, &machine(2, 1)).unwrap();
        assert!(c.rules[0].by_pid.unwrap().start_ticks > 0);
        assert_eq!(c.rules[1].by_pid, None);
        assert_eq!(notes.len(), 1);
    }
}
