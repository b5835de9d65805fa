//! Which row of the BPF program's `rule_stats` counts for which rule. A rule keeps its row for as
//! long as policies have one with its name, so that its counters only go up.

use std::collections::{BTreeMap, VecDeque};

use super::layout::Limits;

/// The row of tasks without a rule.
pub const NO_RULE: u16 = 0;

/// The rows of a policy's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    of: BTreeMap<String, u16>,
    /// The others; those that a rule had last come last.
    free: VecDeque<u16>,
    added: Vec<u16>,
}

impl Default for Rows {
    fn default() -> Self {
        let free = (NO_RULE + 1..Limits::RULE_ROWS as u16).collect();
        Self { of: BTreeMap::new(), free, added: Vec::new() }
    }
}

impl Rows {
    /// Those of the next policy, whose rules have these names. No row goes from a rule of this
    /// policy to one of the next: its tasks may still be running.
    pub fn next<'a>(&self, names: impl Iterator<Item = &'a str>) -> Self {
        let mut next = Self { of: BTreeMap::new(), free: self.free.clone(), added: Vec::new() };
        for name in names {
            let row = self.of.get(name).copied().or_else(|| {
                let row = next.free.pop_front();
                next.added.extend(row);
                row
            });
            next.of.insert(name.to_owned(), row.expect("there are rows for two whole policies"));
        }
        let gone = self.of.iter().filter(|(name, _)| !next.of.contains_key(*name));
        next.free.extend(gone.map(|(_, row)| *row));
        next
    }

    /// The rows of rules that the last policy did not have. They are to begin at zero.
    pub fn added(&self) -> &[u16] {
        &self.added
    }

    /// The row of the rule with this name.
    pub fn of(&self, name: &str) -> u16 {
        self.of.get(name).copied().unwrap_or(NO_RULE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|rule| format!("rule {rule}")).collect()
    }

    fn next(rows: &Rows, names: &[String]) -> Rows {
        rows.next(names.iter().map(String::as_str))
    }

    #[test]
    fn a_rule_that_stays_keeps_its_row() {
        let before = next(&Rows::default(), &names(0..3));
        assert_eq!(before.added(), [1, 2, 3]);
        let after = next(&before, &names(1..4));
        assert_eq!(after.added(), [4]);
        assert_eq!(after.of("rule 2"), before.of("rule 2"));
        assert_eq!(after.of("rule 0"), NO_RULE);
    }

    #[test]
    fn no_row_goes_from_one_policy_to_a_rule_of_the_next() {
        let mut rows = next(&Rows::default(), &names(0..Limits::RULES));
        for round in 1..20 {
            let all = names(round * Limits::RULES..(round + 1) * Limits::RULES);
            let after = next(&rows, &all);
            assert_eq!(after.added().len(), Limits::RULES);
            assert!(rows.of.values().all(|row| !after.added().contains(row)), "{round}");
            assert!(after.of.values().all(|row| *row != NO_RULE));
            rows = after;
        }
    }
}
