//! The GTP data planes in the kernel: which are loaded, and whether their functions can be traced.

use super::sight::Sight;
use crate::base::finding::Finding;
use crate::gtp::Module;
use crate::kernel::kallsyms::{KALLSYMS, Symbols};
use crate::kernel::kprobes;

const CHECK: &str = "data-plane";

pub fn findings(sight: &Sight<'_>) -> Vec<Finding> {
    let loaded = Module::ALL.into_iter().filter(|module| module.is_there(&sight.host.root));
    let findings: Vec<Finding> = loaded.map(|module| finding(sight, module)).collect();
    if findings.is_empty() {
        let what =
            "no GTP data plane is loaded: rules with gtp wait for one, except those with a port";
        return vec![Finding::note(CHECK, what).fix("modprobe gtp5g, or modprobe gtp")];
    }
    findings
}

fn finding(sight: &Sight<'_>, module: Module) -> Finding {
    let name = module.name();
    let entries = module.entries();
    let symbols = Symbols::read(&sight.path(KALLSYMS), entries.iter().map(String::as_str));
    let symbols = match symbols {
        Ok(symbols) => symbols,
        Err(e) => return Finding::note(CHECK, format!("{name} is loaded; {}", e.what)),
    };
    let missing = entries.iter().filter(|entry| symbols.of(entry, Some(name)).is_none());
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    if !missing.is_empty() {
        let what = format!(
            "{name} is loaded, in a version that gthctl does not know: it lacks {}",
            missing.join(", ")
        );
        return Finding::warning(CHECK, what)
            .fix(format!("gthctl trace {name} --verbose says what is traced"));
    }
    let functions = entries.join(" and ");
    if !kprobes::are_there(&sight.host.sys()) {
        let what = format!("{name} is loaded, but the kernel cannot trace {functions}");
        return Finding::warning(CHECK, what)
            .fix("boot a kernel that was built with CONFIG_KPROBE_EVENTS=y");
    }
    // Without the module's BTF there is no fentry.
    let how = match sight.exists(&format!("/sys/kernel/btf/{name}")) {
        true => "fentry and kprobes",
        false => "kprobes",
    };
    Finding::ok(CHECK, format!("{name} is loaded; {functions} can be traced by {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    #[test]
    fn what_is_loaded_and_how_it_is_traced() {
        let tree = Tree::new();
        let host = tree.host();
        let found = || findings(&Sight::new(&host));
        assert_eq!((found().len(), found()[0].level), (1, Level::Note));
        tree.write("sys/module/gtp/initstate", "live\n");
        tree.write("sys/module/gtp5g/initstate", "coming\n");
        assert!(found()[0].what.contains("kallsyms"), "{:?}", found());
        tree.write("proc/kallsyms", "0 t gtp_encap_recv\t[gtp]\n");
        let old = found();
        assert_eq!(old[0].level, Level::Warning);
        assert!(old[0].what.ends_with("it lacks gtp_dev_xmit"), "{old:?}");
        tree.write("proc/kallsyms", "0 t gtp_encap_recv\t[gtp]\n0 t gtp_dev_xmit\t[gtp]\n");
        assert!(found()[0].what.contains("cannot trace"), "{:?}", found());
        tree.write("sys/bus/event_source/devices/kprobe/type", "8\n");
        assert_eq!(found()[0].level, Level::Ok);
        assert!(
            found()[0].what.ends_with("gtp_dev_xmit can be traced by kprobes"),
            "{:?}",
            found()
        );
        tree.write("sys/kernel/btf/gtp", "");
        assert!(found()[0].what.ends_with("can be traced by fentry and kprobes"), "{:?}", found());
        assert_eq!(found().len(), 1);
        assert!(Module::Gtp.is_there(&host.root));
        assert!(!Module::Gtp5g.is_there(&host.root));
        // Built in: the module has no directory in /sys/module, as it has no parameters.
        let tree = Tree::new();
        let host = tree.host();
        tree.write("proc/kallsyms", "0 t gtp_encap_recv\n0 t gtp_dev_xmit\n");
        tree.write("sys/bus/event_source/devices/kprobe/type", "8\n");
        let found = findings(&Sight::new(&host));
        assert_eq!((found.len(), found[0].level), (1, Level::Ok), "{found:?}");
        assert!(Module::Gtp.is_there(&host.root));
    }
}
