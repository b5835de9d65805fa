//! Reads input files: YAML with the place of each value, and errors that name it.
//!
//! serde_yaml gives places only in its errors: it adds line and column to an error that a
//! visitor raises, after it has consumed the value. [`Builder`] uses that to learn the
//! place of every scalar in one pass: its visitor stores the scalar and raises [`MARK`];
//! the visitor of the enclosing list or map takes the place out of the error and goes on
//! with the next value. For a list or map an error would end the pass, so it gets the
//! place of its key, or of its first scalar.

use std::cell::Cell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::{ENXIO, O_NOCTTY, O_NONBLOCK};

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, Visitor,
};

use super::did_you_mean;
use super::error::{Error, ExitCode, Location, Result};
use super::units::{Nanoseconds, parse_nanoseconds};

/// The largest config or policy file, in bytes.
pub const MAX_BYTES: u64 = 256 << 10;

/// The most values of a document, with aliases (`*name`) expanded.
const MAX_VALUES: usize = 100_000;

/// The most bytes of text in a document, with aliases expanded. The keys above a value
/// count with each value: serde_yaml writes them into [`MARK`]'s error.
const MAX_WRITTEN: usize = 32 << 20;

/// The most characters kept of serde_yaml's message.
const MAX_MESSAGE: usize = 240;

/// Line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    pub const START: Place = Place { line: 1, column: 1 };

    /// The place after `text`, the beginning of the file.
    fn after(text: &str) -> Place {
        let (mut line, mut column) = (0, 1);
        for last in lines(text) {
            (line, column) = (line + 1, last.chars().count() + 1);
        }
        Place { line, column }
    }
}

/// The lines of `text` as YAML counts them: a carriage return alone ends one, and
/// so do Unicode's line separators.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.find(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
        rest = end.map(|end| {
            let after = &text[end..];
            let mut chars = after.chars();
            chars.next();
            after.strip_prefix("\r\n").unwrap_or(chars.as_str())
        });
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// A YAML value and its place in the file.
#[derive(Debug, PartialEq)]
pub struct Node {
    /// `None` only for an empty list or map inside a list: use the outer list's place.
    place: Option<Place>,
    pub value: Value,
}

/// A YAML value. Maps keep the order of the file, and duplicate keys.
#[derive(Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// An input file; makes the errors about it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    path: &'a Path,
}

/// A key found in a map, with its value.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    source: Source<'a>,
    /// The key alone.
    pub name: &'a str,
    /// The key with its parents, such as `scheduler.slice_ns_min`.
    pub path: String,
    /// The place of the key.
    pub place: Place,
    pub value: &'a Node,
}

impl<'a> Source<'a> {
    /// The file at `path`, which is only used in messages.
    pub fn new(path: &'a Path) -> Self {
        Self { path }
    }

    /// Reads the file, which must be regular, in UTF-8 and at most [`MAX_BYTES`]. Opening
    /// anything else, such as a FIFO, does not block.
    ///
    /// `kind` names the file's purpose, such as "config file".
    pub fn read(self, kind: &str) -> Result<String> {
        self.read_from(self.open_regular(), kind)
    }

    /// As [`Source::read`]; also reads a stream, such as a pipe, to its end.
    pub fn read_stream(self, kind: &str) -> Result<String> {
        self.read_from(File::open(self.path), kind)
    }

