//! A policy and a machine made into what the scheduler's BPF program reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::comm_dfa::{self, CommDfa};
use super::{Policy, Rule};
use crate::cpulist::CpuList;
use crate::error::{Error, ExitCode, Result};
use crate::sched::tables::{Limits, MaskIndex};
use crate::topology::Topology;

/// What one rule does, in the scheduler's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Whether `command_regex` is a condition; the patterns are in [`Compiled::dfas`].
    pub by_comm: bool,
    /// The process or thread meant by `pid`, if it exists.
    pub by_pid: Option<Process>,
    /// 0 to 9 when the rule gives preempting priority.
    pub rank: Option<u8>,
    /// The slice, if not the default.
    pub slice_ns: Option<u64>,
    /// How much earlier than its virtual time the task is queued (priorities 10 to 20).
    pub credit_ns: u64,
    /// Whether the rule has a CPU mask.
    pub has_cpus: bool,
    /// The pool of its exclusive CPUs.
    pub pool: Option<u16>,
}

/// A process or thread that no later one can be mistaken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Start time in clock ticks since boot (proc_pid_stat(5), field 22); `None`: no such process.
    pub start_ticks: Option<u64>,
}

/// A policy ready to be loaded; positions are those of `gth_tables` in bpf/intf.h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    pub rules: Vec<Effect>,
    pub dfas: Vec<CommDfa>,
    /// The pool of each CPU: an LLC, or from `nr_llcs` on an exclusive pool.
    pub cpu_pool: Vec<u16>,
    /// How many online CPUs each pool has.
    pub pool_cpus: Vec<u16>,
    /// CPU masks by index.
    pub masks: BTreeMap<u32, CpuList>,
    /// All CPUs that some rule has to itself.
    pub reserved: CpuList,
}

/// Compiles `policy` for the machine; `proc_root` is `/proc` but in tests. The
/// second value holds notes for the user.
///
/// `slice_ns` is the default slice, the measure of the credit of priorities 10
/// to 20: half a slice for the weakest, and half a slice more with each step.
///
/// Fails with [`ExitCode::Usage`] and the rule's place when its CPUs do not fit
/// the machine or another rule, when no CPU would be left for other tasks, or
/// when its pattern is too large.
pub fn compile(
    policy: &Policy,
    topology: &Topology,
    slice_ns: u64,
    proc_root: &Path,
) -> Result<(Compiled, Vec<String>)> {
    let mut notes = Vec::new();
    let dfas = compile_patterns(policy)?;
    let (pools, cpu_pool) = reserve(policy, topology)?;
    let reserved: CpuList = pools.iter().flat_map(|pool| pool.iter()).collect();
    let nr_llcs = topology.nr_llcs();

    let mut masks = BTreeMap::new();
    let normal = |cpu: &u32| !reserved.contains(*cpu);
    masks.insert(MaskIndex::NORMAL, topology.possible.iter().filter(normal).collect());
    for llc in 0..nr_llcs {
        let members =
            topology.online.iter().filter(|&cpu| topology.llc[cpu as usize] == llc as u16);
        masks.insert(MaskIndex::llc(llc), members.filter(normal).collect());
    }
    let mut rules = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        check_cpus(rule, topology, &reserved, &mut notes)?;
        if let Some(cpus) = &rule.cpus {
            let usable = cpus.iter().filter(|cpu| rule.exclusive || normal(cpu)).collect();
            masks.insert(MaskIndex::rule(index), usable);
        }
        let by_pid = rule.pid.map(|pid| Process { pid, start_ticks: start_ticks(proc_root, pid) });
        if let Some(Process { pid, start_ticks: None }) = by_pid {
            notes.push(format!(
                "{}: {}: no process {pid}; the rule matches nothing",
                rule.location, rule.name
            ));
        }
        let level = rule.priority.map(|priority| priority.level());
        let preempts = rule.priority.is_some_and(|priority| priority.preempts());
        let credit_steps = level.filter(|_| !preempts).map_or(0, |level| 21 - u64::from(level));
        rules.push(Effect {
            by_comm: rule.command_regex.is_some(),
            by_pid,
            rank: level.filter(|_| preempts),
            slice_ns: rule.execution_time_ns,
            credit_ns: credit_steps * slice_ns / 2,
            has_cpus: rule.cpus.is_some(),
            pool: rule.cpus.as_ref().filter(|_| rule.exclusive).map(|cpus| {
                let pool = pools.iter().position(|pool| pool == cpus);
                (nr_llcs + pool.expect("reserve() made a pool of each")) as u16
            }),
        });
    }
    let mut pool_cpus = vec![0; nr_llcs + pools.len()];
    for cpu in topology.online.iter() {
        pool_cpus[usize::from(cpu_pool[cpu as usize])] += 1;
    }
    Ok((Compiled { rules, dfas, cpu_pool, pool_cpus, masks, reserved }, notes))
}

fn bad(rule: &Rule, what: String) -> Error {
    Error::new(ExitCode::Usage, format!("{}: {what}", rule.name)).at(rule.location.clone())
}

