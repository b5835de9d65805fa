//! irqbalance's environment file: the bans that it is started with.
//!
//! gthctl's are in two lines of its own at the file's end: a comment that names them, and
//! an assignment, which counts instead of earlier ones (systemd.exec(5), EnvironmentFile=).
//! So no other line is changed, and what gthctl added is known after the next boot too,
//! when the IRQs have other numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::banned_by;
use crate::base::error::{Error, Location, Result};
use crate::irq::host::Host;

/// The variable with irqbalance's arguments.
const ARGUMENTS: &str = "IRQBALANCE_ARGS";
/// How gthctl's comment begins, and ends.
const MARK: [&str; 2] =
    ["# gthctl: the next line bans IRQ ", "; `gthctl irq restore` removes both"];

/// The file, as it was read.
#[derive(Debug)]
pub struct Environment {
    pub path: PathBuf,
    pub text: String,
    /// The IRQs that gthctl's lines ban.
    pub ours: BTreeSet<u32>,
    /// All lines but gthctl's.
    lines: Vec<String>,
}

impl Environment {
    /// The file of this machine: Debian's, or Red Hat's and SUSE's; `None` when there is
    /// none.
    ///
    /// Fails when it cannot be read, or gthctl's lines are not as gthctl wrote them.
    pub fn read(host: &Host) -> Result<Option<Self>> {
        let files = ["default/irqbalance", "sysconfig/irqbalance"];
        let mut files = files.into_iter().map(|file| host.etc().join(file));
        let Some(path) = files.find(|file| file.is_file()) else { return Ok(None) };
        let text = fs::read(&path).map_err(|e| Error::because_of(path.display(), e))?;
        // One that is not UTF-8 is not added to, so nothing in it is gthctl's.
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.split('\n').map(Into::into).collect();
        let mut file = Self { path, text, ours: BTreeSet::new(), lines };
        if let Some(at) = file.lines.iter().position(|line| line.starts_with(MARK[0])) {
            let end = file.lines.len().min(at + 2);
            let found: Vec<String> = file.lines.drain(at..end).collect();
            let numbers = found[0].split(|c: char| !c.is_ascii_digit());
            file.ours = numbers.filter_map(|number| number.parse().ok()).collect();
            if !file.value().is_ok_and(|value| found == own(value, &file.ours)) {
                let what = "this line and the next, or the arguments before them, are not as \
                            gthctl left them";
                return Err(file.error(at, what).help("remove these two by hand"));
            }
        }
        Ok(Some(file))
    }

    /// The IRQs that other lines ban. Fails as [`Environment::with`].
    pub fn others(&self) -> Result<BTreeSet<u32>> {
        Ok(banned_by(self.value()?.split_whitespace()))
    }

    /// Its content with these bans in the place of gthctl's; with none, it is as it was
    /// without gthctl.
    ///
    /// Fails when it is not plain what the other lines say.
    pub fn with(&self, irqs: &BTreeSet<u32>) -> Result<String> {
        let mut lines = self.lines.clone();
        if !irqs.is_empty() {
            // After its last line feed there is an empty line; where that is missing, it
            // stays so.
            let end = lines.len() - usize::from(lines.last().is_some_and(String::is_empty));
            lines.splice(end..end, own(self.value()?, irqs));
        }
        Ok(lines.join("\n"))
    }

    /// The arguments that other lines set.
    fn value(&self) -> Result<&str> {
        let mut last = "";
        for (at, line) in self.lines.iter().enumerate() {
            let bad = |what: &str| {
                let what = format!("{what}: gthctl adds nothing to {ARGUMENTS}");
                Err(self.error(at, &what).help("add --banirq=N for each IRQ by hand"))
            };
            let line = line.trim();
            if line.ends_with('\\') {
                return bad("a line that goes on in the next one");
            }
            if line.contains(char::REPLACEMENT_CHARACTER) {
                return bad("not UTF-8");
            }
            if line.starts_with(['#', ';']) {
                continue;
            }
            if ['"', '\''].iter().any(|&quote| line.matches(quote).count() % 2 == 1) {
                return bad("a quote without its other one");
            }
            let set = line.strip_prefix(ARGUMENTS).and_then(|line| line.strip_prefix('='));
            match set.map(unquoted) {
                Some(value) if value.chars().all(is_plain) => last = value,
                Some(_) => return bad("not just words, maybe in quotes"),
                None if line.contains(ARGUMENTS) => return bad("not NAME=VALUE"),
                None => {}
            }
        }
        Ok(last)
    }

    fn error(&self, at: usize, what: &str) -> Error {
        Error::failure(what).at(Location { file: self.path.clone(), line: at + 1, column: 1 })
    }
}

