//! TuneD, whose scheduler plugin changes the policies and the affinities of tasks.
//!
//! tuned.conf(5) and tuned-profiles(7) describe profiles and where they are. How one includes
//! another: tuned/profiles/loader.py, locator.py, unit.py and merger.py of
//! github.com/redhat-performance/tuned.

use std::collections::{BTreeMap, BTreeSet};

use super::sight::Sight;
use crate::base::finding::Finding;

/// Directories of profiles. Of the profiles with one name, the first one counts.
const PROFILES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
const ACTIVE: &str = "/etc/tuned/active_profile";
/// The options by which the plugin moves tasks and interrupts, or changes how tasks are scheduled
/// (tuned/plugins/plugin_scheduler.py). The others set what only the kernel's own scheduler obeys.
const MOVES: [&str; 4] = ["group.", "isolated_cores", "default_irq_smp_affinity", "cgroup."];
/// What to do about a profile that gthctl cannot read.
const ASK: &str =
    "tuned-adm active names the profile; if that has [scheduler], set enabled=false there";

/// The options of a section.
type Options<'a> = BTreeMap<&'a str, &'a str>;

/// The active profiles, merged with those that they include.
#[derive(Default)]
struct Profiles {
    /// The units, by the names of their sections.
    units: BTreeMap<String, Unit>,
    /// The files that were read.
    files: BTreeSet<String>,
    /// The file that was merged last: its settings override the others'.
    last: String,
    /// The names of the profiles that could not be read.
    missing: Vec<String>,
}

/// What TuneD makes of the sections of one name.
struct Unit {
    plugin: String,
    enabled: bool,
    /// The options that begin with one of [`MOVES`].
    moves: BTreeSet<String>,
}

/// What TuneD does; `pid` is its process, if it is running.
pub fn finding(sight: &Sight<'_>, pid: Option<u32>) -> Finding {
    const CHECK: &str = "tuned";
    let Some(pid) = pid else { return Finding::ok(CHECK, "TuneD is not running") };
    let running = format!("TuneD (PID {pid}) is running");
    let Some(active) = sight.text(ACTIVE) else {
        let what = format!("{running}; its profile is unknown: gthctl cannot read {ACTIVE}");
        return Finding::note(CHECK, what).fix(ASK);
    };
    let running = format!("{running} with the profile {active:?}");
    let mut profiles = Profiles::default();
    profiles.add(sight, active.split_whitespace().collect());
    if let Some((name, moves)) = profiles.moving() {
        let what = format!("{running}, whose [{name}] moves tasks or IRQs by {moves}");
        let file = &profiles.last;
        let fix = format!("set enabled=false under [{name}] of {file}, or tuned-adm off");
        return Finding::warning(CHECK, what).fix(fix);
    }
    if profiles.missing.is_empty() {
        return Finding::ok(CHECK, format!("{running}, which moves no tasks"));
    }
    let (missing, dirs) = (profiles.missing.join(", "), PROFILES.join(", "));
    let what = format!("{running}; gthctl did not find {missing} in {dirs}");
    Finding::note(CHECK, what).fix(ASK)
}

impl Profiles {
    /// Adds the profiles of these names, each after those that it includes. The later one overrides
    /// the earlier ones.
    fn add(&mut self, sight: &Sight<'_>, names: Vec<&str>) {
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            // A profile whose name follows a minus sign may be missing.
            let (name, required) =
                name.strip_prefix('-').map_or((name, true), |name| (name, false));
            let files = PROFILES.map(|dir| format!("{dir}/{name}/tuned.conf"));
            // A profile may include the one of the same name that it replaces.
            let (read, left): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|file| self.files.contains(file));
            let found = left.into_iter().find_map(|file| Some((sight.text(&file)?, file)));
            let Some((text, file)) = found else {
                if required && read.is_empty() {
                    self.missing.push(name.into());
                }
                continue;
            };
            self.files.insert(file.clone());
            let mut sections = sections(&text);
            let main = sections.remove("main").unwrap_or_default();
            let includes = main.get("include").copied().unwrap_or_default();
            self.add(sight, includes.split([',', ';']).map(str::trim).collect());
            for (name, options) in &sections {
                self.merge(name, options);
            }
            self.last = file;
        }
    }

    /// Adds a section to the earlier ones of its name: its options to theirs. Its `type` and
    /// `enabled` replace theirs, and so do their defaults if it does not give them.
    fn merge(&mut self, name: &str, options: &Options<'_>) {
        let is = |key| options.get(key).map(|value| ["True", "true", "1"].contains(value));
        let dropped = options.get("drop").copied().unwrap_or_default();
        let dropped: Vec<&str> = dropped.split([',', ';']).map(str::trim).collect();
        let earlier = self.units.remove(name).filter(|_| is("replace") != Some(true));
        let mut moves = earlier.map_or_else(BTreeSet::new, |unit| unit.moves);
        moves.retain(|option| !dropped.contains(&option.as_str()));
        let moving = options.keys().filter(|key| MOVES.iter().any(|start| key.starts_with(start)));
        moves.extend(moving.map(|&key| key.into()));
        let plugin = options.get("type").copied().unwrap_or(name).into();
        self.units
            .insert(name.into(), Unit { plugin, enabled: is("enabled") != Some(false), moves });
    }

    /// A section that moves tasks or interrupts, and the options that make it do so.
    fn moving(&self) -> Option<(&str, String)> {
        let moves =
            |unit: &Unit| unit.enabled && unit.plugin == "scheduler" && !unit.moves.is_empty();
        let (name, unit) = self.units.iter().find(|(_, unit)| moves(unit))?;
        let moves: Vec<&str> = unit.moves.iter().map(String::as_str).collect();
        Some((name, moves.join(", ")))
    }
}

