//! Finds rules that an unprivileged user could make apply to their own tasks.
//!
//! SECURITY.md gives the reasons, condition by condition.

use super::patterns::{self, Budget};
use super::{Conditions, CpuLimit, Cpus, Effects, Policy, Rule, cgroups, globs, resolve};
use crate::base::root::Root;
use crate::base::yaml::quote;

/// How any user could meet the conditions of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgery {
    /// Such as "any user can name a task like that".
    pub how: String,
    /// The keys of the conditions that prevent it.
    pub ends: &'static str,
}

/// A note on each rule that gives any user a priority or exclusive CPUs.
pub fn notes(policy: &Policy, root: &Root) -> Vec<String> {
    policy.rules.iter().filter_map(|rule| note(rule, root)).collect()
}

fn note(rule: &Rule, root: &Root) -> Option<String> {
    let gain = gain(&rule.effects)?;
    let Forgery { how, ends } = forgeable(&rule.conditions, root)?;
    Some(format!("{}: {}: {how} and get {gain}; {ends} prevents that", rule.location, rule.name))
}

/// What makes the rule worth forging; weights and slices are only shares.
fn gain(effects: &Effects) -> Option<String> {
    let priority = effects.priority.map(|priority| format!("priority {}", priority.level()));
    let cpus = effects.cpus.as_ref().filter(|_| effects.exclusive);
    let cpus = cpus.map(|cpus| match cpus {
        Cpus::List(list) => format!("exclusive CPUs {list}"),
        Cpus::Allocated => "the CPUs of its cpuset exclusively".to_owned(),
    });
    let limit = effects.cpu_limit.map(|CpuLimit::Ignore| "no CPU limit".to_owned());
    let gains: Vec<String> = priority.into_iter().chain(cpus).chain(limit).collect();
    (!gains.is_empty()).then(|| gains.join(" and "))
}

/// How any user could meet these conditions; `None` if a user cannot meet one of them.
pub fn forgeable(conditions: &Conditions, root: &Root) -> Option<Forgery> {
    let c = conditions;
    let children = c.include_children;
    // Every task descends from process 1.
    let out_of_reach = c.pid.is_some_and(|pid| !(children && pid == 1))
        || c.container.is_some()
        || c.of_pods()
        || is_out_of_reach(&c.user, |user| !(children && is_root(user, root)))
        || is_out_of_reach(&c.systemd_unit, |unit| !users_have_unit(unit, children))
        || is_out_of_reach(&c.cgroup, |cgroup| !users_have_cgroup(cgroup, children))
        || is_out_of_reach(&c.netns, |netns| !users_have_netns(netns, root));
    if out_of_reach {
        return None;
    }
    let ends = match children {
        true => "systemd_unit: or container:",
        false => "user: or systemd_unit:",
    };
    Some(Forgery { how: how(c), ends })
}

fn is_out_of_reach(condition: &Option<String>, test: impl Fn(&str) -> bool) -> bool {
    condition.as_deref().is_some_and(test)
}

/// How a user meets the hardest of the conditions, none of which is hard.
fn how(c: &Conditions) -> String {
    if c.pid.is_some() {
        return "any user's tasks descend from process 1".into();
    }
    if let Some(exe) = &c.exe {
        let exe = quote(exe);
        return format!("any user can run {exe} with their own code in it (LD_PRELOAD)");
    }
    if let Some(gtp) = &c.gtp {
        return match gtp.plane.port() {
            Some(port) => format!("any user can open UDP port {port} at some address"),
            None => "any user can send such packets".into(),
        };
    }
    if c.command_regex.is_some() || c.threads.is_some() {
        return "any user can name a task like that".into();
    }
    if c.user.is_some() {
        // sshd, cron, su: they start each user's shell.
        return "any user's tasks can descend from root's".into();
    }
    match c.include_children {
        true => "any user's tasks can descend from one there".into(),
        false => "any user can have a task there".into(),
    }
}

/// Whether `user` is the name or number of UID 0.
fn is_root(user: &str, root: &Root) -> bool {
    user == "root" || matches!(resolve::uid(root, user), Ok(Some(0)))
}

