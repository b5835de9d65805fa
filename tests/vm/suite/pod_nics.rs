//! Policies that place the interrupts of pods' NICs: `irq` with `selectors`. A small API server
//! reports a pod; its networks are in a network namespace as the CNI plugins make them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use crate::kubernetes::test_api::{self, TestApi};
use crate::kubernetes::{ID, STATIC};
use crate::support::cgroup::{Cgroups, enter};
use crate::support::gthctl::{self, Gthctl, notes, policy, report};
use crate::support::kernel;
use crate::support::nic::{self, Pair, Restore, affinities, affinity, ip, irq_of, on, taken};
use crate::support::plane::succeeds;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

/// How long something may take: the watch of pods tries again after some seconds, and gthctl looks
/// for what is missing after 1, 2, 4, 8 and 16 s.
const SOON: Duration = Duration::from_secs(40);

/// A network namespace with a process in the cgroup of a static pod.
struct Pod {
    sandbox: Child,
    _cgroups: Cgroups,
}

impl Pod {
    /// `devices` are iproute2 commands that make the pod's devices.
    fn new(devices: &[&str]) -> Self {
        ip(&["netns add upf"]);
        ip(devices);
        let netns = File::open("/run/netns/upf").unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        // SAFETY: one system call.
        unsafe { command.pre_exec(move || Ok(setns(&netns, CloneFlags::CLONE_NEWNET)?)) };
        let sandbox = command.spawn().unwrap();
        let mut cgroups = Cgroups::default();
        let cgroup = cgroups.make(&format!("kubepods/burstable/pod{STATIC}/{ID}"));
        enter(&cgroup, sandbox.id() as i32);
        Self { sandbox, _cgroups: cgroups }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.sandbox.kill();
        let _ = self.sandbox.wait();
        let _ = Command::new("ip").args(["netns", "del", "upf"]).status();
    }
}

