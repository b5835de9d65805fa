//! [`PodWatch`] against a server that speaks the API over HTTP.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::test_api_server::{TestApi, kubeconfig};
use super::test_server::LIMIT;
use crate::pods::*;

/// A change must be reported within this time.
const SOON: Duration = Duration::from_secs(1);

/// A certificate; its key has been discarded.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUIDgwkcym2JI5NqiXfOwtweunWtQwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExMTE5MThaGA8yMTI2MTAyODExMTkx
OFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABP/S
4cUsbEoHpzXm9vrwgIczo8vm77LqhXVQ23EoaN/SqQkxDSQwMmx5Vzfu/BuztQJS
CCaWwAcrpTsBIsCM/sajUzBRMB0GA1UdDgQWBBTiAfRMGEhCNhCxhc9TqWk+Oxxo
YzAfBgNVHSMEGDAWgBTiAfRMGEhCNhCxhc9TqWk+OxxoYzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQD2Fi/I6Ogm8UJ2OjU9ctvIpTizqzYh9c7i
ceYbK4uLugIhAJ9gIuycOo3lpykoiu0UbKFW5BPAEh0TsvEHCHzuqjP2
-----END CERTIFICATE-----
";

/// A node named `node-a` whose kubeconfig names a server.
struct Node {
    root: tempfile::TempDir,
    watch: Option<PodWatch>,
}

impl Node {
    fn new(server: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost\n127.0.0.1 kube-api\n")
            .unwrap();
        fs::write(root.path().join("kubeconfig"), kubeconfig(server)).unwrap();
        let mut node = Self { root, watch: None };
        node.start(Some("kubeconfig"));
        node
    }

    fn start(&mut self, kubeconfig: Option<&str>) {
        let settings = PodSettings {
            kubeconfig: kubeconfig.map(|name| self.root.path().join(name)),
            node: Some("node-a".to_owned()),
        };
        let root = Root::at(self.root.path());
        self.watch = Some(PodWatch::start_in(settings, root).unwrap());
    }

    /// Waits until the state is as wanted.
    fn wait(&self, what: &str, wanted: impl Fn(&PodState) -> bool) -> PodState {
        let watch = self.watch.as_ref().unwrap();
        let begin = Instant::now();
        let mut state = watch.state();
        while !wanted(&state) {
            let left = LIMIT.checked_sub(begin.elapsed());
            let left = left.unwrap_or_else(|| panic!("{what}: still {state:?}"));
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::try_from(left).unwrap()).unwrap();
            state = watch.state();
        }
        state
    }

    /// Waits for exactly these pods, by name, without a problem.
    fn wait_for(&self, names: &[&str]) -> Vec<Pod> {
        let found = |pods: &Vec<Pod>| pods.iter().map(|pod| pod.name.as_str()).eq(names.to_vec());
        let wanted =
            |state: &PodState| state.problem.is_none() && state.pods.as_ref().is_some_and(found);
        self.wait(&format!("{names:?}"), wanted).pods.unwrap()
    }

    /// As [`Node::wait_for`], but the pods must come soon.
    fn wait_soon_for(&self, names: &[&str]) -> Vec<Pod> {
        let begin = Instant::now();
        let pods = self.wait_for(names);
        assert!(begin.elapsed() < SOON, "{names:?} took {:?}", begin.elapsed());
        pods
    }

    fn wait_for_problem(&self, text: &str) -> PodState {
        let has = |state: &PodState| state.problem.as_ref().is_some_and(|p| p.contains(text));
        let state = self.wait(text, has);
        assert!(!state.problem.as_ref().unwrap().contains('\n'));
        state
    }
}

