//! The results, written to a file of JSON lines as they come.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
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
    /// How late cyclictest wakes up.
    WakeUp,
    /// The load's progress while priority and normal tasks wake up.
    Work,
    /// How late a priority task wakes up among many runnable normal ones.
    Crowd,
    /// How late many priority tasks wake up.
    Many,
    /// Two tasks that wake each other through pipes (perf bench sched pipe).
    Pipe,
    /// Groups of senders and receivers (hackbench).
    Hackbench,
    /// Short-lived programs, several at once, as in a build.
    Build,
    /// What a shell gets done while priority tasks spin.
    Usable,
    /// What each BPF program costs.
    Ops,
    /// What the choice of a CPU at a wake-up costs.
    Path,
}

/// A part of one measurement's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which part, if there are several.
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

/// The subject of a measurement; each has one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub measure: Measure,
    /// The load, the number of tasks or the number of CPUs.
    pub setting: String,
    pub candidate: String,
    /// Which virtual machine, from 1.
    pub boot: usize,
    /// Which start of the data plane's processes in it, from 1.
    pub restart: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub key: Key,
    pub parts: Vec<Part>,
    pub error: Option<String>,
}

impl Record {
    pub fn of(key: Key, measured: Result<Vec<Part>>) -> Self {
        match measured {
            Ok(parts) => Self { key, parts, error: None },
            Err(error) => {
                eprintln!("bench: {}: {error:#}", key.candidate);
                Self { key, parts: Vec::new(), error: Some(format!("{error:#}")) }
            }
        }
    }
}

/// The settings of a measure, in the order of their first record.
pub fn settings(records: &[Record], measure: Measure) -> Vec<&str> {
    let of = records.iter().filter(|record| record.key.measure == measure);
    distinct(of.map(|record| record.key.setting.as_str()))
}

/// Each value once, in order of first occurrence.
pub fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// Reads a file of records. Its last line may be cut off by the end of the VM that wrote it.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let records = whole.lines().map(serde_json::from_str);
    records.collect::<Result<_, _>>().with_context(|| format!("{}: no record", path.display()))
}

/// A new file of records.
pub struct Log(File);

impl Log {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path);
        Ok(Self(file.with_context(|| format!("cannot write {}", path.display()))?))
    }

    /// Adds a record and syncs it.
    pub fn add(&mut self, record: &Record) -> Result<()> {
        self.0.write_all(format!("{}\n", serde_json::to_string(record)?).as_bytes())?;
        Ok(self.0.sync_data()?)
    }
}

#[cfg(test)]
impl Record {
    /// Round trips of boot 1, for tests.
    pub fn of_round_trips(setting: &str, candidate: &str, restart: usize, ms: &[f64]) -> Self {
        let key = Key {
            measure: Measure::Rtt,
            setting: setting.into(),
            candidate: candidate.into(),
            boot: 1,
            restart,
        };
        let part = Part { samples: ms.into(), ..Part::default() };
        Self { key, parts: vec![part], error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_is_left_out() {
        let path = std::env::temp_dir().join(format!("records-{}", std::process::id()));
        let key = |restart| Key {
            measure: Measure::WakeUp,
            setting: "2x".into(),
            candidate: "EEVDF".into(),
            boot: 1,
            restart,
        };
        let mut log = Log::create(&path).unwrap();
        for restart in [1, 2] {
            log.add(&Record { key: key(restart), parts: vec![], error: None }).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let restarts: Vec<usize> = read(&path).unwrap().iter().map(|r| r.key.restart).collect();
        fs::remove_file(&path).unwrap();
        assert_eq!(restarts, [1]);
    }
}
