//! How long the VM's CPUs waited for a CPU of the host (tests/vm/host-wait).
//!
//! To its guest, a virtual CPU that is not running looks like a slow one. A row measured while the
//! host was busy says little about its scheduler.

use std::fs;

/// Written by the host, several times a second.
const FILE: &str = "/run/vm/host";

/// Time of all virtual CPUs together, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    ran: u64,
    waited: u64,
}

impl Usage {
    /// Since the VM's start; `None` if the host does not say.
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string(FILE).ok()?)
    }

    /// The increase while `work` runs; `None` if the host does not say.
    pub fn during<T>(work: impl FnOnce() -> T) -> (T, Option<Self>) {
        let before = Self::now();
        let done = work();
        let usage = before.zip(Self::now()).map(|(before, after)| after.since(before));
        (done, usage)
    }

    fn parse(text: &str) -> Option<Self> {
        let (ran, waited) = text.trim().split_once(' ')?;
        Some(Self { ran: ran.parse().ok()?, waited: waited.parse().ok()? })
    }

    /// The increase since `earlier`.
    fn since(self, earlier: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    pub fn plus(self, other: Self) -> Self {
        Self { ran: self.ran + other.ran, waited: self.waited + other.waited }
    }

    /// The share of the time for which the CPUs wanted to run but could not.
    pub fn waited_percent(self) -> Option<f64> {
        let wanted = self.ran + self.waited;
        (wanted > 0).then(|| self.waited as f64 * 100.0 / wanted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_span() {
        let start = Usage::parse("100 50\n").unwrap();
        let span = Usage::parse("400 150\n").unwrap().since(start);
        assert_eq!(span.waited_percent(), Some(25.0));
        assert_eq!(span.plus(span).waited_percent(), Some(25.0));
        assert_eq!(Usage::default().waited_percent(), None);
        assert_eq!(Usage::parse(""), None);
    }
}