/// The text that every match of a glob begins with. A glob is compiled only if this text leaves the
/// answer open: compiling a hundred globs takes longer than putting a policy into force.
fn beginning(glob: &str) -> &str {
    glob.split(['*', '?', '[', '{']).next().unwrap_or_default()
}

fn begin_alike(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Whether `uid`, the text behind `user-` in a glob, stands for UIDs without listing them.
fn means_many(uid: &str) -> bool {
    uid.split('/').next().is_some_and(|uid| uid.contains(['*', '?', '[']))
}

fn users_have_unit(glob: &str, children: bool) -> bool {
    let mut all = of_users(children);
    let is_login = all.iter().any(|path| is_instance(glob, path));
    if is_login || glob.strip_prefix("user-").is_some_and(means_many) {
        return true;
    }
    let names = all.iter().flat_map(|path| path.split('/')).filter(|name| !name.is_empty());
    let mut names = names.chain(["user@", "session-"]);
    if !names.any(|name| begin_alike(beginning(glob), name)) {
        return false;
    }
    // The full name of a systemd-logind unit stands for one user.
    let is_name = !glob.contains(['*', '?', '[', '{']);
    if is_name && glob != "user.slice" {
        all.remove(0);
    }
    cgroups::unit(glob).is_ok_and(|pattern| can_match_below(&pattern, &all))
}

fn users_have_cgroup(glob: &str, children: bool) -> bool {
    let all = of_users(children);
    let is_login = all.iter().any(|path| is_instance(glob, path));
    if is_login || glob.strip_prefix("/user.slice/user-").is_some_and(means_many) {
        return true;
    }
    if !all.iter().any(|path| begin_alike(beginning(glob), path)) {
        return false;
    }
    globs::cgroup(glob).is_ok_and(|pattern| can_match_below(&pattern, &all))
}

/// The cgroups in which any user can have a task or, with `children`, a task that theirs descend
/// from. The first cgroup is a user's.
fn of_users(children: bool) -> Vec<&'static str> {
    let above: &[&str] = if children { &LOGINS } else { &[] };
    [OF_USERS.as_slice(), above].concat()
}

/// Whether a glob on a unit's name, or on a cgroup's path, begins like an instance of the same
/// template as the unit in this path: each `getty@` logs users in.
fn is_instance(glob: &str, path: &str) -> bool {
    let Some((template, _)) = path.split_once('@') else { return false };
    let Some((name, _)) = glob.split_once('@') else { return false };
    name == template || template.rsplit('/').next() == Some(name)
}

/// The cgroup of a user whom no pattern matches by chance, and the cgroups of services that run
/// users' commands: crontab(1), at(1).
const OF_USERS: [&str; 4] = [
    "/user.slice/user-4294967293.slice/",
    "/system.slice/cron.service/",
    "/system.slice/crond.service/",
    "/system.slice/atd.service/",
];

/// The cgroups of the programs that start every user's tasks: systemd, sshd(8) for all connections
/// or for one, agetty(8).
const LOGINS: [&str; 7] = [
    "/init.scope/",
    "/system.slice/ssh.service/",
    "/system.slice/sshd.service/",
    "/system.slice/system-ssh.slice/ssh@0.service/",
    "/system.slice/system-sshd.slice/sshd@0.service/",
    "/system.slice/system-getty.slice/getty@tty1.service/",
    r"/system.slice/system-serial\x2dgetty.slice/serial-getty@ttyS0.service/",
];

/// Whether the pattern matches one of these paths, or one below or above it.
fn can_match_below(pattern: &str, paths: &[&str]) -> bool {
    let dfas = patterns::compile(&[(0, pattern)], &mut Budget::default()).unwrap_or_default();
    paths.iter().any(|path| dfas.iter().any(|dfa| dfa.finds_some(path.as_bytes())))
}

