//! The pods of this Kubernetes node, from the Kubernetes API.
//!
//! They are listed once and then watched: the API server sends each change when it happens. A
//! problem is reported along with the pods. Retries follow after pauses that `kube` chooses (from
//! about 1 s up to a minute). Until one succeeds, the last known pods stay.

mod api;
pub mod networks;
#[cfg(test)]
mod test_api_server;
#[cfg(test)]
mod watch_tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use serde::{Deserialize, Serialize};

use self::networks::{Network, Unreadable};
use crate::base::error::Result;
use crate::base::root::Root;
#[cfg(test)]
use crate::net::test_server;
use crate::net::{Follower, Known, one_line};

/// The annotation with the uid of a static pod. The kubelet names the cgroups by this uid
/// (pkg/kubelet/config/common.go: `applyDefaults`), not by the one in `metadata`, which the API
/// server makes. Anyone who may create a pod may give it this annotation.
const STATIC_POD_UID: &str = "kubernetes.io/config.hash";
/// The annotation of a mirror pod, through which the API shows a static pod. The kubelet gives it
/// the value of [`STATIC_POD_UID`] (pkg/kubelet/pod/mirror_client.go: `CreateMirrorPod`), and
/// deletes a mirror pod without a static pod. The API server lets nobody add, change or remove it
/// (`ValidatePodSpecificAnnotationUpdates`, pkg/apis/core/validation/validation.go).
const MIRROR: &str = "kubernetes.io/config.mirror";
/// If an API that has worked for this long fails, gthctl retries soon.
const WORKED: Duration = Duration::from_secs(10);

/// A label of a pod and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Selector {
    pub key: String,
    pub value: String,
}

/// A pod of this node, with the properties that policies refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The uid in the kubelet's names for the pod's cgroups.
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Its networks; `None` while its annotation names none.
    pub networks: Option<Networks>,
}

/// The networks of a pod, or why the annotation about them cannot be read.
pub type Networks = std::result::Result<Vec<Network>, Unreadable>;

/// A pod as the API sends it, with few of its fields: `k8s_openapi`'s own type would
/// read, and have code for, every field.
#[derive(Clone, Debug, Deserialize)]
struct ApiPod {
    metadata: ObjectMeta,
    status: Option<ApiPodStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct ApiPodStatus {
    phase: Option<String>,
}

/// Where the API is and which node this is; each is discovered if not given.
#[derive(Clone, Debug, Default)]
pub struct PodSettings {
    /// The only kubeconfig file to use. If `None`, the first of: those in `$KUBECONFIG`, the pod's
    /// service account, `~/.kube/config`, those of the node itself.
    pub kubeconfig: Option<PathBuf>,
    /// The node's name in the API. If `None`, `$NODE_NAME`, or else the host name in lower case.
    pub node: Option<String>,
}

/// What is known about the node's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// The unfinished pods, by uid; `None` until the API has listed them once.
    pub pods: Option<Vec<Pod>>,
    /// Why `pods` is missing or may be out of date, and what to do: one line.
    pub problem: Option<String>,
}

/// Why nothing is known about the pods yet.
pub const UNHEARD: &str = "the Kubernetes API has not answered yet";

impl PodState {
    /// This state; if it has no pods, with those of `before`, which may be out of date.
    pub fn or_known(self, before: &Self) -> Self {
        match (&self.pods, &before.pods) {
            (None, Some(pods)) => Self {
                pods: Some(pods.clone()),
                problem: self.problem.or_else(|| Some(UNHEARD.into())),
            },
            _ => self,
        }
    }
}

/// Follows the node's pods in its own thread, until dropped.
///
/// The descriptor is readable when [`PodWatch::state`] has something new.
pub struct PodWatch(Follower<KnownPods>);

/// Like [`PodState`], but with the pods by the uid of their `metadata`.
#[derive(Clone, Default, PartialEq)]
struct KnownPods {
    pods: Option<BTreeMap<String, Pod>>,
    problem: Option<String>,
}

/// The node's name in the API. Fails when there is no host name.
pub fn node_name(settings: &PodSettings) -> Result<String> {
    api::node(settings, &Root::default())
}

