//! Shares and rates between two samples, and how they developed over the last minutes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::proc::{CpuTimes, TaskTimes};
use super::sample::{Answers, Sample};
use crate::base::cpulist::CpuList;
use crate::daemon::reports::{
    GtpTraffic, Metrics, RuleCounters, RuleTask, Status, ThrottledCgroup,
};
use crate::sched::stats::quantile;

/// What happened between two samples, in the form that `-o json` prints. A rate is absent without
/// an earlier value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The time between the samples.
    pub seconds: f64,
    pub cpus: Vec<Cpu>,
    /// Absent while no gthctl runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gthctl: Option<Running>,
}

/// How a CPU spent the time, in parts of 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cpu {
    pub cpu: u32,
    /// Only the tasks of its rules may use it.
    pub exclusive: bool,
    #[serde(flatten)]
    pub shares: Option<Shares>,
    /// Whose tasks used `user` and `system`.
    #[serde(flatten)]
    pub tasks: Option<TaskShares>,
    /// The tasks that ran here last, by rule.
    pub last_of: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    pub user: f64,
    pub system: f64,
    pub irq: f64,
    pub softirq: f64,
    pub steal: f64,
    pub idle: f64,
}

/// Without CONFIG_IRQ_TIME_ACCOUNTING, the kernel counts the time of interrupts as the interrupted
/// task's, too (update_rq_clock_task(), kernel/sched/core.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TaskShares {
    /// The share of tasks under a rule with priority.
    pub priority: f64,
    /// The share of gthctl's other tasks.
    pub normal: f64,
    /// The share of tasks that the kernel runs before gthctl's: real-time tasks and the kernel's
    /// own.
    pub real_time: f64,
}

/// The running gthctl and what is under its rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Running {
    pub status: Status,
    /// The wake-ups of priority tasks.
    pub wakeups: Wakeups,
    /// How many tasks got a CPU each way.
    pub dispatches_per_second: BTreeMap<String, f64>,
    /// GTP packets, by data plane and direction.
    pub packets_per_second: BTreeMap<String, f64>,
    /// The scheduler's other counters.
    pub counters_per_second: BTreeMap<String, f64>,
    pub rules: Vec<Rule>,
    pub tasks: Vec<Task>,
    pub cgroups: Vec<Cgroup>,
}

/// The time from a task's wake-up until it runs, by upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wakeups {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_ns: Option<u64>,
}

/// What tasks did, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The time on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<f64>,
    /// The time spent waiting for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
    /// How long a task waited for a turn on a CPU, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_per_turn_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_per_second: Option<f64>,
    /// The switches among them that the task did not ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempted_per_second: Option<f64>,
}

/// A rule, with the sum of what its tasks did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    pub rule: String,
    pub tasks: usize,
    #[serde(flatten)]
    pub rates: Rates,
    pub wakeups: Wakeups,
}

/// A thread under a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Task {
    #[serde(flatten)]
    pub task: RuleTask,
    /// Where it ran last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A cgroup that its limit has throttled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cgroup {
    #[serde(flatten)]
    pub cgroup: ThrottledCgroup,
    /// The part of the time in which it had no quota left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
}

impl Report {
    /// What happened from `before` to `after`.
    pub fn between(before: Option<&Sample>, after: &Sample) -> Self {
        let seconds = before.map_or(0.0, |before| after.at.saturating_sub(before.at).as_secs_f64());
        let answers = after.gthctl.as_ref().ok();
        let earlier = before.and_then(|before| before.gthctl.as_ref().ok());
        let step = |after| Step { before: earlier.filter(|b| is_same(b, after)), after, seconds };
        let gthctl = answers.map(|after| step(after).running());
        let exclusive = answers.and_then(exclusive_cpus).unwrap_or_default();
        let cpus = after.cpus.iter().map(|(&cpu, times)| {
            let earlier = before.and_then(|before| before.cpus.get(&cpu));
            let shares = earlier.and_then(|earlier| shares(earlier, times));
            Cpu {
                cpu,
                exclusive: exclusive.contains(cpu),
                shares,
                tasks: answers.and_then(|after| step(after).task_shares(cpu, shares?)),
                last_of: gthctl.as_ref().map(|running| last_of(running, cpu)).unwrap_or_default(),
            }
        });
        Self { seconds, cpus: cpus.collect(), gthctl }
    }
}

