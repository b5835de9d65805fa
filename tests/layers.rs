//! The modules of src/ form layers. Each uses only layers before its own. No two have the same
//! name.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules on one line do not use each other.
const LAYERS: [&[&str]; 12] = [
    &["base"],
    &["kernel"],
    // What a policy is compiled for: sizes and numbers of the BPF program's tables. The rest
    // of `sched` carries out what `policy` has compiled.
    &["sched::layout"],
    &["gtp", "net"],
    &["irq", "pods"],
    &["policy"],
    &["sched", "trace", "decision_maker"],
    &["advice", "daemon"],
    &["doctor", "metrics", "roundtrip", "top"],
    &["overview"],
    &["cli"],
    &["cmd"],
];

/// The name and the number of the layer that the module at `path` belongs to.
fn layer(path: &[String]) -> Option<(&'static str, usize)> {
    let full = path.join("::") + "::";
    let is_of = |name: &&str| full.starts_with(&format!("{name}::"));
    let found = LAYERS.iter().enumerate().filter_map(|(number, layer)| {
        layer.iter().find(|name| is_of(name)).map(|name| (*name, number))
    });
    // The longest name counts: `sched::layout` before `sched`.
    found.max_by_key(|(name, _)| name.len())
}

/// The module that a file below src/ is.
fn module(file: &Path) -> Vec<String> {
    let parts = file.with_extension("");
    let parts = parts.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.filter(|part| part != "mod").collect()
}

/// The paths that `text` begins with: `a::b`, or several as in `a::{b, c::d}`.
fn tree(text: &str) -> (Vec<Vec<String>>, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            let (paths, after) = tree(rest);
            all.extend(paths);
            // Skips an alias, too.
            let end = after.find([',', '}']).expect("a closed brace");
            rest = &after[end + 1..];
            if after[end..].starts_with('}') {
                return (all, rest);
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix("::") {
        Some(rest) if !name.is_empty() => {
            let (paths, rest) = tree(rest);
            let with_name = |path: Vec<String>| [vec![name.to_owned()], path].concat();
            (paths.into_iter().map(with_name).collect(), rest)
        }
        _ => (vec![vec![name.to_owned()]], rest),
    }
}

/// Everything of this crate that `text`, the content of `file`, names by its path.
fn used(file: &Path, text: &str) -> Vec<Vec<String>> {
    let code: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let starts = ["crate::", "super::"].into_iter().flat_map(|start| code.match_indices(start));
    let is_whole = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let first = |at: usize| is_whole(at) && !code[..at].ends_with("::");
    let mut used = Vec::new();
    for (at, _) in starts.filter(|(at, _)| first(*at)) {
        for path in tree(&code[at..]).0 {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let rest = path[ups.max(1)..].iter().cloned();
            let mut from = module(file);
            from.truncate(if ups == 0 { 0 } else { from.len().saturating_sub(ups).max(1) });
            used.push(from.into_iter().chain(rest).collect());
        }
    }
    used
}

/// What violates the order in `text`, the content of `file`.
fn wrong(file: &Path, text: &str) -> Vec<String> {
    let module = module(file);
    let (own, number) = layer(&module).unwrap_or_else(|| panic!("{file:?} is of no layer"));
    let is_wrong =
        |path: &Vec<String>| layer(path).is_none_or(|(name, other)| name != own && other >= number);
    let wrong = used(file, text).into_iter().filter(is_wrong);
    wrong.map(|path| format!("src/{}: {}", file.display(), path.join("::"))).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

#[test]
fn every_module_uses_only_what_stands_before_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    for path in files(&src) {
        let file = path.strip_prefix(&src).unwrap();
        if !["main.rs", "lib.rs"].map(Path::new).contains(&file) {
            all.extend(wrong(file, &fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(all.is_empty(), "against the order:\n{}", all.join("\n"));
}

/// People name a module by the last part of its path. Those of src/cmd have the names of the subcommands.
#[test]
fn no_two_modules_have_one_name() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let paths = files(&src);
    let modules = paths.iter().map(|path| module(path.strip_prefix(&src).unwrap()));
    let mut modules: Vec<Vec<String>> = modules.filter(|path| path[0] != "cmd").collect();
    modules.sort_by(|a, b| a.last().cmp(&b.last()));
    let pairs = modules.windows(2).filter(|pair| pair[0].last() == pair[1].last());
    let pairs: Vec<String> =
        pairs.map(|pair| format!("{} and {}", pair[0].join("::"), pair[1].join("::"))).collect();
    assert!(!modules.is_empty() && pairs.is_empty(), "{}", pairs.join("\n"));
}

#[test]
fn an_import_against_the_order_is_found() {
    let of = |file: &str, text: &str| wrong(Path::new(file), text).len();
    assert_eq!(of("policy/compile.rs", "use crate::sched::layout::{Limits, MaskIndex};"), 0);
    assert_eq!(of("policy/compile.rs", "use crate::{base::log, sched::{layout, stats}};"), 1);
    assert_eq!(of("sched/layout.rs", "use super::stats::Stats;"), 1);
    assert_eq!(of("trace/rows.rs", "fn f() -> crate::sched::stats::Stats"), 1);
    assert_eq!(of("base/log.rs", "use super::error as e;\nuse crate::gtp::Module as _;"), 1);
    assert_eq!(of("gtp.rs", "use super::*; // crate::cmd"), 0);
    assert_eq!(of("irq/place/pin.rs", "use super::super::inventory; use crate::nowhere::X;"), 1);
}
