//! The documents are correct: their links lead somewhere, their commands exist in gthctl, make and
//! this checkout, and the output they show is the real one.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::CommandFactory;
use clap::error::ErrorKind;
use gthctl::base::error::ExitCode;
use gthctl::cli::Cli;
use gthctl::daemon::config::Config;
use gthctl::policy::Policy;

/// The commands in documents besides gthctl, make, cargo and the scripts of the checkout.
const OTHERS: [&str; 11] = [
    "apt-get",
    "cd",
    "echo",
    "git",
    "grep",
    "install",
    "kill",
    "kubectl",
    "man",
    "systemctl",
    "tee",
];

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every document with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let of_deploy = ["deploy/README.md", "deploy/systemd/README.md"];
    let mut paths = ["README.md", "CHANGELOG.md", "SECURITY.md"].map(tree).to_vec();
    paths.extend(of_deploy.map(tree));
    for directory in ["docs", "docs/bench"] {
        let files = fs::read_dir(tree(directory)).unwrap().map(|file| file.unwrap().path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Text between fences: its place, language and lines.
struct Block<'a> {
    place: String,
    language: &'a str,
    lines: Vec<&'a str>,
}

/// The blocks of a document, and its other lines.
fn parse<'a>(path: &Path, text: &'a str) -> (Vec<Block<'a>>, Vec<&'a str>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        match line.strip_prefix("```") {
            None => prose.push(line),
            Some(language) => {
                let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let place = format!("{}:{}", path.display(), i + 1);
                blocks.push(Block { place, language, lines: inside.collect() });
            }
        }
    }
    (blocks, prose)
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(path: &Path) -> Vec<String> {
    let text = read(path);
    let mut times: HashMap<String, usize> = HashMap::new();
    let headings = parse(path, &text).1.into_iter().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = times.entry(slug.clone()).or_default();
        *before += 1;
        if *before > 1 { format!("{slug}-{}", *before - 1) } else { slug }
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut all = 0;
    for (path, text) in documents() {
        for line in parse(&path, &text).1 {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for target in targets.filter(|target| !target.contains("://")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let to =
                    if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
                assert!(to.exists(), "{}: no {target}", path.display());
                let found = anchor.is_empty() || anchors(&to).iter().any(|known| known == anchor);
                assert!(found, "{}: {target}: no such heading", path.display());
                all += 1;
            }
            // Man pages, such as gthctl-policy(5).
            for (at, _) in line.match_indices("gthctl") {
                let Some((name, rest)) = line[at..].split_once('(') else { continue };
                let is_name = name.chars().all(|c| c == '-' || c.is_ascii_lowercase());
                let page = format!("man/{name}.{}", rest.split(')').next().unwrap());
                assert!(!is_name || tree(&page).exists(), "{}: no {page}", path.display());
            }
        }
    }
    assert!(all > 30, "{all}");
}

/// The words of a command, as the shell sees them.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in command.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Why gthctl does not take these arguments.
fn refused(words: &[String]) -> Option<ErrorKind> {
    let kind = Cli::command().try_get_matches_from(words).err()?.kind();
    (![ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&kind)).then_some(kind)
}

/// Checks one command; true if any user can run it here unchanged.
fn check_command(command: &str, place: &str) -> bool {
    let mut words = words(command);
    let sudo = words.first().is_some_and(|word| word == "sudo");
    words.drain(..usize::from(sudo));
    let (name, rest) = words.split_first().unwrap();
    let after = |option| rest.iter().skip_while(move |word| *word != option).nth(1);
    match name.as_str() {
        "gthctl" => {
            assert_eq!(refused(&words), None, "{place}: {command}");
            let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
            return !sudo
                && matches!(rest[..], ["policy", "check", _] | [.., "--help" | "--version"]);
        }
        "make" => {
            let makefile = read(&tree("Makefile"));
            for target in rest {
                let is_one = |line: &str| line.starts_with(&format!("{target}:"));
                assert!(makefile.lines().any(is_one), "{place}: no target {target}");
            }
        }
        "cargo" => {
            let test = after("--test").map(|name| format!("tests/{name}.rs"));
            assert!(test.as_ref().is_none_or(|file| tree(file).exists()), "{place}: no {test:?}");
        }
        script if script.contains('/') => {
            let mode = fs::metadata(tree(script)).map_or(0, |file| file.permissions().mode());
            assert!(mode & 0o100 != 0, "{place}: {script}: no such program");
        }
        other => {
            assert!(OTHERS.contains(&other), "{place}: {other}: not known to this test");
            for file in rest.iter().filter(|word| word.contains('/')) {
                let exists = tree(file.split('*').next().unwrap()).exists();
                let is_built = file.trim_start_matches("./").starts_with("target/");
                let is_there = exists || is_built || file.starts_with('/');
                assert!(is_there, "{place}: no {file}");
            }
        }
    }
    false
}

