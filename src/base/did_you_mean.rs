//! "Did you mean …?": the known word nearest to a mistyped one.

use strsim::osa_distance;

/// The word of `known` nearest to `word`, if one is near enough.
///
/// Near enough is a third of the word's length in edits, and one edit for short
/// words. Case and `-` against `_` don't count. The first of several wins.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    let length = word.chars().count();
    if length > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= (length / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn plain(word: &str) -> String {
    word.to_ascii_lowercase().replace('-', "_")
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
}
