//! The settings from before gthctl's changes, kept in a file until gthctl puts them back.
//!
//! gthctl writes the file before the change, so that a crash at worst leaves too much in it, and
//! always replaces the whole file. Only root can read and write it, because gthctl writes its
//! contents to /proc and /sys. It is valid for one boot: after the next, IRQs have other numbers.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::target::Target;
use crate::base::atomic_file::Replacement;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::lock::{Lock, make_private_dir};
use crate::irq::banned;
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::source::Source;
use crate::kernel::procfs::Process;
use crate::kernel::sysfs::{entries, number};

/// The version of the file's format. A file of another version is refused.
const VERSION: u32 = 2;
/// How long to wait for another change.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a program that is about to exit waits.
const BRIEF: Duration = Duration::from_millis(300);

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    version: u32,
    /// random(4), boot_id.
    boot: String,
    /// The last `gthctl run` whose policy placed something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<Process>,
    pub entries: Vec<Entry>,
    /// The bans that irqbalance was told and that still have to be taken back.
    pub bans: Bans,
}

/// A target that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// With the NIC's name at the last change.
    pub target: Target,
    /// The NIC's index, which it keeps when it is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// Shows whether the IRQ's number still belongs to the same device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The CPUs before gthctl's first change.
    pub original: CpuList,
    /// The CPUs that irqbalance's configuration banned then.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub banned: CpuList,
    /// Where the running policy wants it. This overrides `by_hand`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_policy: Option<CpuList>,
    /// If not empty: with `by_policy`, the target may be on any CPUs but these.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub away: CpuList,
    /// Where `gthctl irq pin` put it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<CpuList>,
    /// Where it was before a change that has begun but not ended. It may still be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<CpuList>,
}

/// Who places a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Policy,
    Hand,
}

/// What irqbalance knows about IRQs that it has to leave alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bans {
    /// The process that was asked about them. Another one may not know them.
    pub pid: Option<u32>,
    /// The IRQs that it was told to leave alone.
    pub irqs: BTreeSet<u32>,
}

impl Saved {
    /// What was saved in this boot; `None` if nothing was.
    ///
    /// Fails when the file cannot be read, or this version of gthctl did not write it.
    pub fn load(host: &Host) -> Result<Option<Self>> {
        let path = path(host);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(host, &e)),
        };
        #[derive(Deserialize)]
        struct Head {
            version: u32,
            boot: String,
        }
        let bad = |why: &dyn std::fmt::Display| {
            let what = format!("{}: gthctl did not write this: {why}", path.display());
            Error::failure(what).help("remove it; nothing can be restored from it")
        };
        let head: Head = serde_json::from_slice(&text).map_err(|e| bad(&e))?;
        if head.boot != boot(host)? {
            return Ok(None);
        }
        if head.version != VERSION {
            let what = format!("{}: saved by another version of gthctl", path.display());
            return Err(Error::failure(what).help("restore with that one"));
        }
        serde_json::from_slice(&text).map(Some).map_err(|e| bad(&e))
    }

    /// As [`Saved::load`], or empty.
    pub fn load_or_new(host: &Host) -> Result<Self> {
        if let Some(saved) = Self::load(host)? {
            return Ok(saved);
        }
        let boot = boot(host)?;
        Ok(Self { version: VERSION, boot, runner: None, entries: vec![], bans: Bans::default() })
    }

    /// Writes the file, or removes it when there are no entries and no bans.
    pub fn store(&self, host: &Host) -> Result<()> {
        let path = path(host);
        if self.entries.is_empty() && self.bans == Bans::default() {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(host, &e)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|e| Error::because_of(path.display(), e))?;
        Replacement::prepare_as(&path, &(text + "\n"), 0o600)?.commit().map(drop)
    }

    /// The IRQs among the entries.
    pub fn irqs(&self) -> BTreeSet<u32> {
        self.entries.iter().filter_map(|entry| entry.target.irq()).collect()
    }

    /// True when a change has begun but not ended, so that part of it may be missing.
    pub fn unfinished(&self) -> bool {
        self.entries.iter().any(|entry| entry.before.is_some())
    }

    /// The entry of `target`.
    pub fn entry(&self, target: &Target) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.target.is_same(target))
    }

    /// The entry of `target`; if there is none, `new` is added.
    pub fn entry_or(&mut self, target: &Target, new: impl FnOnce() -> Entry) -> &mut Entry {
        let found = self.entries.iter().position(|entry| entry.target.is_same(target));
        if found.is_none() {
            self.entries.push(new());
        }
        let at = found.unwrap_or(self.entries.len() - 1);
        &mut self.entries[at]
    }

    /// The PID of the `gthctl run` whose policy places targets; `None` when it has ended.
    pub fn runs(&self, host: &Host) -> Option<u32> {
        let runner = self.runner?;
        let now = Process::find(&host.proc(), runner.pid).ok()?;
        (now == Some(runner)).then_some(runner.pid)
    }
}

