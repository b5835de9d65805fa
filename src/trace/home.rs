//! Which pod, container or unit a task is in, as far as its cgroup's path tells.

use serde::Serialize;

/// What a cgroup's path says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Home {
    /// The Kubernetes pod's uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The systemd unit, if it is in no container: the first below slices, as `systemd_unit` in a
    /// policy finds it. Those below it may be anybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Home {
    /// From a cgroup's path, as the kubelet, the container runtimes and systemd name it
    /// (see src/policy/globs.rs for the forms).
    pub fn of(cgroup: &str) -> Self {
        let mut home = Self::default();
        for part in cgroup.split('/') {
            let name = part.strip_suffix(".slice").or(part.strip_suffix(".scope")).unwrap_or(part);
            // containerd with its own cgroups: SLICE:PREFIX:ID.
            for name in name.split(':') {
                let name = name.strip_suffix(".slice").unwrap_or(name);
                home.pod = pod(name).or(home.pod);
                home.container = container(name).or(home.container);
            }
        }
        let unit = cgroup.split('/').skip(1).find(|part| !part.ends_with(".slice"));
        home.unit = unit
            .filter(|unit| unit.ends_with(".service") || unit.ends_with(".scope"))
            .map(Into::into);
        if home.container.is_some() {
            home.unit = None;
        }
        home
    }

    /// For people: the container's short id, or what else there is.
    pub fn short(&self) -> String {
        let container = self.container.as_deref().map(|id| &id[..12]);
        match (&self.pod, container, &self.unit) {
            (Some(pod), Some(container), _) => format!("pod {pod} {container}"),
            (Some(pod), None, _) => format!("pod {pod}"),
            (None, Some(container), _) => format!("container {container}"),
            (None, None, Some(unit)) => unit.clone(),
            (None, None, None) => String::new(),
        }
    }
}

/// `podUID`, or `...-podUID` with underscores for the uid's hyphens.
fn pod(name: &str) -> Option<String> {
    let uid = name.rsplit_once("-pod").map_or(name.strip_prefix("pod"), |(_, uid)| Some(uid))?;
    let uid = uid.replace('_', "-");
    let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
    (uid.len() >= 32 && uid.chars().all(is_uid)).then_some(uid)
}

/// `ID` or `RUNTIME-ID`, an id of 64 hexadecimal digits.
fn container(name: &str) -> Option<String> {
    let id = name.rsplit_once('-').map_or(name, |(_runtime, id)| id);
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (id.len() == 64 && id.chars().all(digit)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_layout() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "6a7c2f0e-0000-4000-8000-0123456789ab";
        let under = uid.replace('-', "_");
        let fixed = "0f".repeat(16);
        for (path, short) in [
            ("/".to_owned(), String::new()),
            ("/user.slice/user-0.slice/session-1.scope".into(), "session-1.scope".into()),
            ("/system.slice/upf.service/main".into(), "upf.service".into()),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/upf.service".into(),
                "user@1000.service".into(),
            ),
            ("/docker/01/system.slice/upf.service".into(), String::new()),
            (format!("/system.slice/docker-{id}.scope"), "container 0123456789ab".into()),
            (
                format!("/machine.slice/libpod-{id}.scope/container"),
                "container 0123456789ab".into(),
            ),
            (format!("/docker/{id}"), "container 0123456789ab".into()),
            (format!("/kubepods/burstable/pod{uid}/{id}"), format!("pod {uid} 0123456789ab")),
            (format!("/kubepods/pod{fixed}"), format!("pod {fixed}")),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{id}.scope"
                ),
                format!("pod {uid} 0123456789ab"),
            ),
            (
                format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{under}.slice:cri-containerd:{id}"
                ),
                format!("pod {uid} 0123456789ab"),
            ),
            ("/kubepods/podium".into(), String::new()),
        ] {
            assert_eq!(Home::of(&path).short(), short, "{path}");
        }
    }
}