impl PodWatch {
    /// Starts following; nothing is known at first.
    ///
    /// Fails only when the process can get no more descriptors or threads; any trouble
    /// with the API is a [`PodState::problem`].
    pub fn start(settings: PodSettings) -> Result<Self> {
        Self::start_in(settings, Root::default())
    }

    fn start_in(settings: PodSettings, root: Root) -> Result<Self> {
        let run = async move |known: Arc<Known<KnownPods>>| follow(&settings, &root, &known).await;
        Ok(Self(Follower::start("gthctl-pods", "watching pods", run)?))
    }

    /// What is known now; the descriptor is not readable until that changes.
    pub fn state(&self) -> PodState {
        let known = self.0.state();
        let pods = known.pods.map(|pods| {
            let mut pods: Vec<Pod> = pods.into_values().collect();
            pods.sort_by(|a, b| a.uid.cmp(&b.uid));
            pods
        });
        PodState { pods, problem: known.problem }
    }
}

impl Resource for ApiPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl AsFd for PodWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lists and watches forever, each time from the start, so that it sees replaced credentials and a
/// new kubeconfig.
async fn follow(settings: &PodSettings, root: &Root, known: &Known<KnownPods>) {
    let mut backoff = DefaultBackoff::default();
    loop {
        let mut listed = None;
        if let Err(e) = list_and_watch(settings, root, known, &mut listed).await {
            known.update(|state| state.problem = Some(one_line(&e.to_string())));
        }
        if listed.is_some_and(|at: Instant| at.elapsed() >= WORKED) {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next().unwrap_or(WORKED)).await;
    }
}

/// Reports the pods and their changes until that fails.
///
/// Returns `Ok` when the API server no longer has the changes since the last one that it sent
/// (410), which happens after a pause. The pods have to be listed again then.
async fn list_and_watch(
    settings: &PodSettings,
    root: &Root,
    known: &Known<KnownPods>,
    listed: &mut Option<Instant>,
) -> Result<()> {
    let node = api::node(settings, root)?;
    let api = api::connect(settings, root)?;
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = pin!(watcher(kube::Api::<ApiPod>::all(api.client.clone()), config));
    let mut listing = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(pod)) => apply(&mut listing, pod),
            Ok(Event::InitDone) => {
                let pods = Some(std::mem::take(&mut listing));
                known.update(|state| *state = KnownPods { pods, problem: None });
                *listed = Some(Instant::now());
            }
            Ok(Event::Apply(pod)) => {
                known.update(|state| apply(state.pods.get_or_insert_default(), pod));
            }
            Ok(Event::Delete(pod)) => known.update(|state| {
                let uid = pod.metadata.uid.unwrap_or_default();
                state.pods.get_or_insert_default().remove(&uid);
            }),
            Err(e) if api::status(&e).is_some_and(|status| status.code == 410) => return Ok(()),
            Err(e) => return Err(api.problem(&e)),
        }
    }
    Ok(())
}

/// Stores a pod's current state; removes a finished one, which has no tasks.
fn apply(pods: &mut BTreeMap<String, Pod>, pod: ApiPod) {
    let metadata = pod.metadata;
    let uid = metadata.uid.unwrap_or_default();
    let phase = pod.status.and_then(|status| status.phase);
    if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
        pods.remove(&uid);
        return;
    }
    let mut annotations = metadata.annotations.unwrap_or_default();
    let networks = annotations.remove(networks::ANNOTATION);
    let pod = Pod {
        uid: static_uid(annotations).unwrap_or_else(|| uid.clone()),
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        networks: networks.map(|text| networks::parse(&text)),
    };
    pods.insert(uid, pod);
}

/// The kubelet's uid of a static pod, if the annotations are those of its mirror pod.
fn static_uid(mut all: BTreeMap<String, String>) -> Option<String> {
    let mirrored = all.remove(MIRROR)?;
    all.remove(STATIC_POD_UID).filter(|uid| *uid == mirrored)
}

/// True if `pod` has every label of `selectors`, with its value, and is in one of `namespaces`.
/// Empty `selectors` match every pod; empty `namespaces` mean all namespaces.
pub fn selects(selectors: &[Selector], namespaces: &[String], pod: &Pod) -> bool {
    selectors.iter().all(|label| pod.labels.get(&label.key) == Some(&label.value))
        && (namespaces.is_empty() || namespaces.contains(&pod.namespace))
}
