//! The licences of what is linked into gthctl fit its own, and their texts are in the tree.
//!
//! `UPDATE=1 cargo test -p gthctl-licences` rewrites THIRD-PARTY-NOTICES.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

/// What .cargo/config.toml builds for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Licences under which code may become part of a program that is conveyed under GPLv3
/// (<https://www.gnu.org/licenses/license-list.html>; Unicode-3.0 and 0BSD have the terms of
/// licences there), by their SPDX identifiers.
const FIT: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Sources in the crate libbpf-sys that gthctl is not linked with: it takes the system's.
const UNUSED: [&str; 2] = ["elfutils", "zlib"];

/// What is linked from the system besides crates.
const OF_THE_SYSTEM: &str = include_str!("../system");

const HEAD: &str = "\
The gthctl program contains, beside gthctl's own code, the crates and libraries below,
under their own licences. Written by: UPDATE=1 cargo test -p gthctl-licences
";

/// A crate that is linked into the program.
#[derive(Debug)]
struct Linked {
    name: String,
    version: String,
    licence: String,
    authors: String,
    dir: PathBuf,
}

fn tree(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

/// What cargo prints. All crates must be there (`cargo fetch`).
fn cargo(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(tree("")).args(args).args(["--offline", "--locked"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The crates that are linked into the program: neither procedural macros nor what only the
/// build or the tests need.
fn linked() -> Vec<Linked> {
    let edges = ["-p", "gthctl", "-e", "normal,no-proc-macro", "--target", TARGET];
    let listed = cargo(&[&["tree", "--prefix", "none"], &edges[..]].concat());
    let listed: BTreeSet<(&str, &str)> = listed
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap()))
        .filter(|(name, _)| *name != "gthctl")
        .collect();
    assert!(listed.len() > 100, "{listed:?}");
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", TARGET]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages: BTreeMap<(&str, &str), &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let text = |key: &str| package[key].as_str().unwrap();
            ((text("name"), text("version")), package)
        })
        .collect();
    let of = |(name, version): (&str, &str)| {
        let package = packages[&(name, version)];
        let authors = package["authors"].as_array().unwrap().iter().filter_map(Value::as_str);
        Linked {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: package["license"].as_str().unwrap_or_default().to_owned(),
            authors: authors.collect::<Vec<_>>().join(", "),
            dir: Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().into(),
        }
    };
    listed.into_iter().map(of).collect()
}

/// True if [`FIT`] can satisfy `licence` (an SPDX expression).
fn fits(licence: &str) -> bool {
    fits_without("", licence)
}

/// Like [`fits`], without `left_out`.
fn fits_without(left_out: &str, licence: &str) -> bool {
    let one = |id: &str| id != left_out && FIT.contains(&id);
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|asked| {
            // An exception (WITH) only permits more.
            asked.license.id().is_some_and(|id| one(id.name))
        })
    })
}

#[test]
fn every_crate_fits() {
    for (licence, wanted) in [
        ("MIT/Apache-2.0", true),
        ("(MIT OR SSPL-1.0) AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("MIT AND SSPL-1.0", false),
        ("GPL-2.0-only", false),
        ("CDDL-1.0", false),
        ("", false),
        ("as the file says", false),
    ] {
        assert_eq!(fits(licence), wanted, "{licence}");
    }
    let misfits: Vec<String> = linked()
        .iter()
        .filter(|one| !fits(&one.licence))
        .map(|one| format!("{} {}: {:?}", one.name, one.version, one.licence))
        .collect();
    assert!(
        misfits.is_empty(),
        "these are linked into gthctl, and nothing says that their licences fit GPLv3: do \
         without them, or add a licence that does to FIT in {}: {misfits:#?}",
        file!()
    );
}

/// The files of a crate that hold its licence, its copyright or its notices.
fn licence_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_lowercase());
            let is_text = path.extension().is_none_or(|end| {
                ["rs", "c", "h", "py", "json", "yml", "sh"].iter().all(|code| end != *code)
            });
            if path.is_dir() {
                if !UNUSED.contains(&name.as_str()) {
                    dirs.push(path);
                }
            } else if is_text
                && ["license", "licence", "copying", "copyright", "notice", "unlicense"]
                    .iter()
                    .any(|begin| name.starts_with(begin))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The texts of a crate's licence. Where the crate offers a choice, leaves out the long ones.
