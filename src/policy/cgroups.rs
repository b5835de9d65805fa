//! The names that systemd, kubelets and container runtimes give cgroups: as patterns for a
//! policy's conditions, and what such a name means.
//!
//! A cgroup's path is what `/proc/PID/cgroup` shows in the initial cgroup namespace.
//!
//! The owner of a delegated cgroup chooses the names below it: a user below
//! `user@UID.service`, a container's processes below its cgroup. So units, pods and
//! containers match only where systemd, the kubelet and the runtimes put them.

use serde::Serialize;

use super::globs::{BadGlob, translate};

/// A unit of the machine's own systemd, which names cgroups after their units.
///
/// It is a slice, or the first non-slice below slices: systemd delegates services and
/// scopes, never slices (systemd.resource-control(5), `Delegate=`). Below user.slice only
/// systemd-logind's own units match, and only by a glob that begins like their names.
pub fn unit(glob: &str) -> Result<String, BadGlob> {
    let logind = ["user-", "user@", "session-"].iter().any(|kind| glob.starts_with(kind));
    let users = if logind { format!("|{USERS}") } else { String::new() };
    Ok(format!("^(?:{}{users})/{}(?:/|$)", slices(), translate(glob)?))
}

/// Where systemd-logind makes a user's units (user@.service(5)).
const USERS: &str = r"/user\.slice(?:/user-[0-9]+\.slice)?";

/// Zero or more slices from the root; the first is not user.slice.
fn slices() -> String {
    format!(r"(?:/{}\.slice(?:/[^/]+\.slice)*)?", other_than("user"))
}

/// Any text that can be part of a name, except `word`.
fn other_than(word: &str) -> String {
    // Built from the word's end: what may follow the part already read.
    let mut rest = String::from("[^/]+");
    for (read, byte) in word.bytes().enumerate().rev() {
        let byte = char::from(byte);
        let stop = if read == 0 { "" } else { "?" };
        rest = format!("(?:[^/{byte}][^/]*|{byte}{rest}){stop}");
    }
    rest
}

/// The cgroup of a container by (the beginning of) its id. It is
///
/// - a systemd scope such as `docker-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`,
///   directly below slices, including those of pods;
/// - `ID` or `crio-ID` in a pod's cgroup, with the kubelet's cgroupfs driver;
/// - at the top, from a runtime without systemd ([`RUNTIMES`]);
/// - in a service: Podman with `--cgroups=split`, or, after a colon, a runtime that should use
///   systemd and does not.
///
/// `kubelets` are globs on directories with their own kubepods cgroup.
pub fn container(id: &str, kubelets: &[String]) -> String {
    // The prefixes are listed by name: if any text were allowed, a hundred rules would take half a
    // second to compile.
    let prefix = "(?:(?:docker|crio|libpod|cri-containerd|nerdctl)-)?";
    let mut places = vec![
        format!(r"{}/{prefix}{id}[0-9a-f]*\.scope", slices()),
        format!(r"{CGROUPFS_POD}[^/]+/{prefix}{id}[0-9a-f]*"),
        format!(r"/{RUNTIMES}/(?:libpod-)?{id}[0-9a-f]*"),
        format!(r"{}/[^/]+\.service/libpod-payload-{id}[0-9a-f]*", slices()),
        format!(r"/system\.slice/{SERVICES}\.service/[^/]+:[^/]+:{id}[0-9a-f]*"),
    ];
    for root in kubelets.iter().filter_map(|glob| kubelet_root(glob).ok()) {
        places.push(format!(r"{root}{CGROUPFS_POD}[^/]+/{prefix}{id}[0-9a-f]*"));
        places.push(format!(r"{root}(?:/[^/]+\.slice)+/{prefix}{id}[0-9a-f]*\.scope"));
    }
    format!("(?-u)^(?:{})(?:/|$)", places.join("|"))
}

/// The directories of Docker, of Podman without and with a pod, and of containerd's
/// namespaces for nerdctl and the kubelet.
const RUNTIMES: &str = r"(?:docker|libpod_parent(?:/[^/]+)?|default|k8s\.io)";

/// The services that run containers.
const SERVICES: &str = "(?:containerd|crio|docker|kubelet|k3s|k3s-agent|rke2-server|rke2-agent)";

/// A pod's cgroup up to its uid with the kubelet's cgroupfs driver (pkg/kubelet/cm).
const CGROUPFS_POD: &str = "/kubepods/(?:(?:burstable|besteffort)/)?pod";

