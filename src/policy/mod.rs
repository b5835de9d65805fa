//! Policies: which tasks are treated specially, and how.
//!
//! `file` reads a policy file into the types here. They say what the user
//! wrote; how the scheduler carries it out is decided elsewhere.

mod comm_dfa;
pub mod compile;
mod file;

pub use file::KEYS;

use std::path::Path;

use regex_automata::util::syntax;

use crate::cpulist::CpuList;
use crate::error::{Location, Result};

/// The most rules one policy may have.
pub const MAX_RULES: usize = 128;

/// An ordered list of rules, at most [`MAX_RULES`]; a task gets the first that it matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub rules: Vec<Rule>,
}

/// Conditions, all of which a task must meet, and what it gets then.
///
/// A parsed rule has at least one condition and one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As given, or `rule N` with N counting from 1; unique within the policy.
    pub name: String,
    /// Condition: searched (not anchored) in the thread's comm and in its
    /// process leader's comm. Valid under [`regex_syntax_config`].
    pub command_regex: Option<String>,
    /// Condition: the thread id, or the process id for every thread of it; 1 to 4194304.
    pub pid: Option<u32>,
    /// Effect: `None` leaves the task in fair sharing.
    pub priority: Option<Priority>,
    /// Effect: the slice in nanoseconds, 10,000 to 1,000,000,000.
    pub execution_time_ns: Option<u64>,
    /// Effect: where the task runs by preference, or only there when `exclusive`.
    pub cpus: Option<CpuList>,
    /// The CPUs are kept free of other tasks; set only where `cpus` is.
    pub exclusive: bool,
    /// Where in the file the rule begins.
    pub location: Location,
}

/// How strong a task is: 0 to [`Priority::MAX`], lower is stronger.
///
/// 0 to 9 preempt what is strictly weaker; 10 to 20 only get a better deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(u8);

impl Priority {
    /// What `priority: true` means.
    pub const STRONGEST: Priority = Priority(0);
    /// The weakest level.
    pub const MAX: u8 = 20;
    /// The weakest level that preempts.
    pub const MAX_PREEMPTING: u8 = 9;

    /// The priority at `level`, or `None` when that is above [`Priority::MAX`].
    pub fn new(level: u64) -> Option<Self> {
        u8::try_from(level).ok().filter(|&level| level <= Self::MAX).map(Self)
    }

    /// The level: 0 to [`Priority::MAX`], lower is stronger.
    pub fn level(self) -> u8 {
        self.0
    }

    /// True when a waking task of this priority preempts strictly weaker ones.
    pub fn preempts(self) -> bool {
        self.0 <= Self::MAX_PREEMPTING
    }
}

impl Policy {
    /// Reads a policy file. The second value holds notes for the user, one line each.
    ///
    /// Every error is of [`ExitCode::Usage`](crate::error::ExitCode::Usage) and says where.
    pub fn load(path: &Path) -> Result<(Policy, Vec<String>)> {
        file::load(path)
    }

    /// As [`Policy::load`] on `text`; `path` is only for messages.
    pub fn parse(text: &str, path: &Path) -> Result<(Policy, Vec<String>)> {
        file::parse(text, path)
    }
}

/// How `command_regex` is read: over bytes, as a comm need not be UTF-8.
///
/// Whatever compiles a rule's pattern must use it too, or patterns that were
/// accepted here would fail there.
pub fn regex_syntax_config() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}