/// A running server with one pod, `a`.
fn api() -> TestApi {
    let mut api = TestApi::new("127.0.0.1");
    api.put("a", r#","labels":{"app":"upf","tier":"1"}"#, "Running");
    api.start();
    api
}

fn url(api: &TestApi) -> String {
    format!("http://{}", api.addr)
}

#[test]
fn the_first_list() {
    let api = api();
    api.put("b", r#","labels":null"#, "Pending");
    let node = Node::new(&url(&api));
    let pods = node.wait_for(&["a", "b"]);
    let labels = [("app", "upf"), ("tier", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let a = Pod {
        uid: "uid-a".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        labels: BTreeMap::from(labels),
        networks: None,
    };
    assert_eq!(pods[0], a);
    assert!(pods[1].labels.is_empty());
}

#[test]
fn what_was_known_counts_until_the_next_list() {
    let known = PodState { pods: Some(Vec::new()), problem: None };
    let unheard = PodState::default().or_known(&known);
    assert_eq!((&unheard.pods, unheard.problem.as_deref()), (&known.pods, Some(UNHEARD)));
    let refused = PodState { pods: None, problem: Some("refused".into()) };
    assert_eq!(refused.clone().or_known(&known).problem, refused.problem);
    let stale = PodState { problem: Some("old".into()), ..known.clone() };
    assert_eq!(known.clone().or_known(&stale), known);
    assert_eq!(PodState::default().or_known(&PodState::default()), PodState::default());
}

#[test]
fn no_pods_are_known_as_such() {
    let mut api = TestApi::new("127.0.0.1");
    api.start();
    Node::new(&url(&api)).wait_for(&[]);
}

#[test]
fn only_this_nodes_pods_are_asked_for() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    let list = api.request("");
    assert!(list.starts_with("GET /api/v1/pods?"), "{list}");
    assert!(list.contains("fieldSelector=spec.nodeName%3Dnode-a"), "{list}");
    assert!(list.to_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{list}");
    let watch = api.request("watch=true");
    assert!(watch.contains("fieldSelector=spec.nodeName%3Dnode-a"), "{watch}");
}

#[test]
fn changes_arrive_at_once() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    // Nothing is missed even if the watch begins only now.
    api.put("b", "", "Running");
    node.wait_soon_for(&["a", "b"]);
    api.bookmark();
    api.put("a", r#","labels":{"app":"amf"}"#, "Running");
    let begin = Instant::now();
    let relabelled = |state: &PodState| state.pods.as_ref().unwrap()[0].labels["app"] == "amf";
    node.wait("relabelled", relabelled);
    assert!(begin.elapsed() < SOON);
    api.delete("a");
    node.wait_soon_for(&["b"]);
}

#[test]
fn what_is_the_same_wakes_nobody() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    // The second must come after the first.
    api.put("a", r#","labels":{"app":"upf","tier":"1"},"generation":7"#, "Running");
    api.put("b", "", "Running");
    let watch = node.watch.as_ref().unwrap();
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::try_from(LIMIT).unwrap()).unwrap();
    assert_eq!(watch.state().pods.unwrap().len(), 2);
}

#[test]
fn finished_pods_are_left_out() {
    let api = api();
    api.put("done", "", "Succeeded");
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    api.put("a", "", "Failed");
    node.wait_soon_for(&[]);
    api.put("a", "", "Running");
    node.wait_soon_for(&["a"]);
}

#[test]
fn a_static_pod_has_the_kubelets_uid() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    let annotations = |hash, mirror| {
        let hash = format!(r#""kubernetes.io/config.hash":"{hash}""#);
        format!(r#","annotations":{{{hash},"kubernetes.io/config.mirror":"{mirror}"}}"#)
    };
    api.put("etcd", &annotations("0123abcd", "0123abcd"), "Running");
    let pods = node.wait_soon_for(&["etcd", "a"]);
    assert_eq!(pods[0].uid, "0123abcd");
    // A deleted pod may have other annotations.
    api.delete("etcd");
    node.wait_soon_for(&["a"]);
    // These do not come from a kubelet's mirror pod: anyone can make such annotations.
    let alone = r#","annotations":{"kubernetes.io/config.hash":"0123abcd"}"#;
    for (name, annotations) in [("b", alone), ("c", &annotations("0123abcd", "4567abcd"))] {
        api.put(name, annotations, "Running");
        let pods = node.wait_soon_for(&["a", name]);
        assert!(pods.iter().all(|pod| pod.uid != "0123abcd"), "{pods:?}");
        api.delete(name);
        node.wait_soon_for(&["a"]);
    }
}

#[test]
fn networks_come_change_and_go_with_their_annotation() {
    let api = api();
    let node = Node::new(&url(&api));
    assert_eq!(node.wait_for(&["a"])[0].networks, None);
    let status = |status: &str| {
        let key = "k8s.v1.cni.cncf.io/network-status";
        let annotations = format!(r#"{{"{key}":{},"other":"x"}}"#, serde_json::json!(status));
        api.put("a", &format!(r#","annotations":{annotations}"#), "Running");
    };
    let networks = |state: &PodState| state.pods.as_ref().unwrap()[0].networks.clone();
    let wait = |what: &str, wanted: &dyn Fn(Option<Networks>) -> bool| {
        node.wait(what, |state| wanted(networks(state)));
    };
    status(r#"[{"name":"core/n3","interface":"net1"}]"#);
    let n3 = Network { name: "core/n3".into(), interface: "net1".into(), pci: None };
    wait("one network", &|now| now == Some(Ok(vec![n3.clone()])));
    status("[{");
    wait("no JSON", &|now| matches!(now, Some(Err(why)) if why.0.contains("EOF")));
    api.put("a", "", "Running");
    wait("no annotation", &|now| now.is_none());
}

#[test]
fn host_names_are_resolved() {
    let api = api();
    for host in ["localhost", "kube-api"] {
        Node::new(&format!("http://{host}:{}", api.addr.port())).wait_for(&["a"]);
    }
}

#[test]
fn a_host_name_that_nobody_knows() {
    let state = Node::new("http://nowhere.invalid:1").wait_for_problem("dns error: ");
    assert_eq!(state.pods, None);
}

#[test]
fn a_server_that_is_down_up_and_down() {
    // Its own address, so that no other test takes the port while it is free.
    let mut api = TestApi::new("127.0.0.7");
    api.put("a", "", "Running");
    let node = Node::new(&url(&api));
    let state = node.wait_for_problem("Connection refused");
    assert_eq!(state.pods, None);
    let problem = state.problem.unwrap();
    assert!(problem.starts_with(&format!("Kubernetes API at {}: ", url(&api))), "{problem}");
    api.start();
    node.wait_for(&["a"]);
    api.request("watch=true");
    api.stop();
    let state = node.wait_for_problem("Connection refused");
    assert_eq!(state.pods.unwrap().len(), 1);
    api.start();
    node.wait_for(&["a"]);
}

#[test]
fn a_version_that_is_gone() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    api.request("watch=true");
    api.put_silently("b", "", "Running");
    api.compact();
    // Only a new list reports the pod, and there is no problem meanwhile.
    let state = node.wait("relisted", |state| state.pods.as_ref().unwrap().len() == 2);
    assert_eq!(state.problem, None);
    api.request("watch=true");
    api.put("c", "", "Running");
    node.wait_soon_for(&["a", "b", "c"]);
}

#[test]
fn a_watch_that_is_cut() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    for pods in [&["a", "b"][..], &["a", "b", "c"]] {
        api.request("watch=true");
        api.cut();
        api.put(pods[pods.len() - 1], "", "Running");
        node.wait_for(pods);
    }
}

#[test]
fn a_watch_that_ends_goes_on() {
    let api = api();
    let node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    api.request("watch=true");
    api.end();
    api.put("b", "", "Running");
    node.wait_soon_for(&["a", "b"]);
    assert!(api.request("").contains("watch=true"), "it is not listed again");
}

#[test]
fn an_account_that_may_not() {
    let api = api();
    api.refuse(Some((403, "pods is forbidden")));
    let node = Node::new(&url(&api));
    let state = node.wait_for_problem("403: pods is forbidden");
    assert!(state.problem.unwrap().ends_with("to list and watch pods"));
    api.refuse(Some((401, "Unauthorized")));
    let state = node.wait_for_problem("does not accept the credentials (401: Unauthorized)");
    assert_eq!(state.pods, None);
    api.refuse(None);
    node.wait_for(&["a"]);
}

#[test]
fn tls_to_a_server_that_has_none() {
    let api = api();
    let mut node = Node::new("http://127.0.0.1:1");
    fs::write(node.root.path().join("ca.crt"), CA).unwrap();
    let text = kubeconfig(&format!("https://{}", api.addr));
    let text = text.replace("cluster: {", "cluster: {certificate-authority: ca.crt, ");
    fs::write(node.root.path().join("tls"), text).unwrap();
    node.start(Some("tls"));
    // gthctl has used TLS and met plain HTTP.
    node.wait_for_problem("received corrupt message of type InvalidContentType");
}

#[test]
fn no_kubeconfig() {
    let mut node = Node::new("http://127.0.0.1:1");
    node.start(None);
    let begin = Instant::now();
    let state = node.wait_for_problem("no Kubernetes API: no kubeconfig and no service account");
    assert!(begin.elapsed() < SOON);
    assert_eq!(state.pods, None);
    let problem = state.problem.unwrap();
    assert!(problem.ends_with("; set monitor.kubeconfig_path in the config file"), "{problem}");
}

#[test]
fn a_kubeconfig_that_appears_later() {
    let api = api();
    let mut node = Node::new(&url(&api));
    node.start(Some("later"));
    node.wait_for_problem("later: No such file");
    let path = |name| node.root.path().join(name);
    fs::rename(path("kubeconfig"), path("later")).unwrap();
    node.wait_for(&["a"]);
}

#[test]
fn a_kubeconfig_that_is_none() {
    let mut node = Node::new("http://127.0.0.1:1");
    fs::write(node.root.path().join("broken"), "clusters: 7\n").unwrap();
    node.start(Some("broken"));
    node.wait_for_problem("broken: ");
    fs::write(node.root.path().join("empty"), "").unwrap();
    node.start(Some("empty"));
    node.wait_for_problem("empty: ");
}

#[test]
fn dropping_ends_the_thread() {
    let api = api();
    let mut node = Node::new(&url(&api));
    node.wait_for(&["a"]);
    api.request("watch=true");
    let shared = Arc::downgrade(&node.watch.as_ref().unwrap().0.known);
    node.watch = None;
    api.closed.recv_timeout(LIMIT).expect("the watch is closed");
    let begin = Instant::now();
    while shared.strong_count() > 0 {
        assert!(begin.elapsed() < LIMIT, "the thread is still there");
        thread::yield_now();
    }
}

#[test]
fn selecting() {
    let pod = |namespace: &str, labels: &[(&str, &str)]| Pod {
        uid: String::new(),
        namespace: namespace.to_owned(),
        name: String::new(),
        labels: labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        networks: None,
    };
    let selectors = |all: &[(&str, &str)]| -> Vec<Selector> {
        let label = |(key, value): &(&str, &str)| Selector {
            key: key.to_string(),
            value: value.to_string(),
        };
        all.iter().map(label).collect()
    };
    let upf = pod("core", &[("app", "upf"), ("tier", "1")]);
    let both = selectors(&[("app", "upf"), ("tier", "1")]);
    let core = ["ran".to_owned(), "core".to_owned()];
    assert!(selects(&[], &[], &upf));
    assert!(selects(&both, &[], &upf));
    assert!(selects(&both[..1], &core, &upf));
    assert!(!selects(&both, &core[..1], &upf));
    assert!(!selects(&both, &core, &pod("core", &[("app", "upf")])));
    assert!(!selects(&selectors(&[("app", "amf")]), &[], &upf));
    assert!(!selects(&selectors(&[("APP", "upf")]), &[], &upf));
}
