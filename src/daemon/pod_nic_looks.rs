//! When to look at the NICs of pods whose interrupts the policy places.
//!
//! The API reports each change of a pod, which gthctl follows at once. No event reports a device that
//! comes into the pod's network namespace, or a pod's first process.

use std::time::{Duration, Instant};

use super::live::{LivePolicy, PolicyContext};
use crate::policy::pod_nics::PodNic;

/// How soon to look again while something missing may still come. The wait doubles as long as
/// nothing changes.
const SOON: Duration = Duration::from_secs(1);

/// How often to look when nothing is missing: a pod's sandbox may have been recreated.
const LOOK: Duration = Duration::from_secs(30);

/// The next look.
#[derive(Default)]
pub struct PodNics {
    /// `None`: now.
    due: Option<Instant>,
    wait: Duration,
    /// What was known at the last look.
    known: Vec<PodNic>,
}

impl PodNics {
    /// Looks, when it is time to. Returns the time until the next look; `None` if the policy needs
    /// none.
    pub fn follow(
        &mut self,
        policy: &mut LivePolicy,
        context: &PolicyContext<'_>,
    ) -> Option<Duration> {
        if !policy.follows_pod_nics() {
            *self = Self::default();
            return None;
        }
        let now = Instant::now();
        let waits = self.due.filter(|&due| due > now && policy.pod_nics() == self.known);
        if let Some(due) = waits {
            return Some(due - now);
        }
        policy.follow_pod_nics(context);
        Some(self.plan(policy.pod_nics(), now))
    }

    /// The time until the next look, after one at `now`.
    fn plan(&mut self, found: &[PodNic], now: Instant) -> Duration {
        let may_come = found.iter().any(|nic| nic.may_come);
        self.wait = match (may_come, found == self.known) {
            (false, _) => LOOK,
            (true, true) => (self.wait * 2).clamp(SOON, LOOK),
            (true, false) => SOON,
        };
        self.known = found.to_vec();
        self.due = Some(now + self.wait);
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_and_more_seldom_until_something_changes() {
        let now = Instant::now();
        let nic = |devices: &[&str]| PodNic {
            devices: devices.iter().map(|&name| name.into()).collect(),
            may_come: devices.is_empty(),
            ..PodNic::default()
        };
        let mut looks = PodNics::default();
        let mut waits = |found: &[PodNic]| looks.plan(found, now).as_secs();
        let missing: Vec<u64> = (0..7).map(|_| waits(&[nic(&[])])).collect();
        assert_eq!(missing, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!((waits(&[nic(&["eth1"])]), waits(&[nic(&["eth1"])])), (30, 30));
        assert_eq!((waits(&[nic(&[])]), waits(&[nic(&[])])), (1, 2));
        assert_eq!(waits(&[nic(&[]), nic(&["eth1"])]), 1);
    }
}
