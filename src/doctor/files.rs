//! The config file, the policy that it names, and the servers that both ask for.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::base::error::{Error, Result};
use crate::base::finding::{Finding, Level};
use crate::base::ownership;
use crate::base::yaml::Source;
use crate::daemon::config::Config;
use crate::daemon::live::{self, PolicyContext};
use crate::decision_maker::{Settings, StrategyWatch};
use crate::kernel::topology::{self, Topology};
use crate::pods::{PodSettings, PodWatch};
use crate::policy::Policy;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is found in the config file at `path`.
pub fn findings(path: &Path) -> Vec<Finding> {
    const CHECK: &str = "config";
    let (config, notes) = match Config::load(path) {
        Ok(loaded) => loaded,
        Err(e) => return vec![Finding::of(CHECK, Level::Error, &e)],
    };
    let notes = notes.into_iter().chain(ownership::note(path));
    let mut findings: Vec<Finding> = notes.map(|note| Finding::note(CHECK, note)).collect();
    findings.push(Finding::ok(CHECK, format!("{} can be read", path.display())));
    let (of_policy, asks_for_pods) = policy(&config);
    findings.extend(of_policy);
    findings.extend(config.api.map(|settings| api(settings, PATIENCE)));
    if asks_for_pods || config.kubeconfig.is_some() {
        let settings = PodSettings { kubeconfig: config.kubeconfig, node: None };
        findings.push(kubernetes(settings, PATIENCE));
    }
    findings
}

/// The policy file, and whether it asks for pods.
fn policy(config: &Config) -> (Vec<Finding>, bool) {
    const CHECK: &str = "policy";
    let Some(path) = config.policy.as_deref() else {
        return (vec![Finding::ok(CHECK, "the config file names none")], false);
    };
    match Policy::load(path) {
        Err(e) => (mistakes(CHECK, &e), false),
        Ok((policy, notes)) => {
            let (notes, outcome) = match check_rules(path, config) {
                Ok(all) => {
                    let valid = format!("{} is valid on this machine", path.display());
                    (all, vec![Finding::ok(CHECK, valid)])
                }
                Err(e) => (notes, mistakes(CHECK, &e)),
            };
            let notes = notes.into_iter().chain(ownership::note(path));
            let notes = notes.map(|note| Finding::note(CHECK, note));
            (notes.chain(outcome).collect(), policy.of_pods())
        }
    }
}

/// A finding for each of the mistakes that were found together.
fn mistakes(check: &'static str, all: &Error) -> Vec<Finding> {
    all.all().map(|e| Finding::of(check, Level::Error, e)).collect()
}

/// The notes on the policy for this machine. Fails if `gthctl run` refuses the policy, whatever
/// pods there are.
fn check_rules(path: &Path, config: &Config) -> Result<Vec<String>> {
    let text = Source::new(path).read("policy file")?;
    let topology = Topology::read(Path::new(topology::SYSFS))?;
    let (slice_ns, kubelets) = (config.slice_ns_default, &config.kubelet_cgroup_roots);
    let context = PolicyContext::of_file(&topology, slice_ns, kubelets);
    live::check_rules(path, text, &context)
}

/// Whether Gthulhu's decision maker answers. If it does not, `gthctl run` keeps asking.
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
        Err(e) if e.help.is_some() => Finding::of(CHECK, Level::Warning, &e),
        Err(e) => Finding::warning(CHECK, e.what).fix("start the server, or correct api.url"),
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
        Err(e) => Finding::warning(
            CHECK,
            format!("rules and irq entries about pods match nothing: {}", e.what),
        )
        .fix("see monitor.kubeconfig_path in gthctl-config(5)"),
    }
}

/// Waits until `known` returns something. Calls it again whenever the descriptor of `watch` is
/// readable.
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
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(Error::failure(format!("poll: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::eventfd::EventFd;

    use super::*;

    /// The level and the text of each finding about a config file with the policy beside it.
    fn found(config: &str, policy: &str) -> Vec<(&'static str, Level, String)> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("c.yaml"), config).unwrap();
        fs::write(dir.path().join("p.yaml"), policy).unwrap();
        let findings = findings(&dir.path().join("c.yaml"));
        // Whether others may write to the directory for temporary files depends on the machine.
        let of_file = findings.into_iter().filter(|finding| !finding.what.contains("can change"));
        of_file.map(|finding| (finding.check, finding.level, finding.what)).collect()
    }

    #[test]
    fn good_files_and_bad_ones() {
        let good = found("policy: p.yaml\n", "strategies: []\n");
        let levels: Vec<_> = good.iter().map(|(check, level, _)| (*check, *level)).collect();
        assert_eq!(levels, [("config", Level::Ok), ("policy", Level::Ok)]);
        let bad = found("policy: p.yaml\n", "strategies: [{pid: 0x}]\n");
        assert_eq!((bad[1].0, bad[1].1), ("policy", Level::Error));
        assert!(bad[1].2.contains("p.yaml:1:"), "{bad:?}");
        let bad = found("policy: p.yaml\n", "strategies: [{command_regex: a, cpus: 9999}]\n");
        assert!(bad[1].1 == Level::Error && bad[1].2.contains("p.yaml:1:"), "{bad:?}");
        let noted = found("early_processing: true\n", "");
        assert!(noted[0].1 == Level::Note && noted[0].2.contains("has no effect"), "{noted:?}");
        let bad = found("debgu: true\n", "");
        assert_eq!((bad.len(), bad[0].1), (1, Level::Error));
    }

    #[test]
    fn each_mistake_and_each_note_of_the_policy_is_a_finding() {
        let two = "strategies: [{command_regex: a, cpus: 9999}, {command_regex: b, cpus: 9998}]\n";
        let bad = found("policy: p.yaml\n", two);
        let errors = bad.iter().filter(|(_, level, _)| *level == Level::Error);
        assert_eq!(errors.count(), 2, "{bad:?}");
        let noted = found("policy: p.yaml\n", "strategies: [{command_regex: a, priority: 1}]\n");
        let levels: Vec<Level> = noted.iter().map(|(_, level, _)| *level).collect();
        assert_eq!(levels, [Level::Ok, Level::Note, Level::Ok], "{noted:?}");
        assert!(noted[1].2.contains("any user can name a task"), "{noted:?}");
    }

    /// As `gthctl run` does.
    #[test]
    fn the_api_is_asked_for_the_nics_of_pods_too() {
        let labels = "selectors: [{key: app, value: upf}]";
        let policy = format!("irq: [{{nic: n6, cpus: 1, {labels}}}]\n");
        let found = found("policy: p.yaml\n", &policy);
        assert!(found.iter().any(|(check, ..)| *check == "kubernetes"), "{found:?}");
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_long() {
        let silent = EventFd::new().unwrap();
        let none = || None::<Result<()>>;
        let e = wait(&silent, Duration::from_millis(50), none).unwrap_err();
        assert_eq!(e.what, "no answer within 50ms");
        let mut left = 2;
        let later = || {
            left -= 1;
            (left == 0).then_some(Ok(7))
        };
        silent.write(1).unwrap();
        assert_eq!(wait(&silent, PATIENCE, later).unwrap(), 7);
    }
}