/// What the built gthctl prints, notes first; it must succeed.
fn output(arguments: &[String], place: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gthctl"));
    command.args(arguments).current_dir(tree("")).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    assert!(output.status.success(), "{place}: {arguments:?}: {text}");
    text
}

fn trimmed<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines.map(str::trim_end).collect()
}

/// Checks the commands of a block; counts those found, run and compared.
fn check_block(block: &Block, counts: &mut [usize; 3]) {
    let Block { place, language, lines } = block;
    let is_console = *language == "console";
    for (i, line) in lines.iter().enumerate() {
        let line = if is_console { line.strip_prefix("$ ") } else { Some(*line) };
        let Some(line) = line.filter(|line| !line.is_empty()) else { continue };
        let line = line.split(" # ").next().unwrap().trim();
        let parts = line.split(" | ").map(|part| part.split(" > ").next().unwrap());
        let runnable: Vec<bool> =
            parts.map(|part| check_command(part.trim_end_matches(" &"), place)).collect();
        counts[0] += runnable.len();
        if runnable != [true] || line.contains(" > ") {
            continue;
        }
        counts[1] += 1;
        let output = output(&words(line)[1..], place);
        let after = lines[i + 1..].iter().take_while(|line| !line.starts_with("$ "));
        let shown = trimmed(after.copied());
        if is_console && !shown.is_empty() {
            assert_eq!(trimmed(output.lines()), shown, "{place}: {line}");
            counts[2] += 1;
        }
    }
}

#[test]
fn commands_are_as_documented() {
    let mut counts = [0; 3];
    for (path, text) in documents() {
        let (blocks, prose) = parse(&path, &text);
        for block in blocks {
            match block.language {
                "console" | "sh" => check_block(&block, &mut counts),
                "yaml" | "json" | "text" | "rust" | "" => {}
                other => panic!("{}: a block in {other:?}", block.place),
            }
        }
        for span in prose.iter().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            if span.starts_with("make ") {
                check_command(span, &path.display().to_string());
            } else if span.starts_with("gthctl ") {
                // A sentence may leave out options but not invent any.
                let wrong = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
                let why = refused(&words(span)).filter(|why| wrong.contains(why));
                assert_eq!(why, None, "{}: {span}", path.display());
            }
        }
    }
    assert!(counts[0] > 40 && counts[1] > 2 && counts[2] > 0, "{counts:?}");
}

#[test]
fn policies_and_configs_load() {
    let mut kinds = [0, 0];
    for (path, text) in documents() {
        for Block { place, language, lines } in parse(&path, &text).0 {
            let has = |key: &str| lines.iter().any(|line| line.starts_with(key));
            let text = lines.join("\n");
            if language == "json" || language == "yaml" && (has("strategies:") || has("irq:")) {
                Policy::parse(&text, Path::new(&place)).expect(&place);
                kinds[1] += 1;
            } else if language == "yaml" {
                Config::parse(&text, Path::new(&place)).expect(&place);
                kinds[0] += 1;
            }
        }
    }
    assert!(kinds[0] > 0 && kinds[1] > 3, "{kinds:?}");
}

#[test]
fn troubleshooting_has_every_exit_code() {
    let readme = read(&tree("README.md"));
    let (_, after) = readme.split_once("## Troubleshooting").expect("README.md has that section");
    let section = after.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split(" |").next());
    let codes: Vec<usize> = first.flat_map(|cell| cell.split(", ")).flat_map(str::parse).collect();
    assert_eq!(codes, (1..ExitCode::ALL.len()).collect::<Vec<_>>());
}