/// Whether the counters continue: they start anew when gthctl loads its scheduler.
fn is_same(before: &Answers, after: &Answers) -> bool {
    before.metrics.scheduler_started == after.metrics.scheduler_started
}

fn exclusive_cpus(answers: &Answers) -> Option<CpuList> {
    answers.metrics.status.exclusive_cpus.parse().ok()
}

fn last_of(running: &Running, cpu: u32) -> BTreeMap<String, usize> {
    let mut rules = BTreeMap::new();
    for task in running.tasks.iter().filter(|task| task.cpu == Some(cpu)) {
        *rules.entry(task.task.rule.clone()).or_default() += 1;
    }
    rules
}

/// `None` if the CPU counted nothing in between.
fn shares(before: &CpuTimes, after: &CpuTimes) -> Option<Shares> {
    let parts: [fn(&CpuTimes) -> u64; 6] =
        [|t| t.user, |t| t.system, |t| t.irq, |t| t.softirq, |t| t.steal, |t| t.idle];
    // The kernel's iowait may go backwards.
    let spent = parts.map(|part| part(after).saturating_sub(part(before)));
    let all: u64 = spent.iter().sum();
    let [user, system, irq, softirq, steal, idle] = spent.map(|part| part as f64 / all as f64);
    (all > 0).then_some(Shares { user, system, irq, softirq, steal, idle })
}

/// Two answers of a gthctl, and the time between them.
struct Step<'a> {
    before: Option<&'a Answers>,
    after: &'a Answers,
    seconds: f64,
}

