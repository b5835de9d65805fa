//! The pods of this Kubernetes node.

use std::collections::BTreeMap;

use crate::policy::Selector;

/// A pod of this node, as far as policies ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// True when the pod has all labels and is in one of the namespaces, if any are given.
pub fn selects(selectors: &[Selector], namespaces: &[String], pod: &Pod) -> bool {
    (namespaces.is_empty() || namespaces.contains(&pod.namespace))
        && selectors.iter().all(|label| pod.labels.get(&label.key) == Some(&label.value))
}
