//! Network namespaces, as `ip netns` names them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns};

fn open(name: &str) -> Result<File> {
    File::open(format!("/run/netns/{name}"))
        .with_context(|| format!("no network namespace {name}; run `testbed up`"))
}

/// Makes `command` start in the namespace `name`.
pub fn inside(command: &mut Command, name: &str) -> Result<()> {
    let namespace = open(name)?;
    // SAFETY: setns is one system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(setns(&namespace, CloneFlags::CLONE_NEWNET)?));
    }
    Ok(())
}

/// Runs `work` on a thread of its own in the namespace `name`.
pub fn with<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = open(name)?;
    thread::scope(|scope| {
        scope
            .spawn(|| {
                setns(&namespace, CloneFlags::CLONE_NEWNET)?;
                work()
            })
            .join()
            .map_err(|_| anyhow!("panic in the namespace {name}"))?
    })
}

/// Runs `ip` with the words of `arguments`.
pub fn ip(arguments: &str) -> Result<()> {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).output().context("cannot run ip")?;
    ensure!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
