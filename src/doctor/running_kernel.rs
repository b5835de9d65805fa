//! The kernel: its version, the options it was built with, and its BTF.

use super::sight::Sight;
use crate::base::error::Error;
use crate::base::finding::{Finding, Level};
use crate::kernel::kconfig::Kconfig;
use crate::kernel::kprobes;
use crate::kernel::release::{OSRELEASE, version};
use crate::kernel::sched_ext::{self, KERNELS, SCHED_EXT};
use crate::sched::kernel_types::{KernelTypes, VMLINUX};

/// What the kernel is and has.
pub struct Kernel {
    pub release: String,
    pub sched_ext: sched_ext::State,
    config: Option<Kconfig>,
    /// An error if there is no BTF.
    btf: Result<Btf, Error>,
    kprobes: bool,
    jit: Option<String>,
    /// The BTF of modules: unknown if none is loaded.
    module_btf: Option<bool>,
}

/// What the BTF says about what gthctl needs.
struct Btf {
    unfit: Option<Error>,
    malformed: Vec<&'static str>,
    /// Whether schedulers have callbacks for cgroups.
    knows_cgroups: bool,
    lacks_for_cgroups: Option<&'static str>,
}

/// An option of the kernel's build.
struct Wanted {
    name: &'static str,
    /// How bad it is if it is not set.
    level: Level,
    without: &'static str,
}

/// All that gthctl needs. CONFIG_SCHED_CLASS_EXT depends on the next two (kernel/Kconfig.preempt).
const WANTED: [Wanted; 7] = [
    Wanted {
        name: "CONFIG_SCHED_CLASS_EXT",
        level: Level::Error,
        without: "gthctl run cannot load a scheduler",
    },
    Wanted {
        name: "CONFIG_BPF_JIT",
        level: Level::Error,
        without: "gthctl run cannot load a scheduler",
    },
    Wanted {
        name: "CONFIG_DEBUG_INFO_BTF",
        level: Level::Error,
        without: "no BPF program of gthctl can be loaded",
    },
    Wanted {
        name: "CONFIG_EXT_GROUP_SCHED",
        level: Level::Warning,
        without: "the weights and limits of cgroups do not hold",
    },
    Wanted {
        name: "CONFIG_KPROBE_EVENTS",
        level: Level::Warning,
        without: "neither gthctl trace nor rules with gtp work",
    },
    Wanted {
        name: "CONFIG_BPF_EVENTS",
        level: Level::Warning,
        without: "neither gthctl trace nor rules with gtp work",
    },
    Wanted {
        name: "CONFIG_DEBUG_INFO_BTF_MODULES",
        level: Level::Note,
        without: "gthctl trace uses kprobes, which are slower, in modules",
    },
];

impl Kernel {
    pub fn look(sight: &Sight<'_>) -> Self {
        let release = sight.text(OSRELEASE).unwrap_or_default();
        let config = Kconfig::read(&sight.host.root, &release);
        let btf = KernelTypes::open(&sight.path(VMLINUX));
        let modules = sight.exists("/sys/module/gtp") || sight.exists("/sys/module/gtp5g");
        let of_module =
            sight.exists("/sys/kernel/btf/gtp") || sight.exists("/sys/kernel/btf/gtp5g");
        Self {
            sched_ext: sched_ext::State::read(&sight.path(SCHED_EXT)),
            config,
            btf: btf.map(|types| Btf::of(&types)),
            kprobes: kprobes::are_there(&sight.host.sys()),
            jit: sight.text("/proc/sys/net/core/bpf_jit_enable"),
            module_btf: modules.then_some(of_module),
            release,
        }
    }

    /// Whether the kernel has sched_ext.
    pub fn has_sched_ext(&self) -> bool {
        self.sched_ext != sched_ext::State::Missing
    }

    /// Whether the BTF is there and sound for gthctl; unknown without sched_ext.
    pub fn has_sound_btf(&self) -> Option<bool> {
        match &self.btf {
            Err(_) => Some(false),
            Ok(_) if !self.has_sched_ext() => None,
            Ok(btf) => Some(btf.unfit.is_none() && btf.malformed.is_empty()),
        }
    }

