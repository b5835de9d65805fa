//! The patterns of a policy as dense DFAs over bytes.
//!
//! One walk over a comm or a path finds all patterns in it, however many there are.
//! `regex-automata` determinises; this module copies its DFA into flat tables that BPF
//! can walk. Patterns that blow up together are split over several DFAs.

use std::collections::HashMap;
use std::fmt;

use regex_automata::dfa::{Automaton, StartError, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use super::{MAX_RULES, regex_syntax_config};
use crate::sched::layout::{Limits, RuleSet};

/// The most states of a policy's DFA; a transition is stored in 16 bits.
const MAX_STATES: usize = 16_384;
/// Bytes that determinising one pattern may take.
const SIZE_LIMIT: usize = 8 << 20;
/// Bytes that determinising several may take before they are split. The time of a failure
/// grows with this.
const JOINT_SIZE_LIMIT: usize = 1 << 20;
/// Bytes that the NFA may take.
const NFA_SIZE_LIMIT: usize = 2 << 20;

/// What is left for the policy's patterns: room in the kernel's tables, and splits.
#[derive(Clone, Debug)]
pub struct Budget {
    dfas: usize,
    states: usize,
    trans: usize,
    /// How often patterns that are too large together may be split.
    splits: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { dfas: Limits::DFAS, states: Limits::STATES, trans: Limits::TRANS, splits: 16 }
    }
}

impl Budget {
    /// Takes what `dfa` needs; false if there is not enough.
    fn take(&mut self, dfa: &Dfa) -> bool {
        let left = (
            self.dfas.checked_sub(1),
            self.states.checked_sub(dfa.accept.len()),
            self.trans.checked_sub(dfa.trans.len()),
        );
        let (Some(dfas), Some(states), Some(trans)) = left else { return false };
        *self = Self { dfas, states, trans, ..*self };
        true
    }
}

/// One dense DFA. From state `s`, byte `b` leads to `trans[s * stride + class[b]]`, and the end of
/// the text to `trans[s * stride + stride - 1]`. The rules in `accept` of every state passed match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dfa {
    pub start: u16,
    pub stride: u16,
    pub class: [u8; 256],
    pub trans: Vec<u16>,
    pub accept: Vec<RuleSet>,
}

impl Dfa {
    /// The rules whose patterns are in `text`: what BPF computes, for tests.
    pub fn find(&self, text: &[u8]) -> RuleSet {
        let mut state = self.start;
        let mut found = 0;
        let end = usize::from(self.stride) - 1;
        let classes = text.iter().map(|&byte| usize::from(self.class[usize::from(byte)]));
        for class in classes.chain([end]) {
            state = self.trans[usize::from(state) * usize::from(self.stride) + class];
            found |= self.accept[usize::from(state)];
        }
        found
    }
}

impl Dfa {
    /// Whether some text that begins with `begin` has a match.
    pub fn finds_some(&self, begin: &[u8]) -> bool {
        let stride = usize::from(self.stride);
        let mut state = self.start;
        for &byte in begin {
            let class = usize::from(self.class[usize::from(byte)]);
            state = self.trans[usize::from(state) * stride + class];
            if self.accept[usize::from(state)] != 0 {
                return true;
            }
        }
        let mut seen = vec![false; self.accept.len()];
        let mut next = vec![state];
        while let Some(state) = next.pop().map(usize::from) {
            if self.accept[state] != 0 {
                return true;
            }
            if !std::mem::replace(&mut seen[state], true) {
                next.extend(&self.trans[state * stride..][..stride]);
            }
        }
        false
    }
}

/// Why a pattern was not compiled.
#[derive(Debug)]
pub enum TooLarge {
    /// The automaton cannot be built within the limits.
    Build(Box<dense::BuildError>),
    Start(StartError),
    /// It has more than [`MAX_STATES`] states.
    States,
    /// No room is left after the patterns before it.
    Together,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(e) => write!(f, "{e}"),
            Self::Start(e) => write!(f, "{e}"),
            Self::States => write!(f, "more than {MAX_STATES} states"),
            Self::Together => f.write_str("too large together with those before it"),
        }
    }
}

impl std::error::Error for TooLarge {}

/// Compiles `patterns`, each with the number of its rule (below [`MAX_RULES`]).
///
/// Fails with the index into `patterns` of a pattern that is too large, alone or with those before
/// it, and with the reason.
pub fn compile(
    patterns: &[(usize, &str)],
    budget: &mut Budget,
) -> Result<Vec<Dfa>, (usize, TooLarge)> {
    compile_from(patterns, 0, budget)
}

