//! `gthctl test`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::log;
use crate::base::output::{self, count};
use crate::cli::TestArgs;
use crate::roundtrip::{Plan, table};

/// Says what it is about to do, measures, and prints the times, including those measured before an
/// error.
pub fn run(args: &TestArgs) -> Result<()> {
    let plan = Plan {
        to: SocketAddr::new(args.address, args.port),
        duration: Duration::from_nanos(args.duration),
        interval: Duration::from_nanos(args.interval),
        load: args.load,
        policy: args.policy.clone(),
    };
    let mut report = plan.begin()?;
    log::notes(&warnings(&plan));
    let measured = plan.measure(&mut report);
    if measured.is_ok() || !report.rows.is_empty() {
        output::print(args.output.format, &report, table)?;
    }
    measured
}

/// What others on the machine and in the network will notice.
fn warnings(plan: &Plan) -> Vec<String> {
    let Plan { to, duration, interval, load, policy } = plan;
    let rate = 1.0 / interval.as_secs_f64();
    let rows = plan.rows();
    let time = (*duration * rows).as_secs_f64();
    let mut all = vec![format!("sends {rate:.0} echo requests a second to {to} for {time:.0} s")];
    if let Some(load) = load {
        let time = (*duration * (rows - 1)).as_secs_f64();
        let threads = count(*load as usize, "thread");
        all.push(format!("keeps every CPU busy for {time:.0} s, with {threads} each"));
    }
    if let Some(policy) = policy {
        all.push(format!("loads gthctl's scheduler with {} for the last row", policy.display()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_long_and_how_much() {
        let plan = Plan {
            to: ([10, 100, 0, 2], 2152).into(),
            duration: Duration::from_secs(5),
            interval: Duration::from_millis(10),
            load: Some(2),
            policy: Some("upf.yaml".into()),
        };
        assert_eq!(
            warnings(&plan),
            [
                "sends 100 echo requests a second to 10.100.0.2:2152 for 15 s",
                "keeps every CPU busy for 10 s, with 2 threads each",
                "loads gthctl's scheduler with upf.yaml for the last row",
            ]
        );
    }
}
