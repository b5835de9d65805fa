//! Where the Kubernetes API is, and a client for it.

use std::error::Error as StdError;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use kube::core::Status;
use kube::runtime::watcher;
use tower::{BoxError, ServiceBuilder};

use super::PodSettings;
use crate::base::error::{Error, Result};
use crate::base::root::Root;
use crate::net::{self, CONNECT_TIMEOUT, chain};

/// Where a pod finds its service account (plugin/pkg/admission/serviceaccount:
/// `DefaultAPITokenMountPath`).
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The kubeconfig files of nodes, by the tool that set up the node.
const NODE_KUBECONFIGS: [&str; 9] = [
    // kubeadm
    "/etc/kubernetes/kubelet.conf",
    // Managed nodes of EKS and GKE
    "/var/lib/kubelet/kubeconfig",
    // k3s: server, agent
    "/etc/rancher/k3s/k3s.yaml",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    // RKE2: server, agent
    "/etc/rancher/rke2/rke2.yaml",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    // k0s: worker, controller
    "/var/lib/k0s/kubelet.conf",
    "/var/lib/k0s/pki/admin.conf",
    // MicroK8s
    "/var/snap/microk8s/current/credentials/client.config",
];
/// A way to reach the API server, which need not work.
pub(super) struct Api {
    pub client: kube::Client,
    server: String,
    /// Where the server and the credentials come from.
    source: String,
}

/// The node's name. Fails when there is no host name.
pub(super) fn node(settings: &PodSettings, root: &Root) -> Result<String> {
    let given = settings.node.clone();
    if let Some(name) = given.or_else(|| root.var("NODE_NAME")?.into_string().ok()) {
        return Ok(name);
    }
    // As the kubelet derives it (pkg/util/node/node.go: GetHostname).
    let path = root.path("/proc/sys/kernel/hostname");
    let text = fs::read_to_string(&path).map_err(|e| Error::because_of(path.display(), e))?;
    Ok(text.trim().to_lowercase())
}

/// Finds the API and prepares a client; sends nothing yet.
///
/// Must be called within a tokio runtime. May run the kubeconfig's credential plugin, and
/// waits for it.
pub(super) fn connect(settings: &PodSettings, root: &Root) -> Result<Api> {
    let (kubeconfig, source) = kubeconfig(settings, root)?;
    let failed = |e: &dyn StdError| {
        Error::failure(format!("{source}: {}", chain(e))).help("check that kubeconfig")
    };
    if uses_proxy(&kubeconfig) {
        let what = format!("{source}: its API server is behind a proxy, which is not supported");
        return Err(Error::failure(what).help("use a server that needs no proxy"));
    }
    let config = kube::Config::try_from(kubeconfig).map_err(|e| failed(&e))?;
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = client(config, root).map_err(|e| failed(&e))?;
    Ok(Api { client, server, source })
}

/// The kubeconfig to use, and its origin.
fn kubeconfig(settings: &PodSettings, root: &Root) -> Result<(Kubeconfig, String)> {
    if let Some(path) = &settings.kubeconfig {
        return read(std::slice::from_ref(path));
    }
    let listed = root.var("KUBECONFIG").map(|list| existing(&list)).unwrap_or_default();
    if !listed.is_empty() {
        return read(&listed);
    }
    if let Some(kubeconfig) = service_account(root) {
        return Ok((kubeconfig, "the service account".to_owned()));
    }
    let home = root.var("HOME").map(|home| Path::new(&home).join(".kube/config"));
    let nodes = NODE_KUBECONFIGS.iter().map(|path| root.path(path));
    match home.into_iter().chain(nodes).find(|path| path.exists()) {
        Some(path) => read(&[path]),
        None => Err(Error::failure("no Kubernetes API: no kubeconfig and no service account")
            .help("set monitor.kubeconfig_path in the config file")),
    }
}

/// The files in `list`, which has the format of `$KUBECONFIG`, without those that do not exist.
/// kubectl leaves them out, too (tools/clientcmd/loader.go: `Load`).
fn existing(list: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(list).filter(|path| path.try_exists().unwrap_or(true)).collect()
}

/// Reads kubeconfig files; if two set the same value, the first wins.
fn read(paths: &[PathBuf]) -> Result<(Kubeconfig, String)> {
    let mut merged = Kubeconfig::default();
    for path in paths {
        let next = Kubeconfig::read_from(path).and_then(|next| merged.merge(next));
        merged = next.map_err(|e| {
            let why = match &e {
                KubeconfigError::ReadConfig(e, _) => e.to_string(),
                e => chain(e),
            };
            Error::failure(format!("kubeconfig {}: {why}", path.display()))
                .help("set monitor.kubeconfig_path in the config file to one that can be read")
        })?;
    }
    for user in merged.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        prefer_token_file(user);
    }
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok((merged, format!("kubeconfig {}", names.join(":"))))
}