    /// Opens the file for reading if it is a regular one.
    fn open_regular(self) -> io::Result<File> {
        let irregular = || io::Error::other("it is not a regular file");
        // Without these flags, a FIFO blocks (open(2)), and a terminal becomes gthctl's controlling
        // terminal.
        let flags = O_NONBLOCK | O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path).map_err(
            |e| match e.raw_os_error() {
                // A socket.
                Some(ENXIO) => irregular(),
                _ => e,
            },
        )?;
        let kind = file.metadata()?.file_type();
        match kind.is_file() {
            true => Ok(file),
            false if kind.is_dir() => Err(ErrorKind::IsADirectory.into()),
            false => Err(irregular()),
        }
    }

    fn read_from(self, file: io::Result<File>, kind: &str) -> Result<String> {
        let fail = |why: &str| {
            let what = format!("{}: cannot read the {kind}: {why}", self.path.display());
            Err(Error::new(ExitCode::Usage, what))
        };
        let mut bytes = Vec::new();
        match file.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return fail("no such file"),
            Err(e) if e.kind() == ErrorKind::IsADirectory => return fail("it is a directory"),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return fail("permission denied"),
            Err(e) => return fail(&e.to_string()),
        }
        self.text(bytes, kind)
    }

    /// `bytes` as text, if at most [`MAX_BYTES`] and in UTF-8. A byte order mark at the start is
    /// removed: libyaml counts it as a column.
    pub fn text(self, bytes: Vec<u8>, kind: &str) -> Result<String> {
        if bytes.len() as u64 > MAX_BYTES {
            let path = self.path.display();
            let what = format!(
                "{path}: cannot read the {kind}: it is larger than {} KiB",
                MAX_BYTES >> 10
            );
            return Err(Error::new(ExitCode::Usage, what));
        }
        let mut text = String::from_utf8(bytes).map_err(|e| {
            let good = String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]);
            let place = Place::after(&good);
            self.error(place, format!("not UTF-8 text; the {kind} is YAML in UTF-8"))
        })?;
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        Ok(text)
    }

    /// A usage error at `place`.
    pub fn error(self, place: Place, what: impl Into<String>) -> Error {
        Error::new(ExitCode::Usage, what).at(self.location(place))
    }

    /// `place` in this file.
    pub fn location(self, place: Place) -> Location {
        Location { file: self.path.into(), line: place.line, column: place.column }
    }

    /// Reads `text` as one YAML document; [`Value::Null`] if it holds none.
    pub fn document(self, text: &str) -> Result<Node> {
        let mut documents = serde_yaml::Deserializer::from_str(text);
        let Some(first) = documents.next() else {
            return Ok(Node { place: None, value: Value::Null });
        };
        let first = self.node(text, first)?;
        match documents.next() {
            None => Ok(first),
            Some(second) => {
                let place = self.node(text, second)?.place_or(Place::START);
                Err(self.error(place, "a second YAML document begins here; only one is allowed"))
            }
        }
    }

    /// Reads one document with the place of each value.
    fn node(self, text: &str, document: serde_yaml::Deserializer) -> Result<Node> {
        let mut node = None;
        let left = Left { values: Cell::new(MAX_VALUES), written: Cell::new(MAX_WRITTEN) };
        let read = Builder { node: &mut node, left: &left, above: 0 }.deserialize(document);
        match located(&mut node, read) {
            Ok(()) => Ok(node.unwrap_or(Node { place: None, value: Value::Null })),
            Err(e) => Err(self.syntax_error(text, &e)),
        }
    }

    /// Rewords serde_yaml's error as ours, with its place once, at the start.
    fn syntax_error(self, text: &str, error: &serde_yaml::Error) -> Error {
        let mut what = error.to_string();
        let mut place = Place::START;
        if let Some(at) = error.location().filter(|at| at.index() > 0) {
            place = Place { line: at.line(), column: at.column() };
            what =
                what.replacen(&format!(" at line {} column {}", place.line, place.column), "", 1);
        } else if let Some((words, offset)) = what.rsplit_once(" at position ") {
            // libyaml's message about characters that YAML forbids.
            let before = offset.parse().ok().and_then(|offset| text.get(..offset));
            place = Place::after(before.unwrap_or_default());
            what = words.into();
        }
        let here =
            lines(text).nth(place.line - 1).and_then(|line| line.chars().nth(place.column - 1));
        if here == Some('\t') {
            what.push_str("; YAML is indented with spaces, and here is a tab");
        }
        // The message begins with the keys that lead to the place, which may be long.
        if let Some((end, _)) = what.char_indices().nth_back(MAX_MESSAGE) {
            what.replace_range(..end, "...");
        }
        self.error(place, format!("not valid YAML: {}", one_line(&what)))
    }
}

impl Node {
    /// The place of the value, or of what encloses it.
    pub fn place_or(&self, outer: Place) -> Place {
        self.place.unwrap_or(outer)
    }

