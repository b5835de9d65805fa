//! Rules about Kubernetes pods: a small API server reports pods, and tasks run in
//! cgroups that are named as the kubelet names them.

#[path = "../../../src/pods/test_api_server.rs"]
#[allow(dead_code)]
pub mod test_api;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use self::test_api::TestApi;
use crate::support::cgroup::{enter, take_out};
use crate::support::gthctl::{self, Gthctl, notes, policy, report};
use crate::support::kernel::{self, runs_elsewhere, runs_on};
use crate::support::task::Task;
use crate::support::test_server;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const CGROUPS: &str = "/sys/fs/cgroup";
/// The watch tries again after some seconds.
const RETRIED: Duration = Duration::from_secs(30);
/// A container's id.
pub const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// The uid by which the kubelet knows the static pod.
pub const STATIC: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

/// A spinner in a cgroup of its own, which is removed after it.
pub struct Contained {
    task: Option<Task>,
    cgroup: PathBuf,
}

impl Contained {
    pub fn new(cgroup: &str) -> Self {
        let cgroup = PathBuf::from(format!("{CGROUPS}/{cgroup}"));
        fs::create_dir_all(&cgroup).unwrap();
        let task = Task::spinner("contained");
        enter(&cgroup, task.pid);
        Self { task: Some(task), cgroup }
    }

    pub fn pid(&self) -> i32 {
        self.task.as_ref().unwrap().pid
    }

    pub fn is_hot(&self) -> bool {
        runs_on(self.pid(), 1)
    }

    pub fn is_cold(&self) -> bool {
        runs_elsewhere(self.pid(), 1)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        self.task = None;
        for dir in self.cgroup.ancestors().take_while(|dir| *dir != CGROUPS) {
            // A cgroup that others use stays until they go.
            let _ = fs::remove_dir(dir);
        }
    }
}

#[test]
fn pods_come_change_and_go() {
    let mut api = TestApi::new("127.0.0.1");
    let files = gthctl::files(
        "monitor: {kubeconfig_path: kubeconfig}",
        "strategies:
- name: of-pods
  selectors: [{key: app, value: 5g}, {key: tier, value: fast}]
  k8s_namespace: [default, core]
  cpus: 1
  exclusive: true
- {name: plain, command_regex: ^plain$, cpus: 2, exclusive: true}",
    );
    let kubeconfig = test_api::kubeconfig(&format!("http://{}", api.addr));
    fs::write(files.path().join("kubeconfig"), kubeconfig).unwrap();

    // Nobody answers yet: one line names the rule, and the other rule is in force.
    let gthctl = Gthctl::start_on(files, &[]);
    // The kubelet's systemd driver, its cgroupfs driver, a static pod.
    let gnb = Contained::new(&format!(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_gnb.slice/cri-containerd-{ID}.scope"
    ));
    let upf = Contained::new(&format!("kubepods/besteffort/poduid-upf/{ID}"));
    let fixed = Contained::new(&format!("kubepods/burstable/pod{STATIC}/{ID}"));
    let other = Contained::new(&format!("kubepods/besteffort/poduid-upf2/{ID}"));
    let plain = Task::spinner("plain");
    let everybody = [&gnb, &upf, &fixed, &other];
    let refused = format!("Kubernetes API at http://{}", api.addr);
    assert!(gthctl.says(&refused, 1), "{}", gthctl.stderr());
    assert!(runs_on(plain.pid, 2));
    assert!(everybody.iter().all(|pod| pod.is_cold()));
    let status = report(&["status"]);
    let known = status["kubernetes"].as_str().unwrap();
    assert!(known.starts_with(&refused) && known.contains("refused"), "{known}");
    let told = notes(&status);
    assert_eq!(told.len(), 1, "{status}");
    assert!(told[0].contains("policy.yaml:2:3: of-pods: Kubernetes API at "), "{told:?}");
    assert_eq!(gthctl.has_said(&told[0]), 1);
    let why = || {
        let explained = report(&["explain", &other.pid().to_string()]);
        explained["rules"][0]["conditions"][0].clone()
    };
    let unreached = why();
    assert_eq!(unreached["holds"], false);
    assert!(unreached["why"].as_str().unwrap().starts_with(&refused), "{unreached}");

    let fast = r#","labels":{"app":"5g","tier":"fast"}"#;
    let slow = r#","labels":{"app":"5g","tier":"slow"}"#;
    let in_core = format!(
        r#"{fast},"annotations":{{"kubernetes.io/config.hash":"{STATIC}","kubernetes.io/config.mirror":"{STATIC}"}}"#
    );
    api.put("gnb", fast, "Running");
    api.put("upf", slow, "Running");
    // Forked before the server starts, it does not inherit the server's socket.
    let moved = Task::spinner("moved");
    api.start();
    assert!(kernel::wait(RETRIED, || report(&["status"])["kubernetes"] == "2 pods"));
    assert!(gnb.is_hot() && upf.is_cold() && fixed.is_cold() && other.is_cold());
    assert_eq!(notes(&report(&["status"])), [""; 0]);
    let unselected = why();
    assert_eq!((&unselected["holds"], unselected.get("why")), (&false.into(), None));
    // Another label, a new pod, one with another namespace.
    api.put("upf", fast, "Running");
    assert!(upf.is_hot() && other.is_cold());
    api.put("fixed", &in_core, "Running");
    assert!(fixed.is_hot());
    let tasks = |rule: usize| report(&["show"])["rules"][rule]["tasks"].clone();
    assert_eq!((tasks(0), tasks(1)), (3.into(), 1.into()));
    let listed = report(&["show", "--tasks"])["tasks"].clone();
    let of_fixed = listed.as_array().unwrap().iter().find(|task| task["tid"] == fixed.pid());
    assert_eq!(of_fixed.unwrap()["pod"], "default/fixed", "{listed}");
    let why = report(&["explain", &fixed.pid().to_string()]);
    assert_eq!((&why["rule"], &why["rules"][0]["matches"]), (&"of-pods".into(), &true.into()));
    // A label that goes, a pod that ends, one that is deleted.
    api.put("gnb", slow, "Running");
    assert!(gnb.is_cold());
    api.put("upf", fast, "Succeeded");
    assert!(upf.is_cold());
    api.delete("fixed");
    assert!(fixed.is_cold());
    assert_eq!((tasks(0), tasks(1)), (0.into(), 1.into()));
    // A task that enters a pod's cgroup, and one that is forked there.
    api.put("gnb", fast, "Running");
    assert!(gnb.is_hot());
    assert!(runs_elsewhere(moved.pid, 1));
    enter(&gnb.cgroup, moved.pid);
    assert!(runs_on(moved.pid, 1));
    take_out(moved.pid);
    assert!(runs_elsewhere(moved.pid, 1));

    // gthctl keeps what it knew when the API server goes.
    api.stop();
    let known = || report(&["status"])["kubernetes"].as_str().unwrap().to_owned();
    let gone = "1 pod; Kubernetes API at ";
    assert!(kernel::wait(RETRIED, || known().starts_with(gone)), "{}", known());
    assert!(gnb.is_hot() && upf.is_cold() && runs_on(plain.pid, 2));
    let table = policy(&["status"]).stdout;
    assert!(table.contains(gone), "{table}");
    gthctl.stop();
}
