//! Finds out who else can change a file that root's gthctl obeys.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, absolute};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;

use super::symlinks::entries;

/// The mode bits that let the group and all others write.
const WRITABLE: u32 = 0o022;
/// In such a directory no user can replace another's entries (inode(7)).
const STICKY: u32 = 0o1000;

/// Why users other than root and this process's can change the content at `path`, and the
/// commands that prevent it; `None` if they cannot. Checks the file and every directory and
/// symbolic link on its path.
///
/// Only regular files are checked, not pipes for instance.
pub fn note(path: &Path) -> Option<String> {
    fs::metadata(path).ok().filter(Metadata::is_file)?;
    let mut doubts = Vec::new();
    for entry in entries(&absolute(path).ok()?) {
        for doubt in entry.ancestors().flat_map(of) {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    let (why, commands): (Vec<String>, Vec<String>) = doubts.into_iter().unzip();
    (!why.is_empty()).then(|| {
        let (why, commands) = (why.join(", "), commands.join("; "));
        format!("{}: other users can change it: {why}; to prevent that: {commands}", path.display())
    })
}

/// What is wrong with one directory, link or file, and the command that fixes it.
fn of(place: &Path) -> Vec<(String, String)> {
    let Ok(metadata) = fs::symlink_metadata(place) else { return Vec::new() };
    let shown = place.display();
    let mut doubts = Vec::new();
    if !is_trusted(metadata.uid()) {
        let what = format!("{shown} belongs to UID {}", metadata.uid());
        doubts.push((what, format!("chown -h root {shown}")));
    }
    if is_writable_by_others(&metadata) && (is_sandboxed() || !is_read_only(place)) {
        let what = format!("{shown} has the mode {:04o}", metadata.mode() & 0o7777);
        doubts.push((what, format!("chmod go-w {shown}")));
    }
    doubts
}

/// True for root and for the user of this process.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// True if the mode lets anyone but the owner write. The group's bits also limit every other entry
/// of an access control list (acl(5)).
pub fn is_writable_by_others(metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    let is_sticky = metadata.is_dir() && mode & STICKY != 0;
    !metadata.is_symlink() && mode & WRITABLE != 0 && !is_sticky
}

/// True on a read-only mount, such as Kubernetes' mount of a ConfigMap, whose directory has mode
/// 0777.
fn is_read_only(place: &Path) -> bool {
    statvfs(place).is_ok_and(|of| of.flags().contains(FsFlags::ST_RDONLY))
}

/// Whether systemd started this process (systemd.exec(5)). If so, a mount may be read-only for this
/// process alone (ProtectSystem=).
fn is_sandboxed() -> bool {
    std::env::var_os("INVOCATION_ID").is_some()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (sub, file, link) = (dir.join("sub"), dir.join("sub/p.yaml"), dir.join("link"));
        fs::create_dir(&sub).unwrap();
        fs::write(&file, "").unwrap();
        symlink("sub/p.yaml", &link).unwrap();
        for (of_dir, of_sub, of_file, wanted) in [
            (0o755, 0o755, 0o644, None),
            (0o755, 0o755, 0o664, Some((&file, "0664"))),
            (0o755, 0o755, 0o666, Some((&file, "0666"))),
            (0o755, 0o777, 0o644, Some((&sub, "0777"))),
            (0o775, 0o755, 0o644, Some((&dir, "0775"))),
            // No user can replace another's file there.
            (0o1777, 0o1777, 0o600, None),
        ] {
            set_mode(&dir, of_dir);
            set_mode(&sub, of_sub);
            set_mode(&file, of_file);
            for path in [&file, &link] {
                let wanted = wanted.map(|(place, mode)| {
                    let (path, place) = (path.display(), place.display());
                    format!(
                        "{path}: other users can change it: {place} has the mode {mode}; \
                         to prevent that: chmod go-w {place}"
                    )
                });
                assert_eq!(note(path), wanted, "{of_dir:o} {of_sub:o} {of_file:o}");
            }
        }
        assert_eq!(note(&dir.join("none")), None);
    }

    #[test]
    fn what_belongs_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (file, link) = (dir.join("p.yaml"), dir.join("link"));
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o644);
        symlink("p.yaml", &link).unwrap();
        // Only root can give a file away; other users trust root's files.
        let is_root = geteuid().is_root();
        for place in [&link, &file] {
            if is_root {
                lchown(place, Some(1234), None).unwrap();
            }
            let told = note(&link);
            let place = place.display();
            match is_root {
                true => assert!(
                    told.as_ref()
                        .is_some_and(|told| told.contains(&format!("{place} belongs to UID 1234"))
                            && told.contains(&format!("chown -h root {place}"))),
                    "{told:?}"
                ),
                false => assert_eq!(told, None),
            }
        }
        assert!(!is_trusted(1234) || geteuid().as_raw() == 1234);
    }
}
