//! What the kernel's BTF says about sched_ext.

use std::path::Path;

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{Enum, Enum64, Func, FuncProto, Struct};
use libbpf_rs::btf::{Btf, BtfType};

use crate::base::error::{Error, ExitCode, Result};
use crate::kernel::release::version;
use crate::kernel::skeletons::scheduler::types::gth_ops_flag;

/// Where the kernel shows its BTF (Documentation/bpf/btf.rst).
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The kernel types that the loader itself needs.
pub struct KernelTypes<'btf> {
    btf: Btf<'btf>,
}

impl KernelTypes<'_> {
    /// Reads the kernel's BTF and checks what cannot be relocated.
    ///
    /// Fails with [`ExitCode::KernelUnsupported`] when there is none or when the flags of
    /// `struct sched_ext_ops` differ from those gthctl was built with.
    pub fn read() -> Result<Self> {
        let types = Self::open(Path::new(VMLINUX))?;
        types.check_flags()?;
        Ok(types)
    }

    /// Reads the BTF in the file at `path`, which is [`VMLINUX`] except in tests.
    pub fn open(path: &Path) -> Result<Self> {
        let btf = Btf::from_path(path).map_err(|e| {
            Error::new(ExitCode::KernelUnsupported, format!("{}: {e}", path.display()))
                .help("the kernel must be built with CONFIG_DEBUG_INFO_BTF=y")
        })?;
        Ok(Self { btf })
    }

    /// Fails with [`ExitCode::KernelUnsupported`] when the flags of `struct sched_ext_ops` differ
    /// from those gthctl was built with.
    pub fn check_flags(&self) -> Result<()> {
        for (name, value) in [
            ("SCX_OPS_ENQ_LAST", gth_ops_flag::GTH_OPS_ENQ_LAST),
            ("SCX_OPS_ENQ_EXITING", gth_ops_flag::GTH_OPS_ENQ_EXITING),
        ] {
            if !self.has_ops_flag(name, value) {
                let what = format!("this kernel's {name} is not the one gthctl knows");
                return Err(Error::new(ExitCode::KernelUnsupported, what)
                    .help("use a gthctl that was built for this kernel"));
            }
        }
        Ok(())
    }

    /// Whether `ops.flags` has this flag, with the value gthctl was built with.
    pub fn has_ops_flag(&self, name: &str, flag: gth_ops_flag) -> bool {
        self.enum_value("scx_ops_flags", name) == Some(i64::from(flag.0))
    }

    /// Whether `struct sched_ext_ops` has this member.
    pub fn has_op(&self, name: &str) -> bool {
        self.has_member("sched_ext_ops", name)
    }

    /// Whether each CPU has an ext server: `struct rq` then has this member.
    pub fn has_ext_servers(&self) -> bool {
        self.has_member("rq", "ext_server")
    }

    /// Whether BPF programs disable migration for the task on which they run. Up to Linux 6.17 all
    /// do, later only with CONFIG_PREEMPT_RCU (rcu_read_lock_dont_migrate(),
    /// include/linux/rcupdate.h). `struct task_struct` has this member only with that option.
    pub fn programs_disable_migration(&self, release: &str) -> bool {
        self.has_member("task_struct", "rcu_read_lock_nesting")
            || version(release).is_some_and(|version| version < (6, 18))
    }

    fn has_member(&self, name: &str, member: &str) -> bool {
        let found = self.btf.type_by_name::<Struct<'_>>(name);
        found.is_some_and(|found| found.iter().any(|m| m.name.is_some_and(|name| name == member)))
    }

    /// Whether a BPF program can be attached to this function.
    pub fn has_function(&self, name: &str) -> bool {
        self.btf.type_by_name::<Func<'_>>(name).is_some()
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

    /// What the kernel lacks for the weights and limits of cgroups, as a sentence.
    pub fn lacks_for_cgroups(&self) -> Option<&'static str> {
        if !self.has_op("cgroup_init") {
            Some(
                "the weights and limits of cgroups do not hold: the kernel has no CONFIG_EXT_GROUP_SCHED",
            )
        } else if !self.has_op("cgroup_set_bandwidth") && !self.needs_limit_hook() {
            Some(
                "a changed cpu.max takes effect only at the next start: this kernel does not report the change",
            )
        } else {
            None
        }
    }

    /// Whether the scheduler needs a hook to learn of changed limits: before 6.17 there is no
    /// callback.
    pub fn needs_limit_hook(&self) -> bool {
        self.has_op("cgroup_init")
            && !self.has_op("cgroup_set_bandwidth")
            && self.has_function("tg_set_cfs_bandwidth")
    }

    /// The sched_ext kfuncs whose BTF is malformed.
    ///
    /// Since 7.0 a kfunc may take a `struct bpf_prog_aux *` that the verifier supplies
    /// (KF_IMPLICIT_ARGS). BTF then has the prototype without it under the kfunc's name
    /// and the full one under NAME_impl. If the tools that made BTF handle this wrongly,
    /// a kfunc keeps the full prototype and has no NAME_impl; the verifier refuses every
    /// program that calls it. Debian trixie-backports' 7.1 and 7.2 are such kernels.
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

    /// Whether the BPF program can wake an idle CPU by itself.
    pub fn can_kick(&self) -> bool {
        !self.is_malformed("scx_bpf_kick_cpu")
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
    use super::super::test_btf::{SOUND, Type, write};
    use super::*;

    fn types(all: &[Type]) -> KernelTypes<'static> {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), all);
        KernelTypes::open(file.path()).unwrap()
    }

    #[test]
    fn a_kfunc_that_keeps_its_implicit_argument_is_malformed() {
        let kick = |arguments| Type::Function("scx_bpf_kick_cpu", arguments);
        let full = Type::Function("scx_bpf_kick_cpu_impl", &["cpu", "aux"]);
        let other = Type::Function("scx_bpf_dsq_insert", &["p", "aux"]);
        let malformed = |all: &[Type]| types(all).malformed_kfuncs();
        assert_eq!(malformed(&[kick(&["cpu", "aux"]), other]), ["scx_bpf_kick_cpu"]);
        assert_eq!(malformed(&[kick(&["cpu"]), full]), [""; 0]);
        assert_eq!(malformed(&[kick(&["cpu", "flags"])]), [""; 0]);
        assert_eq!(malformed(&[kick(&[])]), [""; 0]);
        assert!(!types(&[kick(&["cpu", "aux"])]).can_kick());
        assert!(types(&[kick(&["cpu", "flags"])]).can_kick());
    }

    #[test]
    fn a_kernel_with_ext_servers_has_one_in_each_runqueue() {
        assert!(types(&[Type::Struct("rq", &["curr", "ext_server"])]).has_ext_servers());
        assert!(!types(&[Type::Struct("rq", &["curr", "fair_server"])]).has_ext_servers());
    }

    #[test]
    fn programs_disable_migration_with_preemptible_rcu_or_before_6_18() {
        let pins = |members, release| {
            types(&[Type::Struct("task_struct", members)]).programs_disable_migration(release)
        };
        assert!(pins(&["pid", "rcu_read_lock_nesting"], "7.2.13-amd64"));
        assert!(pins(&["pid"], "6.12.107") && pins(&["pid"], "6.17.0"));
        assert!(!pins(&["pid"], "6.18.0-arm64") && !pins(&["pid"], "7.2.13+deb14-arm64"));
    }

    #[test]
    fn flags_that_differ_are_named() {
        assert!(types(&SOUND).check_flags().is_ok());
        let mut others = SOUND;
        others[0] = Type::Enum("scx_ops_flags", &[("SCX_OPS_ENQ_LAST", 0x4000)]);
        let e = types(&others).check_flags().unwrap_err();
        assert_eq!(e.code, ExitCode::KernelUnsupported);
        assert!(e.what.contains("SCX_OPS_ENQ_LAST"), "{e}");
    }

    #[test]
    fn what_cgroups_need() {
        let lacks = |members, more: &[Type]| {
            types(&[&[Type::Struct("sched_ext_ops", members)], more].concat()).lacks_for_cgroups()
        };
        let hook = Type::Function("tg_set_cfs_bandwidth", &["tg"]);
        assert!(lacks(&["dispatch"], &[]).unwrap().contains("CONFIG_EXT_GROUP_SCHED"));
        assert!(lacks(&["cgroup_init"], &[]).unwrap().contains("cpu.max"));
        assert_eq!(lacks(&["cgroup_init"], &[hook]), None);
        assert_eq!(lacks(&["cgroup_init", "cgroup_set_bandwidth"], &[]), None);
    }

    #[test]
    fn no_btf_is_an_error_with_its_option() {
        let missing = KernelTypes::open(Path::new("/none")).err().unwrap();
        assert_eq!(missing.code, ExitCode::KernelUnsupported);
        assert!(missing.to_string().contains("CONFIG_DEBUG_INFO_BTF=y"), "{missing}");
    }
}
