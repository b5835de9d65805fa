//! What the names in a policy stand for on this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{NSFS_MAGIC, statfs};

use crate::base::error::{Error, Result};
use crate::kernel::procfs;

/// The machine's file tree, `/` but in tests.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a>(pub &'a Path);

impl Root<'_> {
    /// `path`, an absolute one, in this tree.
    pub fn path(self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The start time in clock ticks since boot of a process or thread
    /// (proc_pid_stat(5), field 22); `None`: there is none.
    ///
    /// # Errors
    ///
    /// /proc cannot be read now.
    pub fn start_ticks(self, pid: u32) -> Result<Option<u64>> {
        procfs::start_ticks(&self.path("/proc"), pid)
            .map_err(|e| Error::failure(format!("/proc/{pid}/stat: {e}")))
    }

    /// A user's id, by its name in /etc/passwd (passwd(5)) or as a number; `None`: there is no
    /// such name.
    ///
    /// # Errors
    ///
    /// The file cannot be read now.
    pub fn uid(self, user: &str) -> Result<Option<u32>> {
        if let Ok(uid) = user.parse() {
            return Ok(Some(uid));
        }
        let passwd = procfs::if_there(fs::read_to_string(self.path(PASSWD)))
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
    pub fn netns(self, netns: &str) -> Option<u32> {
        if let Ok(inode) = netns.parse() {
            return Some(inode);
        }
        let path = self.path(&netns_path(netns));
        // ip-netns(8) makes an empty file first, and then mounts the namespace over it.
        if statfs(&path).ok()?.filesystem_type() != NSFS_MAGIC {
            return None;
        }
        u32::try_from(fs::metadata(path).ok()?.ino()).ok()
    }
}

/// Where users have their names.
pub const PASSWD: &str = "/etc/passwd";

/// Where a network namespace that is not given by number is found.
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
        let root = Root(root.path());
        assert_eq!(root.uid("upf").unwrap(), Some(1001));
        assert_eq!(root.uid("root").unwrap(), Some(0));
        assert_eq!(root.uid("4711").unwrap(), Some(4711));
        assert_eq!(root.uid("up").unwrap(), None);
    }

    #[test]
    fn a_user_is_not_missing_where_the_file_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Root(root.path()).uid("upf").unwrap(), None, "no file");
        fs::create_dir_all(root.path().join("etc/passwd")).unwrap();
        let said = Root(root.path()).uid("upf").unwrap_err().to_string();
        assert_eq!(said, "/etc/passwd: Is a directory (os error 21)");
    }

    #[test]
    fn network_namespaces_by_name_path_and_number() {
        let root = Root(Path::new("/"));
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
        assert_eq!(root.netns("/proc/self/ns/net"), Some(own));
        assert_eq!(root.netns("4026531840"), Some(4_026_531_840));
        assert_eq!(root.netns("no-such-name"), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/netns/upf");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(Root(dir.path()).netns("upf"), None, "not mounted yet");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/net", &file).unwrap();
        assert_eq!(Root(dir.path()).netns("upf"), Some(own));
    }

    #[test]
    fn processes_by_their_start_time() {
        let root = Root(Path::new("/"));
        assert!(root.start_ticks(std::process::id()).unwrap().is_some_and(|ticks| ticks > 0));
        assert_eq!(root.start_ticks(4_194_304).unwrap(), None);
    }
}
