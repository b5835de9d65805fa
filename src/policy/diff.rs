//! What changes from one policy to another.

use serde::{Deserialize, Serialize};

use super::{Policy, Rule};

/// How a rule differs from the previous policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
    /// The same, with another place in the order or another name.
    Moved,
    Kept,
}

/// One rule's change: its index before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: ChangeKind,
    pub before: Option<usize>,
    pub after: Option<usize>,
}

/// The changes, in the order of the new policy; removed rules come last.
///
/// Pairs rules with the same content first, then rules with the same name.
pub fn changes(before: &Policy, after: &Policy) -> Vec<Change> {
    let same_content = |a: &Rule, b: &Rule| a.conditions == b.conditions && a.effects == b.effects;
    let same_name = |a: &Rule, b: &Rule| a.name == b.name;
    let mut partner: Vec<Option<usize>> = vec![None; after.rules.len()];
    let mut free: Vec<bool> = vec![true; before.rules.len()];
    let both = |a: &Rule, b: &Rule| same_name(a, b) && same_content(a, b);
    for belongs in [&both as &dyn Fn(&Rule, &Rule) -> bool, &same_content, &same_name] {
        for (new, rule) in after.rules.iter().enumerate() {
            if partner[new].is_none() {
                let old = (0..free.len()).find(|&i| free[i] && belongs(&before.rules[i], rule));
                old.inspect(|&i| free[i] = false);
                partner[new] = old;
            }
        }
    }
    let mut passed = 0;
    let mut changes: Vec<Change> = Vec::new();
    for (new, rule) in after.rules.iter().enumerate() {
        let kind = match partner[new] {
            None => ChangeKind::Added,
            Some(old) => {
                let in_order = old >= passed;
                passed = passed.max(old + 1);
                let old = &before.rules[old];
                match (same_content(old, rule), in_order && same_name(old, rule)) {
                    (false, _) => ChangeKind::Changed,
                    (true, false) => ChangeKind::Moved,
                    (true, true) => ChangeKind::Kept,
                }
            }
        };
        changes.push(Change { kind, before: partner[new], after: Some(new) });
    }
    let gone = (0..free.len()).filter(|&old| free[old]);
    changes.extend(gone.map(|old| Change {
        kind: ChangeKind::Removed,
        before: Some(old),
        after: None,
    }));
    changes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn diff(before: &str, after: &str) -> Vec<(ChangeKind, Option<usize>, Option<usize>)> {
        let policy = |rules: &str| {
            Policy::parse(&format!("strategies: [{rules}]"), Path::new("p.yaml")).unwrap().0
        };
        let changes = changes(&policy(before), &policy(after));
        changes.into_iter().map(|c| (c.kind, c.before, c.after)).collect()
    }

    #[test]
    fn nothing() {
        let same = "{name: a, pid: 1, priority: 1}, {pid: 2, cpus: 1}";
        let kept = |i| (ChangeKind::Kept, Some(i), Some(i));
        assert_eq!(diff(same, same), [kept(0), kept(1)]);
        assert_eq!(diff("", ""), []);
    }

    #[test]
    fn added_removed_changed() {
        assert_eq!(
            diff(
                "{name: a, pid: 1, priority: 1}, {name: b, pid: 2, priority: 1}",
                "{name: a, pid: 1, priority: 2}, {name: c, pid: 3, priority: 1}"
            ),
            [
                (ChangeKind::Changed, Some(0), Some(0)),
                (ChangeKind::Added, None, Some(1)),
                (ChangeKind::Removed, Some(1), None),
            ]
        );
    }

    #[test]
    fn a_rule_in_front_moves_those_without_a_name() {
        assert_eq!(
            diff("{pid: 1, priority: 1}", "{pid: 9, priority: 1}, {pid: 1, priority: 1}"),
            [(ChangeKind::Added, None, Some(0)), (ChangeKind::Moved, Some(0), Some(1))]
        );
    }

    #[test]
    fn another_order() {
        assert_eq!(
            diff(
                "{name: a, pid: 1, priority: 1}, {name: b, pid: 2, priority: 1}",
                "{name: b, pid: 2, priority: 1}, {name: a, pid: 1, priority: 1}"
            ),
            [(ChangeKind::Kept, Some(1), Some(0)), (ChangeKind::Moved, Some(0), Some(1))]
        );
    }
}
