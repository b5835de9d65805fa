//! A first policy for this machine, with comments: what was found, and what else is possible.

use std::borrow::Cow;

use super::suggested_policy::{pattern, quoted, short};
use super::user_plane::{Program, UserPlane};
use crate::base::escape;

/// With fewer CPUs than this, none is proposed as exclusive.
const FEW_CPUS: usize = 4;

/// The text of a policy for a machine without a user plane. Without the `#`s it is a policy.
const TEMPLATE: &str = "\
# No user plane was found: neither the module gtp5g or gtp, nor a program with the GTP-U
# port (UDP 2152) open. Until there is a rule, all tasks are scheduled fairly. To write
# one, remove the [] and a # from each line that you want.
strategies: []
#  - name: upf
#    command_regex: \"^upf$\"    # its name, as ps -o comm shows it
#    user: root                # any user can name a task like that
#    priority: true            # before all other tasks
#    execution_time: 20ms      # for so long at a time
#
#  # Whoever handles packets of free5GC's module, whatever it is called:
#  - name: traffic
#    gtp: gtp5g
#    user: root
#    priority: true
";

/// The text of a policy file.
pub fn text(plane: &UserPlane) -> String {
    let mut text = head(plane);
    let mut rules = rules_for_programs(plane);
    if let Some(rule) = rule_for_packets(plane) {
        rules += &rule;
    }
    match rules.is_empty() {
        true => text += TEMPLATE,
        false => text += &format!("strategies:\n{}", rules.trim_start_matches('\n')),
    }
    text
}

/// What was found, and where interrupts could go.
fn head(plane: &UserPlane) -> String {
    let modules: Vec<&str> = plane.modules.iter().map(|module| module.name()).collect();
    let modules = if modules.is_empty() { "none".into() } else { modules.join(", ") };
    let mut text = format!(
        "# The policy of gthctl for this machine, made by gthctl policy init. Every key is\n\
         # described in gthctl-policy(5).\n#\n\
         # CPUs: {}\n# GTP modules: {modules}\n",
        plane.online
    );
    for nic in &plane.nics {
        let driver = nic.driver.as_deref().map(|driver| format!(" ({driver})")).unwrap_or_default();
        let nic_and_driver = format!("{}{driver}", nic.name);
        text += &format!("# NIC: {}, near CPUs {}\n", escape::line(&nic_and_driver), nic.near);
    }
    text += "\n# Interrupts run before every task of their CPU. This keeps those of NICs off\n\
             # exclusive CPUs; gthctl irq advise NIC says where they should go.\n\
             #irq:\n#  - avoid: exclusive\n\n";
    text
}

fn rules_for_programs(plane: &UserPlane) -> String {
    let mut text = String::new();
    let mut names: Vec<String> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    for program in &plane.programs {
        let of_program = self::conditions(program);
        if conditions.contains(&of_program) {
            continue;
        }
        let name = short(&program.comm);
        let name = match names.contains(&name) {
            true => format!("{name} {}", program.pid),
            false => name,
        };
        text += &format!(
            "\n  # PID {}{}\n{}  - name: {}\n{of_program}    # Before all other tasks.\n    priority: true\n{}",
            program.pid,
            if program.has_port { ", which has the GTP-U port (UDP 2152) open" } else { "" },
            in_pod(program),
            quoted(&name),
            own_cpu(plane),
        );
        names.push(name);
        conditions.push(of_program);
    }
    text
}

/// Describes the tasks of `program` by names that outlive the process.
fn conditions(program: &Program) -> String {
    let mut text = String::new();
    let unit = program.home.unit.as_deref().filter(|unit| unit.ends_with(".service"));
    let unit = unit.filter(|unit| matches!(escape::line(unit), Cow::Borrowed(_)));
    // Excludes a glob's special characters, and any others that no program's path should need.
    let plain = |exe: &&str| {
        exe.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c))
            && exe.starts_with('/')
    };
    let exe = program.exe.as_deref().filter(plain).filter(|_| program.home.container.is_none());
    if let Some(unit) = unit {
        text += &format!("    systemd_unit: {}\n", quoted(unit));
    } else if let Some(exe) = exe {
        text += &format!("    exe: {}\n", quoted(exe));
    }
    text += &format!("    command_regex: {}\n", quoted(&format!("^{}$", pattern(&program.comm))));
    if let Some(uid) = program.uid {
        text += &format!("    user: {}\n", user(uid));
    }
    text
}

fn user(uid: u32) -> String {
    if uid == 0 { "root".into() } else { uid.to_string() }
}

fn in_pod(program: &Program) -> &'static str {
    match program.home.pod {
        Some(_) => {
            "  # It is in a Kubernetes pod: selectors would match the pod and every task in it.\n"
        }
        None => "",
    }
}

/// A CPU for the user plane alone, near a NIC, as a comment.
fn own_cpu(plane: &UserPlane) -> String {
    let near = match plane.nics.first() {
        Some(nic) => nic.near.common(&plane.online),
        None => plane.online.clone(),
    };
    match near.iter().last().filter(|_| plane.online.len() >= FEW_CPUS) {
        Some(cpu) => format!(
            "    # CPUs of its own: nobody else runs there.\n    #cpus: \"{cpu}\"\n    #exclusive: true\n"
        ),
        None => String::new(),
    }
}

