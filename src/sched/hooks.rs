//! Hooks by which the BPF program learns that a task changed what rules ask about.
//!
//! For each hook on a function the kernel walks all traceable functions (kernel/trace/ftrace.c,
//! `ftrace_replace_code()`), which takes a fifth of the loading time. So hooks that only some
//! conditions need are attached only for policies with such conditions.

use libbpf_rs::Link;

use crate::base::error::Result;
use crate::kernel::skeletons::scheduler::SchedProgs;
use crate::policy::compile::{Compiled, Condition};

pub struct Hooks {
    _always: [Link; 2],
    credentials: Option<Link>,
    namespaces: Option<Link>,
    _limits: Option<Link>,
}

/// commit_creds() is also the last step of an exec.
fn needs_credentials(policy: &Compiled) -> bool {
    policy.asks(Condition::User) || policy.asks(Condition::Exe)
}

fn needs_namespaces(policy: &Compiled) -> bool {
    policy.asks(Condition::Netns)
}

impl Hooks {
    /// Attaches the hooks, with one for the limits of cgroups if `follows_limits`. Fails if the
    /// kernel refuses a hook.
    pub fn attach(
        progs: &mut SchedProgs<'_>,
        policy: &Compiled,
        follows_limits: bool,
    ) -> Result<Self> {
        let always = [
            progs.gth_task_rename.attach().map_err(super::scheduler::refused)?,
            progs.gth_cgroup_attach.attach().map_err(super::scheduler::refused)?,
        ];
        let limits = follows_limits
            .then(|| progs.gth_limit_set.attach().map_err(super::scheduler::refused))
            .transpose()?;
        let mut hooks =
            Self { _always: always, credentials: None, namespaces: None, _limits: limits };
        hooks.extend(progs, policy)?;
        Ok(hooks)
    }

    /// Attaches the further hooks that `policy` needs, before it is in force.
    pub fn extend(&mut self, progs: &mut SchedProgs<'_>, policy: &Compiled) -> Result<()> {
        if needs_credentials(policy) && self.credentials.is_none() {
            self.credentials =
                Some(progs.gth_commit_creds.attach().map_err(super::scheduler::refused)?);
        }
        if needs_namespaces(policy) && self.namespaces.is_none() {
            self.namespaces =
                Some(progs.gth_switch_namespaces.attach().map_err(super::scheduler::refused)?);
        }
        Ok(())
    }

    /// Detaches the hooks that `policy`, which is now in force, does not need.
    pub fn reduce(&mut self, policy: &Compiled) {
        if !needs_credentials(policy) {
            self.credentials = None;
        }
        if !needs_namespaces(policy) {
            self.namespaces = None;
        }
    }
}