    /// Whether the kernel reports the weights and limits of cgroups to a scheduler.
    pub fn has_cgroups(&self) -> Option<bool> {
        self.has("CONFIG_EXT_GROUP_SCHED")
    }

    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version()];
        findings.extend(WANTED.iter().map(|wanted| self.option(wanted)));
        findings.push(self.btf());
        findings.extend(self.limits());
        findings.push(self.jit());
        findings
    }

    fn version(&self) -> Finding {
        const CHECK: &str = "kernel";
        let [oldest, newest] = KERNELS;
        let (major, minor) = oldest;
        let this = format!("Linux {}", self.release);
        match version(&self.release) {
            None => Finding::note(CHECK, format!("{this}: gthctl does not know this version")),
            Some(at) if at < oldest && !self.has_sched_ext() => {
                Finding::error(CHECK, format!("{this} is older than {major}.{minor}"))
                    .fix(format!("boot Linux {major}.{minor} or newer"))
            }
            Some(at) if at < oldest => {
                Finding::warning(CHECK, format!("{this} has a backported sched_ext"))
                    .fix(format!("boot Linux {major}.{minor} or newer"))
            }
            Some(at) if at > newest => {
                let what = format!("{this} is newer than {}.{}", newest.0, newest.1);
                Finding::note(CHECK, format!("{what}, the last one that gthctl is built for"))
            }
            Some(_) => Finding::ok(CHECK, this),
        }
    }

    /// Whether the option is set: by the config, or without one by what the kernel shows.
    fn has(&self, name: &str) -> Option<bool> {
        if let Some(config) = &self.config {
            return Some(config.has(name));
        }
        let sched_ext = self.has_sched_ext();
        match name {
            "CONFIG_SCHED_CLASS_EXT" => Some(sched_ext),
            // The sysctl comes with the JIT (net/core/sysctl_net_core.c), but only in the first
            // network namespace.
            "CONFIG_BPF_JIT" => (sched_ext || self.jit.is_some()).then_some(true),
            "CONFIG_DEBUG_INFO_BTF" => Some(self.btf.is_ok()),
            "CONFIG_EXT_GROUP_SCHED" if !sched_ext => Some(false),
            "CONFIG_EXT_GROUP_SCHED" => self.btf.as_ref().ok().map(|btf| btf.knows_cgroups),
            // BPF programs attach to kprobes through the event source (kernel/trace/Kconfig:
            // CONFIG_BPF_EVENTS is set wherever it can be).
            "CONFIG_KPROBE_EVENTS" | "CONFIG_BPF_EVENTS" => Some(self.kprobes),
            "CONFIG_DEBUG_INFO_BTF_MODULES" => self.module_btf,
            _ => None,
        }
    }

    fn option(&self, wanted: &Wanted) -> Finding {
        let &Wanted { name, level, without } = wanted;
        let by = match &self.config {
            Some(config) => format!("by {}", config.file.display()),
            None => "as /sys and /proc show (no config can be read)".into(),
        };
        match self.has(name) {
            Some(true) => Finding::ok(name, format!("set, {by}")),
            Some(false) => Finding::new(name, level, format!("not set, {by}: {without}"))
                .fix(format!("boot a kernel that was built with {name}=y")),
            None => Finding::note(name, format!("unknown; if it is not set, {without}")),
        }
    }

    fn btf(&self) -> Finding {
        const CHECK: &str = "btf";
        let btf = match &self.btf {
            Ok(btf) => btf,
            Err(e) => return Finding::of(CHECK, Level::Error, e),
        };
        if !self.has_sched_ext() {
            return Finding::ok(CHECK, "there; without sched_ext gthctl run cannot use it");
        }
        if let Some(e) = &btf.unfit {
            return Finding::of(CHECK, Level::Error, e);
        }
        if btf.malformed.is_empty() {
            return Finding::ok(CHECK, "there and sound");
        }
        let kfuncs = btf.malformed.join(", ");
        let what = format!("malformed for {kfuncs}: gthctl does without them, and more slowly");
        Finding::warning(CHECK, what).fix("boot a kernel whose BTF is sound (docs/kernels.md)")
    }

    /// What the BTF says about the limits of cgroups, beyond what CONFIG_EXT_GROUP_SCHED says.
    fn limits(&self) -> Option<Finding> {
        let btf = self.btf.as_ref().ok().filter(|btf| self.has_sched_ext() && btf.knows_cgroups);
        btf?.lacks_for_cgroups.map(|lack| {
            Finding::warning("cgroup-limits", lack)
                .fix("boot Linux 6.17 or newer, which reports it")
        })
    }

    /// Programs that are not JIT-compiled cannot call kfuncs (kernel/bpf/verifier.c), and gthctl's
    /// programs call some.
    fn jit(&self) -> Finding {
        const CHECK: &str = "bpf-jit";
        match self.jit.as_deref() {
            Some("0") => {
                Finding::error(CHECK, "net.core.bpf_jit_enable is 0: the kernel compiles no BPF")
                    .fix("sysctl -w net.core.bpf_jit_enable=1")
            }
            Some(value) => Finding::ok(CHECK, format!("net.core.bpf_jit_enable is {value}")),
            None => Finding::ok(CHECK, "net.core.bpf_jit_enable is not shown here"),
        }
    }
}

