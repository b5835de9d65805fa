//! The cgroups of a node with pods, three levels below the root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup";
const CLASS: &str = "kubepods/burstable";

/// One cgroup for each pod.
pub struct Pods(Vec<PathBuf>);

impl Pods {
    /// Makes `count` of them. This process goes into the first, and so does what it starts.
    pub fn make(count: usize) -> Result<Self> {
        ensure!(count > 1, "at least two pods: one for the data plane, one for the load");
        let class = Path::new(ROOT).join(CLASS);
        fs::create_dir_all(&class)?;
        for ancestor in [Path::new(ROOT), class.parent().context("no parent")?, &class] {
            fs::write(ancestor.join("cgroup.subtree_control"), "+cpu")?;
        }
        let pods: Vec<PathBuf> = (0..count).map(|i| class.join(format!("pod{i}"))).collect();
        pods.iter().try_for_each(fs::create_dir)?;
        put(std::process::id(), &pods[0])?;
        Ok(Self(pods))
    }

    /// Spreads the children of a process over the other pods.
    pub fn spread_children(&self, pid: u32) -> Result<()> {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let mut pods = self.0[1..].iter().cycle();
        for child in children.split_whitespace() {
            put(child.parse()?, pods.next().context("no pod")?)?;
        }
        Ok(())
    }
}

fn put(pid: u32, cgroup: &Path) -> Result<()> {
    let file = cgroup.join("cgroup.procs");
    fs::write(&file, pid.to_string()).with_context(|| format!("{pid} into {}", file.display()))
}