/// A rule for all tasks that process packets of a loaded module.
fn rule_for_packets(plane: &UserPlane) -> Option<String> {
    let module = plane.modules.first()?.name();
    let uid = plane.programs.iter().find_map(|program| program.uid).unwrap_or(0);
    Some(format!(
        "\n  # Whoever handles packets of {module}, whatever it is called. gthctl policy status\n  \
         # shows the tasks. The user is the one whom the programs of the user plane run as: any\n  \
         # user can send a packet.\n  \
         - name: \"packets of {module}\"\n    gtp: {module}\n    user: {}\n    priority: true\n",
        user(uid)
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::advice::user_plane::Nic;
    use crate::base::escape::NASTY;
    use crate::base::root::Root;
    use crate::gtp::Module;
    use crate::policy::cgroups::Home;
    use crate::policy::{Cpus, Policy, forgery};

    /// The policy in `text`, which must be one without notes.
    #[track_caller]
    fn policy(text: &str) -> Policy {
        let (policy, notes) = Policy::parse(text, Path::new("p.yaml")).expect(text);
        let forgeable = forgery::notes(&policy, &Root::at("/no-such-directory"));
        assert_eq!((notes, forgeable), (vec![], vec![]), "{text}");
        policy
    }

    fn plane(programs: Vec<Program>) -> UserPlane {
        let cpus = |text: &str| text.parse().unwrap();
        let nic = |name: &str, near| Nic { name: name.into(), driver: None, near: cpus(near) };
        UserPlane {
            modules: vec![Module::Gtp5g],
            programs,
            nics: vec![nic("n3", "0-1"), nic("n6", "2-3")],
            online: cpus("0-3"),
        }
    }

    fn upf(pid: u32) -> Program {
        let exe = Some("/usr/bin/upf".into());
        Program { pid, comm: "upf".into(), exe, uid: Some(0), ..Program::default() }
    }

    #[test]
    fn a_rule_for_each_program_and_one_for_packets() {
        let in_unit = Home { unit: Some("up-f.service".into()), ..Home::default() };
        let other = Program { home: in_unit, uid: Some(7), has_port: true, ..upf(12) };
        let text = text(&plane(vec![upf(10), upf(11), other]));
        let policy = policy(&text);
        let names: Vec<_> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["upf", "upf 12", "packets of gtp5g"], "{text}");
        let of = |rule: usize| &policy.rules[rule].conditions;
        assert_eq!(of(0).exe.as_deref(), Some("/usr/bin/upf"));
        assert_eq!(of(0).command_regex.as_deref(), Some("^upf$"));
        assert_eq!((of(0).user.as_deref(), of(1).user.as_deref()), (Some("root"), Some("7")));
        assert_eq!(
            (of(1).exe.as_deref(), of(1).systemd_unit.as_deref()),
            (None, Some("up-f.service"))
        );
        assert!(of(2).gtp.is_some());
        assert!(policy.rules.iter().all(|rule| rule.effects.priority.is_some()));
        assert!(text.contains("  # PID 12, which has the GTP-U port (UDP 2152) open\n"), "{text}");
        assert!(text.contains("# NIC: n6, near CPUs 2-3\n"), "{text}");
    }

    #[test]
    fn a_program_without_a_name_has_a_rule_too() {
        let text = text(&plane(vec![Program { comm: String::new(), ..upf(10) }]));
        let rule = &policy(&text).rules[0];
        assert_eq!(rule.name, "unnamed");
        assert_eq!(rule.conditions.command_regex.as_deref(), Some("^$"));
    }

    /// The proposals in comments are right, too.
    #[test]
    fn what_is_proposed_is_a_policy() {
        let text = text(&plane(vec![upf(10)]));
        // Removes only the `#`.
        let proposals = ["irq:", "  - avoid:", "cpus:", "exclusive:"];
        let proposed = proposals
            .iter()
            .fold(text, |text, proposal| text.replace(&format!("#{proposal}"), proposal));
        let policy = self::policy(&proposed);
        assert_eq!(policy.irq.len(), 1);
        assert_eq!(policy.rules[0].effects.cpus, Some(Cpus::List("1".parse().unwrap())));
        assert!(policy.rules[0].effects.exclusive);
        let few = UserPlane { online: "0-1".parse().unwrap(), ..plane(vec![upf(10)]) };
        assert!(!super::text(&few).contains("exclusive: true"));
    }

    #[test]
    fn a_template_where_nothing_is_found() {
        let text = text(&UserPlane { online: "0".parse().unwrap(), ..UserPlane::default() });
        assert!(policy(&text).rules.is_empty() && text.contains("# GTP modules: none\n"), "{text}");
        let (_, template) = text.split_once("strategies: []\n").unwrap();
        let lines = template.lines().map(|line| line.strip_prefix('#').unwrap());
        let rules: String = lines.map(|line| format!("{line}\n")).collect();
        assert_eq!(policy(&format!("strategies:\n{rules}")).rules.len(), 2);
    }

    #[test]
    fn no_name_is_read_as_a_rule() {
        let container = Some("0".repeat(64));
        let home = Home { pod: Some("uid".into()), container, unit: Some(NASTY.into()) };
        let nasty = Program { comm: NASTY.into(), exe: Some(NASTY.into()), home, ..upf(10) };
        let mut plane = plane(vec![nasty]);
        plane.nics[0].name = NASTY.into();
        plane.nics[0].driver = Some(NASTY.into());
        let text = text(&plane);
        assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
        let policy = policy(&text);
        assert_eq!((policy.rules.len(), policy.irq.len()), (2, 0));
        assert!(text.contains("It is in a Kubernetes pod"), "{text}");
    }
}
