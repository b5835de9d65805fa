//! `gthctl status`.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::base::error::{Error, ExitCode, Result};
use crate::base::finding::table_of;
use crate::base::log;
use crate::base::output;
use crate::cli::StatusArgs;
use crate::daemon::control::{Reply, Request, SOCKET, client};
use crate::daemon::last_run;
use crate::daemon::reports::Health;
use crate::irq::host::Host;
use crate::overview::Overview;

/// How long the running gthctl may take to answer: it does so between two of its steps.
const PATIENCE: Duration = Duration::from_secs(3);

/// The least time that it gets to answer, however little is left.
const BRIEF: Duration = Duration::from_millis(100);

/// How often to ask whether it is ready.
const EVERY: Duration = Duration::from_millis(100);

/// Prints the state of the running gthctl; with `--ready`, only whether it does its work.
pub fn run(args: &StatusArgs) -> Result<ExitCode> {
    let ready = match args.wait {
        Some(seconds) => wait(Duration::from_secs(seconds), ready),
        None if args.ready => ready(PATIENCE),
        None => return show(args),
    };
    if !args.ready {
        return show(args);
    }
    output::put(&format!("generation {} is in force\n", ready?))?;
    Ok(ExitCode::Success)
}

/// Prints the screen. A gthctl that runs and does not answer is an error.
fn show(args: &StatusArgs) -> Result<ExitCode> {
    let host = Host::this();
    let (overview, missing) =
        match client::ask_within(Path::new(SOCKET), &Request::Metrics, PATIENCE) {
            Ok(Reply::Metrics(metrics)) => (Overview::of_running(&host, *metrics), None),
            Ok(_) => return Err(client::puzzled()),
            Err(e) if e.code == ExitCode::NotRunning => {
                let last = last_run::read(Path::new(last_run::FILE));
                log::notes(last.as_ref().err().map(ToString::to_string).as_slice());
                (Overview::without(&host, last.ok().flatten().as_ref()), Some(e))
            }
            Err(e) => return Err(e),
        };
    output::print(args.output.format, &overview, |overview| table_of(&overview.findings))?;
    match (missing, overview.counts.errors, overview.counts.warnings) {
        (Some(e), ..) => Err(e),
        (None, 0, 0) => Ok(ExitCode::Success),
        (None, 0, _) => Ok(ExitCode::Warnings),
        (None, ..) => Ok(ExitCode::Failure),
    }
}

/// The generation in force. Fails if the kernel does not schedule by it, or if there is no answer
/// within `patience`.
fn ready(patience: Duration) -> Result<u32> {
    let reply = client::ask_within(Path::new(SOCKET), &Request::Health, patience)?;
    let Reply::Health(health) = reply else { return Err(client::puzzled()) };
    in_force(&health)
}

fn in_force(health: &Health) -> Result<u32> {
    if health.kernel_in_step {
        return Ok(health.generation);
    }
    let last = health.last_error.as_ref().map_or(String::new(), |e| format!(" ({})", e.why));
    let generation = health.generation;
    let what =
        format!("the kernel does not schedule by the policy of generation {generation}{last}");
    Err(Error::failure(what).help("gthctl will retry"))
}

/// Asks until it is ready. After `patience`, returns why it is not. A lack of permission is
/// returned at once. `ready` gets the time that it may take.
fn wait(patience: Duration, ready: impl Fn(Duration) -> Result<u32>) -> Result<u32> {
    let begin = Instant::now();
    loop {
        let left = patience.saturating_sub(begin.elapsed());
        match ready(left.clamp(BRIEF, PATIENCE)) {
            Err(e) if e.code != ExitCode::Permission && begin.elapsed() < patience => sleep(EVERY),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::daemon::reports::Failed;

    #[test]
    fn other_tables_are_a_failure() {
        let last_error = Some(Failed { why: "no memory".into(), since: "then".into() });
        let mut health = Health { generation: 3, kernel_in_step: true, last_error };
        assert_eq!(in_force(&health), Ok(3));
        health.kernel_in_step = false;
        assert_eq!(
            in_force(&health).unwrap_err().to_string(),
            "the kernel does not schedule by the policy of generation 3 (no memory); gthctl will retry"
        );
    }

    #[test]
    fn waits_until_it_is_ready_or_the_time_is_over() {
        let asked = Cell::new(0);
        let at_third = |_| {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Err(Error::failure("loading")) } else { Ok(7) }
        };
        assert_eq!(wait(Duration::from_secs(60), at_third), Ok(7));
        let never = |_| Err(Error::new(ExitCode::NotRunning, "none"));
        assert_eq!(wait(Duration::ZERO, never).unwrap_err().code, ExitCode::NotRunning);
        let may_not = |_| Err(Error::new(ExitCode::Permission, "root only"));
        let e = wait(Duration::from_secs(3600), may_not).unwrap_err();
        assert_eq!(e.code, ExitCode::Permission);
        // A gthctl that does not answer gets no more time than is left.
        let begin = Instant::now();
        let silent = |patience| {
            sleep(patience);
            Err(Error::failure("it did not answer"))
        };
        wait(Duration::from_millis(300), silent).unwrap_err();
        assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    }
}
