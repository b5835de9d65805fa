//! What the running kernel offers, and who is using it.

use std::fs;
use std::path::Path;

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{Enum, Enum64, Func, FuncProto};
use libbpf_rs::btf::{Btf, BtfType};

use crate::base::error::{Error, ExitCode, Result};
use crate::kernel::skeletons::scheduler::types::gth_ops_flag;

/// Where the kernel shows sched_ext (Documentation/scheduler/sched-ext.rst).
pub const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// The capabilities that loading needs, with their bits (include/uapi/linux/capability.h).
/// CAP_SYS_ADMIN stands in for each (`bpf_capable()`, `perfmon_capable()`).
const NEEDED: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
const CAP_SYS_ADMIN: u32 = 21;

/// Fails with [`ExitCode::Permission`] and the names of the capabilities that
/// the process lacks for `purpose`; `status` is the text of `/proc/self/status`.
pub fn check_capabilities(purpose: &str, status: &str) -> Result<()> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, bit)| !has(*bit) && !has(CAP_SYS_ADMIN))
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("{purpose} needs {}", missing.join(" and "));
    Err(Error::new(ExitCode::Permission, what).help("run it as root, with sudo"))
}

/// Fails when the kernel has no sched_ext ([`ExitCode::NoSchedExt`]) or another
/// scheduler is using it ([`ExitCode::OtherScheduler`]); `root` is
/// [`SCHED_EXT`] but in tests.
pub fn check_sched_ext(root: &Path) -> Result<()> {
    let Ok(state) = fs::read_to_string(root.join("state")) else {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let what = format!("this kernel ({}) has no sched_ext", release.trim());
        return Err(Error::new(ExitCode::NoSchedExt, what)
            .help("it takes Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y"));
    };
    if state.trim() == "disabled" {
        return Ok(());
    }
    let name = fs::read_to_string(root.join("root/ops")).unwrap_or_default();
    let name = if name.trim().is_empty() { "unknown" } else { name.trim() };
    let what = format!("the sched_ext scheduler `{name}` is loaded ({})", state.trim());
    Err(Error::new(ExitCode::OtherScheduler, what).help("stop it first"))
}

/// How often CPUs have come and gone since boot; 0, which the kernel does not compare, where
/// that cannot be read.
pub fn hotplug_seq(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("hotplug_seq")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The kernel's types, as far as the loader must know them itself.
pub struct KernelTypes<'btf> {
    btf: Btf<'btf>,
}

impl KernelTypes<'_> {
    /// Reads `/sys/kernel/btf/vmlinux` and checks what cannot be relocated.
    ///
    /// Fails with [`ExitCode::KernelUnsupported`] when there is none or the
    /// flags of `struct sched_ext_ops` have other values than gthctl was built with.
    pub fn read() -> Result<Self> {
        let unsupported = |what: String| Error::new(ExitCode::KernelUnsupported, what);
        let btf = Btf::from_vmlinux().map_err(|e| {
            unsupported(format!("/sys/kernel/btf/vmlinux: {e}"))
                .help("the kernel must be built with CONFIG_DEBUG_INFO_BTF=y")
        })?;
        let types = Self { btf };
        for (name, value) in [
            ("SCX_OPS_ENQ_LAST", gth_ops_flag::GTH_OPS_ENQ_LAST),
            ("SCX_OPS_ENQ_EXITING", gth_ops_flag::GTH_OPS_ENQ_EXITING),
        ] {
            if !types.has_ops_flag(name, value) {
                return Err(unsupported(format!(
                    "this kernel's {name} is not the one gthctl knows"
                ))
                .help("use a gthctl that was built for this kernel"));
            }
        }
        Ok(types)
    }

    /// Whether `ops.flags` knows this flag, by the value that gthctl was built with.
    pub fn has_ops_flag(&self, name: &str, flag: gth_ops_flag) -> bool {
        self.enum_value("scx_ops_flags", name) == Some(i64::from(flag.0))
    }

    /// The value of an enumerator.
    pub fn enum_value(&self, name: &str, enumerator: &str) -> Option<i64> {
        if let Some(e) = self.btf.type_by_name::<Enum<'_>>(name) {
            let member = e.iter().find(|m| m.name.is_some_and(|name| name == enumerator))?;
            return Some(member.value);
        }
        let e = self.btf.type_by_name::<Enum64<'_>>(name)?;
        let member = e.iter().find(|m| m.name.is_some_and(|name| name == enumerator))?;
        i64::try_from(member.value).ok()
    }

    /// The sched_ext kfuncs whose BTF is malformed.
    ///
    /// Since 7.0 a kfunc may take a `struct bpf_prog_aux *` that the verifier
    /// supplies (KF_IMPLICIT_ARGS): BTF then has the prototype without it under
    /// the kfunc's name and the full one under NAME_impl. Where BTF was made by
    /// tools that do not know this well enough, a kfunc keeps the full
    /// prototype and has no NAME_impl; the verifier refuses every program that
    /// calls it. Debian trixie-backports' 7.1 and 7.2 are such kernels.
    pub fn malformed_kfuncs(&self) -> Vec<&'static str> {
        const CANDIDATES: [&str; 9] = [
            "scx_bpf_dsq_insert___v2",
            "scx_bpf_exit_bstr",
            "scx_bpf_get_idle_cpumask",
            "scx_bpf_get_idle_smtmask",
            "scx_bpf_kick_cid",
            "scx_bpf_kick_cpu",
            "scx_bpf_locked_rq",
            "scx_bpf_task_set_dsq_vtime",
            "scx_bpf_task_set_slice",
        ];
        CANDIDATES.into_iter().filter(|name| self.is_malformed(name)).collect()
    }

    fn is_malformed(&self, name: &str) -> bool {
        let Some(func) = self.btf.type_by_name::<Func<'_>>(name) else { return false };
        let proto: Option<FuncProto<'_>> = BtfType::try_into(func.referenced_type()).ok();
        let takes_aux = proto.is_some_and(|proto| {
            proto.iter().last().is_some_and(|last| last.name.is_some_and(|name| name == "aux"))
        });
        takes_aux && self.btf.type_by_name::<Func<'_>>(&format!("{name}_impl")).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn tells_why_sched_ext_cannot_be_had() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check_sched_ext(root.path()).unwrap_err().code, ExitCode::NoSchedExt);
        fs::write(root.path().join("state"), "disabled\n").unwrap();
        assert!(check_sched_ext(root.path()).is_ok());
        fs::write(root.path().join("state"), "enabled\n").unwrap();
        fs::create_dir(root.path().join("root")).unwrap();
        fs::write(root.path().join("root/ops"), "rustland_1.1\n").unwrap();
        let e = check_sched_ext(root.path()).unwrap_err();
        assert_eq!(e.code, ExitCode::OtherScheduler);
        assert!(e.what.contains("`rustland_1.1`"), "{e}");
    }
}
