//! Conditions on paths as regular expressions: globs on executables, cgroups and
//! systemd units, and the names that container runtimes and kubelets give to
//! their cgroups.
//!
//! A cgroup's path is what `/proc/PID/cgroup` shows in the initial cgroup
//! namespace, an executable's what `/proc/PID/exe` shows in its mount namespace.

use globset::GlobBuilder;

/// The whole path of an executable.
///
/// `*`, `?`, `[...]` stay within one directory, `**` does not, `{a,b}` is either;
/// so in all globs here. Fails with the reason when `glob` is none.
pub fn exe(glob: &str) -> Result<String, String> {
    Ok(format!("^{}$", translate(glob)?))
}

/// The path of a cgroup or of one above it.
pub fn cgroup(glob: &str) -> Result<String, String> {
    let glob = glob.trim_end_matches('/');
    Ok(format!("^{}(?:/|$)", translate(glob)?))
}

/// One directory of a cgroup's path: systemd names them like their units.
pub fn unit(glob: &str) -> Result<String, String> {
    Ok(format!("/{}(?:/|$)", translate(glob)?))
}

/// The cgroup of a container by (the beginning of) its id: alone, or in a scope
/// of systemd's such as `docker-ID.scope`, `crio-ID.scope`, `cri-containerd-ID.scope`,
/// or after a colon where a runtime was meant to use systemd and does not.
pub fn container(id: &str) -> String {
    format!("(?:/|[-:]){id}[0-9a-f]*(?:\\.scope)?(?:/|$)")
}

/// The cgroup of a pod among these, by the uid in its name: `podUID` with the
/// kubelet's cgroupfs driver, `...-podUID.slice` and `_` for `-` in the UID with
/// its systemd driver (kubelet, pkg/kubelet/cm).
pub fn pods<'a>(uids: impl IntoIterator<Item = &'a str>) -> String {
    let uids: Vec<String> = uids
        .into_iter()
        .map(|uid| regex_syntax::escape(uid).replace("\\-", "-").replace('-', "[-_]"))
        .collect();
    format!("[/-]pod(?:{})(?:\\.slice)?(?:/|$)", uids.join("|"))
}

/// A glob as a regular expression over bytes, without anchors.
fn translate(glob: &str) -> Result<String, String> {
    let glob = GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| e.kind().to_string())?;
    // globset's own form is (?-u)^...$.
    let regex = glob.regex();
    let inner = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let inner = inner.strip_prefix('^').unwrap_or(inner);
    Ok(format!("(?:{})", inner.strip_suffix('$').unwrap_or(inner)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::dfa;

    fn found(pattern: &str, path: &str) -> bool {
        let dfas = dfa::compile(&[(0, pattern)], &mut dfa::Budget::default()).unwrap();
        dfas.iter().any(|dfa| dfa.find(path.as_bytes()) == 1)
    }

    #[test]
    fn executables() {
        let of = |glob: &str, path: &str| found(&exe(glob).unwrap(), path);
        assert!(of("/usr/bin/upf", "/usr/bin/upf"));
        assert!(!of("/usr/bin/upf", "/usr/bin/upf2") && !of("/usr/bin/upf", "/x/usr/bin/upf"));
        assert!(of("/opt/*/upf", "/opt/a/upf") && !of("/opt/*/upf", "/opt/a/b/upf"));
        assert!(of("/opt/**/upf", "/opt/a/b/upf") && of("**/upf", "/opt/a/upf"));
        assert!(of("/usr/{bin,sbin}/u?f", "/usr/sbin/upf"));
        assert!(of("/a.b+c", "/a.b+c") && !of("/a.b+c", "/aXbbc"));
    }

    #[test]
    fn cgroups_and_what_is_below() {
        let of = |glob: &str, path: &str| found(&cgroup(glob).unwrap(), path);
        for glob in ["/a.slice/b", "/a.slice/b/", "/a.slice/*", "/a.slice/**", "/a.slice"] {
            assert!(of(glob, "/a.slice/b"), "{glob}");
            assert!(of(glob, "/a.slice/b/c"), "{glob}");
            assert!(!of(glob, "/a.slicer/b"), "{glob}");
            assert!(!of(glob, "/x/a.slice/b"), "{glob}");
        }
        assert!(!of("/a.slice/b", "/a.slice/bc"));
    }

    #[test]
    fn units() {
        let of = |glob: &str, path: &str| found(&unit(glob).unwrap(), path);
        assert!(of("upf.service", "/system.slice/upf.service"));
        assert!(of("upf.service", "/system.slice/upf.service/worker"));
        assert!(of("upf@*.service", "/system.slice/system-upf.slice/upf@1.service"));
        assert!(of("system.slice", "/system.slice/upf.service"));
        assert!(!of("upf.service", "/system.slice/my-upf.service"));
    }

    #[test]
    fn containers_of_every_runtime() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/kubepods/burstable/pod1/{id}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/crio-{id}.scope"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{id}"),
        ] {
            assert!(found(&container(id), &path), "{path}");
            assert!(found(&container(&id[..12]), &path), "{path}");
            assert!(!found(&container("123456789abc"), &path), "{path}");
        }
    }

    #[test]
    fn pods_of_both_drivers() {
        let uids = ["6a7c2f0e-0000-4000-8000-0123456789ab", "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"];
        let pattern = pods(uids);
        for path in [
            "/kubepods/besteffort/pod6a7c2f0e-0000-4000-8000-0123456789ab/abc",
            "/kubepods/pod0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6a7c2f0e_0000_4000_8000_0123456789ab.slice/x",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod6a7c2f0e_0000_4000_8000_0123456789ab.slice",
        ] {
            assert!(found(&pattern, path), "{path}");
        }
        assert!(!found(&pattern, "/kubepods/pod6a7c2f0e-0000-4000-8000-0123456789abc"));
        assert!(!found(&pattern, "/kubepods/burstable"));
    }

    #[test]
    fn what_is_no_glob_is_told() {
        for bad in ["/a[", "/a{b", "/a/[z-a]"] {
            assert!(!exe(bad).unwrap_err().is_empty(), "{bad}");
        }
    }
}