impl Entry {
    /// The entry of a target that has not been placed yet and is on the CPUs `original`.
    pub fn new(host: &Host, interrupts: &Interrupts, target: &Target, original: &CpuList) -> Self {
        Self {
            target: target.clone(),
            ifindex: ifindex(host, &target.nic),
            source: target.irq().and_then(|irq| Source::of(host, interrupts, irq)),
            original: original.clone(),
            banned: banned::cpus(host),
            by_policy: None,
            away: CpuList::default(),
            by_hand: None,
            before: None,
        }
    }

    /// Where it belongs now.
    pub fn wanted(&self) -> &CpuList {
        self.by_policy.as_ref().or(self.by_hand.as_ref()).unwrap_or(&self.original)
    }

    /// Whether it may stay on these CPUs.
    pub fn is_met_by(&self, now: &CpuList) -> bool {
        match self.by_policy {
            Some(_) => is_met(now, self.wanted(), &self.away),
            None => now == self.wanted(),
        }
    }

    /// Where it belongs when no policy wants it elsewhere. For an IRQ, this leaves out CPUs that
    /// irqbalance's configuration has banned since gthctl's first change, unless no CPU would be
    /// left.
    pub fn without_policy(&self, host: &Host) -> CpuList {
        let before = self.by_hand.as_ref().unwrap_or(&self.original);
        if self.target.irq().is_none() {
            return before.clone();
        }
        let left = before.without(&banned::cpus(host).without(&self.banned));
        if left.is_empty() { before.clone() } else { left }
    }

    /// Who wants it there; `None` when it only remains to be put back.
    pub fn by(&self) -> Option<By> {
        let by = |cpus: &Option<CpuList>, by| cpus.as_ref().map(|_| by);
        by(&self.by_policy, By::Policy).or(by(&self.by_hand, By::Hand))
    }

    /// False when the IRQ's number has passed to another device.
    pub fn is_same(&self, host: &Host, interrupts: &Interrupts) -> bool {
        let now = self.target.irq().and_then(|irq| Source::of(host, interrupts, irq));
        now.is_none() || self.source.is_none() || now == self.source
    }

    /// The NIC's present name; `None` when the NIC has gone.
    pub fn nic_now(&self, host: &Host) -> Option<String> {
        let of = |name: &str| ifindex(host, name);
        let last = &self.target.nic;
        match self.ifindex {
            None => Some(last.clone()),
            index if of(last) == index => Some(last.clone()),
            index => {
                let names = entries(&host.sys().join("class/net")).ok()?;
                names.into_iter().find(|name| of(name) == index)
            }
        }
    }

    /// The target with the NIC's present name, or the last one when the NIC has gone.
    pub fn target_now(&self, host: &Host) -> Target {
        let nic = self.nic_now(host).unwrap_or_else(|| self.target.nic.clone());
        Target { nic, ..self.target.clone() }
    }

    /// The CPUs now; `None` when the target has gone.
    pub fn read(&self, host: &Host) -> Result<Option<Affinity>> {
        if self.target.irq().is_none() && self.nic_now(host).is_none() {
            return Ok(None);
        }
        self.target_now(host).read(host)
    }
}

/// Whether a target may stay on the CPUs `now`, if it is wanted on the CPUs `wanted` or, if `away`
/// is not empty, anywhere but on those of `away`.
pub fn is_met(now: &CpuList, wanted: &CpuList, away: &CpuList) -> bool {
    match away.is_empty() {
        true => now == wanted,
        false => !now.is_empty() && !now.meets(away),
    }
}

/// The number of a network device. No other device has it at the same time.
pub fn ifindex(host: &Host, nic: &str) -> Option<u32> {
    number(&host.sys().join("class/net").join(nic).join("ifindex"))
}

/// Keeps other processes from changing anything until dropped. Creates the directory.
pub fn lock(host: &Host) -> Result<Lock> {
    let dir = &host.state();
    make_private_dir(dir).map_err(|e| failed(host, &e))?;
    Lock::wait(&dir.join("lock"), || if host.hurry.is_on() { BRIEF } else { PATIENCE })
}