    /// What was found, for "expected …, found …".
    pub fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".into(),
            Value::Bool(b) => b.to_string(),
            Value::Integer(i) => i.to_string(),
            Value::Float(f) => format!("{f:?}"),
            Value::Text(text) => quote(text),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map of keys".into(),
        }
    }

    /// The value of `key`, if this is a map with it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = &self.value else { return None };
        let is_key = |node: &Node| matches!(&node.value, Value::Text(name) if name == key);
        entries.iter().find(|(name, _)| is_key(name)).map(|(_, node)| &node.value)
    }

    /// True for nothing, empty text, an empty list and an empty map.
    pub fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// The fields of a map whose keys must be among `known`, each at most once.
    ///
    /// `prefix` comes before each key in its path: `scheduler.`, or nothing at the root. A null
    /// value counts as a map without keys. The error for an unknown key names the nearest known
    /// one; `elsewhere` are paths to suggest if no known key is near. `hidden` keys are accepted
    /// but not named in errors.
    pub fn fields<'a>(
        &'a self,
        source: Source<'a>,
        prefix: &str,
        known: &[&str],
        hidden: &[&str],
        elsewhere: &[&'a str],
    ) -> Result<Vec<Field<'a>>> {
        let entries = match &self.value {
            Value::Null => return Ok(Vec::new()),
            Value::Map(entries) => entries,
            _ => {
                let this = match prefix.trim_end_matches(['.', ':', ' ']) {
                    "" => String::new(),
                    this => format!("{this}: "),
                };
                let what =
                    format!("{this}expected keys ({}), found {}", known.join(", "), self.found());
                return Err(source.error(self.place_or(Place::START), what));
            }
        };
        let mut fields: Vec<Field> = Vec::new();
        for (key, value) in entries {
            let place = key.place_or(Place::START);
            let Value::Text(name) = &key.value else {
                let what = format!(
                    "{prefix}expected a key, found {}; allowed here: {}",
                    key.found(),
                    known.join(", ")
                );
                return Err(source.error(place, what));
            };
            let path = format!("{prefix}{name}");
            if !known.contains(&name.as_str()) && !hidden.contains(&name.as_str()) {
                let path = one_line(&shorten(&path));
                let meant = did_you_mean::nearest(name, known.iter().copied())
                    .map(str::to_owned)
                    .or_else(|| elsewhere.iter().find_map(|path| suggestion(path, name)));
                let meant = meant.map_or(String::new(), |meant| format!("did you mean {meant}? "));
                let what =
                    format!("{path}: unknown key; {meant}allowed here: {}", known.join(", "));
                return Err(source.error(place, what));
            }
            if let Some(earlier) = fields.iter().find(|field| field.path == path) {
                let what = format!("{path}: given twice; first in line {}", earlier.place.line);
                return Err(source.error(place, what));
            }
            fields.push(Field { source, name, path, place, value });
        }
        Ok(fields)
    }
}

/// The text that suggests `path`, if `name` is its last key.
fn suggestion(path: &str, name: &str) -> Option<String> {
    match path.rsplit_once('.') {
        None => (path == name).then(|| format!("{path} at the top level")),
        Some((_, last)) => (last == name).then(|| path.to_owned()),
    }
}