impl Step<'_> {
    fn running(&self) -> Running {
        let metrics = &self.after.metrics;
        let tasks: Vec<Task> = self.after.tasks.iter().map(|task| self.task(task)).collect();
        let rules = metrics.rules.iter().map(|rule| Rule {
            rule: rule.rule.clone(),
            tasks: rule.tasks,
            rates: sum(tasks.iter().filter(|task| task.task.rule == rule.rule)),
            wakeups: self.rule_wakeups(&rule.rule),
        });
        let counters = self.before.map(|before| &before.metrics.counters);
        let rates = |after: &BTreeMap<String, u64>, before: Option<&BTreeMap<String, u64>>| {
            let rate = |(name, after): (&String, &u64)| {
                Some((name.clone(), self.rate(*after, before?.get(name).copied())?))
            };
            after.iter().filter_map(rate).collect()
        };
        let packets = |metrics: &Metrics| -> BTreeMap<String, u64> {
            let way = |one: &GtpTraffic| (format!("{} {}", one.plane, one.direction), one.packets);
            metrics.gtp.iter().map(way).collect()
        };
        let packets_before = self.before.map(|before| packets(&before.metrics));
        Running {
            packets_per_second: rates(&packets(metrics), packets_before.as_ref()),
            wakeups: self.wakeups(),
            dispatches_per_second: rates(&metrics.counters.paths, counters.map(|c| &c.paths)),
            counters_per_second: rates(&metrics.counters.counts, counters.map(|c| &c.counts)),
            rules: rules.collect(),
            cgroups: metrics.status.throttled_cgroups.iter().map(|c| self.cgroup(c)).collect(),
            status: metrics.status.clone(),
            tasks,
        }
    }

    /// How fast a counter goes up; `None` without an earlier value.
    fn rate(&self, after: u64, before: Option<u64>) -> Option<f64> {
        let rate = after.saturating_sub(before?) as f64 / self.seconds;
        rate.is_finite().then_some(rate)
    }

    fn wakeups(&self) -> Wakeups {
        let Some(before) = self.before else { return Wakeups::default() };
        let (before, after) = (&before.metrics.counters, &self.after.metrics.counters);
        self.new_wakeups(&before.wakeups, &after.wakeups)
    }

    /// What the tasks of a CPU with these shares did. `None` if the policy has changed in between:
    /// the tasks of rules that came or went would be missing on one side.
    fn task_shares(&self, cpu: u32, shares: Shares) -> Option<TaskShares> {
        let before = &self.before?.metrics;
        let after = &self.after.metrics;
        let run = |metrics: &Metrics| metrics.cpus.iter().find(|run| run.cpu == cpu).copied();
        let (from, to) = (run(before)?, run(after)?);
        let share = |from: u64, to: u64| Some(to.checked_sub(from)? as f64 / 1e9 / self.seconds);
        if before.status.generation != after.status.generation {
            return None;
        }
        let priority = share(from.priority_ns, to.priority_ns)?.min(1.0);
        let normal = share(from.normal_ns, to.normal_ns)?.min(1.0);
        let real_time = (shares.user + shares.system - priority - normal).max(0.0);
        Some(TaskShares { priority, normal, real_time })
    }

    /// The wake-ups of a rule that existed before.
    fn rule_wakeups(&self, rule: &str) -> Wakeups {
        let is_it = |one: &&RuleCounters| one.rule.as_deref() == Some(rule);
        let before = self.before.and_then(|b| b.metrics.rule_counters.iter().find(is_it));
        let both = before.zip(self.after.metrics.rule_counters.iter().find(is_it));
        both.map_or(Wakeups::default(), |(before, after)| {
            self.new_wakeups(&before.stats.wakeups, &after.stats.wakeups)
        })
    }

    fn new_wakeups(&self, before: &[u64], after: &[u64]) -> Wakeups {
        let new = after.iter().zip(before);
        let new: Vec<u64> = new.map(|(after, before)| after.saturating_sub(*before)).collect();
        Wakeups {
            per_second: self.rate(new.iter().sum(), Some(0)),
            p50_ns: quantile(&new, 0.5),
            p99_ns: quantile(&new, 0.99),
            worst_ns: quantile(&new, 1.0),
        }
    }

    fn task(&self, task: &RuleTask) -> Task {
        let times = self.after.times.get(&task.tid);
        let before = self.before.and_then(|before| before.times.get(&task.tid));
        // Ignores an earlier thread with the same TID.
        let before = before.filter(|b| times.is_some_and(|t| t.start_ticks == b.start_ticks));
        let rates = times.zip(before).map(|(times, before)| self.rates(before, times));
        Task {
            task: task.clone(),
            cpu: times.map(|times| times.cpu),
            rates: rates.unwrap_or_default(),
        }
    }

    fn rates(&self, before: &TaskTimes, after: &TaskTimes) -> Rates {
        let turns = after.turns;
        let earlier = before.turns.unwrap_or_default();
        let seconds = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
        let count = turns.map_or(0, |turns| turns.count.saturating_sub(earlier.count));
        let waited = turns.map(|turns| turns.wait_ns.saturating_sub(earlier.wait_ns) as f64);
        Rates {
            run: seconds(turns.and_then(|turns| self.rate(turns.run_ns, Some(earlier.run_ns)))),
            wait: seconds(turns.and_then(|turns| self.rate(turns.wait_ns, Some(earlier.wait_ns)))),
            wait_per_turn_ns: waited.filter(|_| count > 0).map(|waited| waited / count as f64),
            switches_per_second: self.rate(after.switches, Some(before.switches)),
            preempted_per_second: self.rate(after.preempted, Some(before.preempted)),
        }
    }

    fn cgroup(&self, cgroup: &ThrottledCgroup) -> Cgroup {
        let same = |other: &&ThrottledCgroup| other.cgroup == cgroup.cgroup;
        let before = self.before.map(|before| &before.metrics.status.throttled_cgroups);
        // A cgroup that was not listed had not been throttled.
        let before = before.map(|all| all.iter().find(same).map_or(0, |c| c.throttled_usec));
        let throttled = self.rate(cgroup.throttled_usec, before);
        let share = throttled.map(|usec| (usec / 1e6).min(1.0));
        Cgroup { cgroup: cgroup.clone(), throttled_share: share }
    }
}

/// What these tasks did together.
fn sum<'a>(tasks: impl Iterator<Item = &'a Task>) -> Rates {
    let mut all = Rates::default();
    let mut turns = 0.0;
    for Task { rates, .. } in tasks {
        let pairs = [
            (&mut all.run, rates.run),
            (&mut all.wait, rates.wait),
            (&mut all.switches_per_second, rates.switches_per_second),
            (&mut all.preempted_per_second, rates.preempted_per_second),
        ];
        for (all, one) in pairs {
            *all = all.zip(one).map(|(all, one)| all + one).or(*all).or(one);
        }
        if let (Some(wait), Some(each)) = (rates.wait, rates.wait_per_turn_ns) {
            turns += if each > 0.0 { wait * 1e9 / each } else { 0.0 };
        }
    }
    all.wait_per_turn_ns = all.wait.filter(|_| turns > 0.0).map(|wait| wait * 1e9 / turns);
    all
}

