//! The line of a file that an error is about, with a mark under the place.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::error::Location;
use super::escape;
use super::yaml::lines;

/// The line of `text`, the content of a YAML file, that contains `at`, with a mark under the key or
/// value there. `None` if there is no such line.
pub fn of(text: &str, at: &Location) -> Option<String> {
    let line = lines(text).nth(at.line.checked_sub(1)?)?;
    let mark = AnnotationKind::Primary.span(word(line, at.column));
    let snippet = Snippet::source(line).line_start(at.line).annotation(mark);
    let excerpt = Renderer::plain().render(&[Group::with_level(Level::ERROR).element(snippet)]);
    Some(escape::lines(&excerpt).into_owned())
}

/// The bytes of the key or value that begins at this column, from 1.
fn word(line: &str, column: usize) -> Range<usize> {
    let start = line.char_indices().nth(column.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
    let rest = &line[start..];
    let first = rest.chars().next();
    let len = match first {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map_or(rest.len(), |end| end + 2),
        _ => rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len()),
    };
    let key = rest[..len].trim_end_matches(':').len();
    start..start + key.max(first.map_or(0, char::len_utf8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::escape::NASTY;

    fn excerpt(text: &str, line: usize, column: usize) -> Option<String> {
        of(text, &Location { file: "p.yaml".into(), line, column })
    }

    #[test]
    fn marks_what_is_there() {
        let marked = |line: &str, column: usize| line[word(line, column)].to_owned();
        for (line, column, wanted) in [
            ("- {pid: 1, priority: 21}", 22, "21"),
            ("- {pid: 1, priority: 21}", 12, "priority"),
            ("strategies:", 1, "strategies"),
            ("cpus: \"0, 2\" # two", 7, "\"0, 2\""),
            ("cpus: 'open", 7, "'open"),
            ("a: [", 5, ""),
            ("a: }", 4, "}"),
            ("ä: é,", 4, "é"),
            ("x", 9, ""),
        ] {
            assert_eq!(marked(line, column), wanted, "{line} {column}");
        }
    }

    #[test]
    fn the_line_with_its_number_and_a_mark() {
        let text = "strategies:\r- {pid: 1, priority: 21}\n";
        assert_eq!(
            excerpt(text, 2, 22).unwrap(),
            "  |\n2 | - {pid: 1, priority: 21}\n  |                      ^^"
        );
        assert_eq!(excerpt(text, 9, 1), None);
        // Something is missing at the end.
        assert!(excerpt("a: [\n", 2, 1).unwrap().ends_with('^'));
    }

    #[test]
    fn no_text_moves_the_cursor() {
        let excerpt = excerpt(&format!("a: \u{1b}[2J\u{202e}b {NASTY}"), 1, 4).unwrap();
        assert!(!excerpt.contains(escape::is_unfit_in_lines), "{excerpt:?}");
    }
}
