//! A directory with a /proc written by hand, for the tests.

use std::fs;
use std::path::PathBuf;

pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn proc(&self) -> PathBuf {
        self.path("proc")
    }

    /// Writes a file and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
