//! How much of a terminal's line a text takes: East Asian characters and emoji take two columns,
//! combining marks none.

use unicode_width::UnicodeWidthStr;

/// The columns of a terminal that `text` takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The longest prefix of `text` that takes at most `width` columns.
pub fn fit(text: &str, width: usize) -> &str {
    if self::width(text) <= width {
        return text;
    }
    // A character can change the width of the one before it, so prefixes are measured as a whole.
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|&end| self::width(&text[..end]) <= width).last();
    &text[..end.unwrap_or(0)]
}

/// Splits `text` into lines of at most `width` columns, between words where possible. Each line
/// takes at least one character, even if that is wider.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("the first line");
        if !line.is_empty() {
            if self::width(line) + 1 + self::width(word) <= width {
                *line += &format!(" {word}");
                continue;
            }
            lines.push(String::new());
        }
        let mut rest = word;
        while !rest.is_empty() {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let (part, left) = rest.split_at(fit(rest, width).len().max(first));
            lines.last_mut().expect("the first line").push_str(part);
            rest = left;
            if !rest.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: &str = "中文字符号";

    #[test]
    fn columns_are_not_characters() {
        assert_eq!((WIDE.chars().count(), width(WIDE)), (5, 10));
        assert_eq!(
            (width(""), width("upf-rx"), width("e\u{301}a"), width("\u{200b}")),
            (0, 6, 2, 0)
        );
    }

    #[test]
    fn the_longest_beginning_that_fits() {
        let parts = [0, 1, 2, 3, 9, 10, usize::MAX].map(|width| fit(WIDE, width));
        assert_eq!(parts, ["", "", "中", "中", "中文字符", WIDE, WIDE]);
        assert_eq!([fit("upf-rx", 3), fit("", 0), fit("a", 0)], ["upf", "", ""]);
        // A character without width stays with the one before it.
        assert_eq!([fit("e\u{301}a", 1), fit("a\u{200b}b", 1)], ["e\u{301}", "a\u{200b}"]);
        // A heart takes one column as text, and two as an emoji.
        assert_eq!(
            [fit("\u{2764}\u{fe0f}", 1), fit("\u{2764}\u{fe0f}", 2)],
            ["\u{2764}", "\u{2764}\u{fe0f}"]
        );
    }

    #[test]
    fn long_texts_go_on_in_the_next_line() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a 123456789 b", 4), ["a", "1234", "5678", "9 b"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
        assert_eq!(wrapped("a  b", 4), ["a  b"]);
        assert_eq!(wrapped("中文 字符号", 9), ["中文", "字符号"]);
        assert_eq!(wrapped("中文字符号", 5), ["中文", "字符", "号"]);
        assert_eq!(wrapped("中文", 1), ["中", "文"]);
    }
}
