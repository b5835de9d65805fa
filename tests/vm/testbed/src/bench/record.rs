//! What was measured, kept in a file of JSON lines as it comes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Round trips of ping through the tunnel.
    Rtt,
    /// TCP through the tunnel.
    Throughput,
    /// How late cyclictest wakes up; and what the load gets done meanwhile.
    WakeUp,
    /// The same of a priority task among many runnable normal ones.
    Crowd,
    /// The same of many priority tasks.
    Many,
    /// Two tasks that wake each other through pipes (perf bench sched pipe).
    Pipe,
    /// Groups of senders and receivers (hackbench).
    Hackbench,
    /// Short-lived programs, several at once, as of a build.
    Build,
    /// What a shell gets done while priority tasks spin.
    Usable,
    /// What each BPF program costs.
    Ops,
}

/// A part of what one measurement told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which, where there are several.
    pub part: String,
    /// Numbers by name.
    pub values: BTreeMap<String, f64>,
    /// Samples: ms for [`Measure::Rtt`], else ns.
    pub samples: Vec<f64>,
}

impl Part {
    pub fn of(values: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { values, ..Self::default() }
    }
}

/// What a measurement is of; each has one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub measure: Measure,
    /// The load or the size.
    pub setting: String,
    pub candidate: String,
    pub round: usize,
    /// Of that round, from 1 (see [`super::plan::TURNS`]).
    pub turn: usize,
}

impl Key {
    /// Another round or turn of the same, or the same.
    pub fn is_round_of(&self, other: &Self) -> bool {
        self.measure == other.measure
            && self.setting == other.setting
            && self.candidate == other.candidate
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub key: Key,
    pub parts: Vec<Part>,
    pub error: Option<String>,
    /// The share of its time for which the VM waited for the host's CPUs; unknown: `None`.
    pub waited_percent: Option<f64>,
}

/// Reads a file of records; one that is not there has none.
///
/// Its last line may be cut, by the end of the VM that wrote it.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = match fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let records = whole.lines().filter(|line| !line.is_empty()).map(serde_json::from_str);
    records.collect::<Result<_, _>>().with_context(|| format!("{}: no record", path.display()))
}

/// The file, open for more.
pub struct Log(File);

impl Log {
    /// Begins a line of its own, whatever the last one was. The records are those there.
    pub fn open(path: &Path) -> Result<(Self, Vec<Record>)> {
        let kept = read(path)?;
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(path);
        let mut log = Self(file.with_context(|| format!("cannot write {}", path.display()))?);
        kept.iter().try_for_each(|record| log.add(record))?;
        Ok((log, kept))
    }

    /// Adds a record for good.
    pub fn add(&mut self, record: &Record) -> Result<()> {
        self.0.write_all(format!("{}\n", serde_json::to_string(record)?).as_bytes())?;
        Ok(self.0.sync_data()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_is_left_out_and_overwritten() {
        let path = std::env::temp_dir().join(format!("records-{}", std::process::id()));
        let key = |round| Key {
            measure: Measure::WakeUp,
            setting: "2x".into(),
            candidate: "EEVDF".into(),
            round,
            turn: 1,
        };
        let record =
            |round| Record { key: key(round), parts: vec![], error: None, waited_percent: None };
        let line = serde_json::to_string(&record(1)).unwrap();
        fs::write(&path, format!("{line}\n{}", &line[..20])).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        Log::open(&path).unwrap().0.add(&record(2)).unwrap();
        let rounds: Vec<usize> = read(&path).unwrap().iter().map(|r| r.key.round).collect();
        fs::remove_file(&path).unwrap();
        assert_eq!(rounds, [1, 2]);
        assert!(read(&path).unwrap().is_empty());
    }
}
