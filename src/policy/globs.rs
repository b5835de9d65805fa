//! Globs on paths, translated to regular expressions.
//!
//! An executable's path is what `/proc/PID/exe` shows in its mount namespace.

use std::fmt;

use globset::{ErrorKind, GlobBuilder};

use super::patterns::{self, Budget};

/// Why a text is not a valid glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadGlob {
    Syntax(ErrorKind),
    /// A `[...]` that could mean `/` or a part of a character.
    Class,
    /// Not a path from the root, which is required.
    NotFromRoot,
    /// A `**` that is only a part of a directory's name. globset takes it for `*`.
    Stars,
}

impl fmt::Display for BadGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(kind) => write!(f, "{kind}"),
            Self::Class => f.write_str("[...] may hold only ASCII characters other than /"),
            Self::Stars => f.write_str("** must be a whole directory, such as /opt/**/upf"),
            Self::NotFromRoot => f.write_str("not a path from the root, such as /kubelet.slice"),
        }
    }
}

impl std::error::Error for BadGlob {}

/// A regular expression for the whole path of an executable.
///
/// In all globs here `*`, `?` and `[...]` stay within one directory, `**` crosses directories,
/// `{a,b}` is either, and a backslash stands for itself: systemd writes `\x2d` in units' names.
/// Fails with the reason when `glob` is invalid.
pub fn exe(glob: &str) -> Result<String, BadGlob> {
    Ok(format!("^{}$", translate(glob)?))
}

/// A regular expression for the path of a cgroup, where `glob` is its path or an ancestor's.
pub fn cgroup(glob: &str) -> Result<String, BadGlob> {
    let glob = glob.trim_end_matches('/');
    Ok(format!("^{}(?:/|$)", translate(glob)?))
}

/// Whether some path from the root has a match of `pattern`, which [`exe`] or [`cgroup`] made of
/// `glob`.
pub fn can_match(glob: &str, pattern: &str) -> bool {
    // Compiling takes long, so this decides most globs. An alternative in braces may be empty.
    if glob.starts_with('/') || glob.starts_with("**/") {
        let mut names = glob.split('/').skip(1);
        return glob.contains('{') || names.all(|name| !["", ".", ".."].contains(&name));
    }
    match patterns::compile(&[(0, pattern)], &mut Budget::default()) {
        Ok(dfas) => dfas.iter().any(|dfa| dfa.finds_some(b"/")),
        // Compiling the policy reports the reason.
        Err(_) => true,
    }
}

/// A glob as an unanchored regular expression over bytes.
pub fn translate(glob: &str) -> Result<String, BadGlob> {
    let built = GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(false)
        .empty_alternates(true)
        .build()
        .map_err(|e| BadGlob::Syntax(e.kind().clone()))?;
    check_classes(glob)?;
    // globset's own form is (?-u)^...$.
    let regex = built.regex();
    let inner = regex.strip_prefix("(?-u)").unwrap_or(regex);
    let inner = inner.strip_prefix('^').unwrap_or(inner);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    // globset escapes every other ^, so [^ begins the list of what must not match. A path may
    // contain a line feed, which globset's . for ** matches, too.
    Ok(format!("(?s:{})", inner.replace("[^", "[^/")))
}

/// Fails if a `**` of the glob that `pattern` was made of is only a part of a directory's name:
/// globset takes each of the two for `*`.
pub fn check_stars(pattern: &str) -> Result<(), BadGlob> {
    match pattern.contains("[^//]*[^//]*") {
        true => Err(BadGlob::Stars),
        false => Ok(()),
    }
}