/// The mean of a value in each part of the last minutes, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    parts: VecDeque<f64>,
    /// Of the last part: when it began, in parts since boot, and how many values it has.
    last: (u64, u32),
}

impl Series {
    /// How long a part is.
    pub const PART: Duration = Duration::from_secs(5);
    /// Together five minutes.
    const PARTS: usize = 60;

    /// Adds what was measured at that time since boot.
    pub fn add(&mut self, at: Duration, value: f64) {
        let part = at.as_secs() / Self::PART.as_secs();
        match self.parts.back_mut() {
            Some(mean) if self.last.0 == part => {
                self.last.1 += 1;
                *mean += (value - *mean) / f64::from(self.last.1);
            }
            _ => {
                self.parts.push_back(value);
                self.last = (part, 1);
            }
        }
        if self.parts.len() > Self::PARTS {
            self.parts.pop_front();
        }
    }

    /// Its last parts, at most `count` of them.
    pub fn last(&self, count: usize) -> impl Iterator<Item = f64> + '_ {
        self.parts.range(self.parts.len().saturating_sub(count)..).copied()
    }
}

/// The last report, and how the last minutes went.
#[derive(Clone, Debug, Default)]
pub struct Model {
    last: Option<Sample>,
    pub report: Option<Report>,
    /// Why the running gthctl says nothing.
    pub silent: Option<String>,
    /// The part of the time that each CPU was busy.
    pub cpus: BTreeMap<u32, Series>,
    /// The CPUs that the tasks of each rule used.
    pub rules: BTreeMap<String, Series>,
    /// What 99 % of the wake-ups took at most.
    pub wakeups: Series,
}

impl Model {
    /// Takes the next sample.
    pub fn add(&mut self, sample: Sample) {
        let report = Report::between(self.last.as_ref(), &sample);
        let at = sample.at;
        self.cpus.retain(|cpu, _| sample.cpus.contains_key(cpu));
        for Cpu { cpu, shares, .. } in &report.cpus {
            if let Some(shares) = shares {
                self.cpus.entry(*cpu).or_default().add(at, 1.0 - shares.idle);
            }
        }
        if let Some(running) = &report.gthctl {
            self.rules.retain(|name, _| running.rules.iter().any(|rule| rule.rule == *name));
            for Rule { rule, rates, tasks, .. } in &running.rules {
                if let Some(run) = rates.run.or((*tasks == 0).then_some(0.0)) {
                    self.rules.entry(rule.clone()).or_default().add(at, run);
                }
            }
            if let Some(p99) = running.wakeups.p99_ns {
                self.wakeups.add(at, p99 as f64);
            }
        }
        self.silent = sample.gthctl.as_ref().err().map(ToString::to_string);
        self.report = Some(report);
        self.last = Some(sample);
    }
}

/// What tasks are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Run,
    Wait,
    WaitPerTurn,
    Switches,
    Preempted,
    Cpu,
    Name,
    Rule,
    Tid,
}

impl Sort {
    /// In the order in which a key goes through them.
    pub const ALL: [(Sort, &'static str); 9] = [
        (Sort::Run, "run time"),
        (Sort::Wait, "waiting time"),
        (Sort::WaitPerTurn, "wait per turn"),
        (Sort::Switches, "switches"),
        (Sort::Preempted, "preemptions"),
        (Sort::Cpu, "CPU"),
        (Sort::Name, "name"),
        (Sort::Rule, "rule"),
        (Sort::Tid, "TID"),
    ];

    /// What people call it.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The sort key that is `step` places further on.
    pub fn next(self, step: usize) -> Self {
        Self::ALL[(self as usize + step) % Self::ALL.len()].0
    }

    /// Rates are sorted with the highest first, names and places with the lowest first.
    pub fn sort(self, tasks: &mut [&Task], reversed: bool) {
        let number = |value: fn(&Rates) -> Option<f64>| {
            move |a: &Task, b: &Task| {
                let [a, b] = [a, b].map(|task| value(&task.rates).unwrap_or(-1.0));
                b.total_cmp(&a)
            }
        };
        tasks.sort_by(|a, b| {
            let (a, b): (&Task, &Task) = (a, b);
            let order = match self {
                Self::Run => number(|rates| rates.run)(a, b),
                Self::Wait => number(|rates| rates.wait)(a, b),
                Self::WaitPerTurn => number(|rates| rates.wait_per_turn_ns)(a, b),
                Self::Switches => number(|rates| rates.switches_per_second)(a, b),
                Self::Preempted => number(|rates| rates.preempted_per_second)(a, b),
                Self::Cpu => a.cpu.cmp(&b.cpu),
                Self::Name => a.task.comm.cmp(&b.task.comm),
                Self::Rule => a.task.rule.cmp(&b.task.rule),
                Self::Tid => a.task.tid.cmp(&b.task.tid),
            };
            let order = if reversed { order.reverse() } else { order };
            order.then(a.task.tid.cmp(&b.task.tid))
        });
    }
}

/// Whether a task's name, rule, pod or number contains `text`, whatever the case.
pub fn is_about(task: &RuleTask, text: &str) -> bool {
    let text = text.to_lowercase();
    let texts = [&task.comm, &task.rule, task.pod.as_ref().unwrap_or(&String::new())]
        .map(|name| name.to_lowercase());
    texts.iter().any(|name| name.contains(&text)) || task.tid.to_string().contains(&text)
}

#[cfg(test)]
mod tests {
    use super::super::test_samples::{alone, crowded, model, sample, task};
    use super::*;

