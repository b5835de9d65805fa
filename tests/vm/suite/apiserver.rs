//! Rules about pods with the real API server, etcd and kubectl (tests/vm/test-kubernetes), and what
//! deploy/ makes of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::kubernetes::{Contained, ID};
use crate::support::cluster::{Cluster, HOST, KUBELET, NODE, PORT, kustomized, pod};
use crate::support::gthctl::{self, Gthctl, replace_file, report, status};
use crate::support::kernel;
use crate::support::task::set_nice;

/// gthctl's retries come after up to a minute.
const RETRIED: Duration = Duration::from_secs(180);
const POLICY: &str = "strategies:
- name: of-pods
  selectors: [{key: app, value: 5g}]
  k8s_namespace: default
  cpus: 1
  exclusive: true";

fn labels() -> Value {
    json!({"app": "5g"})
}

/// gthctl with a kubelet's credentials for the cluster.
fn start(cluster: &Cluster) -> Gthctl {
    let files = gthctl::files(
        &format!("monitor: {{kubeconfig_path: {}}}", cluster.path("kubeconfig").display()),
        POLICY,
    );
    fs::write(cluster.path("token"), KUBELET).unwrap();
    cluster.write_kubeconfig(
        &cluster.path("kubeconfig"),
        &cluster.path("ca.crt"),
        &cluster.path("token"),
    );
    let mut command = gthctl::command(&files, &[]);
    command.env("NODE_NAME", NODE);
    Gthctl::spawn(files, command)
}

fn trust(cluster: &Cluster) {
    fs::copy(cluster.ca(), cluster.path("ca.crt")).unwrap();
}

/// What gthctl knows about Kubernetes.
fn known() -> String {
    status().and_then(|status| status.kubernetes).unwrap_or_default()
}

#[track_caller]
fn comes_to_know(what: &str) {
    assert!(kernel::wait(RETRIED, || known() == what), "{what:?} expected, not {}", known());
}

#[track_caller]
fn comes_to_say(what: &str) {
    assert!(kernel::wait(RETRIED, || known().contains(what)), "{what:?} expected in {}", known());
}

/// A cgroup of a pod's container for each cgroup driver of the kubelet and container runtime.
fn cgroups(uids: &[String; 4]) -> [String; 4] {
    let [systemd, cgroupfs, crio_systemd, crio_cgroupfs] = uids;
    let escaped = |uid: &str| uid.replace('-', "_");
    [
        format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{ID}.scope",
            escaped(systemd)
        ),
        format!("kubepods/besteffort/pod{cgroupfs}/{ID}"),
        format!(
            "kubepods.slice/kubepods-pod{}.slice/crio-{ID}.scope/container",
            escaped(crio_systemd)
        ),
        format!("kubepods/burstable/pod{crio_cgroupfs}/crio-{ID}"),
    ]
}