impl Btf {
    fn of(types: &KernelTypes<'_>) -> Self {
        Self {
            unfit: types.check_flags().err(),
            malformed: types.malformed_kfuncs(),
            knows_cgroups: types.has_op("cgroup_init"),
            lacks_for_cgroups: types.lacks_for_cgroups(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;
    use crate::sched::test_btf::{SOUND, Type, write};

    /// A machine that runs Linux 7.2 with sched_ext and this BTF.
    fn machine(btf: &[Type]) -> Tree {
        let tree = Tree::new();
        tree.write("proc/sys/kernel/osrelease", "7.2.13-amd64\n");
        tree.write("proc/sys/net/core/bpf_jit_enable", "1\n");
        tree.write("sys/kernel/sched_ext/state", "disabled\n");
        tree.write("sys/bus/event_source/devices/kprobe/type", "8\n");
        tree.write("sys/kernel/btf/vmlinux", "");
        write(&tree.path("sys/kernel/btf/vmlinux"), btf);
        tree
    }

    fn look(tree: &Tree) -> Kernel {
        let host = tree.host();
        Kernel::look(&Sight::new(&host))
    }

    #[track_caller]
    fn finding(kernel: &Kernel, check: &str) -> Finding {
        let found = kernel.findings().into_iter().find(|finding| finding.check == check);
        found.unwrap_or_else(|| panic!("no finding on {check}"))
    }

    fn remove(tree: &Tree, path: &str) {
        std::fs::remove_file(tree.path(path)).unwrap();
    }

    #[test]
    fn a_good_kernel_without_a_config() {
        let kernel = look(&machine(&SOUND));
        let levels = kernel.findings().into_iter().map(|finding| (finding.check, finding.level));
        let others: Vec<_> = levels.filter(|(_, level)| *level != Level::Ok).collect();
        assert_eq!(others, [("CONFIG_DEBUG_INFO_BTF_MODULES", Level::Note)], "no module is there");
        assert_eq!((kernel.has_sched_ext(), kernel.has_sound_btf()), (true, Some(true)));
        assert_eq!(kernel.has_cgroups(), Some(true));
        assert!(finding(&kernel, "CONFIG_BPF_JIT").what.contains("/sys and /proc"));
    }

    #[test]
    fn versions() {
        let level = |release: &str, sched_ext: bool| {
            let tree = machine(&SOUND);
            tree.write("proc/sys/kernel/osrelease", release);
            if !sched_ext {
                remove(&tree, "sys/kernel/sched_ext/state");
            }
            finding(&look(&tree), "kernel").level
        };
        assert_eq!(level("6.1.0-49-amd64", false), Level::Error);
        assert_eq!(level("6.9-rc1", true), Level::Warning);
        assert_eq!(level("6.12.107", false), Level::Ok);
        assert_eq!(level("7.3.4+deb13", true), Level::Ok);
        assert_eq!(level("7.10.0", true), Level::Note);
        assert_eq!(level("unknown", true), Level::Note);
    }

    #[test]
    fn the_config_decides_and_is_named() {
        let tree = machine(&SOUND);
        let set = "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_KPROBE_EVENTS=y\n";
        tree.write("boot/config-7.2.13-amd64", set);
        let kernel = look(&tree);
        let is = |check: &str| finding(&kernel, check);
        assert_eq!(is("CONFIG_SCHED_CLASS_EXT").level, Level::Ok);
        assert_eq!(is("CONFIG_BPF_JIT").level, Level::Error);
        let group = is("CONFIG_EXT_GROUP_SCHED");
        assert_eq!(group.level, Level::Warning);
        assert!(group.what.contains("not set, by /boot/config-7.2.13-amd64"), "{}", group.what);
        assert!(group.fix.unwrap().ends_with("CONFIG_EXT_GROUP_SCHED=y"));
        assert_eq!(kernel.has_cgroups(), Some(false));
    }

    #[test]
    fn a_kernel_without_sched_ext_or_btf() {
        let tree = machine(&SOUND);
        remove(&tree, "sys/kernel/sched_ext/state");
        let kernel = look(&tree);
        assert_eq!(finding(&kernel, "CONFIG_SCHED_CLASS_EXT").level, Level::Error);
        assert_eq!(finding(&kernel, "btf").level, Level::Ok);
        assert_eq!((kernel.has_sched_ext(), kernel.has_sound_btf()), (false, None));
        remove(&tree, "sys/kernel/btf/vmlinux");
        let kernel = look(&tree);
        let btf = finding(&kernel, "btf");
        assert_eq!((btf.level, kernel.has_sound_btf()), (Level::Error, Some(false)));
        assert!(btf.fix.unwrap().contains("CONFIG_DEBUG_INFO_BTF=y"));
        assert_eq!(finding(&kernel, "CONFIG_DEBUG_INFO_BTF").level, Level::Error);
    }

    #[test]
    fn btf_that_gthctl_cannot_use_as_it_is() {
        let malformed = Type::Function("scx_bpf_kick_cpu", &["cpu", "aux"]);
        let kernel = look(&machine(&[SOUND[0], SOUND[1], malformed]));
        let btf = finding(&kernel, "btf");
        assert_eq!((btf.level, kernel.has_sound_btf()), (Level::Warning, Some(false)));
        assert!(btf.what.contains("scx_bpf_kick_cpu"), "{}", btf.what);
        let kernel = look(&machine(&SOUND[1..]));
        assert_eq!(finding(&kernel, "btf").level, Level::Error);
        assert_eq!(kernel.has_sound_btf(), Some(false));
    }

    #[test]
    fn limits_that_are_not_told() {
        let ops = Type::Struct("sched_ext_ops", &["cgroup_init"]);
        let kernel = look(&machine(&[SOUND[0], ops]));
        assert_eq!(finding(&kernel, "cgroup-limits").level, Level::Warning);
        let ops = Type::Struct("sched_ext_ops", &["dispatch"]);
        let kernel = look(&machine(&[SOUND[0], ops]));
        assert!(kernel.findings().iter().all(|finding| finding.check != "cgroup-limits"));
        assert_eq!(finding(&kernel, "CONFIG_EXT_GROUP_SCHED").level, Level::Warning);
    }

    #[test]
    fn a_jit_that_is_switched_off() {
        let tree = machine(&SOUND);
        tree.write("proc/sys/net/core/bpf_jit_enable", "0\n");
        let jit = finding(&look(&tree), "bpf-jit");
        assert_eq!(jit.level, Level::Error);
        assert_eq!(jit.fix.as_deref(), Some("sysctl -w net.core.bpf_jit_enable=1"));
    }
}
