//! Resolves the names in a policy on this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::statfs::{NSFS_MAGIC, statfs};

use crate::base::error::{Error, Result};
use crate::base::root::Root;
use crate::kernel::procfs::{self, Process};

/// The process or thread `pid`; `None` when there is none.
///
/// # Errors
///
/// /proc cannot be read now.
pub fn process(root: &Root, pid: u32) -> Result<Option<Process>> {
    Process::find(&root.proc(), pid).map_err(|e| Error::failure(format!("/proc/{pid}/stat: {e}")))
}

/// A user's id, by name in /etc/passwd (passwd(5)) or as a number; `None` if there is no
/// such name.
///
/// # Errors
///
/// The file cannot be read now.
pub fn uid(root: &Root, user: &str) -> Result<Option<u32>> {
    if let Ok(uid) = user.parse() {
        return Ok(Some(uid));
    }
    let passwd = procfs::if_there(procfs::text(root.path(PASSWD)))
        .map_err(|e| Error::failure(format!("{PASSWD}: {e}")))?;
    Ok(passwd.and_then(|passwd| {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == user;
            fields.nth(1).filter(|_| found)?.parse().ok()
        })
    }))
}

/// The inode number of a network namespace (namespaces(7)), by a name of
/// ip-netns(8), a path such as /proc/1/ns/net, or the number itself.
pub fn netns(root: &Root, netns: &str) -> Option<u32> {
    if let Ok(inode) = netns.parse() {
        return Some(inode);
    }
    let path = root.path(&netns_path(netns));
    // ip-netns(8) first makes an empty file, then mounts the namespace over it.
    if statfs(&path).ok()?.filesystem_type() != NSFS_MAGIC {
        return None;
    }
    u32::try_from(fs::metadata(path).ok()?.ino()).ok()
}

/// The file with the users' names.
pub const PASSWD: &str = "/etc/passwd";

/// The path of a network namespace not given by number.
pub fn netns_path(netns: &str) -> String {
    match netns.starts_with('/') {
        true => netns.into(),
        false => format!("/run/netns/{netns}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_name_and_number() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\nupf:x:1001:1001::/:/bin/false\n";
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let root = Root::at(root.path());
        assert_eq!(uid(&root, "upf").unwrap(), Some(1001));
        assert_eq!(uid(&root, "root").unwrap(), Some(0));
        assert_eq!(uid(&root, "4711").unwrap(), Some(4711));
        assert_eq!(uid(&root, "up").unwrap(), None);
    }

    #[test]
    fn a_user_is_not_missing_where_the_file_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(uid(&Root::at(root.path()), "upf").unwrap(), None, "no file");
        fs::create_dir_all(root.path().join("etc/passwd")).unwrap();
        let said = uid(&Root::at(root.path()), "upf").unwrap_err().to_string();
        assert_eq!(said, "/etc/passwd: Is a directory (os error 21)");
    }

    #[test]
    fn network_namespaces_by_name_path_and_number() {
        let root = Root::default();
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
        assert_eq!(netns(&root, "/proc/self/ns/net"), Some(own));
        assert_eq!(netns(&root, "4026531840"), Some(4_026_531_840));
        assert_eq!(netns(&root, "no-such-name"), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/netns/upf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(netns(&Root::at(dir.path()), "upf"), None, "not mounted yet");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/net", &file).unwrap();
        assert_eq!(netns(&Root::at(dir.path()), "upf"), Some(own));
    }

    #[test]
    fn processes_by_their_start_time() {
        let root = Root::default();
        let own = process(&root, std::process::id()).unwrap();
        assert!(own.is_some_and(|own| own.start_ticks > 0));
        assert_eq!(process(&root, 4_194_304).unwrap(), None);
    }
}
