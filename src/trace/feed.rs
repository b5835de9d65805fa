//! Which NIC interrupts a CPU takes: they raise the softirqs that run there.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::base::error::Result;
use crate::irq::inventory::interrupts::Interrupts;
use crate::irq::inventory::nic::Nic;

/// A NIC's interrupt on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Feed {
    pub cpu: usize,
    pub nic: String,
    pub irq: u32,
    /// Its name in /proc/interrupts.
    pub name: String,
    pub per_second: f64,
}

/// Counts the interrupts between two looks.
pub struct Feeds<'a> {
    proc_root: &'a Path,
    sys_root: &'a Path,
    before: Interrupts,
    at: Instant,
}

impl<'a> Feeds<'a> {
    /// The first look. The roots are /proc and /sys except in tests.
    pub fn new(proc_root: &'a Path, sys_root: &'a Path) -> Result<Self> {
        let before = Interrupts::read(proc_root)?;
        Ok(Self { proc_root, sys_root, before, at: Instant::now() })
    }

    /// The interrupts each CPU took since the last look, the most frequent first. Only
    /// NICs of this network namespace count.
    pub fn look(&mut self) -> Result<Vec<Feed>> {
        let now = Interrupts::read(self.proc_root)?;
        let since = now.since(&self.before);
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let mut feeds = Vec::new();
        for nic in self.nics(&now) {
            for irq in &nic.irqs {
                let Some(counted) = since.get(irq.irq) else { continue };
                for (cpu, n) in since.per_cpu(counted).filter(|&(_, n)| n > 0) {
                    feeds.push(Feed {
                        cpu: cpu as usize,
                        nic: nic.name.clone(),
                        irq: irq.irq,
                        name: irq.name.clone().unwrap_or_default(),
                        per_second: f64::from(n) / seconds,
                    });
                }
            }
        }
        feeds.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then(a.irq.cmp(&b.irq)));
        self.before = now;
        self.at = Instant::now();
        Ok(feeds)
    }

    fn nics(&self, interrupts: &Interrupts) -> Vec<Nic> {
        let devices = std::fs::read_dir(self.sys_root.join("class/net"));
        let names = devices.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        // A NIC that has just gone has no interrupts.
        names.filter_map(|name| Nic::read(self.sys_root, interrupts, &name).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn by_nic_and_cpu() {
        let root = tempfile::tempdir().unwrap();
        let (proc_root, sys_root) = (root.path().join("proc"), root.path().join("sys"));
        let msi = sys_root.join("devices/pci0000:00/0000:00:02.0/msi_irqs");
        fs::create_dir_all(&msi).unwrap();
        fs::write(msi.join("34"), "msix\n").unwrap();
        let net = sys_root.join("class/net/eth0");
        fs::create_dir_all(&net).unwrap();
        fs::create_dir_all(sys_root.join("class/net/lo")).unwrap();
        let device = sys_root.join("devices/pci0000:00/0000:00:02.0");
        fs::create_dir_all(sys_root.join("bus/pci")).unwrap();
        std::os::unix::fs::symlink(sys_root.join("bus/pci"), device.join("subsystem")).unwrap();
        std::os::unix::fs::symlink(&device, net.join("device")).unwrap();
        fs::create_dir_all(&proc_root).unwrap();
        let counts = |a: u32, b: u32| {
            let text = format!(
                "           CPU0       CPU1\n 34: {a:10} {b:10} IR-PCI-MSIX-0000:00:02.0    0-edge      eth0-rx-0\n \
                 35:          1          2 IR-PCI-MSIX-0000:00:03.0    0-edge      nvme0q0\n"
            );
            fs::write(proc_root.join("interrupts"), text).unwrap();
        };
        counts(100, 7);
        let mut feeds = Feeds::new(&proc_root, &sys_root).unwrap();
        counts(100, 507);
        let seen = feeds.look().unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        let Feed { cpu, nic, irq, name, per_second } = &seen[0];
        assert_eq!((*cpu, nic.as_str(), *irq, name.as_str()), (1, "eth0", 34, "eth0-rx-0"));
        assert!(*per_second > 0.0);
        assert_eq!(feeds.look().unwrap(), []);
    }
}