/// The cgroup of any of these pods, by the uid in its name: `podUID` with the kubelet's
/// cgroupfs driver, `...-podUID.slice` with `_` for `-` in the UID with its systemd
/// driver (kubelet, pkg/kubelet/cm). `kubelets` as for [`container`].
pub fn pods<'a>(uids: impl IntoIterator<Item = &'a str>, kubelets: &[String]) -> String {
    let uids: Vec<String> = uids
        .into_iter()
        .map(|uid| regex_syntax::escape(uid).replace("\\-", "-").replace('-', "[-_]"))
        .collect();
    // The uids appear once, so that they take up table space once.
    format!(r"^(?:{})(?:{})(?:\.slice)?(?:/|$)", pod_places(kubelets), uids.join("|"))
}

/// The cgroup of any pod, without the cgroups in it.
pub fn any_pod(kubelets: &[String]) -> String {
    format!(r"^(?:{})[0-9a-fA-F_-]+(?:\.slice)?$", pod_places(kubelets))
}

/// The beginnings of the paths of pods' cgroups, up to the uid.
fn pod_places(kubelets: &[String]) -> String {
    let mut places = vec![CGROUPFS_POD.to_owned(), systemd_pod("")];
    for glob in kubelets {
        let Ok(root) = kubelet_root(glob) else { continue };
        // systemd prefixes a slice's name to those of the slices in it.
        let above = glob.rsplit('/').next().and_then(|name| name.strip_suffix(".slice"));
        let above = above.and_then(|name| translate(name).ok()).map(|name| name + "-");
        places.push(format!("{root}{CGROUPFS_POD}"));
        places.push(root + &systemd_pod(&above.unwrap_or_default()));
    }
    places.join("|")
}

/// A pod's cgroup up to its uid with the kubelet's systemd driver; the expression `above`
/// precedes each slice's name.
fn systemd_pod(above: &str) -> String {
    let qos = "(?:burstable|besteffort)";
    let kubepods = format!("{above}kubepods");
    format!(r"/{kubepods}\.slice/(?:{kubepods}-{qos}\.slice/)?{kubepods}-(?:{qos}-)?pod")
}

/// The directory in which a kubelet keeps its kubepods cgroup. Fails with the reason when
/// `glob` is not a valid glob on a path from the root.
pub fn kubelet_root(glob: &str) -> Result<String, BadGlob> {
    match glob.strip_prefix('/') {
        Some(path) if path.split('/').all(|name| !["", ".", ".."].contains(&name)) => {
            translate(glob)
        }
        _ => Err(BadGlob::NotFromRoot),
    }
}

