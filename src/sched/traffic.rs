//! The numbers that BPF has for a policy's traffic conditions and for the functions whose
//! calls these count, and the tasks that BPF has marked by them.

use std::collections::BTreeMap;

use crate::gtp::Module;
use crate::kernel::comm;
use crate::kernel::skeletons::scheduler::types::{gth_limit, gth_mark_report};
use crate::policy::compile::TrafficCondition;

const MARKS: u32 = gth_limit::GTH_NR_MARKS.0;
const FUNCTIONS: u32 = gth_limit::GTH_MAX_FUNCTIONS.0;

/// What marks a task besides the functions of modules: a marked task that woke it up to hand a
/// packet on, and the functions of sockets.
const OTHERS: [(gth_limit, &str); 5] = [
    (gth_limit::GTH_BY_WAKEUP, "wake-up"),
    (gth_limit::GTH_BY_UDP_RECVMSG, "udp_recvmsg"),
    (gth_limit::GTH_BY_UDPV6_RECVMSG, "udpv6_recvmsg"),
    (gth_limit::GTH_BY_UDP_SENDMSG, "udp_sendmsg"),
    (gth_limit::GTH_BY_UDPV6_SENDMSG, "udpv6_sendmsg"),
];

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traced {
    pub module: Module,
    pub symbol: String,
}

/// One traffic condition's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionNumbers {
    pub id: u32,
    /// The index of this condition's mark among a task's marks.
    pub mark: u32,
    /// One bit per function.
    pub functions: u64,
}

/// The numbers of all traffic conditions of one policy, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    known: Vec<TrafficCondition>,
    pub conditions: Vec<ConditionNumbers>,
    /// Each function to trace, with its number.
    pub functions: BTreeMap<Traced, u32>,
    last_id: u32,
}

impl Numbers {
    /// The numbers for the next policy. A condition or function that stays keeps its number. No
    /// number of this policy is reused for another: for a moment BPF reads both policies, and this
    /// policy's programs are still attached.
    pub fn next(&self, conditions: &[TrafficCondition]) -> Self {
        let mut next =
            Self { known: conditions.to_vec(), last_id: self.last_id, ..Self::default() };
        for function in conditions.iter().flat_map(traced) {
            if next.functions.contains_key(&function) {
                continue;
            }
            let kept = self.functions.get(&function).copied();
            let taken = |number: &u32| {
                let mut taken = self.functions.values().chain(next.functions.values());
                taken.any(|other| other == number)
            };
            let number = kept.or_else(|| (0..FUNCTIONS).find(|number| !taken(number)));
            next.functions.insert(function, number.expect("a policy has at most half of them"));
        }
        let kept: Vec<Option<ConditionNumbers>> =
            conditions.iter().map(|condition| self.of(condition)).collect();
        for (condition, kept) in conditions.iter().zip(&kept) {
            let numbers = kept.unwrap_or_else(|| {
                next.last_id += 1;
                let taken = |mark: &u32| {
                    self.conditions
                        .iter()
                        .chain(&next.conditions)
                        .any(|numbers| numbers.mark == *mark)
                };
                let mark = (0..MARKS).find(|mark| !taken(mark));
                let mark = mark.expect("a policy has at most half of them");
                ConditionNumbers { id: next.last_id, mark, functions: 0 }
            });
            let bits = traced(condition).map(|function| 1 << next.functions[&function]);
            let functions = bits.fold(0, |set: u64, bit: u64| set | bit);
            next.conditions.push(ConditionNumbers { functions, ..numbers });
        }
        next
    }

    fn of(&self, condition: &TrafficCondition) -> Option<ConditionNumbers> {
        self.known.iter().position(|known| known.is_same(condition)).map(|i| self.conditions[i])
    }

    /// The marks that the next policy starts to use.
    pub fn new_marks<'a>(&'a self, next: &'a Numbers) -> impl Iterator<Item = usize> + 'a {
        let is_new = |condition: &&ConditionNumbers| {
            !self.conditions.iter().any(|old| old.id == condition.id)
        };
        next.conditions.iter().filter(is_new).map(|condition| condition.mark as usize)
    }

    /// The UDP ports of the conditions, with duplicates.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.known.iter().filter_map(|condition| condition.plane.port())
    }

    /// Where a packet was seen; empty if that is no longer known.
    fn seen_by(&self, number: u32) -> &str {
        if let Some((_, name)) = OTHERS.iter().find(|(other, _)| other.0 == number) {
            return name;
        }
        let function = self.functions.iter().find(|(_, other)| **other == number);
        function.map_or("", |(function, _)| &function.symbol)
    }
}