impl<'a> Field<'a> {
    /// An item of this field's list, as a field.
    pub fn item(&self, item: &'a Node) -> Field<'a> {
        Field { value: item, place: item.place_or(self.place), ..self.clone() }
    }

    /// A usage error about this field's value: the key, then `what`.
    pub fn error(&self, what: impl fmt::Display) -> Error {
        self.source.error(self.value.place.unwrap_or(self.place), format!("{}: {what}", self.path))
    }

    /// The error for a value of the wrong type or out of range.
    pub fn expected(&self, what: impl fmt::Display) -> Error {
        self.error(format!("expected {what}, found {}", self.value.found()))
    }

    /// The value as true or false.
    pub fn bool(&self) -> Result<bool> {
        match self.value.value {
            Value::Bool(b) => Ok(b),
            _ => Err(self.expected("true or false")),
        }
    }

    /// The value as text without control characters; `what` names it in the error.
    pub fn text_or_empty(&self, what: &str) -> Result<&str> {
        match &self.value.value {
            Value::Text(text) if !text.contains(char::is_control) => Ok(text),
            Value::Text(_) => Err(self.expected(format!("{what} without control characters"))),
            Value::Null => Err(self.expected(what)),
            _ => Err(self.expected(format!("{what} (text; put it in quotes)"))),
        }
    }

    /// As [`Field::text_or_empty`]; empty text is an error too.
    pub fn text(&self, what: &str) -> Result<&str> {
        match self.text_or_empty(what)? {
            "" => Err(self.expected(what)),
            text => Ok(text),
        }
    }

    /// The value as a whole number in `range`; `what` names it in the error.
    pub fn integer(&self, what: &str, range: RangeInclusive<u64>) -> Result<u64> {
        match self.value.value {
            Value::Integer(i) => u64::try_from(i).ok().filter(|i| range.contains(i)),
            _ => None,
        }
        .ok_or_else(|| self.expected(format!("{what} from {} to {}", range.start(), range.end())))
    }

    /// The value as nanoseconds in `range`: a number of them, or a text such as `2ms`.
    pub fn nanoseconds(&self, range: RangeInclusive<u64>) -> Result<u64> {
        match &self.value.value {
            Value::Integer(i) => u64::try_from(*i).ok(),
            Value::Text(text) => parse_nanoseconds(text),
            _ => None,
        }
        .filter(|ns| range.contains(ns))
        .ok_or_else(|| {
            let (least, most) = (Nanoseconds(*range.start()), Nanoseconds(*range.end()));
            self.expected(format!(
                "a time from {least} to {most} (nanoseconds, or such as 500us or 2ms)"
            ))
        })
    }

    /// The value as a list.
    pub fn list(&self, what: &str) -> Result<&[Node]> {
        match &self.value.value {
            Value::List(items) => Ok(items),
            _ => Err(self.expected(what)),
        }
    }
}

/// `text` in quotes, shortened, with control characters escaped.
pub fn quote(text: &str) -> String {
    format!("{:?}", shorten(text))
}

/// At most 60 characters of `text`.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.into(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// `text` with control characters escaped.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.into() })
        .collect()
}

/// The error that [`Builder`] raises to get a place. serde_yaml's own text before it cannot be
/// mistaken for this character.
const MARK: &str = "@";

/// Reads one value into `node`; see the module's description.
struct Builder<'a> {
    node: &'a mut Option<Node>,
    left: &'a Left,
    /// The length of the keys that lead to the value.
    above: usize,
}

/// How much more a document may hold.
struct Left {
    values: Cell<usize>,
    written: Cell<usize>,
}

impl Left {
    fn take<E: serde::de::Error>(
        &self,
        values: usize,
        written: usize,
    ) -> std::result::Result<(), E> {
        let Some(values) = self.values.get().checked_sub(values) else {
            return Err(E::custom(format!("more than {MAX_VALUES} values")));
        };
        let Some(written) = self.written.get().checked_sub(written) else {
            return Err(E::custom(format!("more than {} MiB of text", MAX_WRITTEN >> 20)));
        };
        self.values.set(values);
        self.written.set(written);
        Ok(())
    }
}

impl Builder<'_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> std::result::Result<(), E> {
        *self.node = Some(Node { place: None, value });
        Err(E::custom(MARK))
    }
}

/// Takes the place out of the error that a scalar raised; other errors pass.
fn located<T: Default, E: fmt::Display>(
    node: &mut Option<Node>,
    read: std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let Err(error) = &read else { return read };
    let Some(node) =
        node.as_mut().filter(|node| !matches!(node.value, Value::List(_) | Value::Map(_)))
    else {
        return read;
    };
    node.place = Some(place_in(&error.to_string()));
    Ok(T::default())
}

