//! The messages that a trace writes besides its counts: on standard error, or under the table if the
//! table is redrawn in place on the same terminal and would erase them.

use std::collections::VecDeque;
use std::io::{IsTerminal, stderr};

use crate::base::log;

/// How many of the latest messages stay under the table.
const KEPT: usize = 6;

/// The messages of one trace.
pub struct Messages {
    /// `None` if no table is redrawn.
    last: Option<VecDeque<String>>,
    /// The table would erase the messages on standard error.
    is_erased: bool,
}

impl Messages {
    /// `in_place` says whether a table is redrawn.
    pub fn new(in_place: bool) -> Self {
        Self { last: in_place.then(VecDeque::new), is_erased: false }
    }

    /// The first table is about to be drawn.
    pub fn begin_to_draw(&mut self) {
        self.is_erased = stderr().is_terminal();
    }

    /// What the trace does or sees, as [`log::info`].
    pub fn info(&mut self, what: impl ToString) {
        self.say(what.to_string(), |what| log::info(what));
    }

    /// What the user should know, as [`log::note`].
    pub fn note(&mut self, what: impl ToString) {
        self.say(what.to_string(), |what| log::note(what));
    }

    /// The latest messages, the newest first, to show under the table.
    pub fn last(&self) -> impl Iterator<Item = String> {
        self.last.iter().flat_map(|last| last.iter().rev()).cloned()
    }

    fn say(&mut self, what: String, log: impl FnOnce(&str)) {
        if !self.is_erased {
            log(&what);
        }
        let Some(last) = &mut self.last else { return };
        last.retain(|known| *known != what);
        last.push_back(what);
        if last.len() > KEPT {
            last.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_each_once() {
        let mut messages = Messages::new(true);
        for n in [0, 1, 2, 3, 4, 5, 6, 2] {
            messages.info(n);
        }
        let last: Vec<String> = messages.last().collect();
        assert_eq!(last, ["2", "6", "5", "4", "3", "1"]);
        assert_eq!(Messages::new(false).last().count(), 0);
    }
}
