//! `gthctl status`.

use std::path::Path;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::output;
use crate::cli::StatusArgs;
use crate::daemon::control::{Reply, Request, SOCKET, client};
use crate::daemon::report_tables;
use crate::daemon::reports::Health;

/// How long the running gthctl may take: it answers between two of its steps.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints the health of the running gthctl; with `--ready`, fails unless it is good.
pub fn run(args: &StatusArgs) -> Result<()> {
    let reply = client::ask_within(Path::new(SOCKET), &Request::Health, PATIENCE)?;
    let Reply::Health(health) = reply else { return Err(client::puzzled()) };
    if args.ready {
        ready(&health)?;
        println!("generation {} is in force", health.generation);
        return Ok(());
    }
    output::print(args.output.format, &health, report_tables::health)
}

/// Fails unless the kernel schedules by the policy in force.
fn ready(health: &Health) -> Result<()> {
    if health.kernel_in_step {
        return Ok(());
    }
    let last = health.last_error.as_ref().map_or(String::new(), |e| format!(" ({})", e.why));
    let generation = health.generation;
    let what =
        format!("the kernel does not schedule by the policy of generation {generation}{last}");
    Err(Error::failure(what).help("gthctl will retry"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::reports::Failed;

    #[test]
    fn a_rejected_file_is_no_failure_and_other_tables_are() {
        let failed = |why: &str| Some(Failed { why: why.into(), since: "then".into() });
        let mut health = Health {
            pid: 7,
            running_since: "then".into(),
            scheduler_since: "then".into(),
            policy_file: Some("/etc/p.yaml".into()),
            generation: 3,
            in_force_since: "then".into(),
            kernel_in_step: true,
            rejected: failed("p.yaml:1:1: bad"),
            kubernetes: None,
            last_error: failed("p.yaml:1:1: bad"),
        };
        assert!(ready(&health).is_ok());
        health.kernel_in_step = false;
        health.last_error = failed("no memory");
        assert_eq!(
            ready(&health).unwrap_err().to_string(),
            "the kernel does not schedule by the policy of generation 3 (no memory); gthctl will retry"
        );
        assert_eq!(
            report_tables::health(&health),
            "running: PID 7, since then\n\
             scheduler: loaded, since then\n\
             policy: generation 3, since then, of /etc/p.yaml\n\
             kernel's tables: NOT as the policy says\n\
             file on disk: REJECTED since then: p.yaml:1:1: bad\n\
             last error: at then: no memory"
        );
    }
}
