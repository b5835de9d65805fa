//! The machine, as far as this user may read it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::base::finding::Finding;
use crate::irq::host::Host;

/// Reads files and remembers those that this user may not read.
pub struct Sight<'a> {
    pub host: &'a Host,
    forbidden: RefCell<BTreeSet<String>>,
}

impl<'a> Sight<'a> {
    pub fn new(host: &'a Host) -> Self {
        Self { host, forbidden: RefCell::default() }
    }

    /// `absolute`, a path from `/`, on this machine.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.host.root.path(absolute)
    }

    /// What the file holds, without white space at its ends; `None` if it is missing or forbidden.
    pub fn text(&self, absolute: &str) -> Option<String> {
        let read = self.note(absolute, fs::read(self.path(absolute)))?;
        Some(String::from_utf8_lossy(&read).trim().to_owned())
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, absolute: &str) -> bool {
        self.note(absolute, fs::metadata(self.path(absolute))).is_some()
    }

    fn note<T>(&self, absolute: &str, read: io::Result<T>) -> Option<T> {
        if read.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
            self.forbidden.borrow_mut().insert(absolute.to_owned());
        }
        read.ok()
    }

    /// The files that this user may not read, in one finding.
    pub fn findings(&self) -> Vec<Finding> {
        let forbidden = self.forbidden.borrow();
        if forbidden.is_empty() {
            return Vec::new();
        }
        let files: Vec<&str> = forbidden.iter().map(String::as_str).collect();
        let what = format!("this user may not read {}", files.join(", "));
        vec![Finding::note("unread", what).fix("sudo gthctl doctor")]
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::irq::tree::Tree;

    #[test]
    fn what_is_missing_is_not_forbidden() {
        let tree = Tree::new();
        tree.write("proc/a", " one\n");
        let host = tree.host();
        let sight = Sight::new(&host);
        assert_eq!(sight.text("/proc/a").as_deref(), Some("one"));
        assert_eq!(sight.text("/proc/b"), None);
        assert!(sight.exists("/proc/a") && !sight.exists("/proc/b"));
        assert_eq!(sight.findings(), []);
    }

    /// Root may read every file, whatever its mode, so the test makes up the error.
    #[test]
    fn what_is_forbidden_is_told_in_one_line() {
        let tree = Tree::new();
        let host = tree.host();
        let sight = Sight::new(&host);
        for file in ["/sys/b", "/sys/a", "/sys/b"] {
            let denied: io::Result<()> = Err(ErrorKind::PermissionDenied.into());
            assert_eq!(sight.note(file, denied), None);
        }
        let [finding] = sight.findings().try_into().unwrap();
        assert_eq!(finding.what, "this user may not read /sys/a, /sys/b");
        assert_eq!(finding.fix.as_deref(), Some("sudo gthctl doctor"));
    }
}
