//! Which row of the BPF program's `rule_stats` belongs to which rule, and which row of `pod_stats` to
//! which pod. A rule keeps its row for as long as policies have a rule of its name, and a pod keeps its
//! row for as long as it exists. So counters only go up.

use std::collections::{BTreeMap, VecDeque};

/// The row of tasks without a rule or pod.
pub const NONE: u16 = 0;

/// The rows of a policy's rules, or of the node's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    of: BTreeMap<String, u16>,
    /// The other rows. A row that a rule gave up last comes last.
    free: VecDeque<u16>,
    added: Vec<u16>,
}

impl Rows {
    /// `rows` is the number of rows in the map, including [`NONE`].
    pub fn new(rows: usize) -> Self {
        let free = (NONE + 1..rows as u16).collect();
        Self { of: BTreeMap::new(), free, added: Vec::new() }
    }

    /// The rows of the next policy, whose rules have these names. No row is passed from a rule of
    /// this policy to another rule of the next: its tasks may still be running. If there are not
    /// enough rows, the last rules have none.
    pub fn next<'a>(&self, names: impl Iterator<Item = &'a str>) -> Self {
        let mut next = Self { of: BTreeMap::new(), free: self.free.clone(), added: Vec::new() };
        for name in names {
            let row = self.of.get(name).copied().or_else(|| {
                let row = next.free.pop_front();
                next.added.extend(row);
                row
            });
            next.of.extend(row.map(|row| (name.to_owned(), row)));
        }
        let gone = self.of.iter().filter(|(name, _)| !next.of.contains_key(*name));
        next.free.extend(gone.map(|(_, row)| *row));
        next
    }

    /// The rows of the rules or pods that are new. These rows have to be set to zero.
    pub fn added(&self) -> &[u16] {
        &self.added
    }

    /// The row of the rule or pod with this name.
    pub fn of(&self, name: &str) -> u16 {
        self.of.get(name).copied().unwrap_or(NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::layout::Limits;

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|rule| format!("rule {rule}")).collect()
    }

    fn next(rows: &Rows, names: &[String]) -> Rows {
        rows.next(names.iter().map(String::as_str))
    }

    #[test]
    fn a_rule_that_stays_keeps_its_row() {
        let before = next(&Rows::new(Limits::RULE_ROWS), &names(0..3));
        assert_eq!(before.added(), [1, 2, 3]);
        let after = next(&before, &names(1..4));
        assert_eq!(after.added(), [4]);
        assert_eq!(after.of("rule 2"), before.of("rule 2"));
        assert_eq!(after.of("rule 0"), NONE);
    }

    #[test]
    fn the_last_ones_have_none_where_there_are_not_enough() {
        let rows = next(&Rows::new(3), &names(0..4));
        assert_eq!(["rule 0", "rule 1", "rule 2"].map(|name| rows.of(name)), [1, 2, NONE]);
        // A row that becomes free is not used before the policy after the next.
        let rows = next(&rows, &names(1..4));
        assert_eq!(["rule 1", "rule 2"].map(|name| rows.of(name)), [2, NONE]);
        assert_eq!(next(&rows, &names(1..4)).of("rule 2"), 1);
    }

    #[test]
    fn no_row_goes_from_one_policy_to_a_rule_of_the_next() {
        let mut rows = next(&Rows::new(Limits::RULE_ROWS), &names(0..Limits::RULES));
        for round in 1..20 {
            let all = names(round * Limits::RULES..(round + 1) * Limits::RULES);
            let after = next(&rows, &all);
            assert_eq!(after.added().len(), Limits::RULES);
            assert!(rows.of.values().all(|row| !after.added().contains(row)), "{round}");
            assert!(after.of.values().all(|row| *row != NONE));
            rows = after;
        }
    }
}