fn compile_from(
    patterns: &[(usize, &str)],
    offset: usize,
    budget: &mut Budget,
) -> Result<Vec<Dfa>, (usize, TooLarge)> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    match determinise(patterns) {
        Ok(dfa) if budget.take(&dfa) => Ok(vec![dfa]),
        Ok(_) => Err((offset + patterns.len() - 1, TooLarge::Together)),
        Err(why) if patterns.len() == 1 || budget.splits == 0 => Err((offset, why)),
        Err(_) => {
            budget.splits -= 1;
            let half = patterns.len() / 2;
            let mut dfas = compile_from(&patterns[..half], offset, budget)?;
            dfas.extend(compile_from(&patterns[half..], offset + half, budget)?);
            Ok(dfas)
        }
    }
}

fn determinise(patterns: &[(usize, &str)]) -> Result<Dfa, TooLarge> {
    let limit = if patterns.len() == 1 { SIZE_LIMIT } else { JOINT_SIZE_LIMIT };
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(limit))
        .determinize_size_limit(Some(limit));
    let texts: Vec<&str> = patterns.iter().map(|(_, text)| *text).collect();
    let dfa = dense::Builder::new()
        .configure(config)
        .thompson(thompson::Config::new().nfa_size_limit(Some(NFA_SIZE_LIMIT)))
        .syntax(regex_syntax_config())
        .build_many(&texts)
        .map_err(|e| TooLarge::Build(Box::new(e)))?;
    copy(&dfa, patterns)
}

/// Copies the reachable states, numbered in the order of discovery.
fn copy(dfa: &dense::DFA<Vec<u32>>, patterns: &[(usize, &str)]) -> Result<Dfa, TooLarge> {
    let classes = dfa.byte_classes();
    let mut class = [0; 256];
    let mut representatives = Vec::new();
    for byte in 0..=255u8 {
        let number = usize::from(classes.get(byte));
        if number == representatives.len() {
            representatives.push(byte);
        }
        class[usize::from(byte)] = number as u8;
    }
    let begin =
        dfa.start_state(&start::Config::new().anchored(Anchored::No)).map_err(TooLarge::Start)?;
    let mut numbers: HashMap<StateID, u16> = HashMap::from([(begin, 0)]);
    let mut states = vec![begin];
    let mut trans = Vec::new();
    let mut accept = Vec::new();
    let mut next_state = 0;
    while let Some(&state) = states.get(next_state) {
        next_state += 1;
        accept.push(if dfa.is_match_state(state) { matched(dfa, state, patterns) } else { 0 });
        let bytes = representatives.iter().map(|&byte| dfa.next_state(state, byte));
        for next in bytes.chain([dfa.next_eoi_state(state)]) {
            let new = states.len();
            let number = *numbers.entry(next).or_insert_with(|| {
                states.push(next);
                new as u16
            });
            trans.push(number);
        }
        if states.len() > MAX_STATES {
            return Err(TooLarge::States);
        }
    }
    Ok(Dfa { start: 0, stride: representatives.len() as u16 + 1, class, trans, accept })
}

fn matched(dfa: &dense::DFA<Vec<u32>>, state: StateID, patterns: &[(usize, &str)]) -> RuleSet {
    (0..dfa.match_len(state))
        .map(|i| patterns[dfa.match_pattern(state, i).as_usize()].0)
        .inspect(|&rule| assert!(rule < MAX_RULES))
        .fold(0, |set, rule| set | 1 << rule)
}

