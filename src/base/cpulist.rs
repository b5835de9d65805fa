//! Sets of CPU numbers, written as the kernel writes them.
//!
//! The format is the kernel's cpulist (`Documentation/admin-guide/
//! kernel-parameters.rst`, "cpu lists"; `bitmap_parselist()`), as found in
//! `/sys/devices/system/cpu/online` or `taskset -c`: numbers, ranges `N-M`, and partly
//! used ranges, `N-M:used/group`, separated by commas. The kernel also reads `all`, and
//! `N` for the last CPU; they depend on the machine and are not accepted here.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of CPU numbers, each below [`CpuList::MAX`].
///
/// `Display` writes the canonical form: ascending, runs joined (`0-3,8,10-11`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// CPU numbers go from 0 to `MAX - 1`.
    pub const MAX: u32 = 1024;

    /// True when no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// True when some CPU is in both sets.
    pub fn meets(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// The CPUs that are also in `other`.
    pub fn common(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// The CPUs that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// The CPU numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuList {
    /// Panics when a number is not below [`CpuList::MAX`]: a bug in the caller,
    /// never the outcome of parsing.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let cpus: BTreeSet<u32> = cpus.into_iter().collect();
        assert!(cpus.last().is_none_or(|&cpu| cpu < Self::MAX));
        Self(cpus)
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuList {
    /// Reads the serialized form: a list, or nothing for no CPU.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.is_empty() {
            true => Ok(Self::default()),
            false => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Why a text is not a cpulist, and which part is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCpuList {
    part: String,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    NoNumber,
    TooLarge,
    Backwards { first: u32, last: u32 },
    Stride,
}

impl fmt::Display for BadCpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: ", self.part)?;
        match self.flaw {
            Flaw::NoNumber => {
                f.write_str("expected a CPU number or a range, such as 8, 0-3 or 0-31:2/4")
            }
            Flaw::TooLarge => write!(f, "CPU numbers go from 0 to {}", CpuList::MAX - 1),
            Flaw::Backwards { first, last } => {
                write!(f, "the range runs backwards; write {last}-{first}")
            }
            Flaw::Stride => f.write_str("after ':' expected USED/GROUP with 1 <= USED <= GROUP"),
        }
    }
}

impl std::error::Error for BadCpuList {}

impl FromStr for CpuList {
    type Err = BadCpuList;

    /// Parses a cpulist. An empty list is an error, as is a number of
    /// [`CpuList::MAX`] or more; the message says which part is wrong.
    fn from_str(text: &str) -> Result<Self, BadCpuList> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            add_part(part.trim_matches([' ', '\t', '\n']), &mut cpus)?;
        }
        Ok(Self(cpus))
    }
}

/// Adds one comma-separated part of a list: `N`, `N-M` or `N-M:used/group`.
///
/// Takes the first `used` of each `group` consecutive CPUs of the range.
fn add_part(part: &str, cpus: &mut BTreeSet<u32>) -> Result<(), BadCpuList> {
    let bad = |flaw| Err(BadCpuList { part: part.chars().take(32).collect(), flaw });
    let (range, stride) = match part.split_once(':') {
        None => (part, None),
        Some((range, stride)) => (range, Some(stride)),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return bad(Flaw::NoNumber);
    };
    if first >= CpuList::MAX || last >= CpuList::MAX {
        return bad(Flaw::TooLarge);
    }
    if first > last {
        return bad(Flaw::Backwards { first, last });
    }
    let (used, group) = match stride.map(|s| s.split_once('/').unwrap_or((s, ""))) {
        None => (1, 1),
        Some((used, group)) => match (number(used), number(group)) {
            (Some(used), Some(group)) if 1 <= used && used <= group => (used, group),
            _ => return bad(Flaw::Stride),
        },
    };
    cpus.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
    Ok(())
}

/// A decimal number without a sign.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<CpuList>().map_or_else(|e| e.to_string(), |cpus| cpus.to_string())
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        for text in ["0", "5", "0-3", "0-3,8,10-11", "1023"] {
            assert_eq!(canonical(text), text);
        }
        assert_eq!(canonical(" 3, 1 ,2\n"), "1-3");
        assert_eq!(canonical("0-1,1-2,007"), "0-2,7");
    }

    #[test]
    fn takes_part_of_a_range() {
        assert_eq!(canonical("0-15:2/4"), "0-1,4-5,8-9,12-13");
        assert_eq!(canonical("1-6:1/2"), "1,3,5");
        assert_eq!(canonical("0-3:9/9"), "0-3");
    }

    #[test]
    fn says_what_is_wrong() {
        let form = "expected a CPU number or a range, such as 8, 0-3 or 0-31:2/4";
        for bad in ["", "x", "-1", "1-", "+1", "1--2", "0x1", "1.5", "99999999999"] {
            assert_eq!(canonical(bad), format!("{bad:?}: {form}"));
        }
        assert_eq!(canonical("1,,2"), format!("\"\": {form}"));
        assert_eq!(canonical("1024"), "\"1024\": CPU numbers go from 0 to 1023");
        assert_eq!(canonical("3-1"), "\"3-1\": the range runs backwards; write 1-3");
        for bad in ["0-3:", "0-3:2", "0-3:0/2", "0-3:3/2", "0-3:1/0"] {
            let why = "after ':' expected USED/GROUP with 1 <= USED <= GROUP";
            assert_eq!(canonical(bad), format!("{bad:?}: {why}"));
        }
    }

    #[test]
    fn serialized_and_back() {
        for text in ["", "0-3,8"] {
            let json = format!("{text:?}");
            let cpus: CpuList = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&cpus).unwrap(), json);
        }
        assert!(serde_json::from_str::<CpuList>("\"x\"").is_err());
    }

    #[test]
    fn is_a_set() {
        let cpus: CpuList = "1,3".parse().unwrap();
        assert!(cpus.contains(1) && !cpus.contains(2));
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [1, 3]);
        assert_eq!((cpus.len(), cpus.is_empty()), (2, false));
        let other = "2-3".parse().unwrap();
        assert_eq!(
            [cpus.common(&other), cpus.without(&other)].map(|cpus| cpus.to_string()),
            ["3", "1"]
        );
        assert!(CpuList::default().is_empty());
        assert_eq!([4, 2, 3].into_iter().collect::<CpuList>().to_string(), "2-4");
    }
}
