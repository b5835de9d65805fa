//! The kernel's release, such as 7.2.13-amd64 (uname(2)).

use std::fs;

/// Where the kernel shows its release (proc_sys_kernel(5)).
pub const OSRELEASE: &str = "/proc/sys/kernel/osrelease";

/// The release of the running kernel; empty if it cannot be read.
pub fn running() -> String {
    fs::read_to_string(OSRELEASE).unwrap_or_default()
}

/// The first two numbers of a release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
