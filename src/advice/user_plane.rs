//! The user plane of this machine: its kernel module, its programs, its NICs.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::gtp::Module;
use crate::irq::host::Host;
use crate::irq::inventory::list::Lister;
use crate::kernel::{procfs, udp_sockets};
use crate::policy::cgroups::Home;

/// The UDP port of GTP-U (3GPP TS 29.281, 4.4.2.3).
const GTP_U: u16 = 2152;

/// Names of UPFs that have the port open only in the kernel, or leave it to XDP: of free5GC,
/// Open5GS and eUPF.
const NAMES: [&str; 3] = ["upf", "open5gs-upfd", "eupf"];

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlane {
    /// The modules that are loaded.
    pub modules: Vec<Module>,
    pub programs: Vec<Program>,
    /// The NICs of this network namespace.
    pub nics: Vec<Nic>,
    pub online: CpuList,
}

/// A program that handles GTP-U packets, or tells the kernel how to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub pid: u32,
    pub comm: String,
    /// Its file, as its mount namespace names it.
    pub exe: Option<String>,
    /// Its effective user.
    pub uid: Option<u32>,
    pub home: Home,
    /// Whether it has the GTP-U port open.
    pub has_port: bool,
}

/// A NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    pub driver: Option<String>,
    /// The CPUs of its NUMA node, or all.
    pub near: CpuList,
}

impl UserPlane {
    /// Looks at this machine. Only root can see which program has a port open.
    pub fn find(host: &Host) -> Result<Self> {
        let topology = host.topology()?;
        let near = |node: Option<u32>| {
            let near = node.map(|node| topology.of_node(node)).unwrap_or_default();
            if near.is_empty() { topology.online.clone() } else { near }
        };
        let nics = Lister::new(host, None).look()?.nics.into_iter();
        Ok(Self {
            modules: Module::ALL.into_iter().filter(|module| module.is_there(&host.root)).collect(),
            programs: programs(&host.proc()),
            nics: nics
                .map(|nic| Nic { name: nic.name, driver: nic.driver, near: near(nic.numa_node) })
                .collect(),
            online: topology.online.clone(),
        })
    }
}

/// The programs that have the port open, or have one of the names.
fn programs(proc_root: &Path) -> Vec<Program> {
    // Without /proc no program is found.
    let namespaces = udp_sockets::namespaces(proc_root).unwrap_or_default();
    let sockets = namespaces.processes.iter().flat_map(|dir| udp_sockets::with_port(dir, GTP_U));
    let sockets: BTreeSet<u64> = sockets.map(|socket| socket.inode).collect();
    let pids = procfs::processes(proc_root).unwrap_or_default();
    let mut programs = Vec::new();
    for pid in pids {
        let dir = proc_root.join(pid.to_string());
        let has_port = !sockets.is_empty() && udp_sockets::open_in(&dir, &sockets).next().is_some();
        programs.extend(program(proc_root, pid, has_port));
    }
    programs
}

fn program(proc_root: &Path, pid: u32, has_port: bool) -> Option<Program> {
    let facts = procfs::facts(proc_root, pid)?;
    let fact = |name: &str| Some(facts.iter().find(|(known, _)| *known == name)?.1.clone());
    let comm = fact("comm")?;
    (has_port || NAMES.contains(&comm.as_str())).then(|| Program {
        pid,
        comm,
        exe: fact("exe"),
        uid: fact("user").and_then(|uid| uid.parse().ok()),
        home: fact("cgroup").map(|cgroup| Home::of(&cgroup)).unwrap_or_default(),
        has_port,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::UdpSocket;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::irq::tree::{Machine, Tree};

    /// A built-in module has no directory in /sys/module.
    #[test]
    fn a_module_that_is_built_in() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let modules = || UserPlane::find(&tree.host()).unwrap().modules;
        assert_eq!(modules(), []);
        tree.write("proc/kallsyms", "0 t gtp_encap_recv\n0 t gtp_dev_xmit\n");
        assert_eq!(modules(), [Module::Gtp]);
    }

    #[test]
    fn who_has_the_port() {
        let proc_root = tempfile::tempdir().unwrap();
        let process = |pid: u32, comm: &str, netns: u32, socket: u32| {
            let dir = proc_root.path().join(pid.to_string());
            for part in ["net", "ns", "fd"] {
                fs::create_dir_all(dir.join(part)).unwrap();
            }
            fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(dir.join("status"), format!("Tgid:\t{pid}\nUid:\t0\t7\t0\t0\n")).unwrap();
            fs::write(dir.join("cgroup"), "0::/system.slice/upf.service\n").unwrap();
            // /proc/net/udp of a namespace where inode 55 has the port, and 56 another.
            let port = |at: &str, inode: u32| {
                format!(" 1: 0A0B0C0D:{at} 00000000:0000 07 0:0 00:0 00000000 0 0 {inode} 2 0 0\n")
            };
            let udp = format!("sl local\n{}{}", port("0868", 55), port("1F49", 56));
            fs::write(dir.join("net/udp"), if netns == 1 { udp } else { String::new() }).unwrap();
            symlink(format!("net:[{netns}]"), dir.join("ns/net")).unwrap();
            symlink(format!("socket:[{socket}]"), dir.join("fd/3")).unwrap();
        };
        process(10, "gtp-any", 1, 55);
        process(11, "other", 1, 56);
        process(12, "eupf", 2, 57);
        fs::create_dir(proc_root.path().join("sys")).unwrap();
        let found = programs(proc_root.path());
        let names: Vec<_> = found.iter().map(|p| (p.pid, p.comm.as_str(), p.has_port)).collect();
        assert_eq!(names, [(10, "gtp-any", true), (12, "eupf", false)]);
        assert_eq!((found[0].uid, found[0].home.unit.as_deref()), (Some(7), Some("upf.service")));
    }

    /// Reads the real /proc.
    #[test]
    fn this_process_if_it_has_the_port() {
        let Ok(_socket) = UdpSocket::bind("127.0.0.1:2152") else { return };
        let found = programs(Path::new("/proc"));
        let this = found.iter().find(|program| program.pid == std::process::id());
        assert!(this.is_some_and(|program| program.has_port), "{found:?}");
    }
}