/// Gives `tokenFile` precedence over `token`, and passes it on without the end of the line, which
/// `kube` would send, too. kubectl does both (client-go, transport/token_source.go and
/// round_trippers.go). The file is read again when the server no longer accepts the token.
fn prefer_token_file(user: &mut AuthInfo) {
    let Some(text) = user.token_file.as_ref().and_then(|file| fs::read_to_string(file).ok()) else {
        return;
    };
    match text.trim() {
        "" => {}
        token if token == text => user.token = None,
        token => {
            user.token = Some(token.to_owned().into());
            user.token_file = None;
        }
    }
}

/// The service account as a kubeconfig, when this runs in a pod that has one.
///
/// Source: Kubernetes documentation, "Accessing the Kubernetes API from a Pod".
fn service_account(root: &Root) -> Option<Kubeconfig> {
    const NAME: &str = "service-account";
    let host = root.var("KUBERNETES_SERVICE_HOST")?.into_string().ok()?;
    let port = root.var("KUBERNETES_SERVICE_PORT")?.into_string().ok()?;
    let file = |name| root.path(&format!("{SERVICE_ACCOUNT}/{name}"));
    let token = file("token");
    if !token.exists() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let cluster = Cluster {
        server: Some(format!("https://{host}:{port}")),
        certificate_authority: Some(file("ca.crt").into_os_string().into_string().ok()?),
        ..Cluster::default()
    };
    let token_file = Some(token.into_os_string().into_string().ok()?);
    let auth_info = AuthInfo { token_file, ..AuthInfo::default() };
    let context =
        Context { cluster: NAME.to_owned(), user: Some(NAME.to_owned()), ..Context::default() };
    let name = NAME.to_owned();
    Some(Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(auth_info),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    })
}

