//! What /proc says about a task (proc(5)).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::sysfs::entries;
use crate::base::cpulist::CpuList;
use crate::base::error::Result;

/// The text of a file of /proc. The kernel prints names of tasks and cgroups unchanged, and these
/// names need not be UTF-8: invalid bytes become U+FFFD.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether /proc shows the processes of the first PID namespace, with the numbers that the kernel gives to BPF
/// programs. There, process 2 is the parent of all kernel threads (kernel/kthread.c).
pub fn is_of_first_namespace(proc_root: &Path) -> bool {
    text(proc_root.join("2/comm")).is_ok_and(|comm| comm.trim_end() == "kthreadd")
}

/// What policies may ask about the thread `tid`, under the names that users know; `None` if there
/// is no such thread. `proc_root` is /proc except in tests.
pub fn facts(proc_root: &Path, tid: u32) -> Option<Vec<(&'static str, String)>> {
    let dir = proc_root.join(tid.to_string());
    let status = text(dir.join("status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':').map(str::trim)
    };
    let leader = proc_root.join(field("Tgid")?);
    let mut facts = Vec::new();
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    let comm = |dir: PathBuf| text(dir.join("comm")).ok().map(|s| s.trim_end().into());
    add("comm", comm(dir.clone()));
    add("comm of the process", comm(leader));
    add("exe", fs::read_link(dir.join("exe")).ok().map(|path| path.display().to_string()));
    // The UIDs are the real, effective, saved and file system's.
    let uid = field("Uid").and_then(|uids| uids.split_whitespace().nth(1));
    add("user", uid.map(Into::into));
    add("cgroup", cgroup(proc_root, tid));
    let netns = fs::metadata(dir.join("ns/net")).ok();
    add("netns", netns.map(|metadata| metadata.ino().to_string()));
    Some(facts)
}

/// Whether the thread's mount namespace belongs to a user namespace other than the initial one. If
/// so, a user may have made its paths. `None` if unknown.
pub fn has_mounts_of_users(proc_root: &Path, tid: u32) -> Option<bool> {
    /// ioctl_ns(2): `_IO(0xb7, 0x1)`.
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    /// `PROC_USER_INIT_INO` (include/linux/proc_ns.h).
    const INITIAL: u64 = 0xeffffffd;
    let mounts = File::open(proc_root.join(format!("{tid}/ns/mnt"))).ok()?;
    // SAFETY: an open file, and no argument.
    let owner = unsafe { libc::ioctl(mounts.as_raw_fd(), NS_GET_USERNS) };
    // SAFETY: nobody else owns this descriptor.
    let owner = (owner >= 0).then(|| unsafe { File::from_raw_fd(owner) })?;
    Some(owner.metadata().ok()?.ino() != INITIAL)
}

/// A process or thread, identified so that no later one is mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub pid: u32,
    /// Start time in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start_ticks: u64,
}

impl Process {
    /// The process or thread `pid`; `None` when there is none.
    ///
    /// # Errors
    ///
    /// It is unknown whether there is one, for example because there are no more descriptors or
    /// memory.
    pub fn find(proc_root: &Path, pid: u32) -> io::Result<Option<Self>> {
        let path = proc_root.join(format!("{pid}/stat"));
        Ok(if_there(text(path))?
            .and_then(|stat| Some(Self { pid, start_ticks: stat_field(&stat, 22)? })))
    }
}

/// A number in the text of /proc/PID/stat, by its place in proc_pid_stat(5), from 3.
pub fn stat_field<T: FromStr>(stat: &str, field: usize) -> Option<T> {
    // The comm, in parentheses, may itself hold blanks and parentheses.
    let after_comm = &stat[stat.rfind(')')? + 1..];
    after_comm.split_ascii_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

/// Whether `stat`, the text of /proc/PID/stat, is that of a kernel thread.
pub fn is_of_kernel(stat: &str) -> bool {
    /// include/linux/sched.h.
    const PF_KTHREAD: u32 = 0x0020_0000;
    stat_field(stat, 9).is_some_and(|flags: u32| flags & PF_KTHREAD != 0)
}

/// The ids of all processes, ascending.
pub fn processes(proc_root: &Path) -> Result<Vec<u32>> {
    let names = entries(proc_root)?;
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// `None` for a missing or forbidden file; an error if it is not certain that the file is one of
/// these.
pub fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(read) => Ok(Some(read)),
        Err(e) => match e.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH | Errno::EACCES | Errno::EPERM) => {
                Ok(None)
            }
            _ => Err(e),
        },
    }
}

/// The path of the thread's cgroup, as policies match it; `None` when there is no such thread.
pub fn cgroup(proc_root: &Path, tid: u32) -> Option<String> {
    cgroup_of(&text(proc_root.join(tid.to_string()).join("cgroup")).ok()?)
}