/// What a cgroup's path says about its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Home {
    /// The Kubernetes pod's uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The systemd unit, if not in a container: the first below slices, as a policy's
    /// `systemd_unit` finds it. Those below it may be anyone's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Home {
    /// From a cgroup's path, as the kubelet, the container runtimes and systemd name it.
    pub fn of(cgroup: &str) -> Self {
        let mut home = Self::default();
        for part in cgroup.split('/') {
            let name = part.strip_suffix(".slice").or(part.strip_suffix(".scope")).unwrap_or(part);
            // containerd with its own cgroups: SLICE:PREFIX:ID.
            for name in name.split(':') {
                let name = name.strip_suffix(".slice").unwrap_or(name);
                home.pod = pod_of(name).or(home.pod);
                home.container = container_of(name).or(home.container);
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

    /// A text for people: the container's short id, or else the pod or unit.
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
fn pod_of(name: &str) -> Option<String> {
    let uid = name.rsplit_once("-pod").map_or(name.strip_prefix("pod"), |(_, uid)| Some(uid))?;
    let uid = uid.replace('_', "-");
    let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
    (uid.len() >= 32 && uid.chars().all(is_uid)).then_some(uid)
}

/// `ID` or `RUNTIME-ID`, an id of 64 hexadecimal digits.
fn container_of(name: &str) -> Option<String> {
    let id = name.rsplit_once('-').map_or(name, |(_runtime, id)| id);
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (id.len() == 64 && id.chars().all(digit)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::patterns::found;

    #[test]
    fn units() {
        let of = |glob: &str, path: &str| found(&unit(glob).unwrap(), path);
        assert!(of("upf.service", "/system.slice/upf.service"));
        assert!(of("upf.service", "/system.slice/upf.service/worker"));
        assert!(of("upf@*.service", "/system.slice/system-upf.slice/upf@1.service"));
        assert!(of("system.slice", "/system.slice/upf.service"));
        assert!(!of("upf.service", "/system.slice/my-upf.service"));
        // With Slice=, units are in a slice of their own, in one named much like user.slice, or in
        // none.
        for slice in ["/core.slice", "/use.slice", "/users.slice/users-a.slice", "/ser.slice", ""] {
            assert!(of("upf.service", &format!("{slice}/upf.service")), "{slice}");
        }
        assert!(of("init.scope", "/init.scope") && of("machine.slice", "/machine.slice/x.scope"));
        assert!(of("user.slice", "/user.slice/user-1000.slice/session-1.scope"));
    }

    #[test]
    fn units_that_somebody_else_named() {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for path in [
            // systemd-run --user --unit=upf.service, and cgroups that such a unit may make.
            &format!("{user}/app.slice/upf.service"),
            &format!("{user}/upf.service"),
            "/user.slice/user-1000.slice/upf.service",
            "/user.slice/upf.service",
            "/user.slice/system.slice/upf.service",
            "/user.slice/user-1000.slice/session-1.scope/system.slice/upf.service",
            // In a container, in a delegated service, in a cgroup not made by systemd.
            "/system.slice/docker-01.scope/system.slice/upf.service",
            "/system.slice/foo.service/system.slice/upf.service",
            "/system.slice/foo.service/upf.service",
            "/kubepods/pod1/01/system.slice/upf.service",
            "/docker/01/upf.service",
        ] {
            for glob in ["upf.service", "upf*.service", "up*", "*pf.service"] {
                assert!(!found(&unit(glob).unwrap(), path), "{glob} {path}");
            }
        }
    }

    #[test]
    fn units_that_logind_makes() {
        let of = |glob: &str, path: &str| found(&unit(glob).unwrap(), path);
        let user = "/user.slice/user-1000.slice";
        assert!(of("user-1000.slice", &format!("{user}/session-1.scope")));
        assert!(of("user@1000.service", &format!("{user}/user@1000.service/app.slice/a.scope")));
        assert!(of("session-*.scope", &format!("{user}/session-1.scope")));
        assert!(!of("*.scope", &format!("{user}/session-1.scope")));
        // Such names do not match where a user can make them.
        let inside = format!("{user}/user@1000.service/user@0.service");
        assert!(!of("user@0.service", &inside) && !of("user-0.slice", "/x/user-0.slice"));
        assert!(!of("user@0.service", &format!("{user}/session-1.scope/user@0.service")));
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn containers_of_every_runtime() {
        for path in [
            format!("/docker/{ID}"),
            format!("/default/{ID}"),
            format!("/k8s.io/{ID}"),
            format!("/libpod_parent/libpod-{ID}"),
            format!("/libpod_parent/fedcba98/libpod-{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/core.slice/docker-{ID}.scope/init"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/machine.slice/machine-libpod_pod_fedcba98.slice/libpod-{ID}.scope"),
            format!("/system.slice/upf.service/libpod-payload-{ID}"),
            format!("/kubepods/burstable/pod1/{ID}"),
            format!("/kubepods/pod1/crio-{ID}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert!(found(&container(ID, &[]), &path), "{path}");
            assert!(found(&container(&ID[..12], &[]), &path), "{path}");
            assert!(!found(&container("123456789abc", &[]), &path), "{path}");
        }
    }

    #[test]
    fn containers_that_somebody_else_named() {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for path in [
            format!("{user}/user.slice/libpod-{ID}.scope/container"),
            format!("{user}/docker-{ID}.scope"),
            format!("{user}/{ID}"),
            format!("/user.slice/docker-{ID}.scope"),
            format!("/user.slice/user-1000.slice/docker-{ID}.scope"),
            format!("/user.slice/user-1000.slice/session-1.scope/{ID}"),
            // In another container.
            format!("/system.slice/docker-fedcba98.scope/docker/{ID}"),
            format!("/system.slice/docker-fedcba98.scope/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod1/fedcba98/{ID}"),
            format!("/kubepods.slice/kubepods-pod1.slice/crio-fedcba98.scope/{ID}"),
            format!("/docker/fedcba98/{ID}"),
            format!("/system.slice/containerd.service/x:y:fedcba98/a:b:{ID}"),
            format!("/system.slice/foo.service/a:b:{ID}"),
            format!("/system.slice/foo.service/{ID}"),
            format!("/{ID}"),
        ] {
            assert!(!found(&container(&ID[..12], &[]), &path), "{path}");
        }
    }

    const UIDS: [&str; 2] =
        ["6a7c2f0e-0000-4000-8000-0123456789ab", "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"];
    const AS_SLICE: &str = "pod6a7c2f0e_0000_4000_8000_0123456789ab.slice";

    #[test]
    fn pods_of_both_drivers() {
        let pattern = pods(UIDS, &[]);
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-";
        for path in [
            &format!("/kubepods/besteffort/pod{}/abc", UIDS[0]),
            &format!("/kubepods/burstable/pod{}", UIDS[0]),
            &format!("/kubepods/pod{}", UIDS[1]),
            &format!("{slice}{AS_SLICE}/x"),
            &format!("{slice}pod{}.slice/x", UIDS[1]),
            &format!("/kubepods.slice/kubepods-{AS_SLICE}"),
        ] {
            assert!(found(&pattern, path), "{path}");
        }
        assert!(!found(&pattern, &format!("/kubepods/pod{}c", UIDS[0])));
        assert!(!found(&pattern, "/kubepods/burstable"));
    }

    #[test]
    fn any_pod_is_none_of_the_cgroups_in_it() {
        let pattern = any_pod(&["/docker/*".into()]);
        let slice = format!("/kubepods.slice/kubepods-{AS_SLICE}");
        let inner = format!("/docker/kind/kubepods/burstable/pod{}", UIDS[1]);
        for path in [&slice, &inner, &format!("/kubepods/pod{}", UIDS[0])] {
            assert!(found(&pattern, path), "{path}");
            assert!(!found(&pattern, &format!("{path}/x")), "{path}/x");
        }
        assert!(!found(&pattern, &format!("/x{slice}")));
    }

    #[test]
    fn pods_that_somebody_else_named() {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        let inner = format!("/kubepods/pod{}", UIDS[1]);
        for path in [
            format!("{user}{inner}"),
            format!("{user}/kubepods.slice/kubepods-{AS_SLICE}"),
            format!("/system.slice/foo.service/pod{}", UIDS[1]),
            format!("/system.slice/docker-01.scope{inner}"),
            format!("/kubepods/pod2/01{inner}"),
            format!("/kubepods/pod2/pod{}", UIDS[1]),
            format!("/kubepods/x/pod{}", UIDS[1]),
            format!("/kubepods.slice/kubepods-pod2.slice/crio-01.scope/kubepods-{AS_SLICE}"),
            format!("/x-kubepods.slice/x-kubepods-{AS_SLICE}"),
            format!("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{AS_SLICE}"),
            format!("/pod{}", UIDS[1]),
        ] {
            assert!(!found(&pods(UIDS, &[]), &path), "{path}");
        }
    }

    #[test]
    fn pods_and_containers_of_a_kubelet_elsewhere() {
        let node = "/system.slice/docker-fedcba98.scope";
        let roots = ["/kubelet.slice", "/kubelet", "/system.slice/docker-*.scope/kubelet.slice"];
        let roots = roots.map(String::from);
        let kubelet = "/kubelet.slice/kubelet-kubepods.slice";
        let besteffort = "kubelet-kubepods-besteffort";
        for pod in [
            format!("{kubelet}/kubelet-kubepods-{AS_SLICE}"),
            format!("{kubelet}/{besteffort}.slice/{besteffort}-{AS_SLICE}"),
            format!("{node}{kubelet}/kubelet-kubepods-{AS_SLICE}"),
        ] {
            let in_it = format!("{pod}/cri-containerd-{ID}.scope");
            for path in [&pod, &in_it] {
                assert!(found(&pods(UIDS, &roots), path), "{path}");
                assert!(!found(&pods(UIDS, &roots[1..2]), path), "{path}");
            }
            assert!(found(&container(ID, &roots), &in_it), "{in_it}");
        }
        let pod = format!("/kubelet/kubepods/burstable/pod{}", UIDS[1]);
        assert!(found(&pods(UIDS, &roots), &pod));
        assert!(found(&container(ID, &roots), &format!("{pod}/{ID}")));
        for elsewhere in [format!("/a{pod}"), format!("{node}{pod}"), format!("/kubelet/a{pod}")] {
            assert!(!found(&pods(UIDS, &roots), &elsewhere), "{elsewhere}");
            let container = container(ID, &roots);
            assert!(!found(&container, &format!("{elsewhere}/{ID}")), "{elsewhere}");
        }
    }

    #[test]
    fn what_is_no_glob_is_told() {
        for bad in ["/a[", "/a{b", "/a/[z-a]"] {
            assert!(matches!(kubelet_root(bad), Err(BadGlob::Syntax(_))), "{bad}");
        }
        for bad in ["", "/", "kubelet", "/kubelet/", "//kubelet", "/a/../kubelet"] {
            assert_eq!(kubelet_root(bad), Err(BadGlob::NotFromRoot), "{bad}");
        }
    }

    #[test]
    fn homes_of_every_layout() {
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
