//! Replaces a file as a whole: readers see the old content or the new, even after a
//! crash.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use xattr::FileExt;

use super::error::{Error, Result};

/// The access control list (acl(5)), as an extended attribute.
const ACL: &str = "system.posix_acl_access";
/// Extended attributes (xattr(7)) of the old content: its hash, that hash's signature, and
/// capabilities, which the kernel removes when a file is written.
const OF_CONTENT: [&str; 3] = ["security.ima", "security.evm", "security.capability"];

/// A file's new content, on disk beside it; dropping this removes it.
#[derive(Debug)]
pub struct Replacement {
    new: PathBuf,
    target: PathBuf,
}

impl Replacement {
    /// Writes `text` beside the file that `path` leads to, following symbolic links, with
    /// that file's owner, mode, access control list and other extended attributes,
    /// including the SELinux label. A new file is readable by all.
    ///
    /// Fails when the file system refuses one of these, and when `path` leads to anything but a
    /// regular file.
    pub fn prepare(path: &Path, text: &str) -> Result<Self> {
        Self::prepare_as(path, text, 0o644)
    }

    /// As [`Replacement::prepare`]; a new file gets the mode `mode`.
    pub fn prepare_as(path: &Path, text: &str, mode: u32) -> Result<Self> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self::prepare_at(path, target, text, mode)
    }

    /// As [`Replacement::prepare`], where others may write to the directory: a link that they put there
    /// could lead to any file.
    ///
    /// Fails when `path` is a symbolic link.
    pub fn prepare_without_links(path: &Path, text: &str) -> Result<Self> {
        Self::prepare_at(path, path.to_owned(), text, 0o644)
    }

    fn prepare_at(path: &Path, target: PathBuf, text: &str, mode: u32) -> Result<Self> {
        let failed = |e: std::io::Error| Error::because_of(path.display(), e);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let new = target.with_file_name(format!(".{name}.gthctl-{}", std::process::id()));
        let replacement = Self { new, target };
        // Left over from a killed process, or put there by someone else.
        let _ = fs::remove_file(&replacement.new);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&replacement.new).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        match open_old(&replacement.target).map_err(failed)? {
            Some(old) => look_like(&file, &old).map_err(failed)?,
            None => file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?,
        }
        file.sync_all().map_err(failed)?;
        Ok(replacement)
    }

    /// Puts the new file in place. Returns a note if only the sync of the directory failed: after a
    /// crash of the machine the old file may be back.
    ///
    /// Fails if the file cannot be renamed; then nothing has changed.
    pub fn commit(self) -> Result<Option<String>> {
        let failed = |e: std::io::Error| Error::because_of(self.target.display(), e);
        fs::rename(&self.new, &self.target).map_err(failed)?;
        // The parent of a bare file name is "".
        let dir = self.target.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        Ok(synced.err().map(|e| {
            format!(
                "{}: replaced, but its directory cannot be synced ({e}): after a crash of the \
                 machine the old file may be there again",
                self.target.display()
            )
        }))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new);
    }
}

/// The file to replace, if there is one; it must be regular. If a link or a FIFO has taken its
/// place meanwhile, a link is not followed and a FIFO does not block.
fn open_old(path: &Path) -> io::Result<Option<File>> {
    let open = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    match open {
        // For example /dev/null, which must not be replaced by a file.
        Ok(old) if !old.metadata()?.is_file() => Err(io::Error::other("it is not a regular file")),
        Ok(old) => Ok(Some(old)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) if e.raw_os_error() == Some(Errno::ELOOP as i32) => {
            Err(io::Error::new(e.kind(), "it is a symbolic link"))
        }
        Err(e) => Err(e),
    }
}