/// Whether `pattern` is in `text`.
#[cfg(test)]
pub fn found(pattern: &str, text: &str) -> bool {
    let dfas = compile(&[(0, pattern)], &mut Budget::default()).unwrap();
    dfas.iter().any(|dfa| dfa.find(text.as_bytes()) == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(patterns: &[&str], comm: &str) -> Vec<usize> {
        let numbered: Vec<_> = patterns.iter().copied().enumerate().collect();
        let dfas = compile(&numbered, &mut Budget::default()).unwrap();
        let found = dfas.iter().fold(0, |set, dfa| set | dfa.find(comm.as_bytes()));
        (0..patterns.len()).filter(|i| found >> i & 1 == 1).collect()
    }

    #[test]
    fn finds_what_may_follow() {
        for (pattern, begin, some) in [
            ("^/a/b", "", true),
            ("^/a/b", "/a", true),
            ("^/a/b", "/a/bc", true),
            ("^/a/b$", "/a/bc", false),
            ("^/a/b$", "/a/b", true),
            ("^/a/b", "/b", false),
            ("b", "/a", true),
        ] {
            let dfas = compile(&[(0, pattern)], &mut Budget::default()).unwrap();
            assert_eq!(dfas[0].finds_some(begin.as_bytes()), some, "{pattern} {begin}");
        }
    }

    #[test]
    fn searches_unless_anchored() {
        let patterns = ["^nr-gnb$", "gnb", "^gnb", "nr-", "upf|gnb$", "", "^$"];
        assert_eq!(find(&patterns, "nr-gnb"), [0, 1, 3, 4, 5]);
        assert_eq!(find(&patterns, "nr-gnb2"), [1, 3, 5]);
        assert_eq!(find(&patterns, "gnb"), [1, 2, 4, 5]);
        assert_eq!(find(&patterns, ""), [5, 6]);
    }

    #[test]
    fn byte_classes_words_and_case() {
        assert_eq!(find(&[r"\bupf\b", r"(?i)UPF", r"^\w+$", "[0-9]{2,}"], "my-upf 12"), [0, 1, 3]);
        assert_eq!(find(&["é", "^.{2}$"], "é"), [0, 1]);
        assert_eq!(find(&["^kworker/[0-9]+:"], "kworker/12:0"), [0]);
    }

    /// Compares the DFA with another implementation of the same semantics: a plain search with each
    /// pattern.
    #[test]
    fn agrees_with_a_search_for_each_pattern() {
        let patterns = ["a.*b", "^(ab|ba)+$", "b{2}", "[^a]a", "a?b?c", "^a|c$", r"a\b", "^.{15}$"];
        let comms = (0..3usize.pow(7)).map(|mut n| {
            let mut comm = String::new();
            while n > 0 {
                comm.push(b"abc"[n % 3] as char);
                n /= 3;
            }
            comm
        });
        let each: Vec<_> = patterns
            .iter()
            .map(|p| dense::Builder::new().syntax(regex_syntax_config()).build(p).unwrap())
            .collect();
        let numbered: Vec<_> = patterns.iter().copied().enumerate().collect();
        let dfas = compile(&numbered, &mut Budget::default()).unwrap();
        for comm in comms.chain(["aaaaaaaaaaaaaaa".to_string()]) {
            let found = dfas.iter().fold(0, |set, dfa| set | dfa.find(comm.as_bytes()));
            for (i, dfa) in each.iter().enumerate() {
                let input = regex_automata::Input::new(&comm);
                let expected = dfa.try_search_fwd(&input).unwrap().is_some();
                assert_eq!(found >> i & 1 == 1, expected, "{:?} in {comm:?}", patterns[i]);
            }
        }
    }

    #[test]
    fn patterns_that_blow_up_together_are_split() {
        let hard: Vec<String> = (0..12).map(|i| format!("{}.{{8}}x", (b'a' + i) as char)).collect();
        let hard: Vec<&str> = hard.iter().map(String::as_str).collect();
        let numbered: Vec<_> = hard.iter().copied().enumerate().collect();
        let dfas = compile(&numbered, &mut Budget::default()).unwrap();
        assert!(dfas.len() > 1);
        assert_eq!(find(&hard, "abc.......x"), [1]);
        assert_eq!(find(&hard, "bbbbbbbbbbx"), [1]);
    }

    #[test]
    fn nested_repetitions_do_not_eat_the_memory() {
        for pattern in ["a{1000}{1000}{1000}", "(a{1000}b?){900}{4}"] {
            let (index, why) =
                compile(&[(0, "a"), (1, pattern)], &mut Budget::default()).unwrap_err();
            assert_eq!(index, 1, "{why}");
        }
    }

    /// Each pattern alone is small enough, but hardly any two of them together are.
    #[test]
    fn patterns_are_not_split_without_end() {
        let hard: Vec<String> = ('A'..='Z').map(|c| format!("{c}.{{8}}x")).collect();
        let hard: Vec<(usize, &str)> = hard.iter().map(String::as_str).enumerate().collect();
        let mut budget = Budget { splits: 3, ..Budget::default() };
        assert_eq!(compile(&hard, &mut budget).unwrap_err().0, 0);
        assert_eq!(budget.splits, 0);
        assert!(compile(&hard[..4], &mut Budget::default()).is_ok_and(|dfas| dfas.len() > 1));
    }

    #[test]
    fn one_that_does_not_fit_the_tables_is_named() {
        let mut budget = Budget { states: 10, ..Budget::default() };
        assert!(compile(&[(0, "^abc$")], &mut budget).is_ok());
        assert_eq!(compile(&[(0, "^abc$"), (1, "^abcdefgh$")], &mut budget).unwrap_err().0, 1);
    }

    #[test]
    fn one_that_is_too_large_is_named() {
        let (index, why) =
            compile(&[(0, "a"), (1, "a.{14}b.{14}c.{14}"), (2, "b")], &mut Budget::default())
                .unwrap_err();
        assert_eq!(index, 1);
        assert!(!why.to_string().is_empty());
    }
}
