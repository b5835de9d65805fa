//! TuneD, whose scheduler plugin changes the policies and the affinities of tasks.
//!
//! tuned.conf(5) and tuned-profiles(7) describe profiles and where they are.

use super::sight::Sight;
use crate::base::finding::Finding;

/// Where profiles are; the first one of a name counts.
const PROFILES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
const ACTIVE: &str = "/etc/tuned/active_profile";
/// How many profiles may include each other.
const MOST_INCLUDES: usize = 16;
/// The options by which the plugin moves tasks and interrupts, or changes how tasks are scheduled
/// (tuned/plugins/plugin_scheduler.py of github.com/redhat-performance/tuned). The others set what
/// only the kernel's own scheduler obeys.
const MOVES: [&str; 4] = ["group.", "isolated_cores", "default_irq_smp_affinity", "cgroup."];

/// A section of a profile with the scheduler plugin.
struct Section {
    file: String,
    name: String,
    /// The options of [`MOVES`] in it.
    moves: Vec<String>,
}

/// What TuneD does; `pid` is its process, if it is running.
pub fn finding(sight: &Sight<'_>, pid: Option<u32>) -> Finding {
    const CHECK: &str = "tuned";
    let Some(pid) = pid else { return Finding::ok(CHECK, "TuneD is not running") };
    let profiles = sight.text(ACTIVE).unwrap_or_default();
    let mut sections = Vec::new();
    let mut left: Vec<String> = profiles.split_whitespace().map(Into::into).collect();
    for _ in 0..MOST_INCLUDES {
        let Some(profile) = left.pop() else { break };
        read(sight, &profile, &mut sections, &mut left);
    }
    let running = format!("TuneD (PID {pid}) is running with the profile {profiles:?}");
    match sections.iter().find(|section| !section.moves.is_empty()) {
        Some(Section { file, name, moves }) => {
            let moves = moves.join(", ");
            let what = format!("{running}, whose [{name}] moves tasks or IRQs by {moves}");
            let fix = format!("set enabled=false under [{name}] of {file}, or tuned-adm off");
            Finding::warning(CHECK, what).fix(fix)
        }
        None => Finding::ok(CHECK, format!("{running}, which moves no tasks")),
    }
}

/// Reads the profile, and adds those that it includes to `left`.
fn read(sight: &Sight<'_>, profile: &str, sections: &mut Vec<Section>, left: &mut Vec<String>) {
    let mut files = PROFILES.iter().map(|dir| format!("{dir}/{profile}/tuned.conf"));
    let Some((file, text)) = files.find_map(|file| Some((file.clone(), sight.text(&file)?))) else {
        return;
    };
    let mut name = String::new();
    let mut options: Vec<(&str, &str)> = Vec::new();
    for line in text.lines().map(str::trim).chain(["[]"]) {
        if let Some(next) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.extend(section(&file, &name, &options));
            next.clone_into(&mut name);
            options.clear();
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let (key, value) = (key.trim(), value.trim());
            if name == "main" && key == "include" {
                left.extend(value.split([',', ' ']).filter(|one| !one.is_empty()).map(Into::into));
            }
            options.push((key, value));
        }
    }
}

/// The section, if it has the scheduler plugin switched on. A section's name is the plugin's,
/// unless `type` names another.
fn section(file: &str, name: &str, options: &[(&str, &str)]) -> Option<Section> {
    let value = |wanted: &str| options.iter().find(|(key, _)| *key == wanted).map(|(_, v)| *v);
    let on = !value("enabled").is_some_and(|value| ["0", "false", "no", "n"].contains(&value));
    let moves = options.iter().map(|(key, _)| *key);
    let moves = moves.filter(|key| MOVES.iter().any(|start| key.starts_with(start)));
    (on && value("type").unwrap_or(name) == "scheduler").then(|| Section {
        file: file.into(),
        name: name.into(),
        moves: moves.map(Into::into).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Level;
    use crate::irq::tree::Tree;

    fn found(tree: &Tree) -> Finding {
        let host = tree.host();
        finding(&Sight::new(&host), Some(7))
    }

    #[test]
    fn only_a_running_one_counts() {
        let host = Tree::new().host();
        assert_eq!(finding(&Sight::new(&host), None).level, Level::Ok);
    }

    #[test]
    fn a_profile_that_moves_tasks_is_found_through_those_that_include_it() {
        let tree = Tree::new();
        tree.write("etc/tuned/active_profile", "mine\n");
        tree.write("etc/tuned/mine/tuned.conf", "[main]\ninclude=network, other\n[sysctl]\nx=1\n");
        let plain = "[scheduler]\nsched_min_granularity_ns = 10\n";
        tree.write("usr/lib/tuned/network/tuned.conf", plain);
        assert_eq!(found(&tree).level, Level::Ok);
        let moving =
            "[main]\ninclude=mine\n[pin]\ntype=scheduler\n# group.x=1\ngroup.upf=0:f:50:*:x\n";
        tree.write("usr/lib/tuned/profiles/network/tuned.conf", moving);
        let warned = found(&tree);
        assert_eq!(warned.level, Level::Warning);
        assert!(warned.what.contains("[pin] moves tasks or IRQs by group.upf"), "{}", warned.what);
        let fix = warned.fix.unwrap();
        assert!(fix.contains("/usr/lib/tuned/profiles/network/tuned.conf"), "{fix}");
        tree.write(
            "etc/tuned/network/tuned.conf",
            &moving.replace("type=", "enabled=false\ntype="),
        );
        assert_eq!(found(&tree).level, Level::Ok);
    }
}
