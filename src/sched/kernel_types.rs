//! What the kernel's BTF says about sched_ext.

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{Enum, Enum64, Func, FuncProto, Struct};
use libbpf_rs::btf::{Btf, BtfType};

use crate::base::error::{Error, ExitCode, Result};
use crate::kernel::skeletons::scheduler::types::gth_ops_flag;

/// The kernel types that the loader itself needs.
pub struct KernelTypes<'btf> {
    btf: Btf<'btf>,
}

impl KernelTypes<'_> {
    /// Reads `/sys/kernel/btf/vmlinux` and checks what cannot be relocated.
    ///
    /// Fails with [`ExitCode::KernelUnsupported`] when there is none or when the flags of
    /// `struct sched_ext_ops` differ from those gthctl was built with.
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

    /// Whether `ops.flags` has this flag, with the value gthctl was built with.
    pub fn has_ops_flag(&self, name: &str, flag: gth_ops_flag) -> bool {
        self.enum_value("scx_ops_flags", name) == Some(i64::from(flag.0))
    }

    /// Whether `struct sched_ext_ops` has this member.
    pub fn has_op(&self, name: &str) -> bool {
        let ops = self.btf.type_by_name::<Struct<'_>>("sched_ext_ops");
        ops.is_some_and(|ops| ops.iter().any(|m| m.name.is_some_and(|member| member == name)))
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

    fn is_malformed(&self, name: &str) -> bool {
        let Some(func) = self.btf.type_by_name::<Func<'_>>(name) else { return false };
        let proto: Option<FuncProto<'_>> = BtfType::try_into(func.referenced_type()).ok();
        let takes_aux = proto.is_some_and(|proto| {
            proto.iter().last().is_some_and(|last| last.name.is_some_and(|name| name == "aux"))
        });
        takes_aux && self.btf.type_by_name::<Func<'_>>(&format!("{name}_impl")).is_none()
    }
}
