//! Reads the files and directories of sysfs (sysfs(5)).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result};

/// Where sysfs describes the network device `name`.
pub fn class_dir(sys_root: &Path, name: &str) -> Result<PathBuf> {
    let all = sys_root.join("class/net");
    let dir = all.join(name);
    // Names of network devices have no slash (dev_valid_name()).
    if matches!(name, "" | "." | "..") || name.contains('/') || !dir.is_dir() {
        let what = format!("{name:?}: no such network device in {}", all.display());
        return Err(Error::failure(what).help("`ip link` lists those of this network namespace"));
    }
    Ok(dir)
}

/// Whether the name of a NIC is the address of a PCI function, such as 0000:07:00.0. No network
/// device has a colon in its name (dev_valid_name(), net/core/dev.c).
pub fn is_pci_address(name: &str) -> bool {
    name.contains(':')
}

/// Where sysfs describes the PCI function at `address`.
pub fn pci_dir(sys_root: &Path, address: &str) -> Result<PathBuf> {
    let all = sys_root.join("bus/pci/devices");
    let dir = all.join(address);
    if !is_pci_address(address) || address.contains('/') || !dir.is_dir() {
        let what = format!("{address:?}: no such PCI function in {}", all.display());
        return Err(Error::failure(what));
    }
    Ok(dir)
}

/// The names in the directory `dir`; none when there is no such directory.
pub fn entries(dir: &Path) -> Result<Vec<String>> {
    let read = match fs::read_dir(dir) {
        Ok(read) => read,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(dir, e)),
    };
    let names = read.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
    let names: std::io::Result<Vec<_>> = names.filter_map(std::io::Result::transpose).collect();
    names.map_err(|e| failed(dir, e))
}

/// The number in the file at `path`; `None` if there is none, or if it is negative, which means the
/// same.
pub fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The target of the link at `path`, without its directory.
pub fn link_name(path: &Path) -> Option<String> {
    fs::read_link(path).ok().map(|target| file_name(&target))
}

/// The last part of a path.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The error of a file that cannot be read.
pub fn failed(path: &Path, e: std::io::Error) -> Error {
    Error::because_of(path.display(), e)
}