fn compile_patterns(policy: &Policy) -> Result<Vec<CommDfa>> {
    let patterns: Vec<(usize, &str)> = policy
        .rules
        .iter()
        .enumerate()
        .filter_map(|(i, rule)| Some((i, rule.command_regex.as_deref()?)))
        .collect();
    let too_large = |index: usize| {
        let rule = &policy.rules[patterns[index].0];
        bad(rule, "command_regex: too large to match in the kernel".into())
            .help("use a shorter pattern or fewer repetitions; a comm has at most 15 bytes")
    };
    let dfas = comm_dfa::compile(&patterns).map_err(|(index, _)| too_large(index))?;
    let states: usize = dfas.iter().map(|dfa| dfa.accept.len()).sum();
    let trans: usize = dfas.iter().map(|dfa| dfa.trans.len()).sum();
    if dfas.len() > Limits::DFAS || states > Limits::STATES || trans > Limits::TRANS {
        return Err(too_large(patterns.len() - 1));
    }
    Ok(dfas)
}

/// The pool of exclusive CPUs of each distinct `cpus`, and every CPU's pool.
fn reserve(policy: &Policy, topology: &Topology) -> Result<(Vec<CpuList>, Vec<u16>)> {
    let mut pools: Vec<CpuList> = Vec::new();
    let mut owner: BTreeMap<u32, &Rule> = BTreeMap::new();
    let mut cpu_pool = topology.llc.clone();
    for rule in policy.rules.iter().filter(|rule| rule.exclusive) {
        let Some(cpus) = rule.cpus.as_ref().filter(|cpus| !pools.contains(cpus)) else { continue };
        if let Some(cpu) = cpus.iter().find(|&cpu| !topology.online.contains(cpu)) {
            return Err(not_here(rule, cpu, topology));
        }
        for cpu in cpus.iter() {
            if let Some(other) = owner.insert(cpu, rule) {
                let what = format!("cpus: CPU {cpu} is exclusive to `{}` already", other.name);
                return Err(bad(rule, what).help("give both the same cpus, or none in common"));
            }
            cpu_pool[cpu as usize] = (topology.nr_llcs() + pools.len()) as u16;
        }
        pools.push(cpus.clone());
        if topology.online.iter().all(|cpu| owner.contains_key(&cpu)) {
            return Err(bad(rule, "cpus: no CPU would be left for other tasks".into())
                .help(format!("this machine has {}; leave at least one", topology.online)));
        }
    }
    Ok((pools, cpu_pool))
}

fn not_here(rule: &Rule, cpu: u32, topology: &Topology) -> Error {
    let what = if topology.possible.contains(cpu) { "is offline" } else { "does not exist here" };
    bad(rule, format!("cpus: CPU {cpu} {what}")).help(format!("online are {}", topology.online))
}

fn check_cpus(
    rule: &Rule,
    topology: &Topology,
    reserved: &CpuList,
    notes: &mut Vec<String>,
) -> Result<()> {
    let Some(cpus) = rule.cpus.as_ref().filter(|_| !rule.exclusive) else { return Ok(()) };
    if let Some(cpu) = cpus.iter().find(|&cpu| !topology.possible.contains(cpu)) {
        return Err(not_here(rule, cpu, topology));
    }
    let taken: CpuList = cpus.iter().filter(|&cpu| reserved.contains(cpu)).collect();
    if !taken.is_empty() {
        notes.push(format!(
            "{}: {}: cpus: {taken} exclusive to another rule, not used here",
            rule.location, rule.name
        ));
    }
    Ok(())
}

/// Field 22 of `/proc/PID/stat`, for a process or a thread.
fn start_ticks(proc_root: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(proc_root.join(pid.to_string()).join("stat")).ok()?;
    // The comm, in parentheses, may hold blanks and parentheses itself.
    let after_comm = &stat[stat.rfind(')')? + 1..];
    after_comm.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: u32, llcs: u32) -> Topology {
        let all: CpuList = (0..cpus).collect();
        Topology {
            possible: all.clone(),
            online: all,
            llc: (0..cpus).map(|cpu| (cpu * llcs / cpus) as u16).collect(),
            sibling: (0..cpus as u16).collect(),
        }
    }

    fn try_compile(yaml: &str, topology: &Topology) -> Result<(Compiled, Vec<String>)> {
        let (policy, _) = Policy::parse(yaml, Path::new("p.yaml"))?;
        compile(&policy, topology, 2_000_000, Path::new("/proc"))
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
        assert_eq!((c.rules[0].pool, c.rules[0].rank), (Some(2), Some(3)));
        assert_eq!((c.rules[1].pool, c.rules[1].slice_ns), (None, Some(1_000_000)));
        assert_eq!(c.rules[2].pool, Some(2));
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
    fn a_preference_for_reserved_cpus_is_noted() {
        let yaml = "strategies:
- {name: m, command_regex: a, cpus: 1, exclusive: true}
- {name: n, command_regex: b, cpus: 0-1}";
        let (c, notes) = try_compile(yaml, &machine(4, 2)).unwrap();
        assert_eq!(c.masks[&MaskIndex::rule(1)], set("0"));
        assert_eq!(notes, ["p.yaml:3:4: n: cpus: 1 exclusive to another rule, not used here"]);
    }

    #[test]
    fn a_pid_is_known_by_its_start_time() {
        let me = std::process::id();
        let yaml = format!(
            "strategies: [{{pid: {me}, priority: true}}, {{name: n, pid: 4194304, priority: true}}]"
        );
        let (c, notes) = try_compile(&yaml, &machine(2, 1)).unwrap();
        assert!(c.rules[0].by_pid.unwrap().start_ticks.is_some_and(|ticks| ticks > 0));
        assert_eq!(c.rules[1].by_pid, Some(Process { pid: 4_194_304, start_ticks: None }));
        assert_eq!(notes.len(), 1);
    }
}
