//! `gthctl doctor`.

use crate::base::error::{Error, Result};
use crate::base::finding::table_of;
use crate::base::output::{self, count};
use crate::cli::DoctorArgs;
use crate::doctor::{self, features};
use crate::irq::host::Host;

/// Prints what the checks find; fails if they find an error.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let report = doctor::examine(&Host::this(), args.config.as_deref());
    output::print(args.output.format, &report, |report| table_of(&report.findings))?;
    if let Some(file) = &args.nfd {
        features::write(file, &report.features)?;
    }
    match report.counts.errors {
        0 => Ok(()),
        errors => {
            let what = format!("{} found", count(errors, "error"));
            Err(Error::failure(what).help("gthctl run does not work until they are fixed"))
        }
    }
}