/// The functions of a condition.
fn traced(condition: &TrafficCondition) -> impl Iterator<Item = Traced> {
    condition.traced().map(|(module, symbol)| Traced { module, symbol: symbol.clone() })
}

/// What a traffic condition knows about a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub tid: u32,
    pub tgid: u32,
    pub comm: String,
    /// The traffic condition's index in the policy.
    pub condition: usize,
    /// Packets in the current second, and when this second began. All times here are in ns of
    /// CLOCK_MONOTONIC.
    pub in_window: u32,
    pub window_began: u64,
    /// Set while the thread is marked.
    pub marked: Option<Marked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub since: u64,
    pub until: u64,
    pub packets: u64,
    /// Where its packets were seen, or `wake-up`: a marked task handed them on.
    pub function: String,
}

/// The records of the iterator report_mark.
pub(super) fn read(bytes: &[u8], numbers: &Numbers) -> Vec<Mark> {
    let records = bytes.chunks_exact(size_of::<gth_mark_report>());
    let mark = |record: &[u8]| {
        // SAFETY: the iterator writes whole records, all integers, not aligned.
        let report = unsafe { record.as_ptr().cast::<gth_mark_report>().read_unaligned() };
        let condition = numbers
            .conditions
            .iter()
            .position(|condition| condition.id == report.mark.condition)?;
        Some(Mark {
            tid: report.tid,
            tgid: report.tgid,
            comm: comm::text(&report.comm),
            condition,
            in_window: report.mark.in_window,
            window_began: report.mark.window_began,
            marked: (report.mark.until != 0).then(|| Marked {
                since: report.mark.since,
                until: report.mark.until,
                packets: report.mark.packets,
                function: numbers.seen_by(report.mark.function).to_owned(),
            }),
        })
    };
    records.filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::Plane;

    fn condition(min_packets: u32, functions: &[&str]) -> TrafficCondition {
        TrafficCondition {
            plane: Plane::Module(Module::Gtp),
            functions: functions.iter().map(|&f| f.into()).collect(),
            min_packets,
            hold_ns: 1,
            max_tasks: 1,
            woken: false,
            rules: 1,
        }
    }

    #[test]
    fn a_condition_keeps_its_numbers_over_reloads() {
        let first = Numbers::default().next(&[condition(1, &["a", "b"]), condition(2, &["b"])]);
        let ids = |numbers: &Numbers| -> Vec<(u32, u32, u64)> {
            numbers.conditions.iter().map(|g| (g.id, g.mark, g.functions)).collect()
        };
        assert_eq!(ids(&first), [(1, 0, 0b11), (2, 1, 0b10)]);
        // In another order, for other rules, beside a new one.
        let moved = TrafficCondition { rules: 0b110, ..condition(2, &["b"]) };
        let second = first.next(&[condition(3, &["c"]), moved]);
        assert_eq!(ids(&second), [(3, 2, 0b100), (2, 1, 0b10)]);
        assert_eq!(first.new_marks(&second).collect::<Vec<_>>(), [2]);
        // A condition that was gone gets a new number.
        let third = second.next(&[condition(1, &["a", "b"])]);
        assert_eq!(ids(&third), [(4, 0, 0b11)]);
        assert_eq!(third.next(&[]).conditions, []);
    }

    #[test]
    fn what_is_still_attached_is_not_taken_for_something_new() {
        let first = Numbers::default().next(&[condition(1, &["a"])]);
        let second = first.next(&[condition(1, &["b"])]);
        assert_ne!(first.conditions[0].mark, second.conditions[0].mark);
        assert_eq!(first.conditions[0].functions & second.conditions[0].functions, 0);
        // One full policy after another.
        let full = |from: u32| -> Vec<TrafficCondition> {
            let names: Vec<String> = (0..32).map(|i| format!("f{}", from + i)).collect();
            let parts = names.chunks(4).map(|part| part.iter().map(String::as_str).collect());
            parts.enumerate().map(|(i, part): (_, Vec<&str>)| condition(i as u32, &part)).collect()
        };
        let mut numbers = Numbers::default();
        for from in [0, 100, 200, 0] {
            let next = numbers.next(&full(from));
            let functions =
                |numbers: &Numbers| numbers.conditions.iter().fold(0, |f, g| f | g.functions);
            assert_eq!(functions(&next).count_ones(), 32);
            assert_eq!(functions(&next) & functions(&numbers), 0);
            numbers = next;
        }
    }
}
