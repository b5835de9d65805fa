//! Whether the process may load BPF programs (capabilities(7)).

use crate::base::error::{Error, ExitCode, Result};

/// The capabilities that loading needs, with their bits (include/uapi/linux/capability.h).
/// CAP_SYS_ADMIN stands in for each (`bpf_capable()`, `perfmon_capable()`).
const NEEDED: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
pub const CAP_SYS_ADMIN: u32 = 21;
pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_SYSLOG: u32 = 34;

/// Whether the process has the capability with that bit in effect; `status` is the text of
/// `/proc/self/status`.
pub fn has(status: &str, bit: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    effective >> bit & 1 == 1
}

/// Fails with [`ExitCode::Permission`] and the names of the capabilities the process
/// lacks for `purpose`; `status` is the text of `/proc/self/status`.
pub fn check_capabilities(purpose: &str, status: &str) -> Result<()> {
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, bit)| !has(status, *bit) && !has(status, CAP_SYS_ADMIN))
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{purpose} needs {}", missing.join(" and "));
    Err(Error::new(ExitCode::Permission, what).help("run it as root, with sudo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_effect_counts() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\n";
        assert!(has(status, CAP_NET_ADMIN) && !has(status, CAP_SYS_ADMIN));
        assert!(!has("", CAP_NET_ADMIN));
    }

    #[test]
    fn names_the_missing_capabilities() {
        let status = |caps: u64| format!("Name:\tx\nCapEff:\t{caps:016x}\n");
        let missing = |caps| check_capabilities("loading a scheduler", &status(caps)).unwrap_err();
        assert_eq!(missing(0).what, "loading a scheduler needs CAP_BPF and CAP_PERFMON");
        assert_eq!(missing(1 << 39).what, "loading a scheduler needs CAP_PERFMON");
        assert_eq!(missing(0).code, ExitCode::Permission);
        assert!(check_capabilities("loading a scheduler", &status(1 << 39 | 1 << 38)).is_ok());
        assert!(check_capabilities("loading a scheduler", &status(1 << 21)).is_ok());
    }
}