/// True if the current context's cluster is behind a proxy.
fn uses_proxy(kubeconfig: &Kubeconfig) -> bool {
    let named =
        |context: &&NamedContext| Some(&context.name) == kubeconfig.current_context.as_ref();
    let context = kubeconfig.contexts.iter().find(named).and_then(|named| named.context.as_ref());
    let clusters = kubeconfig.clusters.iter();
    let mut current = clusters.filter(|cluster| context.is_some_and(|c| c.cluster == cluster.name));
    let proxy = current.next().and_then(|named| named.cluster.as_ref()?.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

/// The time limit for an answer of the API server. A watch without events gets a bookmark every
/// minute or so.
const READ_TIMEOUT: Duration = Duration::from_secs(295);

/// `kube`'s own client, except that [`net::Resolver`] resolves host names.
fn client(mut config: kube::Config, root: &Root) -> kube::Result<kube::Client> {
    if config.cluster_url.scheme_str() == Some("http") {
        // Otherwise `kube` asks for the machine's certificates; a small machine has none.
        config.root_cert.get_or_insert_default();
    }
    let https = config.rustls_https_connector_with_connector(net::connector(root))?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(config.read_timeout.or(Some(READ_TIMEOUT)));
    connector.set_write_timeout(config.write_timeout);
    let http = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

impl Api {
    /// What is wrong and what to do about it, for the user.
    pub fn problem(&self, e: &watcher::Error) -> Error {
        let Self { server, source, .. } = self;
        let failed = |why: String| Error::failure(format!("Kubernetes API at {server}: {why}"));
        match status(e) {
            Some(Status { code: 401, message, .. }) => {
                failed(format!("it does not accept the credentials (401: {message})"))
                    .help(format!("renew those of {source}"))
            }
            Some(Status { code: 403, message, .. }) => {
                failed(format!("it does not allow reading its pods (403: {message})"))
                    .help(format!("allow the user of {source} to list and watch pods"))
            }
            Some(Status { code, message, .. }) => {
                failed(format!("{code}: {message}")).help("trying again")
            }
            None => failed(reason(e)).help("trying again"),
        }
    }
}

/// The API server's own answer, when `e` is one.
pub(super) fn status(e: &watcher::Error) -> Option<&Status> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match e {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => Some(status),
        _ => None,
    }
}

/// Why there was no answer, without `kube`'s layers that only repeat it.
fn reason(e: &watcher::Error) -> String {
    let mut e: &dyn StdError = e;
    while let Some(inner) = e.source().filter(|inner| e.to_string().contains(&inner.to_string())) {
        e = inner;
    }
    chain(e)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn tree(root: &tempfile::TempDir, env: fn(&str) -> Option<OsString>) -> Root {
        Root::at(root.path()).with_env(env)
    }

    fn put(root: &tempfile::TempDir, path: &str, server: &str) {
        let path = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, super::super::test_api_server::kubeconfig(server)).unwrap();
    }

    fn server(settings: &PodSettings, root: &Root) -> Option<String> {
        let (kubeconfig, _) = kubeconfig(settings, root).ok()?;
        kube::Config::try_from(kubeconfig).ok().map(|config| config.cluster_url.to_string())
    }

    /// Everything that may be found exists; `env` and `settings` decide.
    fn full() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        put(&root, "/given", "http://given");
        put(&root, "/root/.kube/config", "http://home");
        for path in NODE_KUBECONFIGS {
            put(&root, path, "http://node");
        }
        put(&root, &format!("{SERVICE_ACCOUNT}/token"), "");
        let ca = format!("{SERVICE_ACCOUNT}/ca.crt");
        fs::write(root.path().join(ca.trim_start_matches('/')), "").unwrap();
        root
    }

    #[test]
    fn found_in_order() {
        let root = full();
        let in_pod = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".into()),
            "KUBERNETES_SERVICE_PORT" => Some("443".into()),
            _ => None,
        };
        let given = PodSettings { kubeconfig: Some(root.path().join("given")), node: None };
        let none = PodSettings::default();
        let found = |settings, env| server(settings, &tree(&root, env)).unwrap();
        assert_eq!(found(&given, in_pod), "http://given/");
        assert_eq!(found(&none, in_pod), "https://[fd00::1]:443/");
        assert_eq!(found(&none, |_| None), "http://node/");
        fs::remove_file(root.path().join("etc/kubernetes/kubelet.conf")).unwrap();
        assert_eq!(found(&none, |_| None), "http://node/");
        // Outside a pod, the variables alone do not count.
        fs::remove_dir_all(root.path().join("var/run")).unwrap();
        assert_eq!(found(&none, in_pod), "http://node/");
    }

    #[test]
    fn a_token_file_goes_before_a_token_and_may_end_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let user = |text: &str| {
            fs::write(&file, text).unwrap();
            let token_file = Some(file.to_str().unwrap().to_owned());
            let token = Some("old".to_owned().into());
            let mut user =
                AuthInfo { token, token_file: token_file.clone(), ..AuthInfo::default() };
            prefer_token_file(&mut user);
            (serde_json::to_value(&user).unwrap()["token"].clone(), user.token_file == token_file)
        };
        assert_eq!(user("abc\n"), ("abc".into(), false));
        assert_eq!(user("abc"), (serde_json::Value::Null, true));
        assert_eq!(user("\n"), ("old".into(), true));
    }

    #[test]
    fn several_in_the_environment() {
        let root = full();
        let paths = ["given", "root/.kube/config"].map(|path| root.path().join(path));
        let (merged, source) = read(&paths).unwrap();
        let server = kube::Config::try_from(merged).unwrap().cluster_url;
        assert_eq!(server, "http://given/");
        assert_eq!(source.matches(':').count(), 1, "{source}");
        let [first, second] = &paths;
        let list = std::env::join_paths([first, &PathBuf::from("/missing"), second]).unwrap();
        assert_eq!(existing(&list), paths);
        let missing = |name: &str| (name == "KUBECONFIG").then(|| "/missing::/too".into());
        let next = self::server(&PodSettings::default(), &tree(&root, missing));
        assert_eq!(next.as_deref(), Some("http://node/"));
    }

    #[test]
    fn a_given_one_must_exist() {
        let root = full();
        let given = PodSettings { kubeconfig: Some("/missing".into()), node: None };
        let e = kubeconfig(&given, &tree(&root, |_| None)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "kubeconfig /missing: No such file or directory (os error 2); \
             set monitor.kubeconfig_path in the config file to one that can be read"
        );
    }

    #[test]
    fn the_node_is_given_or_the_host() {
        let root = tempfile::tempdir().unwrap();
        let none = PodSettings::default();
        assert!(node(&none, &tree(&root, |_| None)).is_err());
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/hostname"), "Node-A\n").unwrap();
        assert_eq!(node(&none, &tree(&root, |_| None)).unwrap(), "node-a");
        let env = |name: &str| (name == "NODE_NAME").then(|| "node-b".into());
        assert_eq!(node(&none, &tree(&root, env)).unwrap(), "node-b");
        let given = PodSettings { node: Some("node-c".to_owned()), ..none };
        assert_eq!(node(&given, &tree(&root, env)).unwrap(), "node-c");
    }

    #[test]
    fn a_proxy_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("proxied");
        let text = super::super::test_api_server::kubeconfig("https://api");
        let text = text.replace("cluster: {", "cluster: {proxy-url: 'http://proxy:3128', ");
        fs::write(&path, text).unwrap();
        let settings = PodSettings { kubeconfig: Some(path), node: None };
        let e = connect(&settings, &tree(&root, |_| None)).err().unwrap();
        assert!(e.to_string().contains("behind a proxy"), "{e}");
    }
}