/// Gives `new` the extended attributes, the mode and the owner of `old`. Both are open files,
/// because a user who may write to the directory can put something else under their names.
///
/// The owner comes last: changing another user's file takes more than CAP_CHOWN. Until then this
/// user owns the file, so the set-user-ID and set-group-ID bits would give away this user's rights.
fn look_like(new: &File, old: &File) -> io::Result<()> {
    let metadata = old.metadata()?;
    let kept: Vec<OsString> = attributes(old)?;
    // An access control list inherited from the directory's default would name more users.
    for name in attributes(new)?.iter().filter(|name| *name == ACL && !kept.contains(name)) {
        new.remove_xattr(name).map_err(|e| about(name, &e))?;
    }
    for name in kept.iter().filter(|name| OF_CONTENT.iter().all(|other| name != other)) {
        let copied = match old.get_xattr(name)? {
            Some(value) => new.set_xattr(name, &value),
            None => Ok(()),
        };
        match copied {
            Err(e) if e.raw_os_error() == Some(Errno::ENOTSUP as i32) => {}
            copied => copied.map_err(|e| about(name, &e))?,
        }
    }
    new.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))?;
    let (uid, gid) = (metadata.uid(), metadata.gid());
    fchown(new, Some(uid), Some(gid)).map_err(|e| {
        let what =
            format!("the new file cannot have its owner, {uid}:{gid}, without CAP_CHOWN: {e}");
        io::Error::new(e.kind(), what)
    })
}