/// Fails if a `[...]` of `glob` that globset accepts can mean anything but one byte within a
/// directory.
fn check_classes(glob: &str) -> Result<(), BadGlob> {
    let mut rest = glob;
    while let Some((_, class)) = rest.split_once('[') {
        let members = class.strip_prefix(['!', '^']).unwrap_or(class);
        let is_negated = members.len() < class.len();
        // A ] in the first place is a member.
        let end = members.char_indices().skip(1).find(|&(_, c)| c == ']');
        let (members, after) = members.split_at(end.map_or(members.len(), |(end, _)| end));
        if !members.is_ascii() || (!is_negated && has_slash(members.as_bytes())) {
            return Err(BadGlob::Class);
        }
        rest = after;
    }
    Ok(())
}

/// Whether `/` is one of these members of a class, or within a range of them.
fn has_slash(members: &[u8]) -> bool {
    let spans = |part: &[u8]| part[1] == b'-' && (part[0]..part[2]).contains(&b'/');
    members.contains(&b'/') || members.windows(3).any(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cgroups::unit;
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

    /// Any user may make such a directory.
    #[test]
    fn a_directory_may_have_a_line_feed_in_its_name() {
        for glob in ["/home/**", "**/upf", "/home/**/upf", "/home/*/*/upf"] {
            assert!(found(&exe(glob).unwrap(), "/home/u/a\nb/upf"), "{glob}");
        }
    }

    #[test]
    fn two_stars_are_a_whole_directory() {
        let check = |glob: &str| check_stars(&exe(glob).unwrap());
        for bad in
            ["/upf**", "/**upf", "/a**/upf", "/***", "/[a]**", "/**[*]", "{a,**b}", "/{**,a}/b"]
        {
            assert_eq!(check(bad), Err(BadGlob::Stars), "{bad}");
        }
        for good in ["/**", "**/upf", "/opt/**/upf", "{**/a,/b/**}", "/[**]", "/[!**]a*", "/*/*a*"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn alternatives_may_be_empty() {
        let of = |path: &str| found(&exe("/opt/upf{,-2}{}").unwrap(), path);
        assert!(of("/opt/upf") && of("/opt/upf-2") && !of("/opt/upf-"));
    }

    /// systemd escapes the names of units like this, and /proc/PID/cgroup shows them escaped.
    #[test]
    fn a_backslash_is_itself() {
        let path = r"/system.slice/system-upf.slice/upf@n3\x2dcore.service";
        assert!(found(&unit(r"upf@n3\x2dcore.service").unwrap(), path));
        assert!(found(&unit(r"upf@n3[\]x2d*.service").unwrap(), path));
        assert!(found(&cgroup(r"/**/upf@n3\x2dcore.service").unwrap(), path));
        assert!(!found(&unit("upf@n3x2dcore.service").unwrap(), path));
    }

    #[test]
    fn classes_stay_within_one_directory() {
        let of = |glob: &str, path: &str| found(&exe(glob).unwrap(), path);
        let glob = "/opt/upf[!0-9]bin";
        assert!(!of(glob, "/opt/upf/bin") && !of(glob, "/opt/upf1bin") && of(glob, "/opt/upf-bin"));
        assert!(of("/a[^]b-]", "/a^") && !of("/a[^]b-]", "/a]") && !of("/a[^]b-]", "/a/"));
        assert!(of("/a[!/]", "/ab") && !of("/a[!/]", "/a/"));
        assert!(of("/a[[^]", "/a[") && of("/a[[^]", "/a^"));
        let path = "/system.slice/foo.service/upf.service";
        assert!(!found(&unit("*[!-]upf.service").unwrap(), path));
        for bad in
            ["/a[/]b", "/a[.-0]", "/a[+-9]", "[!-z]upf[*-~]", "/[é]", "/[!é]", "/[a]{[a-é],b}"]
        {
            assert_eq!(exe(bad), Err(BadGlob::Class), "{bad}");
        }
        assert!(of("/[a-c][]x][0-9-]", "/b]-"));
    }

    #[test]
    fn what_is_no_glob_is_told() {
        for bad in ["/a[", "/a{b", "/a/[z-a]"] {
            assert!(matches!(exe(bad), Err(BadGlob::Syntax(_))), "{bad}");
        }
    }
}