    fn report(before: &Sample, after: &Sample) -> Report {
        Report::between(Some(before), after)
    }

    fn close(some: [f64; 3], others: [f64; 3]) -> bool {
        some.iter().zip(others).all(|(one, other)| (one - other).abs() < 1e-9)
    }

    #[test]
    fn another_policy_has_other_priority_tasks() {
        let (before, mut after) = (sample(1), sample(2));
        if let Ok(answers) = &mut after.gthctl {
            answers.metrics.status.generation += 1;
        }
        let cpu = &report(&before, &after).cpus[1];
        assert!(cpu.tasks.is_none() && cpu.shares.is_some());
    }

    #[test]
    fn shares_and_rates_are_differences_through_time() {
        let report = report(&sample(1), &sample(3));
        assert_eq!(report.seconds, 2.0);
        let shares = report.cpus[1].shares.unwrap();
        assert_eq!((shares.user, shares.softirq, shares.idle), (0.75, 0.25, 0.0));
        let tasks = [0, 1].map(|cpu: usize| report.cpus[cpu].tasks.unwrap());
        let tasks = tasks.map(|tasks| [tasks.priority, tasks.normal, tasks.real_time]);
        assert!(
            close(tasks[0], [0.0, 0.15, 0.05]) && close(tasks[1], [0.5, 0.25, 0.0]),
            "{tasks:?}"
        );
        assert_eq!([report.cpus[0].exclusive, report.cpus[1].exclusive], [false, true]);
        assert_eq!(report.cpus[1].last_of, [("fast".into(), 1), ("slow".into(), 1)].into());
        let running = report.gthctl.unwrap();
        assert_eq!(running.wakeups.per_second, Some(1000.0));
        assert_eq!((running.wakeups.p50_ns, running.wakeups.p99_ns), (Some(2048), Some(2 << 13)));
        assert_eq!(running.dispatches_per_second["idle"], 900.0);
        assert_eq!(running.counters_per_second["preemptions"], 8.0);
        assert_eq!(running.packets_per_second["gtp5g uplink"], 500.0);
        let rates = running.tasks[0].rates;
        assert_eq!((rates.run, rates.wait), (Some(0.5), Some(0.001)));
        assert_eq!(rates.wait_per_turn_ns, Some(1000.0));
        assert_eq!(
            (rates.switches_per_second, rates.preempted_per_second),
            (Some(1010.0), Some(10.0))
        );
        assert_eq!(running.cgroups[0].throttled_share, Some(0.25));
    }

    #[test]
    fn a_rule_has_the_sum_of_its_tasks() {
        let (mut before, mut after) = (sample(1), sample(2));
        for sample in [&mut before, &mut after] {
            sample.gthctl.as_mut().unwrap().tasks[1].rule = "fast".into();
        }
        let rules = report(&before, &after).gthctl.unwrap().rules;
        assert_eq!(rules[0].rates.run, Some(0.6));
        // 301 ms of waiting for 2000 turns.
        assert_eq!(rules[0].rates.wait_per_turn_ns.unwrap().round(), 150_500.0);
        assert_eq!(rules[0].rates.preempted_per_second, Some(20.0));
        assert_eq!(rules[1].rates, Rates::default());
    }