/// gthctl's lines.
fn own(value: &str, irqs: &BTreeSet<u32>) -> [String; 2] {
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let bans: String = irqs.iter().map(|irq| format!(" --banirq={irq}")).collect();
    let [begin, end] = MARK;
    let value = format!("{value}{bans}");
    [format!("{begin}{}{end}", numbers.join(", ")), format!("{ARGUMENTS}=\"{}\"", value.trim())]
}

fn unquoted(value: &str) -> &str {
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

/// What means itself to systemd and to a shell, in quotes and without.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || " \t-_=,./:+@%".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::tree::Tree;

    fn read(text: &str) -> Result<Environment> {
        let tree = Tree::new();
        tree.write("etc/default/irqbalance", text);
        Environment::read(&tree.host()).map(Option::unwrap)
    }

    fn set(irqs: &[u32]) -> BTreeSet<u32> {
        irqs.iter().copied().collect()
    }

    #[test]
    fn two_lines_come_and_go() {
        let mark = "# gthctl: the next line bans IRQ 38, 40; `gthctl irq restore` removes both";
        for (text, before, after, args) in [
            ("#IRQBALANCE_ARGS=\n", "#IRQBALANCE_ARGS=\n", "\n", ""),
            ("", "", "\n", ""),
            ("A=1", "A=1\n", "", ""),
            ("IRQBALANCE_ARGS=\n\n", "IRQBALANCE_ARGS=\n\n", "\n", ""),
            (
                "IRQBALANCE_ARGS=-d\nIRQBALANCE_ARGS='--interval=5  --banirq=4'\nX=\"1\"\n",
                "IRQBALANCE_ARGS=-d\nIRQBALANCE_ARGS='--interval=5  --banirq=4'\nX=\"1\"\n",
                "\n",
                "--interval=5  --banirq=4 ",
            ),
        ] {
            let banned = read(text).unwrap().with(&set(&[38, 40])).unwrap();
            let line = format!("IRQBALANCE_ARGS=\"{args}--banirq=38 --banirq=40\"");
            assert_eq!(banned, format!("{before}{mark}\n{line}{after}"));
            let file = read(&banned).unwrap();
            assert_eq!(file.ours, set(&[38, 40]));
            assert_eq!(file.with(&set(&[])).unwrap(), text);
            let other = file.with(&set(&[7])).unwrap();
            assert_eq!(read(&other).unwrap().ours, set(&[7]));
            assert_eq!(read(&other).unwrap().with(&set(&[])).unwrap(), text);
        }
        let file = read("IRQBALANCE_ARGS=\"-i 3 --banirq=4 -p 5\"\n").unwrap();
        assert_eq!(file.others().unwrap(), set(&[3, 4]));
    }

    #[test]
    fn what_is_not_plain_is_not_touched() {
        for (text, why) in [
            ("A=1\nIRQBALANCE_ARGS=\"-d \\\n -t 5\"\n", "2:1: a line that goes on"),
            ("A=1 \\\nIRQBALANCE_ARGS=-d\n", "1:1: a line that goes on"),
            ("IRQBALANCE_ARGS=\"-l 'a b'\"\n", "1:1: not just words"),
            ("IRQBALANCE_ARGS=\"-l \\\"a\\\"\"\n", "1:1: not just words"),
            ("IRQBALANCE_ARGS=\"$OTHER\"\n", "1:1: not just words"),
            ("A=\"x\nIRQBALANCE_ARGS=\"\n", "1:1: a quote without its other one"),
            ("# \u{fffd}\n", "1:1: not UTF-8"),
            ("export IRQBALANCE_ARGS=-d\n", "1:1: not NAME=VALUE"),
        ] {
            let e = read(text).unwrap().with(&set(&[38])).unwrap_err().to_string();
            assert!(e.contains(&format!("etc/default/irqbalance:{why}")), "{text}: {e}");
            // Without a ban of gthctl's there is nothing to take back.
            assert_eq!(read(text).unwrap().with(&set(&[])).unwrap(), text);
        }
    }

    #[test]
    fn what_the_administrator_has_changed_is_not_lost() {
        let banned = read("A=1\nIRQBALANCE_ARGS=-d\n").unwrap().with(&set(&[38])).unwrap();
        for (old, new) in [
            ("\"-d --banirq=38\"", "\"-d -t 5 --banirq=38\""),
            ("ARGS=-d\n", "ARGS=-j\n"),
            ("\"\n", "\"\nIRQBALANCE_ARGS=-j\n"),
            ("IRQBALANCE_ARGS=\"-d --banirq=38\"\n", ""),
        ] {
            let text = banned.replace(old, new);
            assert_ne!(text, banned);
            let e = read(&text).unwrap_err().to_string();
            assert!(e.contains("irqbalance:3:1: this line and the next"), "{e}");
            assert!(e.ends_with("remove these two by hand"), "{e}");
        }
    }
}