/// The sections of a profile, by name.
fn sections(text: &str) -> BTreeMap<&str, Options<'_>> {
    let mut sections = BTreeMap::<_, Options<'_>>::new();
    let mut name = "";
    for line in text.lines().map(without_comment) {
        if let Some(next) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name = next;
            sections.entry(name).or_default();
        } else if let Some((key, value)) = line.split_once('=') {
            sections.entry(name).or_default().insert(key.trim(), value.trim());
        }
    }
    sections
}

/// The line without its comment, which begins at the start or after white space.
fn without_comment(line: &str) -> &str {
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(|&at| begins(at));
    line[..comment.unwrap_or(line.len())].trim()
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
        let mine = "[main]\ninclude=network, other; -optional\n[sysctl]\nx=1\n";
        tree.write("etc/tuned/mine/tuned.conf", mine);
        tree.write("usr/lib/tuned/other/tuned.conf", "[main]\nsummary=nothing\n");
        let plain = "[scheduler]\nsched_min_granularity_ns = 10\n";
        tree.write("usr/lib/tuned/network/tuned.conf", plain);
        assert_eq!(found(&tree).level, Level::Ok);
        let moving =
            "[main]\ninclude=mine\n[pin]\ntype=scheduler\n# group.x=1\ngroup.upf=0:f:50:*:x\n";
        tree.write("usr/lib/tuned/profiles/network/tuned.conf", moving);
        let warned = found(&tree);
        assert_eq!(warned.level, Level::Warning);
        assert!(warned.what.contains("[pin] moves tasks or IRQs by group.upf"), "{}", warned.what);
        // The profile that includes the others overrides them.
        let fix = warned.fix.unwrap();
        assert!(fix.contains("enabled=false under [pin] of /etc/tuned/mine/tuned.conf"), "{fix}");
        for (section, level) in [
            ("[pin]\nenabled=false\n", Level::Ok),
            ("[pin]\ntype=scheduler\ndrop=group.upf, group.x\n", Level::Ok),
            ("[pin]\ntype=scheduler\nreplace=1\ncgroup.x=1\ncgroup.x=2\n", Level::Warning),
            ("[pin]\ntype=scheduler\nreplace=true\n", Level::Ok),
            ("[pin]\ntype=scheduler\nenabled=1 # yes\nisolated_cores=3\n", Level::Warning),
        ] {
            tree.write("etc/tuned/mine/tuned.conf", &format!("{mine}{section}"));
            let finding = found(&tree);
            assert_eq!(finding.level, level, "{section}{finding:?}");
        }
        tree.write("etc/tuned/mine/tuned.conf", mine);
        let off = moving.replace("type=", "enabled=no\ntype=");
        tree.write("etc/tuned/network/tuned.conf", &off);
        assert_eq!(found(&tree).level, Level::Ok);
        // An including profile's section is enabled, unless it says otherwise.
        tree.write("etc/tuned/mine/tuned.conf", &format!("{mine}[pin]\ntype=scheduler\n"));
        assert_eq!(found(&tree).level, Level::Warning);
        tree.write("etc/tuned/network/tuned.conf", &off.replace("[pin]", "[scheduler]"));
        tree.write("etc/tuned/mine/tuned.conf", &format!("{mine}[scheduler]\n"));
        assert_eq!(found(&tree).level, Level::Warning);
    }

    #[test]
    fn a_profile_that_cannot_be_read_is_noted() {
        let tree = Tree::new();
        let unknown = found(&tree);
        assert_eq!(unknown.level, Level::Note, "{unknown:?}");
        assert!(unknown.what.contains("TuneD (PID 7)"), "{unknown:?}");
        assert!(unknown.fix.unwrap().contains("tuned-adm active"));
        tree.write("etc/tuned/active_profile", "gone\n");
        let gone = found(&tree);
        assert_eq!(gone.level, Level::Note, "{gone:?}");
        assert!(gone.what.contains("\"gone\""), "{gone:?}");
        // A profile that it includes may be the one that moves tasks.
        tree.write("etc/tuned/active_profile", "mine\n");
        tree.write("etc/tuned/mine/tuned.conf", "[main]\ninclude=rt${x}\n[scheduler]\n");
        assert_eq!(found(&tree).level, Level::Note);
        tree.write("etc/tuned/mine/tuned.conf", "[main]\ninclude=rt${x}\n[scheduler]\ngroup.a=1\n");
        assert_eq!(found(&tree).level, Level::Warning);
        // After `tuned-adm off`.
        tree.write("etc/tuned/active_profile", "");
        assert_eq!(found(&tree).level, Level::Ok);
    }
}
