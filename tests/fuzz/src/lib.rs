//! What is true of every answer of the parsers, whatever their input.

use std::path::Path;

use gthctl::base::cpulist::CpuList;
use gthctl::base::error::{Error, ExitCode, Location};
use gthctl::base::root::Root;
use gthctl::daemon::config::Config;
use gthctl::kernel::topology::Topology;
use gthctl::pods::Pod;
use gthctl::policy::compile::{Compiled, Condition, Machine, compile};
use gthctl::policy::patterns::Dfa;
use gthctl::policy::{Cpus, MAX_RULES, Policy, Rule, SLICE_RANGE};
use gthctl::sched::layout::{Limits, MaskIndex};

const FILE: &str = "etc/file.yaml";

/// Reads a policy file and compiles it for a machine with 4 CPUs.
pub fn policy(text: &str) {
    let lines = Lines::of(text);
    let (policy, notes) = match Policy::parse(text, Path::new(FILE)) {
        Ok(parsed) => parsed,
        Err(error) => return lines.check_error(&error),
    };
    check_notes(&notes);
    assert!(policy.rules.len() <= MAX_RULES);
    for (i, rule) in policy.rules.iter().enumerate() {
        lines.check_place(&rule.location);
        check_rule(rule, text);
        assert!(policy.rules[..i].iter().all(|earlier| earlier.name != rule.name));
    }
    for entry in &policy.irq {
        let placement = &entry.placement;
        lines.check_place(placement.location.as_ref().expect("it is from a file"));
        let nic = &placement.nic;
        // A device's becomes a part of paths.
        let is_device = nic.len() <= 15 && !nic.contains(['/', '\0']) && nic != "..";
        assert!(is_device || entry.of_pods());
        assert!(!nic.is_empty() || placement.avoid.is_some() && !entry.of_pods());
        assert_eq!(placement.cpus.is_empty(), placement.avoid.is_some());
    }

    let topology = topology();
    let pods = pods();
    // A tree in which nothing exists.
    let root = &Root::at("/nonexistent");
    let (pods, allocated, slice_ns) = (&pods, &[], 2_000_000);
    let machine = Machine { topology: &topology, root, pods, kubelets: &[], allocated, slice_ns };
    match compile(&policy, &machine) {
        Err(error) => lines.check_error(&error),
        Ok((compiled, notes)) => {
            check_notes(&notes);
            check_compiled(&policy, &compiled, &topology);
        }
    }
}

/// Reads a config file.
pub fn config(text: &str) {
    match Config::parse(text, Path::new(FILE)) {
        Err(error) => Lines::of(text).check_error(&error),
        Ok((config, notes)) => {
            check_notes(&notes);
            assert!(SLICE_RANGE.contains(&config.slice_ns_default));
            assert!(SLICE_RANGE.contains(&config.slice_ns_min));
            assert!(config.slice_ns_min <= config.slice_ns_default);
            for path in [config.policy, config.kubeconfig].into_iter().flatten() {
                let beside = path.is_absolute() || path.starts_with("etc");
                assert!(beside && !path.to_str().unwrap().contains(char::is_control));
            }
        }
    }
}

/// A text's lines as YAML counts them.
struct Lines {
    /// How many characters each has.
    lengths: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let text = text.replace("\r\n", "\n");
        let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
        Self { lengths: text.split(breaks).map(|line| line.chars().count()).collect() }
    }

    fn check_error(&self, error: &Error) {
        assert_eq!(error.code, ExitCode::Usage, "{error}");
        assert!(!error.what.is_empty());
        check_line(&error.to_string());
        self.check_place(error.at.as_ref().expect("the error has a place"));
    }

    /// In the text, or after its end if something is missing there.
    fn check_place(&self, at: &Location) {
        assert_eq!(at.file, Path::new(FILE));
        assert!((1..=self.lengths.len() + 1).contains(&at.line), "{at}");
        let length = self.lengths.get(at.line - 1).copied().unwrap_or(0);
        assert!((1..=length + 1).contains(&at.column), "{at}: that line ends at {length}");
    }
}

fn check_line(line: &str) {
    assert!(!line.is_empty() && !line.contains(char::is_control), "{line:?}");
}

fn check_notes(notes: &[String]) {
    notes.iter().for_each(|note| check_line(note));
}

fn check_rule(rule: &Rule, text: &str) {
    check_line(&rule.name);
    let (conditions, effects) = (&rule.conditions, &rule.effects);
    assert!(Condition::ALL.into_iter().any(|condition| conditions.asks(condition)), "{rule:?}");
    let effect = effects.priority.is_some()
        || effects.execution_time_ns.is_some()
        || effects.weight.is_some()
        || effects.cpu_limit.is_some()
        || effects.cpus.is_some()
        // `priority: false` is an effect too: an exception to a later rule.
        || text.contains("priority");
    assert!(effect, "{rule:?}");
    assert!(effects.execution_time_ns.is_none_or(|ns| SLICE_RANGE.contains(&ns)));
    assert!(effects.weight.is_none_or(|weight| (1..=10_000).contains(&weight)));
    assert!(effects.cpus.as_ref().and_then(Cpus::list).is_none_or(|cpus| !cpus.is_empty()));
    assert!(effects.cpus.is_some() || !effects.exclusive);
}

