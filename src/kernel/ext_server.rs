//! The kernel's ext servers: each one gives sched_ext tasks a part of its CPU even when real-time tasks
//! never sleep, by default 50 ms of each second. The kernel has them since Linux 7.0
//! (kernel/sched/debug.c, debugfs_ext_server_init()).

use std::fs;
use std::path::Path;

use crate::base::error::{Error, Result};

/// Where the kernel shows the servers, with a directory for each CPU.
pub const EXT_SERVERS: &str = "/sys/kernel/debug/sched/ext_server";

/// Starts the server of `cpu`, whether or not it is running; `root` is [`EXT_SERVERS`] except in
/// tests. Any write to the server's parameters starts it, even a write of the current value
/// (sched_server_write_common()). A server that the administrator has turned off stays off.
pub fn start(root: &Path, cpu: u32) -> Result<()> {
    let runtime = root.join(format!("cpu{cpu}/runtime"));
    let rewrite = |value: String| match value.trim() {
        "0" => Ok(()),
        _ => fs::write(&runtime, value),
    };
    fs::read_to_string(&runtime).and_then(rewrite).map_err(|e| {
        let what = format!(
            "CPU {cpu}: the ext server has stopped and cannot be started through {}: {e}; a real-time task \
             that never sleeps would starve all others",
            runtime.display()
        );
        Error::failure(what).help("gthctl needs write access to debugfs there")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_debugfs_it_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = start(dir.path(), 3).unwrap_err().to_string();
        assert!(error.starts_with("CPU 3: the ext server has stopped"), "{error}");
        assert!(error.contains("cpu3/runtime: No such file"), "{error}");
    }

    #[test]
    fn one_that_is_off_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = dir.path().join("cpu0/runtime");
        fs::create_dir(dir.path().join("cpu0")).unwrap();
        for (value, written) in [("50000000\n", true), ("0\n", false)] {
            fs::write(&runtime, value).unwrap();
            let long_ago = std::time::SystemTime::UNIX_EPOCH;
            fs::File::open(&runtime).unwrap().set_modified(long_ago).unwrap();
            start(dir.path(), 0).unwrap();
            let modified = fs::metadata(&runtime).unwrap().modified().unwrap();
            assert_eq!(modified != long_ago, written, "{value}");
            assert_eq!(fs::read_to_string(&runtime).unwrap(), value);
        }
    }
}
