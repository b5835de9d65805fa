//! Makes names from outside safe for a terminal: names of tasks, files and cgroups may contain
//! characters that move the cursor, begin a new line or reverse the text.

use std::borrow::Cow;
use std::fmt::Write;

/// True for characters that a terminal does not show in place: control characters (C0, DEL
/// and C1), Unicode's line and paragraph separators, and its direction marks and overrides
/// (Unicode Standard Annex #9).
fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// `text` in one line, with such characters escaped as in Rust: `\n`, `\u{1b}`.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, is_unfit, |out, c| out.extend(c.escape_default()))
}

/// As [`line`]; line feeds stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, is_unfit_in_lines, |out, c| out.extend(c.escape_default()))
}

/// JSON with such characters escaped as in JSON (`\u001b`). Line feeds, which stand between its
/// values, stay. The other characters occur only in strings, whose meaning does not change.
pub fn json(text: &str) -> Cow<'_, str> {
    // None of these characters is above U+FFFF, where JSON needs two escapes.
    replaced(text, is_unfit_in_lines, |out, c| {
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    })
}

/// True for the characters that [`lines`] and [`json`] replace.
pub fn is_unfit_in_lines(c: char) -> bool {
    c != '\n' && is_unfit(c)
}

fn replaced<'a>(
    text: &'a str,
    is_unfit: impl Fn(char) -> bool,
    write: impl Fn(&mut String, char),
) -> Cow<'a, str> {
    if !text.contains(&is_unfit) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unfit(c) { write(&mut out, c) } else { out.push(c) }
    }
    out.into()
}

/// A name for tests: it clears the screen in two ways, ends the line and reverses the text.
#[cfg(test)]
pub const NASTY: &str = "a\u{1b}[2J\u{9b}2J\r\n\t\u{7f}\u{202e}b\u{2069}\u{2028}c";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_written_out() {
        let written = "a\\u{1b}[2J\\u{9b}2J\\r\\n\\t\\u{7f}\\u{202e}b\\u{2069}\\u{2028}c";
        assert_eq!(line(NASTY), written);
        assert_eq!(lines(NASTY), written.replace("\\n", "\n"));
        // Everything else, and what is already escaped, stays.
        for text in ["", "\\n é 中 👍 \u{a0}", written] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        let all = (0..=0x10_ffff).filter_map(char::from_u32);
        for c in all.filter(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(c)) {
            assert!(line(&c.to_string()).chars().all(|c| (' '..='~').contains(&c)), "{c:?}");
        }
    }

    #[test]
    fn json_means_the_same() {
        let text = serde_json::to_string_pretty(&[NASTY]).unwrap();
        let fit = json(&text);
        assert!(!fit.contains(is_unfit_in_lines) && text.contains('\u{9b}'), "{fit}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&fit).unwrap(), [NASTY]);
        assert_eq!(serde_yaml::from_str::<[String; 1]>(&fit).unwrap(), [NASTY]);
    }
}
