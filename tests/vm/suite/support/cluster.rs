//! A Kubernetes control plane in the VM: etcd and kube-apiserver, and kubectl to talk to it.
//!
//! There is no kubelet: the tests make the cgroups of containers themselves.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gthctl::{self, Output};
use crate::support::kernel;
use crate::support::plane::succeeds;

/// The API server's address, one reserved for documentation (RFC 5737), on the loopback device.
pub const HOST: &str = "192.0.2.1";
pub const PORT: &str = "6443";
/// The node of the tests' kubelet.
pub const NODE: &str = "node-1";
/// The kubelet's token.
pub const KUBELET: &str = "kubelet-secret";
const ADMIN: &str = "admin-secret";
const ETCD: &str = "127.0.0.1:2379";
const PEER: &str = "http://127.0.0.1:2380";
/// How long a control plane may take to start: it is emulated on a busy host.
const STARTED: Duration = Duration::from_secs(600);

/// A running control plane; ends when dropped.
pub struct Cluster {
    dir: TempDir,
    etcd: Child,
    server: Option<Child>,
    /// The name of the self-signed certificate that the server uses.
    certificate: &'static str,
}

/// A program of tests/vm/apiserver.
fn program(name: &str) -> Command {
    let dir = std::env::var_os("APISERVER_DIR").expect("set by tests/vm/test-kubernetes");
    Command::new(PathBuf::from(dir).join(name))
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

impl Cluster {
    /// An empty cluster, whose API server does not run yet.
    pub fn new() -> Self {
        let _ = Command::new("ip").args(["addr", "add", HOST, "dev", "lo"]).output();
        let dir = tempfile::tempdir().unwrap();
        let tokens = format!(
            "{ADMIN},admin,1,system:masters\n{KUBELET},system:node:{NODE},2,system:nodes\n"
        );
        fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        let mut etcd = program("etcd");
        etcd.args(["--unsafe-no-fsync", "--log-level=error", "--data-dir"]);
        etcd.arg(dir.path().join("etcd"));
        // The defaults name localhost, which needs an /etc/hosts.
        for option in ["listen-client-urls", "advertise-client-urls"] {
            etcd.arg(format!("--{option}=http://{ETCD}"));
        }
        for option in ["listen-peer-urls", "initial-advertise-peer-urls"] {
            etcd.arg(format!("--{option}={PEER}"));
        }
        etcd.arg(format!("--initial-cluster=default={PEER}"));
        let etcd = spawn(&mut etcd, &dir.path().join("etcd.log"));
        assert!(kernel::wait(STARTED, || TcpStream::connect(ETCD).is_ok()), "no etcd");
        Self { dir, etcd, server: None, certificate: "" }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The certificate that clients must trust.
    pub fn ca(&self) -> PathBuf {
        self.path(self.certificate).join("apiserver.crt")
    }

    /// Starts the API server with the certificate of that name and waits until it is ready.
    pub fn serve(&mut self, certificate: &'static str) {
        let begin = Instant::now();
        self.certificate = certificate;
        let key = std::env::var("APISERVER_KEY").expect("set by tests/vm/test-kubernetes");
        let mut server = program("kube-apiserver");
        server.arg(format!("--etcd-servers=http://{ETCD}"));
        server.arg(format!("--bind-address={HOST}")).arg(format!("--advertise-address={HOST}"));
        server.arg(format!("--secure-port={PORT}"));
        server.arg(format!("--cert-dir={}", self.path(certificate).display()));
        server.arg(format!("--token-auth-file={}", self.path("tokens.csv").display()));
        server.args(["--authorization-mode=Node,RBAC", "--endpoint-reconciler-type=none"]);
        server.args(["--disable-admission-plugins=ServiceAccount", "--allow-privileged", "-v=3"]);
        server.arg("--service-account-issuer=https://kubernetes.default.svc");
        server.arg(format!("--service-account-key-file={key}"));
        server.arg(format!("--service-account-signing-key-file={key}"));
        self.server = Some(spawn(&mut server, &self.path("server.log")));
        let ready = kernel::wait(STARTED, || {
            let crashed = self.server.as_mut().unwrap().try_wait().unwrap().is_some();
            assert!(!crashed, "{}", self.log());
            self.ca().exists() && self.kubectl(&["get", "--raw", "/readyz"]).code() == 0
        });
        assert!(ready, "{}", self.log());
        println!("kube-apiserver: ready after {:?}", begin.elapsed());
    }

    /// The end of the API server's log.
    pub fn log(&self) -> String {
        let log = kernel::read(self.path("server.log").to_str().unwrap());
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Ends the API server with a signal and waits until it has ended.
    pub fn stop(&mut self, signal: Signal) {
        if let Some(mut server) = self.server.take() {
            kill(Pid::from_raw(server.id() as i32), signal).unwrap();
            server.wait().unwrap();
        }
    }

    pub fn kubectl(&self, args: &[&str]) -> Output {
        let mut kubectl = program("kubectl");
        kubectl.arg(format!("--server=https://{HOST}:{PORT}")).arg(format!("--token={ADMIN}"));
        kubectl.arg(format!("--certificate-authority={}", self.ca().display()));
        kubectl.arg(format!("--cache-dir={}", self.path("cache").display()));
        gthctl::output(kubectl.args(args).stdin(Stdio::null()))
    }

    /// What kubectl prints; it must succeed.
    #[track_caller]
    pub fn says(&self, args: &[&str]) -> String {
        let output = self.kubectl(args);
        assert_eq!(output.code(), 0, "{args:?}: {}", output.stderr);
        output.stdout
    }

    /// `kubectl create` of these objects.
    #[track_caller]
    pub fn create(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = self.path("created.json");
        fs::write(&file, list.to_string()).unwrap();
        self.says(&["create", "--validate=false", "-f", file.to_str().unwrap()]);
    }

    /// The uid of a pod in the namespace default.
    #[track_caller]
    pub fn uid(&self, pod: &str) -> String {
        self.says(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"])
    }

    /// Makes etcd drop all earlier revisions (its JSON gateway, /v3/kv/compaction).
    pub fn compact(&self) {
        let post = |path: &str, body: &str| {
            let mut stream = TcpStream::connect(ETCD).unwrap();
            let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 OK"), "{answer}");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            serde_json::from_str::<Value>(body).unwrap()
        };
        let now = post("/v3/kv/range", r#"{"key": "AA=="}"#);
        let revision = now["header"]["revision"].as_str().unwrap();
        post("/v3/kv/compaction", &format!(r#"{{"revision": "{revision}", "physical": true}}"#));
    }

    /// Writes a kubeconfig that takes the token from a file.
    pub fn write_kubeconfig(&self, file: &Path, ca: &Path, token: &Path) {
        let cluster = json!({"server": format!("https://{HOST}:{PORT}"),
            "certificate-authority": ca});
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {"tokenFile": token}}],
        });
        fs::write(file, kubeconfig.to_string()).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(Signal::SIGKILL);
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// A pod of the namespace default, bound to a node.
pub fn pod(name: &str, node: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    })
}

/// What `kubectl kustomize` makes of a directory of the checkout.
pub fn kustomized(directory: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let output = succeeds(program("kubectl").arg("kustomize").arg(directory));
    String::from_utf8(output.stdout).unwrap()
}
