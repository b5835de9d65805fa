//! Globs on paths, translated to regular expressions.
//!
//! An executable's path is what `/proc/PID/exe` shows in its mount namespace.

use std::fmt;

use globset::{ErrorKind, GlobBuilder};

/// Why a text is not a valid glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadGlob {
    Syntax(ErrorKind),
    /// It must be a path from the root.
    NotFromRoot,
}

impl fmt::Display for BadGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(kind) => write!(f, "{kind}"),
            Self::NotFromRoot => f.write_str("not a path from the root, such as /kubelet.slice"),
        }
    }
}

impl std::error::Error for BadGlob {}

/// The whole path of an executable.
///
/// In all globs here `*`, `?`, `[...]` stay within one directory, `**` crosses
/// directories, `{a,b}` is either. Fails with the reason when `glob` is invalid.
pub fn exe(glob: &str) -> Result<String, BadGlob> {
    Ok(format!("^{}$", translate(glob)?))
}

/// The path of a cgroup or of an ancestor.
pub fn cgroup(glob: &str) -> Result<String, BadGlob> {
    let glob = glob.trim_end_matches('/');
    Ok(format!("^{}(?:/|$)", translate(glob)?))
}

/// A glob as an unanchored regular expression over bytes.
pub fn translate(glob: &str) -> Result<String, BadGlob> {
    let glob = GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| BadGlob::Syntax(e.kind().clone()))?;
    // globset's own form is (?-u)^...$.
    let regex = glob.regex();
    let inner = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let inner = inner.strip_prefix('^').unwrap_or(inner);
    Ok(format!("(?:{})", inner.strip_suffix('$').unwrap_or(inner)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::patterns::found;

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
    fn what_is_no_glob_is_told() {
        for bad in ["/a[", "/a{b", "/a/[z-a]"] {
            assert!(matches!(exe(bad), Err(BadGlob::Syntax(_))), "{bad}");
        }
    }
}
