//! When a trace shows its counts, and when it ends.

use std::time::{Duration, Instant};

pub struct Pace {
    began: Instant,
    shown: Instant,
    interval: Duration,
    end: Option<Instant>,
    once: bool,
}

impl Pace {
    /// The counts are shown every `interval` from `began` on, for `duration` if there is one. With
    /// `once`, the trace ends after one interval.
    pub fn new(began: Instant, interval: Duration, duration: Option<Duration>, once: bool) -> Self {
        Self { began, shown: began, interval, end: duration.map(|all| began + all), once }
    }

    fn next(&self) -> Instant {
        let next = self.shown + self.interval;
        self.end.map_or(next, |end| end.min(next))
    }

    /// The time until the counts are shown next, at most `most`.
    pub fn left(&self, most: Duration) -> Duration {
        self.next().saturating_duration_since(Instant::now()).min(most)
    }

    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next()
    }

    /// Called when the counts are shown. Returns the time since they were last shown.
    pub fn show(&mut self) -> Duration {
        let since = self.shown.elapsed();
        self.shown = Instant::now();
        since
    }

    /// Whether the trace is over, so that the counts are not shown again.
    pub fn is_over(&self) -> bool {
        self.once || self.end.is_some_and(|end| self.shown >= end)
    }

    /// The time since the trace began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn an_interval_ends_with_the_trace() {
        let mut pace = Pace::new(Instant::now(), LONG, Some(Duration::from_millis(1)), false);
        assert!(!pace.is_over());
        std::thread::sleep(Duration::from_millis(1));
        assert!(pace.is_due());
        assert_eq!(pace.left(LONG), Duration::ZERO);
        pace.show();
        assert!(pace.is_over());
    }

    #[test]
    fn without_an_end_it_goes_on_unless_once_is_enough() {
        let mut pace = Pace::new(Instant::now(), Duration::ZERO, None, false);
        assert!(pace.is_due());
        pace.show();
        assert!(!pace.is_over());
        let once = Pace::new(Instant::now(), LONG, None, true);
        assert!(!once.is_due() && once.is_over());
        assert_eq!(once.left(Duration::from_secs(1)), Duration::from_secs(1));
    }
}