/// The place in "PATH: @ at line L column C"; serde_yaml omits the start of the file.
fn place_in(error: &str) -> Place {
    let numbers = error.rsplit_once("@ at line ").and_then(|(_, rest)| rest.split_once(" column "));
    let place = numbers.and_then(|(line, column)| {
        Some(Place { line: line.parse().ok()?, column: column.parse().ok()? })
    });
    place.unwrap_or(Place::START)
}

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<(), D::Error> {
        self.left.take(1, self.above)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> std::result::Result<(), E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> std::result::Result<(), E> {
        self.scalar(Value::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> std::result::Result<(), E> {
        self.scalar(Value::Integer(v.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> std::result::Result<(), E> {
        self.scalar(Value::Integer(v.into()))
    }

    fn visit_i128<E: serde::de::Error>(self, v: i128) -> std::result::Result<(), E> {
        self.scalar(Value::Integer(v))
    }

    fn visit_u128<E: serde::de::Error>(self, v: u128) -> std::result::Result<(), E> {
        self.scalar(Value::Integer(i128::try_from(v).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> std::result::Result<(), E> {
        self.scalar(Value::Float(v))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> std::result::Result<(), E> {
        self.left.take(0, v.len())?;
        self.scalar(Value::Text(v.into()))
    }

    /// serde_yaml calls this for text that breaks off; its own error follows.
    fn visit_none<E>(self) -> std::result::Result<(), E> {
        *self.node = Some(Node { place: None, value: Value::Null });
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> std::result::Result<(), A::Error> {
        Err(A::Error::custom("tags (!...) are not allowed"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
        let mut items = Vec::new();
        loop {
            let mut item = None;
            let builder = Builder { node: &mut item, left: self.left, above: self.above };
            let read = seq.next_element_seed(builder).map(|_| ());
            located(&mut item, read)?;
            let Some(item) = item else { break };
            items.push(item);
        }
        let place = items.iter().find_map(|item| item.place);
        *self.node = Some(Node { place, value: Value::List(items) });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let mut entries: Vec<(Node, Node)> = Vec::new();
        loop {
            let (mut key, mut value) = (None, None);
            let builder = Builder { node: &mut key, left: self.left, above: self.above };
            let read = map.next_key_seed(builder).map(|_| ());
            located(&mut key, read)?;
            let Some(key) = key else { break };
            let length = if let Value::Text(key) = &key.value { key.len() } else { 0 };
            let above = self.above + length;
            let read = map.next_value_seed(Builder { node: &mut value, left: self.left, above });
            located(&mut value, read)?;
            let mut value = value.unwrap_or(Node { place: None, value: Value::Null });
            if matches!(value.value, Value::List(_) | Value::Map(_)) {
                value.place = key.place;
            }
            entries.push((key, value));
        }
        let place = entries.first().and_then(|(key, _)| key.place);
        *self.node = Some(Node { place, value: Value::Map(entries) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Result<Node> {
        Source::new(Path::new("f")).document(text)
    }

    fn error(text: &str) -> String {
        document(text).map_or_else(|e| e.to_string(), |node| format!("{node:?}"))
    }

    /// Every scalar as `line:column value`, keys included.
    fn scalars(node: &Node, out: &mut Vec<String>) {
        match &node.value {
            Value::List(items) => items.iter().for_each(|item| scalars(item, out)),
            Value::Map(entries) => {
                for (key, value) in entries {
                    scalars(key, out);
                    scalars(value, out);
                }
            }
            _ => {
                let place = node.place.unwrap();
                out.push(format!("{}:{} {}", place.line, place.column, node.found()));
            }
        }
    }

    fn places(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        scalars(&document(text).unwrap(), &mut out);
        out
    }

    #[test]
    fn every_scalar_has_its_place() {
        assert_eq!(
            places("a:\n  - b: 1\n    c: 'two'\n\n  - [true, {d: 1.5}]\ne: -7\nf:\n"),
            [
                "1:1 \"a\"",
                "2:5 \"b\"",
                "2:8 1",
                "3:5 \"c\"",
                "3:8 \"two\"",
                "5:6 true",
                "5:13 \"d\"",
                "5:16 1.5",
                "6:1 \"e\"",
                "6:4 -7",
                "7:1 \"f\"",
                "7:3 nothing",
            ]
        );
        assert_eq!(places("x"), ["1:1 \"x\""]);
        assert_eq!(places("\u{e4}: \u{e4}\u{e4}"), ["1:1 \"\u{e4}\"", "1:4 \"\u{e4}\u{e4}\""]);
    }

    #[test]
    fn a_key_that_looks_like_a_place_misleads_nobody() {
        let key = "\"@ at line 9 column 9\"";
        assert_eq!(places(&format!("{key}: 1"))[1], "1:25 1");
        assert_eq!(places(&format!("&a {key}: *a"))[1], "1:1 \"@ at line 9 column 9\"");
    }

    #[test]
    fn places_count_lines_as_yaml_does() {
        let text = "a: 1\r\nb: 2\rc: 3\u{85}d: 4\u{2028}e: 5\n";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["a: 1", "b: 2", "c: 3", "d: 4", "e: 5", ""]);
        // The first place comes from libyaml, the second is computed here.
        assert!(error(&format!("{text}f: \"\\x\"")).starts_with("f:6:"));
        let message = error(&format!("{text}f: \u{1}"));
        assert_eq!(message, "f:6:4: not valid YAML: control characters are not allowed");
    }

    /// Within the size limit of a file: text that an alias repeats, and keys that
    /// serde_yaml repeats with each value below them.
    #[test]
    fn text_that_is_written_out_often_is_refused() {
        let text = "x".repeat(100_000);
        let aliases = "*a,".repeat(40_000);
        let message = error(&format!("[&a {text}, [{aliases}]]"));
        assert!(message.ends_with("more than 32 MiB of text"), "{message}");
        let message = error(&format!("? {text}\n: [{}]", "0,".repeat(60_000)));
        assert!(message.contains("more than 32 MiB of text"), "{}", message.len());
        assert!(message.len() < 1_000, "{}", message.len());
    }

    #[test]
    fn aliases_have_the_place_of_what_they_stand_for() {
        assert_eq!(places("a: &x 1\nb: *x")[3], "1:4 1");
    }

    #[test]
    fn large_numbers_stay_numbers() {
        let big = "9".repeat(38);
        assert_eq!(places(&big), [format!("1:1 {big}")]);
        assert_eq!(places("-9223372036854775809"), ["1:1 -9223372036854775809"]);
        assert_eq!(places("[.inf, .nan]"), ["1:2 inf", "1:8 NaN"]);
    }

    #[test]
    fn lists_and_maps_have_the_place_of_their_key() {
        let node = document("a: 1\nb:\n  - {}\n").unwrap();
        let Value::Map(entries) = &node.value else { panic!("{node:?}") };
        let list = &entries[1].1;
        assert_eq!(list.place, Some(Place { line: 2, column: 1 }));
        let Value::List(items) = &list.value else { panic!("{list:?}") };
        assert_eq!(items[0].place, None);
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let source = Source::new(Path::new("f"));
        let text = source.text("\u{feff}a: 1\nb: 2\n".into(), "file").unwrap();
        assert_eq!(places(&text), places("a: 1\nb: 2\n"));
        let text = source.text("\u{feff}\u{feff}a: 1\n".into(), "file").unwrap();
        assert_eq!(text, "\u{feff}a: 1\n");
    }

    #[test]
    fn no_document_is_nothing() {
        for text in ["", "\n", "# nothing\n", "\u{feff}", "---\n", "null"] {
            assert_eq!(document(text).unwrap().value, Value::Null, "{text:?}");
        }
        assert_ne!(document("a: 1\n...\n").unwrap().value, Value::Null);
    }

    #[test]
    fn broken_yaml_is_one_line_with_its_place() {
        for (text, message) in [
            ("a: 1\n---\nb: 2\n", "f:3:1: a second YAML document begins here; only one is allowed"),
            (
                "a: [1\nb: }",
                "f:2:2: not valid YAML: did not find expected ',' or ']', while parsing a flow sequence at line 1 column 4",
            ),
            (
                "a:\n\tb: 1",
                "f:2:1: not valid YAML: found character that cannot start any token, while scanning for the next token; YAML is indented with spaces, and here is a tab",
            ),
            ("\u{e4}: 1\nb: \0", "f:2:4: not valid YAML: control characters are not allowed"),
            ("a: *b", "f:1:4: not valid YAML: unknown anchor"),
            ("a: !b c", "f:1:4: not valid YAML: a: tags (!...) are not allowed"),
        ] {
            assert_eq!(error(text), message);
        }
    }

    #[test]
    fn bombs_are_refused() {
        let list = format!("a: &a [{}0]\nb: [{}*a]\n", "0,".repeat(10_000), "*a,".repeat(10_000));
        assert!(error(&list).contains("more than 100000 values"), "{}", error(&list));
        let nested: String =
            (1..30).map(|i| format!("x{i}: &x{i} [*x{}, *x{}]\n", i - 1, i - 1)).collect();
        let nested = error(&format!("x0: &x0 [0, 0]\n{nested}"));
        assert!(nested.contains("limit exceeded") || nested.contains("more than"), "{nested}");
        assert!(error(&"[".repeat(1000)).contains("recursion limit exceeded"));
    }

    #[test]
    fn quoting_keeps_to_one_short_line() {
        assert_eq!(quote("a\nb\u{1b}[0m"), r#""a\nb\u{1b}[0m""#);
        assert_eq!(quote(&"x".repeat(61)), format!("\"{}...\"", "x".repeat(60)));
    }
}