/// Whether any user can have tasks in this network namespace. Everyone is in the first one, if
/// gthctl can see whether this is it. A path where users can write may link to another one.
fn users_have_netns(netns: &str, root: &Root) -> bool {
    const FIRST: [&str; 3] = ["/proc/1/", "/proc/self/", "/proc/thread-self/"];
    const WRITABLE: [&str; 5] = ["/home/", "/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/"];
    let first = resolve::netns(root, "/proc/1/ns/net");
    (first.is_some() && resolve::netns(root, netns) == first)
        || FIRST.iter().chain(&WRITABLE).any(|dir| netns.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use super::*;

    fn policy(rules: &str) -> Policy {
        Policy::parse(&format!("strategies:\n{rules}"), Path::new("p.yaml")).expect(rules).0
    }

    /// Where nothing can be looked up.
    fn nowhere() -> Root {
        Root::at("/no-such-directory")
    }

    fn is_forgeable(conditions: &str) -> bool {
        is_forgeable_at(conditions, &nowhere())
    }

    fn is_forgeable_at(conditions: &str, root: &Root) -> bool {
        let policy = policy(&format!("- {{{conditions}, priority: 1}}"));
        forgeable(&policy.rules[0].conditions, root).is_some()
    }

    #[test]
    fn what_any_user_can_be() {
        for conditions in [
            "command_regex: ^nr-gnb$",
            "threads: ^rx",
            "gtp: gtp",
            "gtp: {port: 2152}",
            "exe: /usr/bin/upf",
            "exe: '**/upf', command_regex: ^upf$, threads: ^rx, gtp: gtp5g",
            "cgroup: /user.slice",
            "cgroup: '/user.slice/*/session-*'",
            "cgroup: '/user.slice/user-1*'",
            "cgroup: '/user.slice/user-100?.slice/session-*'",
            "cgroup: '/user.slice/**/upf.service'",
            "cgroup: '**/upf.service'",
            "cgroup: '*'",
            "cgroup: '/*/*'",
            "cgroup: '/{system,user}.slice'",
            "cgroup: '/system.slice/**'",
            "systemd_unit: user.slice",
            "systemd_unit: system.slice",
            "systemd_unit: '*.service'",
            "systemd_unit: cron.service",
            "systemd_unit: '*.slice'",
            "systemd_unit: 'user-*.slice'",
            "systemd_unit: 'user-1*.slice'",
            "systemd_unit: 'user-[1-3]???.slice'",
            "systemd_unit: 'user@*.service'",
            "systemd_unit: 'session-*'",
            "netns: /proc/1/ns/net",
            "netns: /home/me/ns",
            "command_regex: ^nr-gnb$, include_children: true",
            "user: root, include_children: true",
            "user: 0, command_regex: ^nr-gnb$, include_children: true",
            "user: '00', include_children: true",
            "pid: 1, include_children: true",
            "systemd_unit: init.scope, include_children: true",
            "systemd_unit: ssh.service, include_children: true",
            "systemd_unit: sshd.service, include_children: true",
            "systemd_unit: 'ssh*.service', include_children: true",
            "systemd_unit: 'sshd@*.service', include_children: true",
            "systemd_unit: getty@tty1.service, include_children: true",
            "systemd_unit: getty@tty2.service, include_children: true",
            "systemd_unit: 'serial-getty@*', include_children: true",
            "systemd_unit: system-getty.slice, include_children: true",
            "cgroup: /init.scope, include_children: true",
            "cgroup: '/system.slice/ssh?.service', include_children: true",
            "cgroup: '/system.slice/*/getty@*', include_children: true",
            "cgroup: /system.slice/system-getty.slice/getty@tty2.service, include_children: true",
        ] {
            assert!(is_forgeable(conditions), "{conditions}");
        }
    }

    #[test]
    fn what_users_cannot_be() {
        for conditions in [
            "user: root",
            "user: 0, command_regex: ^nr-gnb$",
            "user: upf, include_children: true",
            "pid: 1",
            "pid: 7, include_children: true",
            "pid: 1, user: upf, include_children: true",
            "systemd_unit: upf.service",
            "systemd_unit: upf.service, include_children: true",
            "systemd_unit: init.scope",
            "systemd_unit: ssh.service",
            "systemd_unit: getty@tty1.service",
            "cgroup: /init.scope",
            "cgroup: /system.slice/upf.service, include_children: true",
            "systemd_unit: 'upf@*.service', include_children: true",
            "systemd_unit: user@1000.service",
            "systemd_unit: user-1000.slice",
            r"systemd_unit: upf@n3\x2dcore.service",
            "systemd_unit: session-3.scope",
            "cgroup: /system.slice/upf.service",
            "cgroup: '/system.slice/upf*/**'",
            "cgroup: '/core*/**/upf.service'",
            "cgroup: '/{core,machine}.slice/*'",
            "cgroup: /user.slice/user-1000.slice",
            "cgroup: '/user.slice/user-1000.slice/session-*'",
            "container: 0123abcd",
            "selectors: [{key: app, value: upf}]",
            "k8s_namespace: core",
            "netns: n3",
            "netns: 4026531840",
            "netns: /run/netns/n3",
            "gtp: gtp, user: root",
            "exe: /usr/bin/upf, user: upf",
        ] {
            assert!(!is_forgeable(conditions), "{conditions}");
        }
    }

    #[test]
    fn root_may_have_another_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        let passwd = "toor:x:0:0::/root:/bin/sh\nupf:x:7:7::/:/bin/false\n";
        fs::write(dir.path().join("etc/passwd"), passwd).unwrap();
        let root = Root::at(dir.path());
        for (user, is_root) in [("toor", true), ("root", true), ("upf", false), ("7", false)] {
            let conditions = format!("user: {user}, include_children: true");
            assert_eq!(is_forgeable_at(&conditions, &root), is_root, "{user}");
        }
    }

    #[test]
    fn everybody_is_in_the_first_network_namespace() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["proc/1/ns/net", "run/netns/first"] {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            symlink("/proc/self/ns/net", file).unwrap();
        }
        let root = Root::at(dir.path());
        let first = fs::metadata("/proc/self/ns/net").unwrap().ino();
        for netns in [first.to_string(), "first".into(), "/run/netns/first".into()] {
            assert!(is_forgeable_at(&format!("netns: {netns}"), &root), "{netns}");
            assert!(!is_forgeable(&format!("netns: {netns}")), "{netns}");
        }
        for netns in [(first + 1).to_string(), "other".into()] {
            assert!(!is_forgeable_at(&format!("netns: {netns}"), &root), "{netns}");
        }
    }

    #[test]
    fn only_what_puts_others_behind_is_noted() {
        let policy = policy(
            "- {name: gnb, command_regex: ^nr-gnb$, priority: true}\n\
             - {exe: /usr/bin/upf, priority: 20, cpus: 2-3, exclusive: true}\n\
             - {gtp: gtp, cpus: 1, exclusive: true}\n\
             - {user: root, include_children: true, priority: 3}\n\
             - {cgroup: '/**', priority: 3}\n\
             - {command_regex: a, weight: 1000, cpus: 1, execution_time: 1ms, priority: false}\n\
             - {command_regex: a, user: root, priority: 0}\n\
             - {command_regex: a, cpu_limit: ignore}\n\
             - {gtp: {port: 2152}, priority: 1}\n\
             - {pid: 1, include_children: true, priority: 1}\n\
             - {systemd_unit: ssh.service, include_children: true, priority: 1}\n",
        );
        assert_eq!(
            notes(&policy, &nowhere()),
            [
                "p.yaml:2:4: gnb: any user can name a task like that and get priority 0; user: or systemd_unit: prevents that",
                "p.yaml:3:4: rule 2: any user can run \"/usr/bin/upf\" with their own code in it (LD_PRELOAD) and get priority 20 and exclusive CPUs 2-3; user: or systemd_unit: prevents that",
                "p.yaml:4:4: rule 3: any user can send such packets and get exclusive CPUs 1; user: or systemd_unit: prevents that",
                "p.yaml:5:4: rule 4: any user's tasks can descend from root's and get priority 3; systemd_unit: or container: prevents that",
                "p.yaml:6:4: rule 5: any user can have a task there and get priority 3; user: or systemd_unit: prevents that",
                "p.yaml:9:4: rule 8: any user can name a task like that and get no CPU limit; user: or systemd_unit: prevents that",
                "p.yaml:10:4: rule 9: any user can open UDP port 2152 at some address and get priority 1; user: or systemd_unit: prevents that",
                "p.yaml:11:4: rule 10: any user's tasks descend from process 1 and get priority 1; systemd_unit: or container: prevents that",
                "p.yaml:12:4: rule 11: any user's tasks can descend from one there and get priority 1; systemd_unit: or container: prevents that",
            ]
        );
    }
}
