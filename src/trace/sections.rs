//! What a trace shows besides its table of tasks: drops, tunnels, latencies, plots.

use serde::Serialize;

use super::attach::{Extras, Tracer};
use super::drops::Drops;
use super::latency::Latencies;
use super::rows::Row;
use super::teids::Teids;
use super::time_plots;
use crate::base::error::Result;
use crate::gtp::Function;

/// One section, in each form of output. `lines` are without line ends, `json` has them.
#[derive(Debug, Default)]
pub struct Section {
    pub table: Vec<String>,
    pub lines: Vec<String>,
    pub json: Vec<String>,
}

/// The sections that were requested.
pub struct Sections {
    drops: Option<Drops>,
    teids: Option<Teids>,
    latencies: Option<Latencies>,
    times: bool,
}

/// An interval's data for the sections.
pub struct Interval<'a> {
    pub tracer: &'a Tracer,
    pub functions: &'a [Function],
    pub rows: &'a [Row],
    pub seconds: f64,
    /// The CPUs to show.
    pub is_wanted: &'a dyn Fn(usize) -> bool,
}

impl Sections {
    pub fn new(extras: Extras, module: Option<&'static str>, tracer: &Tracer) -> Result<Self> {
        Ok(Self {
            drops: extras.drops.then(|| Drops::new(module)),
            teids: extras.teids.then(Teids::default),
            latencies: extras.latency.then(|| Latencies::new(tracer)).transpose()?,
            times: extras.histogram,
        })
    }

    /// The packets counted so far will not be in any rate.
    pub fn begin(&mut self, now: &Interval<'_>) -> Result<()> {
        if let Some(drops) = &mut self.drops {
            drops.begin(now)?;
        }
        if let Some(teids) = &mut self.teids {
            teids.begin(now)?;
        }
        Ok(())
    }

    /// The sections for the time since the last call.
    pub fn take(&mut self, now: &Interval<'_>) -> Result<Vec<Section>> {
        let Interval { tracer, functions, rows, is_wanted, .. } = *now;
        let mut sections = Vec::new();
        if let Some(drops) = &mut self.drops {
            sections.push(drops.section(now)?);
        }
        if let Some(teids) = &mut self.teids {
            sections.push(teids.section(now)?);
        }
        if let Some(latencies) = &mut self.latencies {
            sections.push(latencies.section(tracer, functions, is_wanted)?);
        }
        if self.times {
            sections.push(time_plots::section(rows)?);
        }
        Ok(sections)
    }

    /// Called when a module was loaded: its functions are elsewhere now.
    pub fn forget_places(&mut self, now: &Interval<'_>) -> Result<()> {
        self.drops.as_mut().map_or(Ok(()), |drops| drops.forget_places(now))
    }
}

/// An object with its `kind` in front.
pub fn json_line(kind: &str, value: &impl Serialize) -> Result<String> {
    #[derive(Serialize)]
    struct Line<'a, T> {
        kind: &'a str,
        #[serde(flatten)]
        value: &'a T,
    }
    crate::base::output::json_line(&Line { kind, value })
}