fn path(host: &Host) -> PathBuf {
    host.state().join("saved.json")
}

fn boot(host: &Host) -> Result<String> {
    let path = host.proc().join("sys/kernel/random/boot_id");
    let text = fs::read_to_string(&path);
    let text = text.map_err(|e| Error::because_of(path.display(), e))?;
    Ok(text.trim_end().into())
}

fn failed(host: &Host, e: &std::io::Error) -> Error {
    let what = format!("{}: {e}", host.state().display());
    match e.kind() {
        ErrorKind::PermissionDenied => {
            Error::new(ExitCode::Permission, what).help("run it as root, with sudo")
        }
        _ => Error::failure(what),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::irq::inventory::steering::Steering;
    use crate::irq::place::target::Part;
    use crate::irq::tree::{Machine, Tree};

    fn irq_38(nic: &str) -> Target {
        Target { nic: nic.into(), name: None, part: Part::Irq { irq: 38 } }
    }

    fn saved(tree: &Tree) -> Saved {
        let (host, all) = (tree.host(), Interrupts::read(&tree.proc()).unwrap());
        let mut entry = Entry::new(&host, &all, &irq_38("eth0"), &"0-3".parse().unwrap());
        entry.by_hand = Some("2".parse().unwrap());
        Saved { entries: vec![entry], ..Saved::load_or_new(&host).unwrap() }
    }

    #[test]
    fn stored_for_root_alone_and_read_again_in_the_same_boot() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(Saved::load(&host).unwrap(), None);
        let _lock = lock(&host).unwrap();
        let mut state = saved(&tree);
        state.store(&host).unwrap();
        assert_eq!(Saved::load(&host).unwrap().as_ref(), Some(&state));
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(host.state().clone()), mode(path(&host))), (0o700, 0o600));
        assert!(state.entry(&irq_38("eth1")).is_some());
        tree.write("proc/sys/kernel/random/boot_id", "another\n");
        assert_eq!(Saved::load(&host).unwrap(), None);
        state.entries.clear();
        state.store(&host).unwrap();
        assert!(!path(&host).exists());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        let boot = boot(&host).unwrap();
        for (text, why) in [
            ("{".into(), "saved.json: gthctl did not write this: EOF"),
            (format!("{{\"version\":9,\"boot\":{boot:?}}}"), "another version of gthctl"),
            (format!("{{\"version\":2,\"boot\":{boot:?}}}"), "missing field"),
        ] {
            tree.write("run/gthctl/irq/saved.json", &text);
            let what = Saved::load(&host).unwrap_err().what;
            assert!(what.contains(why), "{what}");
        }
    }

    #[test]
    fn an_irq_number_may_go_to_another_device() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let (host, entry) = (tree.host(), &saved(&tree).entries[0]);
        let is_same = || entry.is_same(&host, &Interrupts::read(&tree.proc()).unwrap());
        assert!(is_same());
        let other = "  CPU0\n 38: 1 PCI-MSIX-0000:00:09.0 0-edge  nvme0q0\n";
        tree.write("proc/interrupts", other);
        assert!(!is_same());
        tree.write("proc/interrupts", "  CPU0\n");
        assert!(is_same());
        // Also without a handler.
        tree.write("sys/kernel/irq/38/chip_name", "PCI-MSIX-0000:00:09.0\n");
        tree.write("sys/kernel/irq/38/hwirq", "0\n");
        assert!(!is_same());
    }

    #[test]
    fn a_nic_may_be_renamed() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        let mut entry = saved(&tree).entries.remove(0);
        entry.target.part = Part::Mask { mask: Steering::Rps, queue: 0 };
        entry.ifindex = Some(2);
        assert_eq!((entry.nic_now(&host), entry.read(&host).unwrap()), (None, None));
        tree.write("sys/class/net/eth0/ifindex", "2\n");
        assert_eq!(entry.nic_now(&host).as_deref(), Some("eth0"));
        let net = tree.path("sys/class/net");
        fs::rename(net.join("eth0"), net.join("n3")).unwrap();
        assert_eq!(entry.nic_now(&host).as_deref(), Some("n3"));
        tree.write("sys/class/net/n3/queues/rx-0/rps_cpus", "2\n");
        assert_eq!(entry.read(&host).unwrap().unwrap().allowed.to_string(), "1");
    }
}
