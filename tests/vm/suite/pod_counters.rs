//! What gthctl counts for each pod, compared with what the kernel counts for the pod's only task.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::kubernetes::test_api::{TestApi, kubeconfig};
use crate::rule_counters::{in_status, rises, times};
use crate::support::cgroup::Cgroup;
use crate::support::gthctl::{self, Gthctl, report};
use crate::support::kernel;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const SOON: Duration = Duration::from_secs(30);
const ADDRESS: &str = "127.0.0.1:9464";
/// The uids by which the kubelet knows two static pods.
const UPF: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";
const LOAD: &str = "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e";

/// The metadata that makes a pod a static one with this uid.
fn of_static(uid: &str) -> String {
    let key = "kubernetes.io/config";
    format!(r#","annotations":{{"{key}.hash":"{uid}","{key}.mirror":"{uid}"}}"#)
}

fn text() -> String {
    let args = ["metrics", "--metrics-compat", "gthulhu"];
    let output = gthctl::output(Command::new(gthctl::binary()).args(args));
    assert_eq!((output.code(), &*output.stderr), (0, ""));
    output.stdout
}

/// The value of a pod's metric, with `labels` after the pod's own.
fn find(pod: &str, name: &str, labels: &str) -> Option<f64> {
    let ours = format!("gthctl_pod_{name}{{namespace=\"default\",pod=\"{pod}\",uid=\"");
    let gthulhus = format!("gthulhu_pod_{name}{{pod_name=\"{pod}\",pod_uid=\"");
    text().lines().find_map(|line| {
        let rest = line.strip_prefix(&ours).or_else(|| line.strip_prefix(&gthulhus))?;
        let (_uid, rest) = rest.split_once('"')?;
        rest.strip_prefix(labels)?.strip_prefix("} ")?.parse().ok()
    })
}

#[track_caller]
fn value(pod: &str, name: &str, labels: &str) -> f64 {
    find(pod, name, labels).unwrap_or_else(|| panic!("no {name} of {pod} in\n{}", text()))
}

#[test]
fn a_pods_tasks_count_from_its_container_on() {
    let mut api = TestApi::new("127.0.0.1");
    let files = gthctl::files("monitor: {kubeconfig_path: kubeconfig}", "strategies: []");
    let at = kubeconfig(&format!("http://{}", api.addr));
    fs::write(files.path().join("kubeconfig"), at).unwrap();
    api.put("upf", &of_static(UPF), "Running");
    api.put("load", &of_static(LOAD), "Running");
    api.start();

    let _top = Cgroup::with("kubepods", &[]);
    let upf = Cgroup::with(&format!("kubepods/pod{UPF}"), &[]);
    let gthctl = Gthctl::start_on(files, &["--metrics", ADDRESS, "--metrics-compat", "gthulhu"]);
    assert!(kernel::wait(SOON, || report(&["status"])["kubernetes"] == "2 pods"));
    assert!(kernel::wait(SOON, || find("upf", "tasks", "") == Some(0.0)), "{}", gthctl.stderr());
    // A pod whose cgroup does not exist does not count.
    assert_eq!(find("load", "tasks", ""), None);

    // A container that comes later, in a cgroup on a deeper level.
    let mut container = Cgroup::with(&format!("kubepods/pod{UPF}/container"), &[]);
    let wakes = task::wake_often(1_000_000);
    container.add(Task::start_in_cgroup("upf", &container.file(), wakes));
    let pid = container.tasks()[0].pid;
    let gthulhus = format!(",namespace=\"default\",node_name=\"{}\"", node());
    for (name, labels) in
        [("switches_total", ",kind=\"voluntary\""), ("voluntary_ctx_switches_total", &gthulhus)]
    {
        let counted = || value("upf", name, labels);
        let (counted, slept) = rises(300.0, counted, || in_status(pid, "voluntary_ctxt_switches"));
        let slept = slept.start() - 1.0..=slept.end() + 1.0;
        assert!(slept.contains(&counted), "{name}: {counted} of {slept:?}");
    }
    assert_eq!(value("upf", "tasks", ""), 1.0);

    // A pod that exists before gthctl looks, and a user's cgroup with a name like the pod's.
    let load = Cgroup::with(&format!("kubepods/pod{LOAD}"), &[]).and_spinners(1);
    let user = Cgroup::with("someone", &[]);
    let forged = Cgroup::with(&format!("someone/pod{LOAD}"), &[]).and_spinners(1);
    assert!(kernel::wait(SOON, || find("load", "tasks", "") == Some(1.0)), "{}", text());
    let spinner = load.tasks()[0].pid;
    let ran = || value("load", "run_seconds_total", "");
    let (counted, truth) = rises(2.0, ran, || times(spinner)[0]);
    let truth = truth.start() - 0.2..=truth.end() + 0.2;
    assert!(truth.contains(&counted), "{counted} of {truth:?}");

    drop((forged, user));
    // A task that moves counts for the pod where it is.
    container.take(spinner);
    assert_eq!((value("upf", "tasks", ""), value("load", "tasks", "")), (2.0, 0.0));
    let before = ran();
    let (counted, _) = rises(1.0, || value("upf", "run_seconds_total", ""), || times(spinner)[0]);
    assert!(counted > 10.0 * (ran() - before), "{counted}, {} there", ran() - before);

    api.delete("load");
    assert!(kernel::wait(SOON, || find("load", "tasks", "").is_none()), "{}", text());
    gthctl.stop();
    drop((container, upf, load));
}

/// How gthctl names the node if nothing else does.
fn node() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_lowercase()
}
