//! What was there before gthctl changed it, kept in a file until it is put back.
//!
//! The file is written before the change, so that a crash leaves too much in it at the
//! worst, and replaced as a whole. It is root's alone, as what is in it gets written to
//! /proc and /sys. It is of one boot: after another, IRQs have other numbers.

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
use crate::irq::host::Host;
use crate::irq::inventory::affinity::Affinity;
use crate::irq::inventory::interrupts::Interrupts;
use crate::kernel::procfs::Process;
use crate::kernel::sysfs::{entries, number};

/// Of the file's form; another one is refused.
const VERSION: u32 = 1;
/// How long another change is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long by a program that is about to end.
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
    /// What irqbalance was told, to be taken back.
    pub bans: Bans,
}

/// One thing that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name when it was placed.
    pub nic: String,
    /// Which the NIC keeps when it is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub target: Target,
    /// The controller and its number, which tell whether an IRQ is still the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Before gthctl's first change.
    pub original: CpuList,
    /// Where the running policy wants it, which goes before the following.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_policy: Option<CpuList>,
    /// Where `gthctl irq pin` put it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<CpuList>,
    /// Where it was before a change that was begun and has not ended: it may be there still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<CpuList>,
}

/// Who places something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Policy,
    Hand,
}

/// Where an IRQ comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub chip: String,
    pub hwirq: Option<u64>,
}

/// IRQs that irqbalance leaves alone because it was told so by its socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bans {
    /// The process that was told; another one doesn't know.
    pub pid: Option<u32>,
    pub irqs: BTreeSet<u32>,
}

impl Saved {
    /// Nothing, in this boot.
    pub fn new(host: &Host) -> Result<Self> {
        let boot = boot(host)?;
        Ok(Self { version: VERSION, boot, runner: None, entries: vec![], bans: Bans::default() })
    }

    /// What is saved; `None` when nothing is, or it is of an earlier boot.
    ///
    /// Fails when the file cannot be read or is not one of this gthctl's.
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
            let what = format!("{}: not what gthctl saved: {why}", path.display());
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

    /// As [`Saved::load`], with nothing for none.
    pub fn load_or_new(host: &Host) -> Result<Self> {
        Self::load(host)?.map_or_else(|| Self::new(host), Ok)
    }

    /// Writes the file; without entries and bans it is removed.
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

    /// The IRQs that something is saved of.
    pub fn irqs(&self) -> BTreeSet<u32> {
        self.entries.iter().filter_map(|entry| entry.target.irq()).collect()
    }

    /// True when a change was begun and has not ended: some of it may not have been made.
    pub fn unfinished(&self) -> bool {
        self.entries.iter().any(|entry| entry.before.is_some())
    }

    /// The entry of `target` of `nic`. An IRQ has one, whichever NICs share it.
    pub fn entry(&self, nic: &str, target: &Target) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.is_of(nic, target))
    }

    /// As [`Saved::entry`].
    pub fn entry_mut(&mut self, nic: &str, target: &Target) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.is_of(nic, target))
    }

    /// The PID of the `gthctl run` whose policy keeps what is placed by it; `None` when it
    /// has ended in whatever way.
    pub fn runs(&self, host: &Host) -> Option<u32> {
        let runner = self.runner?;
        let now = Process::find(&host.proc(), runner.pid).ok()?;
        (now == Some(runner)).then_some(runner.pid)
    }
}

impl Entry {
    /// True when it is about `target` of `nic`.
    pub fn is_of(&self, nic: &str, target: &Target) -> bool {
        self.target.is_same(&self.nic, target, nic)
    }

    /// Where it is to be.
    pub fn wanted(&self) -> &CpuList {
        self.by_policy.as_ref().or(self.by_hand.as_ref()).unwrap_or(&self.original)
    }

    /// Who wants it there; `None` when it is only still to be put back.
    pub fn by(&self) -> Option<By> {
        let by = |cpus: &Option<CpuList>, by| cpus.as_ref().map(|_| by);
        by(&self.by_policy, By::Policy).or(by(&self.by_hand, By::Hand))
    }

    /// False when the IRQ's number has gone to another device.
    pub fn is_same(&self, host: &Host, interrupts: &Interrupts) -> bool {
        let now = self.target.irq().and_then(|irq| Source::of(host, interrupts, irq));
        now.is_none() || self.source.is_none() || now == self.source
    }

    /// What the NIC is called now; `None` when it is not here any more.
    pub fn nic_now(&self, host: &Host) -> Option<String> {
        let of = |name: &str| ifindex(host, name);
        match self.ifindex {
            None => Some(self.nic.clone()),
            index if of(&self.nic) == index => Some(self.nic.clone()),
            index => {
                let names = entries(&host.sys().join("class/net")).ok()?;
                names.into_iter().find(|name| of(name) == index)
            }
        }
    }

