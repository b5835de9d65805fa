//! The man pages, shell completions and examples in the tree agree with the code.
//!
//! `UPDATE=1 cargo test --test generated` regenerates the generated ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use gthctl::base::cpulist::CpuList;
use gthctl::base::error::ExitCode;
use gthctl::base::root::Root;
use gthctl::base::units::Nanoseconds;
use gthctl::cli::{Cli, DEFAULT_CONFIG};
use gthctl::daemon::config::{self, Config};
use gthctl::kernel::topology::Topology;
use gthctl::policy::compile::{Machine, compile};
use gthctl::policy::{self, Policy, Priority, SLICE_RANGE, forgery};

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The command line without what changes from commit to commit.
fn command() -> Command {
    Cli::command().version(env!("CARGO_PKG_VERSION"))
}

/// One page of section 1; `above` is the page of the parent command.
fn man_page(command: &Command, above: Option<&str>) -> String {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page).unwrap();
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in ExitCode::ALL {
        roff.control("TP", []).text([bold((code as u8).to_string())]).text([roman(meaning)]);
    }
    roff.control("SH", ["FILES"]).control("TP", []).text([bold(DEFAULT_CONFIG)]);
    roff.text([roman("the config file, unless --config names another; see gthctl-config(5)")]);
    roff.control("SH", ["ENVIRONMENT"]).control("TP", []).text([bold("NO_COLOR")]);
    roff.text([roman("set and not empty: no colour, unless --color always is given")]);
    roff.to_writer(&mut page).unwrap();
    let name = command.get_display_name().unwrap_or("gthctl");
    // Without a date, the fields after it in clap_mangen's own title move up.
    let version = env!("CARGO_PKG_VERSION");
    let title = format!(".TH {name} 1 \"\" \"gthctl {version}\" \"gthctl manual\"\n");
    let mut page = title + &String::from_utf8(page).unwrap();
    if let Some(after_help) = command.get_after_help() {
        page.push_str(&examples(&after_help.to_string()));
    }
    let below = command.get_subcommands().map(|c| format!("{name}-{} (1)", c.get_name()));
    let mut others: Vec<String> = above.map(|above| format!("{above} (1)")).into_iter().collect();
    others.extend(below);
    others.extend(["gthctl-config (5)".into(), "gthctl-policy (5)".into()]);
    page.push_str(&format!(".SH \"SEE ALSO\"\n.BR {}\n", others.join(",\n.BR ")));
    page
}

/// Keeps the help text's examples as they are; they are not joined into a paragraph.
fn examples(after_help: &str) -> String {
    let lines = after_help.strip_prefix("Examples:\n").expect("help ends with its examples");
    let lines: String = lines.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    let text = lines.replace('\\', "\\e").replace('-', "\\-");
    format!(".SH EXAMPLES\n.nf\n{text}.fi\n")
}

/// The page of `command` and those of the commands below it.
fn add_pages(command: &Command, above: Option<&str>, files: &mut BTreeMap<PathBuf, String>) {
    let name = command.get_display_name().unwrap_or("gthctl");
    files.insert(tree(&format!("man/{name}.1")), man_page(command, above));
    for subcommand in command.get_subcommands() {
        add_pages(subcommand, Some(name), files);
    }
}

/// Path in the tree and contents of each generated file.
fn generated() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut root = command().disable_help_subcommand(true);
    root.build();
    add_pages(&root, None, &mut files);
    for (shell, name) in
        [(Shell::Bash, "gthctl.bash"), (Shell::Zsh, "_gthctl"), (Shell::Fish, "gthctl.fish")]
    {
        let mut script = Vec::new();
        generate(shell, &mut command(), "gthctl", &mut script);
        files.insert(tree("completions").join(name), String::from_utf8(script).unwrap());
    }
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn man_pages_and_completions_are_up_to_date() {
    let generated = generated();
    if std::env::var_os("UPDATE").is_some() {
        for (path, contents) in &generated {
            fs::write(path, contents).unwrap();
        }
    }
    for (path, contents) in &generated {
        let current = fs::read_to_string(path).unwrap_or_default();
        assert!(
            current == *contents,
            "{} is out of date; run: UPDATE=1 cargo test --test generated",
            path.display()
        );
    }
    for directory in ["man", "completions"] {
        for file in fs::read_dir(tree(directory)).unwrap() {
            let path = file.unwrap().path();
            let by_hand = path.extension().is_some_and(|extension| extension == "5");
            assert!(by_hand || generated.contains_key(&path), "{} is left over", path.display());
        }
    }
}

