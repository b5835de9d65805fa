//! Writing a compiled policy into the scheduler's tables (`gth_tables` in bpf/intf.h).

use super::counter_rows::Rows;
use super::layout::{Limits, RuleSet};
use super::traffic::Numbers;
use crate::kernel::skeletons::scheduler::types::{
    self, gth_condition, gth_limit, gth_rank, gth_rule_flag,
};
use crate::policy::compile::{Compiled, CompiledRule, Condition};

/// The tables that are never live: for trying out policies.
pub(super) const TRIAL: u32 = gth_limit::GTH_TABLES_TRIAL.0;

const _: () = assert!(Limits::RULES == crate::policy::MAX_RULES);
const _: () = assert!(Limits::CPUS == crate::base::cpulist::CpuList::MAX as usize);

const _: () = assert!(Condition::ALL.len() == gth_condition::GTH_NR_CONDS.0 as usize);
const _: () = assert!(Condition::PATTERNS == gth_condition::GTH_NR_PATTERNS.0 as usize);
const _: () = assert!(Condition::Pod as u32 == gth_condition::GTH_COND_POD.0);
const _: () = assert!(Condition::Netns as u32 == gth_condition::GTH_COND_NETNS.0);
const _: () = assert!(Condition::Gtp as u32 == gth_condition::GTH_COND_GTP.0);

/// The numbers that the BPF program has for the parts of a policy. A part that stays in the next
/// policy keeps its number.
#[derive(Clone, Debug)]
pub struct Ids {
    pub traffic: Numbers,
    pub rows: Rows,
}

impl Default for Ids {
    fn default() -> Self {
        Self { traffic: Numbers::default(), rows: Rows::new(Limits::RULE_ROWS) }
    }
}

impl Ids {
    /// The numbers for the next policy.
    pub fn next(&self, policy: &Compiled) -> Self {
        let names = policy.rules.iter().map(|rule| rule.name.as_str());
        Self { traffic: self.traffic.next(&policy.traffic_conditions), rows: self.rows.next(names) }
    }
}

/// Overwrites the tables of `generation`, which no CPU may be reading, with `policy`.
///
/// Compiling has checked the policy against [`Limits`].
pub fn write(
    policy: &Compiled,
    ids: &Ids,
    nr_llcs: usize,
    generation: u32,
    tables: &mut types::gth_tables,
) {
    // Exclusive pools of odd generations have their own numbers.
    let shift = (generation & 1) as usize * gth_limit::GTH_MAX_RESERVED.0 as usize;
    let number = |pool: usize| if pool < nr_llcs { pool } else { pool + shift };
    write_rules(policy, &ids.rows, tables);
    write_traffic(policy, &ids.traffic, tables);
    write_patterns(policy, tables);
    write_pools(policy, number, tables);
}

fn write_rules(policy: &Compiled, rows: &Rows, tables: &mut types::gth_tables) {
    tables.nr_rules = policy.rules.len() as u32;
    tables.restricted = u32::from(!policy.reserved.is_empty());
    tables.allocated = policy.rules.iter().any(|rule| rule.allocated).into();
    for (slot, compiled) in tables.rules.iter_mut().zip(&policy.rules) {
        *slot = rule(compiled, rows.of(&compiled.name));
    }
    tables.all = rules((0..policy.rules.len()).fold(0, |set, rule| set | 1 << rule));
    for (slot, &set) in tables.has.iter_mut().zip(&policy.has) {
        *slot = rules(set);
    }
    tables.children = rules(policy.children);
}

/// The conditions on traffic.
fn write_traffic(policy: &Compiled, numbers: &Numbers, tables: &mut types::gth_tables) {
    tables.nr_traffic = policy.traffic_conditions.len() as u32;
    for ((slot, condition), numbers) in
        tables.traffic.iter_mut().zip(&policy.traffic_conditions).zip(&numbers.conditions)
    {
        *slot = types::gth_traffic {
            id: numbers.id,
            mark: numbers.mark,
            min_packets: condition.min_packets,
            max_tasks: condition.max_tasks,
            woken: condition.woken.into(),
            port: condition.plane.port().unwrap_or(0).into(),
            hold_ns: condition.hold_ns,
            functions: numbers.functions,
            rules: rules(condition.rules),
        };
    }
}

