//! Where to look up files and environment variables: on this machine, or in a test's
//! substitute.

use std::ffi::OsString;
use std::path::PathBuf;

/// A file tree, `/` except in tests, and an environment.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    env: fn(&str) -> Option<OsString>,
}

impl Default for Root {
    /// This machine's tree and this process's environment.
    fn default() -> Self {
        Self { dir: "/".into(), env: |name| std::env::var_os(name) }
    }
}

impl Root {
    /// The tree below `dir`, with no environment variables.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), env: |_| None }
    }

    /// The same tree with other environment variables.
    pub fn with_env(self, env: fn(&str) -> Option<OsString>) -> Self {
        Self { env, ..self }
    }

    /// `absolute`, a path from `/`, in this tree.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.dir.join(absolute.trim_start_matches('/'))
    }

    /// proc(5).
    pub fn proc(&self) -> PathBuf {
        self.path("/proc")
    }

    /// sysfs(5), with debugfs in `kernel/debug`.
    pub fn sys(&self) -> PathBuf {
        self.path("/sys")
    }

    /// An environment variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }
}
