//! "Did you mean …?": the known word nearest to a mistyped one.

/// The word of `known` nearest to `word`, if one is near enough to be meant.
///
/// Near enough is a third of the word's length in edits, and one edit for short
/// words. Case and `-` against `_` don't count. The first of several wins.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    if word.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= (word.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn plain(word: &str) -> Vec<char> {
    word.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// The number of characters to insert, delete, replace or swap with a neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best.min(rows[i - 2][j - 2] + 1)
                } else {
                    best
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["slice_ns_default", "slice_ns_min", "debug", "cpus"];

    #[test]
    fn finds_the_word_that_was_meant() {
        for (typed, meant) in [
            ("slice_ns_mni", "slice_ns_min"),
            ("slice-ns-min", "slice_ns_min"),
            ("Slice_NS_Default", "slice_ns_default"),
            ("slice_ns_defualt", "slice_ns_default"),
            ("slice_default", "slice_ns_default"),
            ("debgu", "debug"),
            ("cpu", "cpus"),
            ("debug", "debug"),
        ] {
            assert_eq!(nearest(typed, KEYS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn stays_silent_when_nothing_is_near() {
        for typed in ["", "zz", "weight", "priority", &"x".repeat(1000)] {
            assert_eq!(nearest(typed, KEYS), None, "{typed}");
        }
    }

    #[test]
    fn counts_edits() {
        let count = |a: &str, b: &str| distance(&plain(a), &plain(b));
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("ab", "ba"), 1);
    }
}