    #[test]
    fn there_is_no_rate_without_an_earlier_value() {
        let none = Rates::default();
        let first = Report::between(None, &sample(1));
        assert!(first.cpus.iter().all(|cpu| cpu.shares.is_none()));
        let running = first.gthctl.unwrap();
        assert_eq!((running.tasks[0].rates, running.cgroups[0].throttled_share), (none, None));
        assert!(running.dispatches_per_second.is_empty());
        // Another thread with the same TID, a thread that has ended, another scheduler.
        let (before, mut after) = (sample(1), sample(2));
        let answers = after.gthctl.as_mut().unwrap();
        answers.times.get_mut(&11).unwrap().start_ticks = 6;
        answers.times.remove(&12);
        let tasks = report(&before, &after).gthctl.unwrap().tasks;
        assert_eq!([tasks[0].rates, tasks[1].rates], [none, none]);
        assert_eq!([tasks[0].cpu, tasks[1].cpu], [Some(1), None]);
        let mut after = sample(2);
        after.gthctl.as_mut().unwrap().metrics.scheduler_started = 9.0;
        let running = report(&before, &after).gthctl.unwrap();
        assert_eq!((running.wakeups, running.tasks[0].rates), (Wakeups::default(), none));
    }

    #[test]
    fn a_gthctl_that_goes_away_leaves_the_cpus() {
        let mut model = model([sample(1), sample(2), alone(3)]);
        let report = model.report.clone().unwrap();
        assert!(report.gthctl.is_none() && report.cpus[1].shares.is_some());
        assert!(!report.cpus[1].exclusive);
        assert!(model.silent.as_ref().unwrap().starts_with("no gthctl run is active;"));
        model.add(sample(4));
        assert_eq!(model.silent, None);
        let tasks = model.report.as_ref().unwrap().gthctl.as_ref().unwrap().tasks.clone();
        assert_eq!(tasks[0].rates, Rates::default());
        model.add(sample(5));
        let tasks = model.report.unwrap().gthctl.unwrap().tasks;
        assert_eq!(tasks[0].rates.run, Some(0.5));
    }

    #[test]
    fn a_series_has_means_of_the_last_minutes() {
        let mut series = Series::default();
        for second in 0..12 {
            series.add(Duration::from_secs(second), second as f64);
        }
        assert_eq!(series.last(9).collect::<Vec<_>>(), [2.0, 7.0, 10.5]);
        assert_eq!(series.last(2).collect::<Vec<_>>(), [7.0, 10.5]);
        (12..1000).for_each(|second| series.add(Duration::from_secs(second), 1.0));
        assert_eq!(series.last(1000).count(), Series::PARTS);
        let model = model([sample(1), sample(2)]);
        assert_eq!(model.cpus[&1].last(9).collect::<Vec<_>>(), [1.0]);
        assert_eq!(model.rules["fast"].last(9).collect::<Vec<_>>(), [0.5]);
        assert_eq!(model.wakeups.last(9).collect::<Vec<_>>(), [16384.0]);
    }

    #[test]
    fn tasks_in_every_order() {
        assert!(Sort::ALL.iter().enumerate().all(|(i, (sort, _))| *sort as usize == i));
        assert_eq!(Sort::Tid.next(1), Sort::Run);
        let report = report(&crowded(1, 3), &crowded(2, 3));
        let running = report.gthctl.unwrap();
        let order = |sort: Sort, reversed| {
            let mut tasks: Vec<&Task> = running.tasks.iter().collect();
            sort.sort(&mut tasks, reversed);
            tasks.iter().map(|task| task.task.tid).collect::<Vec<_>>()
        };
        assert_eq!(order(Sort::Run, false), [11, 12, 1000, 1001, 1002]);
        assert_eq!(order(Sort::Run, true), [1000, 1001, 1002, 12, 11]);
        assert_eq!(order(Sort::Wait, false)[0], 12);
        assert_eq!(order(Sort::Name, false), [12, 1000, 1001, 1002, 11]);
        assert_eq!(order(Sort::Rule, true), [12, 1000, 1001, 1002, 11]);
        assert_eq!(order(Sort::Tid, true), [1002, 1001, 1000, 12, 11]);
    }

    #[test]
    fn tasks_are_found_by_what_is_shown_of_them() {
        let task = RuleTask { pod: Some("core/upf-0".into()), ..task(171, "Rx-1", "fast") };
        for text in ["rx", "RX-", "fas", "core/u", "17", ""] {
            assert!(is_about(&task, text), "{text}");
        }
        assert!(!is_about(&task, "upf-1"));
    }
}
