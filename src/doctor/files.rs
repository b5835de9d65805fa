//! The config file, the policy that it names, and the servers that both ask for.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::finding::Finding;
use crate::base::error::{Error, Result};
use crate::base::ownership;
use crate::daemon::config::Config;
use crate::decision_maker::{Settings, StrategyWatch};
use crate::pods::{PodSettings, PodWatch};
use crate::policy::Policy;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is found in the config file at `path`.
pub fn findings(path: &Path) -> Vec<Finding> {
    const CHECK: &str = "config";
    let (config, notes) = match Config::load(path) {
        Ok(loaded) => loaded,
        Err(e) => return vec![wrong(CHECK, &e)],
    };
    let notes = notes.into_iter().chain(ownership::note(path));
    let mut findings: Vec<Finding> = notes.map(|note| Finding::note(CHECK, note)).collect();
    findings.push(Finding::ok(CHECK, format!("{} can be read", path.display())));
    let (of_policy, asks_for_pods) = policy(config.policy.as_deref());
    findings.extend(of_policy);
    findings.extend(config.api.map(|settings| api(settings, PATIENCE)));
    if asks_for_pods || config.kubeconfig.is_some() {
        let settings = PodSettings { kubeconfig: config.kubeconfig, node: None };
        findings.push(kubernetes(settings, PATIENCE));
    }
    findings
}

/// The policy file, and whether its rules ask for pods.
fn policy(path: Option<&Path>) -> (Vec<Finding>, bool) {
    const CHECK: &str = "policy";
    let Some(path) = path else {
        return (vec![Finding::ok(CHECK, "the config file names none")], false);
    };
    match Policy::load(path) {
        Err(e) => (vec![wrong(CHECK, &e)], false),
        Ok((policy, notes)) => {
            let notes = notes.into_iter().chain(ownership::note(path));
            let mut findings: Vec<Finding> = notes.map(|note| Finding::note(CHECK, note)).collect();
            findings.push(Finding::ok(CHECK, format!("{} can be read", path.display())));
            (findings, policy.rules.iter().any(|rule| rule.conditions.of_pods()))
        }
    }
}

fn wrong(check: &'static str, e: &Error) -> Finding {
    Finding::error(check, e.to_string()).fix("correct what the line and the key name")
}

/// Whether Gthulhu's decision maker answers. `gthctl run` goes on asking one that does not.
fn api(settings: Settings, patience: Duration) -> Finding {
    const CHECK: &str = "api";
    let url = settings.url.clone();
    let told = StrategyWatch::start(settings).and_then(|watch| {
        wait(&watch, patience, || {
            let state = watch.state();
            state.problem.map(Err).or(state.rules.map(|rules| Ok(rules.len())))
        })
    });
    match told {
        Ok(rules) => Finding::ok(CHECK, format!("{url} answers; strategies: {rules}")),
        Err(e) => {
            let fix = e.help.unwrap_or_else(|| "start the server, or correct api.url".into());
            Finding::warning(CHECK, e.what).fix(fix)
        }
    }
}

/// Whether the Kubernetes API lists this node's pods.
fn kubernetes(settings: PodSettings, patience: Duration) -> Finding {
    const CHECK: &str = "kubernetes";
    let told = PodWatch::start(settings).and_then(|watch| {
        wait(&watch, patience, || {
            let state = watch.state();
            let problem = state.problem.map(|problem| Err(Error::failure(problem)));
            problem.or(state.pods.map(|pods| Ok(pods.len())))
        })
    });
    match told {
        Ok(pods) => Finding::ok(CHECK, format!("the API answers; pods of this node: {pods}")),
        Err(e) => Finding::warning(CHECK, format!("rules about pods match nothing: {}", e.what))
            .fix("see monitor.kubeconfig_path in gthctl-config(5)"),
    }
}

/// Waits until `known` has something, whenever the descriptor of `watch` is readable.
fn wait<T>(
    watch: &impl AsFd,
    patience: Duration,
    mut known: impl FnMut() -> Option<Result<T>>,
) -> Result<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(known) = known() {
            return known;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::failure(format!("no answer within {patience:?}")));
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).map_err(|e| Error::failure(format!("poll: {e}")))?;
    }
}