fn texts_of(one: &Linked) -> Vec<String> {
    let files = licence_files(&one.dir);
    if files.is_empty() {
        return standard_texts(one);
    }
    let is_chosen = |file: &&PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().to_lowercase();
        let choices = [("apache", "Apache-2.0"), ("lgpl", "LGPL-2.1-only")];
        !choices.iter().any(|(part, id)| name.contains(part) && fits_without(id, &one.licence))
    };
    let chosen: Vec<String> = files.iter().filter(is_chosen).map(|file| read(file)).collect();
    match chosen.is_empty() {
        true => files.iter().map(|file| read(file)).collect(),
        false => chosen,
    }
}

/// The standard text of each licence in an expression, for a crate that comes without.
fn standard_texts(one: &Linked) -> Vec<String> {
    let expression = Expression::parse_mode(&one.licence, ParseMode::LAX).unwrap();
    let asked = expression.requirements().filter_map(|asked| asked.req.license.id());
    asked.map(|id| format!("By {}\n\n{}", one.authors, id.text())).collect()
}

fn notices() -> String {
    let linked = linked();
    // A text that several crates share, except for white space, appears once.
    let mut texts: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut list = String::new();
    for one in &linked {
        let name = format!("{} {}", one.name, one.version);
        list += &format!("  {name}: {}\n", one.licence);
        let found = texts_of(one);
        assert!(!found.is_empty(), "{name} has no licence text");
        for text in found {
            let key = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            let text = lines.join("\n").trim_matches('\n').to_owned();
            texts.entry(key).or_insert((text, BTreeSet::new())).1.insert(name.clone());
        }
    }
    let line = "=".repeat(80);
    let mut text = format!("{HEAD}\nCrates:\n\n{list}\n{line}\n{OF_THE_SYSTEM}");
    let mut texts: Vec<_> = texts.into_values().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, licence) in texts {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        text += &format!("{line}\n{names}\n\n{licence}\n");
    }
    text
}

#[test]
fn the_notices_are_up_to_date() {
    let (path, notices) = (tree("THIRD-PARTY-NOTICES"), notices());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &notices).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == notices,
        "{} is out of date; run: UPDATE=1 cargo test -p gthctl-licences",
        path.display()
    );
}

/// The files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn what_is_ours_says_so() {
    const OURS: &str = "GPL-2.0-or-later";
    for dir in ["", "tests/licences", "tests/vm/testbed", "tests/fuzz"] {
        let manifest = format!("{dir}/Cargo.toml");
        let text = read(&tree(manifest.trim_start_matches('/')));
        assert!(text.contains(&format!("\nlicense = \"{OURS}\"\n")), "{manifest}");
    }
    for dir in ["bpf", "tests/vm"] {
        for file in files(&tree(dir)).iter().filter(|file| {
            dir == "bpf" || file.extension().is_some_and(|end| end == "c" || end == "h")
        }) {
            let text = read(file);
            let first = text.lines().next().unwrap_or_default();
            let is_ours = first.contains(&format!("SPDX-License-Identifier: {OURS}"));
            assert!(is_ours, "{}: {first}", file.display());
        }
    }
    for (file, version) in [("LICENSE", "Version 2, June 1991"), ("LICENSE-GPLv3", "Version 3, 29")]
    {
        let text = read(&tree(file));
        let head: Vec<&str> = text.lines().take(2).map(str::trim).collect();
        assert_eq!(head[0], "GNU GENERAL PUBLIC LICENSE", "{file}");
        assert!(head[1].starts_with(version), "{file}: {head:?}");
    }
    let readme = read(&tree("README.md"));
    assert!(readme.contains("GPL-2.0-or-later") && readme.contains("GPL-3.0"));
}