    /// What the NIC is called now, or was last.
    pub fn called(&self, host: &Host) -> String {
        self.nic_now(host).unwrap_or_else(|| self.nic.clone())
    }

    /// Where it may and does go now; `None` when it is gone.
    pub fn read(&self, host: &Host) -> Result<Option<Affinity>> {
        match (self.target.irq(), self.nic_now(host)) {
            (None, None) => Ok(None),
            (_, nic) => self.target.read(host, nic.as_deref().unwrap_or(&self.nic)),
        }
    }

    /// Sends it to `cpus`.
    pub fn write(&self, host: &Host, cpus: &CpuList) -> Result<()> {
        self.target.write(host, &self.called(host), cpus)
    }
}

impl Source {
    /// That of an IRQ: by sysfs (`Documentation/ABI/testing/sysfs-kernel-irq`), or where
    /// that is missing by /proc/interrupts, as long as it has a handler.
    pub fn of(host: &Host, interrupts: &Interrupts, irq: u32) -> Option<Self> {
        let dir = host.sys().join(format!("kernel/irq/{irq}"));
        let read = |name: &str| fs::read_to_string(dir.join(name)).map(|s| s.trim_end().to_owned());
        if let (Ok(chip), Ok(hwirq)) = (read("chip_name"), read("hwirq")) {
            return Some(Self { chip, hwirq: hwirq.parse().ok() });
        }
        let interrupt = interrupts.get(irq)?;
        Some(Self { chip: interrupt.chip.clone(), hwirq: interrupt.hwirq })
    }
}

/// The number of a network device, which no other has as long as it is there.
pub fn ifindex(host: &Host, nic: &str) -> Option<u32> {
    number(&host.sys().join("class/net").join(nic).join("ifindex"))
}

/// Keeps others from changing anything meanwhile; makes the directory.
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
    use crate::irq::tree::{Machine, Tree};

    fn saved(tree: &Tree) -> Saved {
        let entry = Entry {
            nic: "eth0".into(),
            ifindex: None,
            name: None,
            target: Target::Irq { irq: 38 },
            source: Some(Source { chip: "PCI-MSIX-0000:00:03.0".into(), hwirq: Some(1) }),
            original: "0-3".parse().unwrap(),
            by_policy: None,
            by_hand: Some("2".parse().unwrap()),
            before: None,
        };
        Saved { entries: vec![entry], ..Saved::new(&tree.host()).unwrap() }
    }

    #[test]
    fn stored_for_root_alone_and_read_again() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        assert_eq!(Saved::load(&host).unwrap(), None);
        let _lock = lock(&host).unwrap();
        let mut state = saved(&tree);
        state.store(&host).unwrap();
        assert_eq!(Saved::load(&host).unwrap().as_ref(), Some(&state));
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(host.state().clone()), mode(path(&host))), (0o700, 0o600));
        assert!(state.entry("eth1", &Target::Irq { irq: 38 }).is_some());
        state.entries.clear();
        state.store(&host).unwrap();
        assert!(!path(&host).exists());
    }

    #[test]
    fn that_of_an_earlier_boot_is_nothing() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let _lock = lock(&tree.host()).unwrap();
        saved(&tree).store(&tree.host()).unwrap();
        tree.write("proc/sys/kernel/random/boot_id", "another\n");
        assert_eq!(Saved::load(&tree.host()).unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let host = tree.host();
        let boot = boot(&host).unwrap();
        for (text, why) in [
            ("{".into(), "saved.json: not what gthctl saved: EOF"),
            (format!("{{\"version\":9,\"boot\":{boot:?}}}"), "another version of gthctl"),
            (format!("{{\"version\":1,\"boot\":{boot:?}}}"), "missing field"),
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
        entry.target =
            Target::Mask { mask: crate::irq::inventory::steering::Steering::Rps, queue: 0 };
        entry.ifindex = Some(2);
        assert_eq!((entry.nic_now(&host), entry.read(&host).unwrap()), (None, None));
        tree.write("sys/class/net/eth0/ifindex", "2\n");
        assert_eq!(entry.nic_now(&host).as_deref(), Some("eth0"));
        let net = tree.path("sys/class/net");
        fs::rename(net.join("eth0"), net.join("n3")).unwrap();
        assert_eq!(entry.nic_now(&host).as_deref(), Some("n3"));
        entry.write(&host, &"1".parse().unwrap()).unwrap();
        let mask = fs::read_to_string(net.join("n3/queues/rx-0/rps_cpus")).unwrap();
        assert_eq!(
            (mask.as_str(), entry.read(&host).unwrap().unwrap().allowed.to_string()),
            ("2\n", "1".into())
        );
    }
}