/// The path of the thread's cgroup in the hierarchy with this controller of cgroup v1; `""` means
/// the unified hierarchy. `None` when there is no such thread or hierarchy.
pub fn cgroup_with(proc_root: &Path, tid: u32, controller: &str) -> Option<String> {
    let cgroups = text(proc_root.join(tid.to_string()).join("cgroup")).ok()?;
    cgroups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then(|| path.into())
    })
}

/// The CPUs that the thread may run on, by its affinity and its cpuset (proc_pid_status(5),
/// `Cpus_allowed_list`); `None` when there is no such thread.
pub fn cpus_allowed(proc_root: &Path, tid: u32) -> Option<CpuList> {
    let status = text(proc_root.join(tid.to_string()).join("status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().parse().ok()
}

/// The path that policies match, from the text of /proc/PID/cgroup (cgroups(7)): the path in the
/// unified hierarchy, or, if that is not in use, in the cpu controller's hierarchy.
fn cgroup_of(text: &str) -> Option<String> {
    let mut unified = None;
    let mut cpu = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if id == "0" {
            unified = Some(path);
        } else if controllers.split(',').any(|name| name == "cpu") {
            cpu = Some(path);
        }
    }
    let path = unified.filter(|&path| path != "/" || cpu.is_none()).or(cpu)?;
    Some(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process() {
        let facts = facts(Path::new("/proc"), std::process::id()).unwrap();
        let text = |name: &str| facts.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        assert_eq!(text("user"), nix::unistd::geteuid().to_string());
        assert_eq!(text("exe"), std::env::current_exe().unwrap().display().to_string());
        assert!(text("cgroup").starts_with('/'));
        assert!(text("netns").parse::<u64>().is_ok());
        assert!(super::facts(Path::new("/proc"), 4_194_304).is_none());
    }

    /// Any user can give a task of theirs such a name.
    #[test]
    fn names_that_are_no_utf8() {
        let dir = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &[u8]| fs::write(dir.path().join("7").join(name), text).unwrap();
        fs::create_dir(dir.path().join("7")).unwrap();
        let fields = "0 ".repeat(18);
        write("stat", &[b"7 (\xff) S ", fields.as_bytes(), b"4711 0\n"].concat());
        write("status", b"Name:\t\xff\nTgid:\t7\nUid:\t0\t8\t0\t0\nCpus_allowed_list:\t1-2\n");
        write("comm", b"\xff\n");
        write("cgroup", b"0::/a\xff\n");
        let found = Process::find(dir.path(), 7).unwrap();
        assert_eq!(found, Some(Process { pid: 7, start_ticks: 4711 }));
        let facts = facts(dir.path(), 7).unwrap();
        assert!(facts.contains(&("comm", "\u{fffd}".into())), "{facts:?}");
        assert!(facts.contains(&("user", "8".into())), "{facts:?}");
        assert_eq!(cgroup(dir.path(), 7).unwrap(), "/a\u{fffd}");
        assert_eq!(cpus_allowed(dir.path(), 7).unwrap().to_string(), "1-2");
    }

    #[test]
    fn mounts_of_users() {
        use std::os::unix::process::CommandExt;
        let this = std::process::id();
        let here = has_mounts_of_users(Path::new("/proc"), this);
        assert!(here.is_some());
        assert_eq!(has_mounts_of_users(Path::new("/proc"), 4_194_304), None);
        let mut command = std::process::Command::new("sleep");
        // SAFETY: one system call.
        unsafe {
            command.arg("60").pre_exec(|| {
                nix::sched::unshare(
                    nix::sched::CloneFlags::CLONE_NEWUSER | nix::sched::CloneFlags::CLONE_NEWNS,
                )?;
                Ok(())
            });
        }
        // Some machines forbid user namespaces.
        let Ok(mut sleep) = command.spawn() else { return };
        assert_eq!(has_mounts_of_users(Path::new("/proc"), sleep.id()), Some(true));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }

    #[test]
    fn cgroups_of_every_layout() {
        for (text, path) in [
            ("0::/system.slice/upf.service\n", "/system.slice/upf.service"),
            ("0::/\n", "/"),
            ("4:cpu,cpuacct:/kubepods/pod1\n1:name=systemd:/x\n", "/kubepods/pod1"),
            ("4:cpu,cpuacct:/kubepods/pod1\n0::/\n", "/kubepods/pod1"),
            ("4:cpuset:/y\n0::/unified\n", "/unified"),
        ] {
            assert_eq!(cgroup_of(text).as_deref(), Some(path), "{text}");
        }
    }
}