/// The automata of the patterns, one after another.
fn write_patterns(policy: &Compiled, tables: &mut types::gth_tables) {
    let mut end = 0;
    for (slot, dfas) in tables.dfa_at[1..].iter_mut().zip(&policy.dfas) {
        end += dfas.len();
        *slot = end as u32;
    }
    let (mut state_base, mut trans_base) = (0, 0);
    for (slot, dfa) in tables.dfas.iter_mut().zip(policy.dfas.iter().flatten()) {
        slot.trans_base = trans_base as u32;
        slot.state_base = state_base as u32;
        slot.start = dfa.start;
        slot.stride = dfa.stride;
        slot.class = dfa.class;
        tables.trans[trans_base..][..dfa.trans.len()].copy_from_slice(&dfa.trans);
        for (accept, set) in tables.accept[state_base..].iter_mut().zip(&dfa.accept) {
            *accept = rules(*set);
        }
        trans_base += dfa.trans.len();
        state_base += dfa.accept.len();
    }
}

fn write_pools(policy: &Compiled, number: impl Fn(usize) -> usize, tables: &mut types::gth_tables) {
    for (slot, &pool) in tables.cpu_pool.iter_mut().zip(&policy.cpu_pool) {
        *slot = number(pool.into()) as u16;
    }
    tables.pool_cpus = [0; gth_limit::GTH_MAX_POOLS.0 as usize];
    for (pool, &cpus) in policy.pool_cpus.iter().enumerate() {
        tables.pool_cpus[number(pool)] = cpus;
    }
}

/// Whether `tables` hold exactly what [`write()`] puts there.
pub fn hold(
    policy: &Compiled,
    ids: &Ids,
    nr_llcs: usize,
    generation: u32,
    tables: &types::gth_tables,
) -> bool {
    let mut copy = Box::<types::gth_tables>::new_uninit();
    // SAFETY: both are of that type, all integers; the copy is owned.
    let mut copy = unsafe {
        std::ptr::copy_nonoverlapping(tables, copy.as_mut_ptr(), 1);
        copy.assume_init()
    };
    write(policy, ids, nr_llcs, generation, &mut copy);
    bytes(&copy) == bytes(tables)
}

fn bytes(tables: &types::gth_tables) -> &[u8] {
    // SAFETY: all integers; any padding holds only zeroes.
    unsafe { std::slice::from_raw_parts((&raw const *tables).cast(), size_of_val(tables)) }
}

/// A set of rules in the BPF program's form.
fn rules(set: RuleSet) -> types::gth_rules {
    types::gth_rules { word: [set as u64, (set >> 64) as u64] }
}

/// A set of rules from the BPF program.
pub(super) fn rule_set(rules: &types::gth_rules) -> RuleSet {
    RuleSet::from(rules.word[0]) | RuleSet::from(rules.word[1]) << 64
}

fn rule(rule: &CompiledRule, row: u16) -> types::gth_rule {
    let flag = |on: bool, flag: gth_rule_flag| if on { flag.0 as u16 } else { 0 };
    types::gth_rule {
        slice_ns: rule.slice_ns.unwrap_or(0),
        credit_ns: rule.credit_ns,
        // No task starts at the end of time: a missing pid matches nothing.
        start_ticks: rule.by_pid.map_or(u64::MAX, |process| process.start_ticks),
        pid: rule.by_pid.map_or(0, |process| process.pid),
        // The invalid uid (include/linux/uidgid.h), and a number that no namespace has.
        uid: rule.uid.unwrap_or(u32::MAX),
        netns: rule.netns.unwrap_or(0),
        weight: rule.weight.unwrap_or(0),
        rank: rule.rank.map_or(gth_rank::GTH_RANK_NORMAL.0 as u16, u16::from),
        flags: flag(rule.has_cpus, gth_rule_flag::GTH_RULE_CPUS)
            | flag(rule.exclusive, gth_rule_flag::GTH_RULE_EXCLUSIVE)
            | flag(rule.allocated, gth_rule_flag::GTH_RULE_ALLOCATED)
            | flag(rule.ignores_limits, gth_rule_flag::GTH_RULE_NO_LIMIT),
        row,
        unused: 0,
    }
}
