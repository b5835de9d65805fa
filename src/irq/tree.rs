//! A directory with a /proc and a /sys written by hand, for the tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path("sys/class/net")).unwrap();
        tree
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn sys(&self) -> PathBuf {
        self.path("sys")
    }

    pub fn proc(&self) -> PathBuf {
        self.path("proc")
    }

    /// Writes a file and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Links `path` to `target`, both from the top of the tree.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.path(target), path).unwrap();
    }

    /// A PCI function at `dir` under sys/devices, with its driver and MSI vectors.
    pub fn pci(&self, dir: &str, driver: &str, msi_irqs: &[u32]) {
        let dir = format!("sys/devices/{dir}");
        self.link(&format!("{dir}/subsystem"), "sys/bus/pci");
        self.link(&format!("{dir}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        for irq in msi_irqs {
            self.write(&format!("{dir}/msi_irqs/{irq}"), "msix\n");
        }
    }

    /// A network device of the device at `device` under sys/devices.
    pub fn nic(&self, name: &str, device: &str) {
        let dir = format!("sys/devices/{device}/net/{name}");
        self.link(&format!("{dir}/device"), &format!("sys/devices/{device}"));
        self.link(&format!("sys/class/net/{name}"), &dir);
    }

    /// A network device without a device, on top of `lower`.
    pub fn on_top(&self, name: &str, lower: &[&str]) {
        let dir = format!("sys/devices/virtual/net/{name}");
        fs::create_dir_all(self.path(&dir)).unwrap();
        self.link(&format!("sys/class/net/{name}"), &dir);
        for lower in lower {
            let link = format!("sys/class/net/{name}/lower_{lower}");
            self.link(&link, &format!("sys/class/net/{lower}"));
        }
    }
}