#[test]
fn examples_load_without_notes() {
    let cpus: CpuList = "0-3".parse().unwrap();
    let topology = Topology {
        possible: cpus.clone(),
        online: cpus,
        llc: vec![0; 4],
        sibling: (0..4).collect(),
        node: vec![0; 4],
        tickless: CpuList::default(),
    };
    let root = &Root::default();
    let (topology, allocated, slice_ns) = (&topology, &[], 2_000_000);
    let machine = Machine { topology, root, pods: &[], kubelets: &[], allocated, slice_ns };
    let mut kinds = [0, 0];
    let mut files =
        ["config.yaml", "policy.yaml"].map(|name| tree("deploy/base").join(name)).to_vec();
    files.extend(fs::read_dir(tree("examples")).unwrap().map(|file| file.unwrap().path()));
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("config") {
            let (config, notes) = Config::load(&path).unwrap();
            assert_eq!(notes, [""; 0]);
            if let Some(policy) = config.policy {
                Policy::load(&policy).unwrap();
            }
            kinds[0] += 1;
        } else {
            let (policy, notes) = Policy::load(&path).unwrap();
            assert!(!policy.rules.is_empty() && notes.is_empty(), "{name}");
            assert_eq!(forgery::notes(&policy, &Root::at("/no-such-directory")), [""; 0]);
            let (compiled, notes) = compile(&policy, &machine).unwrap();
            assert!(compiled.rules.len() == policy.rules.len() && notes.is_empty(), "{name}");
            kinds[1] += 1;
        }
    }
    assert!(kinds[0] >= 4 && kinds[1] >= 7, "{kinds:?}");
}

#[test]
fn the_example_config_states_the_defaults() {
    let (mut config, _) = Config::load(&tree("examples/config.yaml")).unwrap();
    assert_eq!(config.policy.take(), Some(tree("examples/policy.yaml")));
    assert_eq!(config, Config::default());
}

/// True when `page` has a line that is the macro `.B` with `word` alone.
fn has_entry(page: &str, word: &str) -> bool {
    page.lines().any(|line| line.strip_prefix(".B ") == Some(word))
}

#[test]
fn the_man_pages_explain_every_key() {
    let page = read(&tree("man/gthctl-config.5"));
    for key in config::keys() {
        assert!(has_entry(&page, key), "gthctl-config(5) misses {key}");
    }
    let page = read(&tree("man/gthctl-policy.5"));
    for key in policy::KEYS.iter().chain(&policy::GTP_KEYS).chain(&policy::IRQ_KEYS) {
        assert!(has_entry(&page, key), "gthctl-policy(5) misses {key}");
    }
}

#[test]
fn the_man_pages_state_the_limits() {
    let (least, most) = (Nanoseconds(*SLICE_RANGE.start()), Nanoseconds(*SLICE_RANGE.end()));
    let slices = format!("from {least} to {most}");
    let default = Config::default();
    let config = read(&tree("man/gthctl-config.5"));
    let policy = read(&tree("man/gthctl-policy.5"));
    for (page, phrase) in [
        (&config, &slices),
        (&config, &format!("Default: {}", Nanoseconds(default.slice_ns_default))),
        (&config, &format!("Default: {}", Nanoseconds(default.slice_ns_min))),
        (&policy, &slices),
        (&policy, &format!("at most {} rules", policy::MAX_RULES)),
        (&policy, &format!("0 (strongest) to {} (weakest)", Priority::MAX)),
        (&policy, &format!("0 to {}", Priority::MAX_PREEMPTING)),
    ] {
        assert!(page.contains(phrase.as_str()), "no page says {phrase:?}");
    }
}

/// Cuts, doubles and swaps pieces of real files, with a fixed seed. The parsers must return,
/// whatever their input.
#[test]
fn damaged_files_are_answered_too() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let paths: Vec<PathBuf> =
        fs::read_dir(tree("examples")).unwrap().map(|file| file.unwrap().path()).collect();
    let mut texts: Vec<String> = paths.iter().map(|path| read(path)).collect();
    texts.sort();
    let pieces = [
        "[",
        "{",
        "- ",
        ": ",
        "&a ",
        "*a",
        "!t ",
        "\"",
        "'",
        "\n",
        "\t",
        "%",
        "<<: *a",
        "\u{e4}",
        "\0",
        "---\n",
        "| \n",
        "? ",
        "9999999999",
        "(?u)\\b",
    ];
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3_000 {
        let mut text: Vec<char> = texts[random(texts.len())].chars().collect();
        for _ in 0..=random(4) {
            let at = random(text.len() + 1);
            match random(3) {
                0 => drop(text.splice(at..at, pieces[random(pieces.len())].chars())),
                1 => drop(text.drain(at..(at + random(20)).min(text.len()))),
                _ => {
                    drop(text.splice(at..at, texts[random(texts.len())].chars().take(random(400))))
                }
            }
        }
        let text: String = text.iter().collect();
        let name = Path::new("f");
        for error in [Config::parse(&text, name).err(), Policy::parse(&text, name).err()] {
            match error {
                None => good += 1,
                Some(error) => {
                    bad += 1;
                    assert_eq!(error.code, ExitCode::Usage);
                    let at = error.at.as_ref().expect("errors have a place");
                    // If something is missing at the end, libyaml reports the line after the last.
                    let last = text.split('\n').count() + 1;
                    assert!((1..=last).contains(&at.line), "{error}: {text:?}");
                    let line = error.to_string();
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} {bad}");
}
