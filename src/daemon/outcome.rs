//! Why a scheduler has ended, and whether that is an error.

use crate::base::error::{Error, Result};
use crate::base::log;
use crate::sched::exit::{Cause, Ended};

/// Why a scheduler has ended; `watched` is the result of watching it.
///
/// Fails if the end was not requested. The kernel's reason then takes precedence over an error in
/// `watched`, because it says more.
pub fn outcome(watched: Result<()>, ended: Option<Ended>) -> Result<Cause> {
    if let Some(ended) = &ended {
        report(ended)?;
    }
    watched?;
    let ended =
        ended.ok_or_else(|| Error::failure("the kernel did not say why the scheduler ended"))?;
    Ok(ended.cause)
}

/// Prints the kernel's backtrace, if any, and turns an unrequested end into its error.
fn report(ended: &Ended) -> Result<()> {
    let Some(error) = ended.error() else { return Ok(()) };
    for line in ended.backtrace_lines() {
        log::info(format_args!("  {line}"));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ExitCode;

    fn ended(cause: Cause) -> Option<Ended> {
        let (reason, message) = ("runnable task stall".into(), String::new());
        Some(Ended { cause, reason, message, backtrace: Vec::new() })
    }

    #[test]
    fn the_kernels_reason_goes_before_what_failed_here() {
        let failed = || Err(Error::failure("no memory"));
        let e = outcome(failed(), ended(Cause::Error)).unwrap_err();
        assert_eq!(e.code, ExitCode::SchedulerError);
        assert!(e.what.contains("runnable task stall"), "{e}");
        assert_eq!(outcome(failed(), ended(Cause::Unregistered)).unwrap_err().what, "no memory");
        assert_eq!(outcome(failed(), None).unwrap_err().what, "no memory");
        assert!(outcome(Ok(()), None).is_err());
        assert_eq!(outcome(Ok(()), ended(Cause::Restart)), Ok(Cause::Restart));
    }
}