/// Tells the API server about the pod, with this annotation about its networks.
fn tell(api: &TestApi, networks: &str) {
    let annotations = json!({
        "kubernetes.io/config.hash": STATIC,
        "kubernetes.io/config.mirror": STATIC,
        "k8s.v1.cni.cncf.io/network-status": networks,
    });
    let metadata = format!(r#","labels":{{"app":"upf"}},"annotations":{annotations}"#);
    api.put("upf", &metadata, "Running");
}

/// A network as Multus reports it.
fn network(name: &str, interface: &str) -> String {
    json!([
        {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": true, "dns": {}},
        {"name": name, "interface": interface, "mac": "02:00:00:00:00:03", "dns": {}},
    ])
    .to_string()
}

fn start(api: &mut TestApi, policy: &str) -> Gthctl {
    let files = gthctl::files("monitor: {kubeconfig_path: kubeconfig}", policy);
    let kubeconfig = test_api::kubeconfig(&format!("http://{}", api.addr));
    fs::write(files.path().join("kubeconfig"), kubeconfig).unwrap();
    api.start();
    Gthctl::start_on(files, &[])
}

/// What the status says about the only NIC of a pod.
fn known() -> Value {
    report(&["status"])["pod_nics"][0].clone()
}

/// Waits until only this is missing; one note must say so.
#[track_caller]
fn misses(what: &str) {
    let missing = || known()["missing"].clone();
    assert!(kernel::wait(SOON, || missing() == json!([what])), "{what}: {}", known());
    let told = notes(&report(&["status"]));
    assert!(told.len() == 1 && told[0].ends_with(what), "{told:?}");
}

#[track_caller]
fn becomes(nic: &str, wanted: &BTreeMap<u32, String>) {
    let done = kernel::wait(SOON, || affinities(nic) == *wanted);
    assert!(done, "{nic}: {:?}\n{}", affinities(nic), known());
}

const POLICY: &str = "irq: {selectors: [{key: app, value: upf}], nic: n3, cpus: 2}";

#[test]
fn a_nic_that_was_moved_into_the_pod_and_the_parent_of_a_macvlan() {
    let _restore = Restore;
    let irqs: Vec<u32> = affinities("eth2").into_keys().collect();
    let cpus = || irqs.iter().map(|&irq| affinity(irq)).collect::<Vec<_>>();
    let before = cpus();
    let eth1 = affinities("eth1");
    let function = fs::canonicalize("/sys/class/net/eth2/device").unwrap();
    let function = function.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let pod = Pod::new(&["link set eth2 netns upf"]);
    let mut api = TestApi::new("127.0.0.1");
    tell(&api, &network("core/n6", "eth2"));
    let gthctl = start(&mut api, "irq: {k8s_namespace: default, nic: n6, cpus: 3, rps: off}");
    let placed = kernel::wait(SOON, || cpus().iter().all(|cpus| cpus == "3"));
    assert!(placed, "{:?}\n{}", cpus(), gthctl.stderr());
    assert_eq!(known()["found"], json!([format!("eth2 is the PCI function {function}")]));
    assert_eq!(affinities("eth1"), eth1);
    // gthctl knows the NIC by its PCI address, as it has no name in this namespace.
    let list = nic::report(&["list", &function]);
    let listed = list["nics"][0]["irqs"].as_array().unwrap().iter();
    assert!(listed.map(|irq| irq["irq"].as_u64().unwrap() as u32).eq(irqs.iter().copied()));
    assert!(nic::irq(&["drift"]).stdout.contains(&function));
    api.delete("upf");
    assert!(kernel::wait(SOON, || cpus() == before), "{:?}\n{}", cpus(), gthctl.stderr());
    drop(pod);
    // When the namespace is gone, the device comes back.
    assert!(kernel::wait(SOON, || fs::exists("/sys/class/net/eth2").unwrap()));
    the_parent_of_a_macvlan_while_the_pod_is_there(gthctl, &api);
}

fn the_parent_of_a_macvlan_while_the_pod_is_there(gthctl: Gthctl, api: &TestApi) {
    let pair = Pair::up();
    let input = irq_of("eth1", "input.0");
    let before = affinities("eth1");
    let placed: BTreeMap<u32, String> = before.keys().map(|&irq| (irq, "2".into())).collect();
    gthctl.replace(POLICY);
    assert!(gthctl.says("interrupts of n3 of pods on CPUs 2", 1), "{}", gthctl.stderr());
    misses("no pod of this node has these labels and namespaces");
    api.put("upf", r#","labels":{"app":"upf"}"#, "Pending");
    misses("it has no annotation about its networks");
    tell(api, &network("core/n3", "net1"));
    misses("none of its processes is running");
    assert_eq!(affinities("eth1"), before);

    let pod = Pod::new(&[
        "link add net1 link eth1 netns upf type macvlan mode bridge",
        "-n upf addr add 10.44.0.3/24 dev net1",
        "-n upf link set net1 up",
    ]);
    becomes("eth1", &placed);
    let found = json!({
        "pod": "default/upf", "nic": "n3", "found": ["net1 (macvlan) leads to eth1"],
        "devices": ["eth1"], "missing": [],
    });
    assert_eq!((known(), notes(&report(&["status"]))), (found, vec![]));
    let how = "n3 of default/upf: net1 (macvlan) leads to eth1";
    assert!(gthctl.says(&format!("gthctl: {how}\n"), 1), "{}", gthctl.stderr());
    let pid = pod.sandbox.id().to_string();
    assert_eq!(
        report(&["explain", &pid])["notes"],
        json!([format!("{how}: interrupts on CPUs 2")])
    );
    let table = policy(&["status"]).stdout;
    assert!(table.contains("| net1 (macvlan) leads to eth1"), "{table}");
    // The pod's own traffic comes in there.
    let ping = "netns exec upf ping -q -i 0.005 -W 5 -c 100 10.44.0.2";
    let counts = taken(input, || drop(succeeds(Command::new("ip").args(ping.split(' ')))));
    assert!(on(&counts, 2), "{counts:?}");

    // An annotation that is not JSON changes nothing, and one line says so.
    tell(api, "[{");
    let why = "the annotation about its networks cannot be read: ";
    assert!(kernel::wait(SOON, || notes(&report(&["status"])).concat().contains(why)));
    assert_eq!((gthctl.has_said(why), &affinities("eth1")), (1, &placed));
    // Another network, and the first one again.
    tell(api, &network("core/n6", "net1"));
    misses("n3 is none of its networks (cbr0, core/n6)");
    becomes("eth1", &before);
    tell(api, &network("core/n3", "net1"));
    becomes("eth1", &placed);
    // A device that goes and comes in the pod.
    ip(&["-n upf link del net1"]);
    becomes("eth1", &before);
    ip(&["link add net1 link eth1 netns upf type macvlan"]);
    becomes("eth1", &placed);

    api.delete("upf");
    becomes("eth1", &before);
    tell(api, &network("core/n3", "net1"));
    becomes("eth1", &placed);
    gthctl.stop();
    assert_eq!(affinities("eth1"), before);
    drop((pod, pair));
}