#[test]
fn pods_come_change_and_go() {
    let mut cluster = Cluster::new();
    cluster.serve("first");
    trust(&cluster);
    let names = ["systemd", "cgroupfs", "crio-systemd", "crio-cgroupfs"];
    cluster.create(&names.map(|name| pod(name, NODE, labels())));
    cluster.create(&[pod("elsewhere", "node-2", labels()), pod("other", NODE, json!({}))]);
    let of = cgroups(&names.map(|name| cluster.uid(name))).map(|cgroup| Contained::new(&cgroup));
    let elsewhere =
        Contained::new(&format!("kubepods/besteffort/pod{}/{ID}", cluster.uid("elsewhere")));
    // They spin; the API server takes precedence.
    of.iter().chain([&elsewhere]).for_each(|contained| set_nice(contained.pid(), 19));

    // The API server cannot be reached yet.
    cluster.stop(Signal::SIGKILL);
    let gthctl = start(&cluster);
    comes_to_say(&format!("Kubernetes API at https://{HOST}:{PORT}"));
    let explained = || report(&["explain", &of[0].pid().to_string()]);
    let why = explained()["rules"][0]["conditions"][0]["why"].clone();
    assert!(why.as_str().unwrap().contains(HOST), "{why}");
    println!("not reached: {why}");
    assert!(of.iter().all(Contained::is_cold));

    cluster.serve("first");
    comes_to_know("5 pods");
    assert!(of.iter().all(Contained::is_hot) && elsewhere.is_cold());
    cluster.says(&["label", "pod", names[0], names[2], "app=other", "--overwrite"]);
    assert!(of[0].is_cold() && of[2].is_cold() && of[1].is_hot() && of[3].is_hot());
    let explained = explained();
    assert_eq!(explained["rules"][0]["conditions"][0].get("why"), None, "{explained}");
    cluster.says(&["label", "pod", names[0], "app=5g", "--overwrite"]);
    assert!(of[0].is_hot());
    cluster.says(&["delete", "pod", names[1], names[3], "--force", "--grace-period=0"]);
    assert!(of[1].is_cold() && of[3].is_cold() && of[0].is_hot());
    comes_to_know("3 pods");

    // After the API server is killed, gthctl keeps what it knew. When the server is back with another
    // certificate, gthctl does not trust it at first, then it does.
    cluster.stop(Signal::SIGKILL);
    comes_to_say("3 pods; Kubernetes API at ");
    assert!(of[0].is_hot());
    cluster.serve("second");
    cluster.says(&["label", "pod", names[2], "app=5g", "--overwrite"]);
    comes_to_say("ertificate");
    println!("another certificate: {}", known());
    assert!(of[0].is_hot() && of[2].is_cold());
    trust(&cluster);
    comes_to_know("3 pods");
    assert!(of[0].is_hot() && of[2].is_hot());

    // The revision that gthctl watches from is gone when it asks again (410).
    gthctl.signal(Signal::SIGSTOP);
    let list: Value =
        serde_json::from_str(&cluster.says(&["get", "--raw", "/api/v1/pods?limit=1"])).unwrap();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.stop(Signal::SIGTERM);
    cluster.serve("second");
    cluster.says(&["label", "pod", names[2], "app=other", "--overwrite"]);
    cluster.create(&[pod("late", NODE, json!({}))]);
    cluster.stop(Signal::SIGTERM);
    cluster.compact();
    cluster.serve("second");
    let watch = format!("/api/v1/pods?watch=1&timeoutSeconds=5&resourceVersion={revision}");
    let gone = cluster.kubectl(&["get", "--raw", &watch]);
    let said = gone.stdout + &gone.stderr;
    assert!(said.contains("410"), "{said}");
    println!("of a revision that is gone: {said}");
    gthctl.signal(Signal::SIGCONT);
    comes_to_know("4 pods");
    assert!(of[0].is_hot() && of[2].is_cold());
    gthctl.stop();
}

