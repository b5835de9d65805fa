//! Why a thread falls under its rule: the kernel's own verdict, rule by rule and
//! condition by condition, beside what /proc says about the thread.

use std::path::Path;

use super::live::{self, LivePolicy, PolicyContext};
use super::reports::{ConditionCheck, Explanation, Keys, RuleCheck, ThreadRule};
use crate::base::error::Result;
use crate::base::output::count;
use crate::base::time;
use crate::base::units::Nanoseconds;
use crate::kernel::procfs;
use crate::policy::Rule;
use crate::policy::compile::Condition;
use crate::sched::Scheduler;
use crate::sched::traffic::Mark;
use crate::sched::verdict::Verdict;

/// Explains the thread `tid`. Fails if it does not exist.
pub fn explain(
    policy: &LivePolicy,
    scheduler: &mut Scheduler<'_>,
    context: &PolicyContext<'_>,
    tid: u32,
) -> Result<Explanation> {
    let no_such = || live::no_such_thread(tid);
    let one = scheduler.verdicts(Some(tid))?.into_iter().next().ok_or_else(no_such)?;
    let facts = procfs::facts(Path::new("/proc"), tid).ok_or_else(no_such)?;
    let task = facts.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let name = |rule: Option<usize>| Some(policy.rules().get(rule?)?.name.clone());
    let others = scheduler.verdicts(None)?.into_iter();
    let others = others.filter(|other| other.tgid == one.tgid && other.tid != tid);
    let generation = scheduler.generation();
    let marks = scheduler.marks(Some(tid))?;
    let now = time::monotonic()?;
    let traffic = |i: usize| {
        let condition = policy
            .compiled()
            .traffic_conditions
            .iter()
            .position(|condition| condition.rules >> i & 1 == 1)?;
        let mark = marks.iter().find(|mark| mark.condition == condition);
        Some(why_marked(mark, policy.compiled().traffic_conditions[condition].min_packets, now))
    };
    let of_users = procfs::has_mounts_of_users(Path::new("/proc"), tid) == Some(true);
    let doubts = Doubts { exe: of_users.then_some(EXE_OF_USERS), pod: context.pods_doubt() };
    let rules = policy.rules().iter().enumerate();
    Ok(Explanation {
        tid,
        pid: one.tgid,
        generation,
        task,
        rule: name(one.rule),
        in_force: one.generation == generation && one.in_force == one.rule,
        rules: rules.map(|(i, rule)| check(rule, i, &one, traffic(i), &doubts)).collect(),
        threads: others
            .map(|other| ThreadRule { tid: other.tid, rule: name(other.rule), comm: other.comm })
            .collect(),
        notes: policy.why_not_its_cpus(&one).into_iter().chain(policy.nics_of(tid)).collect(),
    })
}

/// What is known about the thread's traffic.
fn why_marked(mark: Option<&Mark>, min_packets: u32, now: u64) -> String {
    let Some(mark) = mark else { return "no packet has been seen".into() };
    let age = |at: u64| Nanoseconds(now.saturating_sub(at) / 1_000_000 * 1_000_000);
    match &mark.marked {
        Some(marked) => format!(
            "marked {} ago by {}, {} since then; ends in {} unless more come",
            age(marked.since),
            marked.function,
            count(marked.packets as usize, "packet"),
            Nanoseconds(marked.until.saturating_sub(now) / 1_000_000 * 1_000_000),
        ),
        None => format!(
            "{} in the second that began {} ago; {min_packets} needed",
            count(mark.in_window as usize, "packet"),
            age(mark.window_began),
        ),
    }
}

/// Why a path that /proc shows does not count.
const EXE_OF_USERS: &str =
    "its mount namespace belongs to a user namespace, where users choose the paths";

/// Why a condition may not hold although the task seems to meet it.
struct Doubts<'a> {
    exe: Option<&'a str>,
    pod: Option<&'a str>,
}

fn check(
    rule: &Rule,
    index: usize,
    verdict: &Verdict,
    traffic: Option<String>,
    doubts: &Doubts<'_>,
) -> RuleCheck {
    let has = |set: u128| set >> index & 1 == 1;
    let keys = live::keys(&rule.conditions);
    let conditions: Vec<ConditionCheck> = Condition::ALL
        .into_iter()
        .filter(|&condition| rule.conditions.asks(condition))
        .map(|condition| {
            let holds = has(verdict.hits[condition as usize]);
            let why = match condition {
                Condition::Gtp => traffic.clone(),
                Condition::Exe if !holds => doubts.exe.map(Into::into),
                Condition::Pod if !holds => doubts.pod.map(Into::into),
                _ => None,
            };
            ConditionCheck { asks: pick(&keys, condition.keys()), holds, why }
        })
        .collect();
    let inherited = has(verdict.inherited);
    let matches = inherited || conditions.iter().all(|condition| condition.holds);
    RuleCheck { name: rule.name.clone(), matches, inherited, conditions }
}

fn pick(keys: &Keys, wanted: &[&str]) -> Keys {
    let of = |(key, value): (&String, &_)| Some((key.clone(), Clone::clone(value)));
    keys.iter().filter(|(key, _)| wanted.contains(&key.as_str())).filter_map(of).collect()
}
