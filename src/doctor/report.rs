//! All that the checks have found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::finding::{Counts, Finding};

/// All findings about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    #[serde(flatten)]
    pub counts: Counts,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// What the machine has, by the names for node-feature-discovery. Unknown features are left
    /// out.
    pub features: BTreeMap<&'static str, bool>,
}

impl Report {
    /// Counts the findings. The feature `ready` says that none is an error.
    pub fn new(
        kernel: String,
        findings: Vec<Finding>,
        mut features: BTreeMap<&'static str, bool>,
    ) -> Self {
        let counts = Counts::of(&findings);
        features.insert("ready", counts.errors == 0);
        Self { kernel, counts, findings, features }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_machine_without_an_error() {
        let findings = vec![Finding::ok("kernel", "Linux 7.2"), Finding::error("bpf-jit", "off")];
        let report = Report::new("7.2".into(), findings, BTreeMap::from([("sched_ext", true)]));
        assert_eq!(report.features, BTreeMap::from([("sched_ext", true), ("ready", false)]));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["errors"], &json["warnings"]), (&1.into(), &0.into()));
        assert_eq!(json["findings"][1]["level"], "error");
        assert_eq!(json["findings"][0].get("fix"), None);
    }
}