/// The names of a file's extended attributes; none if the file system has none.
fn attributes(file: &File) -> io::Result<Vec<OsString>> {
    match file.list_xattr() {
        Ok(names) => Ok(names.collect()),
        Err(e) if e.raw_os_error() == Some(Errno::ENOTSUP as i32) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn about(name: &OsStr, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("its attribute {}: {e}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt as _;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_changes_before_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let replacement = Replacement::prepare(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(replacement);
        assert_eq!(names(dir.path()), ["p.yaml"]);
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["p.yaml"]);
    }

    /// Calls `run` in a thread that has this capability alone (capset(2)).
    fn with_capability(bit: u32, run: impl FnOnce() + Send) {
        const VERSION_3: u32 = 0x2008_0522;
        let inside = || {
            let (header, all) = ([VERSION_3, 0], 1 << bit);
            // The effective, permitted and inheritable sets: of capabilities 0 to 31, then of the
            // others.
            let sets = [all, all, 0, 0, 0, 0];
            // SAFETY: the pointers are valid, and the call affects only this thread.
            let set = unsafe {
                nix::libc::syscall(nix::libc::SYS_capset, header.as_ptr(), sets.as_ptr())
            };
            assert_eq!(set, 0);
            run();
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
    }

    /// deploy/systemd/gthctl.service does not grant CAP_CHOWN.
    #[test]
    fn another_users_file_takes_cap_chown_only() {
        const CAP_CHOWN: u32 = 0;
        const CAP_KILL: u32 = 5;
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        xattr::set(&path, "user.note", b"kept").unwrap();
        std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
        with_capability(CAP_KILL, || {
            let e = Replacement::prepare(&path, "new").unwrap_err().to_string();
            let why = "the new file cannot have its owner, 7:8, without CAP_CHOWN: ";
            assert!(e.starts_with(&format!("{}: {why}", path.display())), "{e}");
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        with_capability(CAP_CHOWN, || {
            Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        });
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.uid(), now.gid(), now.permissions().mode() & 0o777), (7, 8, 0o664));
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(xattr::get(&path, "user.note").unwrap().as_deref(), Some(&b"kept"[..]));
    }

    /// The bits would grant root's rights if the new file cannot get its owner. Whoever may write
    /// to the directory can keep that file.
    #[test]
    fn set_user_id_and_set_group_id_are_not_handed_on() {
        const CAP_KILL: u32 = 5;
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (old, new) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        fchown(&old, Some(7), Some(0)).unwrap();
        old.set_permissions(Permissions::from_mode(0o6775)).unwrap();
        with_capability(CAP_KILL, || drop(look_like(&new, &old).unwrap_err()));
        assert_eq!(new.metadata().unwrap().mode() & 0o7777, 0o775);
    }

    #[test]
    fn what_is_no_regular_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, link) = (dir.path().join("fifo"), dir.path().join("link"));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        symlink(&fifo, &link).unwrap();
        for path in [&fifo, &link] {
            let e = Replacement::prepare(path, "new").unwrap_err().to_string();
            assert_eq!(e, format!("{}: it is not a regular file", path.display()));
        }
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
        assert_eq!(names(dir.path()), ["fifo", "link"]);
    }

    /// Whoever may write to the directory chooses where the link leads.
    #[test]
    fn a_link_is_followed_to_no_other_file_where_others_may_put_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        let e = Replacement::prepare_without_links(&link, "new").unwrap_err().to_string();
        assert_eq!(e, format!("{}: it is a symbolic link", link.display()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        Replacement::prepare_without_links(&file, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
        assert_eq!(names(dir.path()), ["file", "link"]);
    }

    /// An access control list (linux/posix_acl_xattr.h): its version, then the tag,
    /// permissions and id of each entry. The owner, UID 1234, the group, the mask, others.
    fn acl(of_user: u16) -> Vec<u8> {
        const ALL: u32 = u32::MAX;
        let entries =
            [(1, 6, ALL), (2, of_user, 1234), (4, 0, ALL), (0x10, of_user, ALL), (0x20, 0, ALL)];
        let entry = |(tag, perm, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
    }

    #[test]
    fn lists_and_attributes_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::write(&path, "old").unwrap();
        xattr::set(&path, ACL, &acl(6)).unwrap();
        xattr::set(&path, "user.note", b"kept").unwrap();
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(xattr::get(&path, "user.note").unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(xattr::get(&path, ACL).unwrap(), Some(acl(6)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn the_directory_adds_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        xattr::set(dir.path(), "system.posix_acl_default", &acl(6)).unwrap();
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(xattr::get(&path, ACL).unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    /// The directory's owner swaps the new file for a link while it is prepared. A chown changes
    /// the file's ctime, even if the owner stays the same.
    #[test]
    fn a_link_in_the_new_files_place_changes_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        let other = dir.path().join("other");
        fs::write(&path, "old").unwrap();
        fs::write(&other, "").unwrap();
        let changed = || fs::metadata(&other).map(|m| (m.st_ctime(), m.st_ctime_nsec())).unwrap();
        let before = changed();
        let new = dir.path().join(format!(".p.yaml.gthctl-{}", std::process::id()));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let link = dir.path().join("link");
                while !done.load(Ordering::Relaxed) {
                    if new.exists() && symlink(&other, &link).is_ok() {
                        let _ = fs::rename(&link, &new);
                    }
                }
            });
            // Each attempt writes to the disk, which may be busy.
            let begin = Instant::now();
            for _ in (0..500).take_while(|_| begin.elapsed() < Duration::from_secs(5)) {
                let _ = Replacement::prepare(&path, "new");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(changed(), before);
    }

    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real"), "old").unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        Replacement::prepare(&dir.path().join("link"), "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("real")).unwrap(), "new");
        assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        Replacement::prepare(&path, "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(Replacement::prepare(&dir.path().join("none/p.yaml"), "new").is_err());
    }

    /// Files can be created in such a directory, but it cannot be opened, which fsync(2) requires.
    #[test]
    fn a_directory_that_cannot_be_synced_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.yaml");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o333)).unwrap();
        let committed = std::thread::scope(|scope| {
            let replace = || {
                // Root may do everything, so this thread alone becomes another user. SAFETY: the
                // call changes only the thread's own credentials.
                unsafe { nix::libc::syscall(nix::libc::SYS_setfsuid, 65534) };
                Replacement::prepare(&path, "new").and_then(Replacement::commit)
            };
            scope.spawn(replace).join().unwrap()
        });
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let note = committed.unwrap().expect("a note");
        assert!(note.contains("cannot be synced"), "{note}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
