//! How a policy's rules apply to each task, by the scheduler's own matching: the records of
//! the task iterator in bpf/sched.bpf.c.

use std::io::Read;

use libbpf_rs::{Iter, Link};

use super::layout::RuleSet;
use super::policy_tables::rule_set;
use crate::base::error::{Error, Result};
use crate::kernel::comm;
use crate::kernel::skeletons::scheduler::types::{gth_limit, gth_verdict};
use crate::policy::compile::Condition;

/// One thread, and the rules of a policy that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    pub comm: String,
    /// The index of the rule that it falls under, from 0.
    pub rule: Option<usize>,
    /// The rule by which the kernel schedules it, and its generation. If that is not the
    /// live one, `rule` takes effect when the task next runs.
    pub in_force: Option<usize>,
    pub generation: u32,
    /// The scheduler's number of its cgroup.
    pub group: u32,
    /// For each [`Condition`]: the rules whose condition of that kind it meets.
    pub hits: [RuleSet; Condition::ALL.len()],
    /// The rules that it matches as the child of a task that meets them.
    pub inherited: RuleSet,
}

/// Runs the task iterator attached as `link`; returns what it writes.
pub(super) fn run(link: &Link) -> Result<Vec<u8>> {
    let failed = |e: &dyn std::fmt::Display| Error::failure(format!("reading the tasks: {e}"));
    let mut bytes = Vec::new();
    Iter::new(link).map_err(|e| failed(&e))?.read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    Ok(bytes)
}

/// Runs report_task, attached as `link`.
pub(super) fn read(link: &Link) -> Result<Vec<Verdict>> {
    let bytes = run(link)?;
    let records = bytes.chunks_exact(size_of::<gth_verdict>());
    let verdict = |record: &[u8]| {
        // SAFETY: the iterator writes whole gth_verdicts, all integers; a record
        // need not be aligned.
        convert(&unsafe { record.as_ptr().cast::<gth_verdict>().read_unaligned() })
    };
    Ok(records.map(verdict).collect())
}

fn convert(v: &gth_verdict) -> Verdict {
    let rule = |rule: u32| (rule != gth_limit::GTH_NO_RULE.0).then_some(rule as usize);
    Verdict {
        tid: v.tid,
        tgid: v.tgid,
        comm: comm::text(&v.comm),
        rule: rule(v.rule),
        in_force: rule(v.in_force),
        generation: v.generation,
        group: v.group,
        hits: std::array::from_fn(|i| rule_set(&v.hits[i])),
        inherited: rule_set(&v.inherited),
    }
}