fn check_compiled(policy: &Policy, compiled: &Compiled, topology: &Topology) {
    assert_eq!(compiled.rules.len(), policy.rules.len());
    let here = |cpus: &CpuList| cpus.iter().all(|cpu| topology.possible.contains(cpu));
    assert!(compiled.masks.values().all(here), "{:?}", compiled.masks);
    assert!(here(&compiled.reserved) && compiled.reserved.len() < topology.online.len());
    let normal = &compiled.masks[&MaskIndex::NORMAL];
    assert_eq!(normal.len() + compiled.reserved.len(), topology.possible.len());
    assert_eq!(compiled.cpu_pool.len(), topology.nr_cpus());
    assert!(compiled.cpu_pool.iter().all(|&pool| usize::from(pool) < compiled.pool_cpus.len()));
    let in_pools: usize = compiled.pool_cpus.iter().map(|&cpus| usize::from(cpus)).sum();
    assert_eq!(in_pools, topology.online.len());
    for (index, (rule, effect)) in policy.rules.iter().zip(&compiled.rules).enumerate() {
        for condition in Condition::ALL {
            let has = compiled.has[condition as usize] >> index & 1 == 1;
            assert_eq!(has, rule.conditions.asks(condition));
        }
        assert_eq!(effect.allocated, rule.effects.allocated());
        // No task runs here whose cpuset could be one.
        assert_eq!(effect.exclusive, rule.effects.exclusive && !effect.allocated);
        if effect.exclusive {
            let mask = &compiled.masks[&MaskIndex::rule(index)];
            assert_eq!(Some(mask), rule.effects.cpus.as_ref().and_then(Cpus::list));
            let pool = compiled.cpu_pool[mask.iter().next().unwrap() as usize];
            assert_eq!(mask.len(), usize::from(compiled.pool_cpus[usize::from(pool)]));
        }
    }
    let all = || compiled.dfas.iter().flatten();
    assert!(all().count() <= Limits::DFAS);
    assert!(all().map(|dfa| dfa.accept.len()).sum::<usize>() <= Limits::STATES);
    assert!(all().map(|dfa| dfa.trans.len()).sum::<usize>() <= Limits::TRANS);
    all().for_each(check_dfa);
    check_patterns(policy, compiled);
}

/// The kernel's walk stays within the tables.
fn check_dfa(dfa: &Dfa) {
    let states = dfa.accept.len();
    assert_eq!(dfa.trans.len(), states * usize::from(dfa.stride));
    assert!(usize::from(dfa.start) < states);
    assert!(dfa.trans.iter().all(|&state| usize::from(state) < states));
    assert!(dfa.class.iter().all(|&class| u16::from(class) < dfa.stride - 1));
}

/// The tables find what another implementation of regular expressions finds.
fn check_patterns(policy: &Policy, compiled: &Compiled) {
    let of = |condition, rule: &Rule| match condition {
        Condition::Comm => rule.conditions.command_regex.clone(),
        _ => rule.conditions.threads.clone(),
    };
    for condition in [Condition::Comm, Condition::Thread] {
        for (index, rule) in policy.rules.iter().enumerate().take(4) {
            let Some(pattern) = of(condition, rule) else { continue };
            let search = regex::bytes::RegexBuilder::new(&pattern).unicode(false).build();
            let Ok(search) = search else { continue };
            for name in ["", "nr-gnb", "kworker/1:0-mm_", &rule.name] {
                let name = &name.as_bytes()[..name.len().min(15)];
                let dfas = &compiled.dfas[condition as usize];
                let found = dfas.iter().fold(0, |set, dfa| set | dfa.find(name));
                assert_eq!(found >> index & 1 == 1, search.is_match(name), "{pattern:?}");
            }
        }
    }
}

/// Four CPUs on two last-level caches, and a fifth that is offline.
fn topology() -> Topology {
    Topology {
        possible: (0..5).collect(),
        online: (0..4).collect(),
        llc: vec![0, 0, 1, 1, 0],
        sibling: vec![1, 0, 3, 2, 4],
        node: vec![0, 0, 0, 0, -1],
        tickless: Default::default(),
    }
}

fn pods() -> [Pod; 3] {
    let pod = |uid: &str, name: &str, namespace: &str, app: &str| Pod {
        uid: uid.into(),
        namespace: namespace.into(),
        name: name.into(),
        labels: [("app".into(), app.into())].into(),
        networks: None,
    };
    [
        pod("6a7c2f0e-0000-4000-8000-0123456789ab", "upf-0", "core", "upf"),
        pod("6a7c2f0e-0000-4000-8000-0123456789ac", "smf-0", "core", "smf"),
        pod("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "proxy", "kube-system", ""),
    ]
}