/// A cluster of 2,000 pods on 50 nodes: gthctl holds the 110 of its own node.
#[test]
fn two_thousand_pods_on_fifty_nodes() {
    const OURS: usize = 110;
    let mut cluster = Cluster::new();
    cluster.serve("first");
    trust(&cluster);
    let node = |i| if i < OURS { NODE.to_owned() } else { format!("node-{}", 2 + i % 49) };
    let pods = (0..2000).map(|i| pod(&format!("pod-{i}"), &node(i), labels()));
    cluster.create(&pods.collect::<Vec<_>>());
    let contained = |pod| {
        let contained =
            Contained::new(&format!("kubepods/besteffort/pod{}/{ID}", cluster.uid(pod)));
        set_nice(contained.pid(), 19);
        contained
    };
    let (ours, elsewhere) = (contained("pod-7"), contained("pod-1007"));
    let gthctl = start(&cluster);
    let begin = Instant::now();
    comes_to_know(&format!("{OURS} pods"));
    println!("{OURS} of 2000 pods known after {:?}", begin.elapsed());
    let memory = kernel::read(&format!("/proc/{}/status", gthctl.pid()));
    println!("{}", memory.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    assert!(ours.is_hot() && elsewhere.is_cold());
    let of_node = format!("--field-selector=spec.nodeName={NODE}");
    cluster.says(&["delete", "pod", "--force", "--grace-period=0", "--wait=false", &of_node]);
    comes_to_know("0 pods");
    assert!(ours.is_cold() && elsewhere.is_cold());
    gthctl.stop();
}

/// Everything in deploy/: the API server accepts it, and its ServiceAccount can read pods, but only
/// through its binding. The test does the kubelet's part, which is writing files to directories.
#[test]
fn the_service_account_of_deploy() {
    let mut cluster = Cluster::new();
    cluster.serve("first");
    let manifests = ["deploy/irq", "deploy/gtp", "deploy"].map(|directory| {
        let file = cluster.path(&directory.replace('/', "-"));
        fs::write(&file, kustomized(directory)).unwrap();
        file.to_str().unwrap().to_owned()
    });
    let [privileged, sys_admin, manifests] = manifests.each_ref().map(String::as_str);
    for overlay in [privileged, sys_admin] {
        cluster.says(&["apply", "--server-side", "--validate=strict", "-f", overlay]);
    }
    let applied = cluster.says(&["apply", "--server-side", "--validate=strict", "-f", manifests]);
    println!("{applied}");
    assert_eq!(applied.matches("serverside-applied").count(), 6, "{applied}");
    // The same as a pod, as admission (Pod Security, priority classes) checks pods.
    let daemonset = cluster.says(&["get", "-n", "gthctl", "daemonset", "gthctl", "-o", "json"]);
    let daemonset: Value = serde_json::from_str(&daemonset).unwrap();
    let mut of_daemonset = daemonset["spec"]["template"].clone();
    of_daemonset["apiVersion"] = "v1".into();
    of_daemonset["kind"] = "Pod".into();
    of_daemonset["metadata"]["name"] = "gthctl".into();
    of_daemonset["metadata"]["namespace"] = "gthctl".into();
    of_daemonset["spec"]["nodeName"] = NODE.into();
    cluster.create(&[of_daemonset]);
    let priority =
        cluster.says(&["get", "-n", "gthctl", "pod", "gthctl", "-o", "jsonpath={.spec.priority}"]);
    assert_eq!(priority, "2000001000");

    // As in the pod: the token, the address, the ConfigMap as the kubelet writes it.
    let account = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
    fs::create_dir_all(account).unwrap();
    let renew = |cluster: &Cluster| {
        let token = cluster.says(&["create", "token", "-n", "gthctl", "gthctl"]);
        replace_file(&account.join("token"), &token);
    };
    renew(&cluster);
    fs::copy(cluster.ca(), account.join("ca.crt")).unwrap();
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().to_owned();
    let write = |cluster: &Cluster, version: &str| {
        let map = cluster.says(&["get", "-n", "gthctl", "configmap", "gthctl", "-o", "json"]);
        let map: Value = serde_json::from_str(&map).unwrap();
        fs::create_dir(dir.join(version)).unwrap();
        for (key, text) in map["data"].as_object().unwrap() {
            fs::write(dir.join(version).join(key), text.as_str().unwrap()).unwrap();
        }
        symlink(version, dir.join("..data_tmp")).unwrap();
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    };
    write(&cluster, "..2026_01");
    for key in ["config.yaml", "policy.yaml"] {
        symlink(Path::new("..data").join(key), dir.join(key)).unwrap();
    }

    cluster.says(&["delete", "clusterrolebinding", "gthctl"]);
    let mut command = gthctl::command(&files, &[]);
    command.env("NODE_NAME", NODE);
    command.env("KUBERNETES_SERVICE_HOST", HOST).env("KUBERNETES_SERVICE_PORT", PORT);
    let gthctl = Gthctl::spawn(files, command);
    comes_to_say("cannot list resource \"pods\"");
    println!("without the binding: {}", known());
    assert!(known().contains("allow the user of the service account to list and watch pods"));
    assert!(known().contains("system:serviceaccount:gthctl:gthctl"), "{}", known());
    cluster.says(&["apply", "--server-side", "-f", manifests]);
    comes_to_know("1 pod");

    // A token that is no longer valid, and its successor.
    cluster.says(&["delete", "-n", "gthctl", "serviceaccount", "gthctl"]);
    cluster.says(&["apply", "--server-side", "-f", manifests]);
    cluster.stop(Signal::SIGKILL);
    cluster.serve("first");
    comes_to_say("it does not accept the credentials (401");
    println!("with the token of a deleted account: {}", known());
    renew(&cluster);
    comes_to_know("1 pod");

    // A new policy in the ConfigMap.
    let policy = "strategies: [{name: new, command_regex: ^new$, priority: 3}]";
    let patch = json!({"data": {"policy.yaml": policy}}).to_string();
    cluster.says(&["patch", "-n", "gthctl", "configmap", "gthctl", "--type=merge", "-p", &patch]);
    gthctl.changes(|| write(&cluster, "..2026_02"));
    assert_eq!(report(&["show"])["rules"][0]["name"], "new");
    gthctl.stop();
    let _ = fs::remove_dir_all("/var/run/secrets");
}
