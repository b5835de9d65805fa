//! Runs the real `ping` through the tunnel and reads its replies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::host::Usage;
use crate::scheduler::Engaged;
use crate::{netns, plane};

/// One run of ping.
#[derive(Debug, Default, PartialEq)]
pub struct Replies {
    pub sent: usize,
    /// Round-trip times in milliseconds, in the order of the probes.
    pub rtt_ms: Vec<f64>,
}

/// Probes sent before the measured ones: they fill neighbour tables and caches.
const WARM_UP: usize = 20;

/// Like [`run`], after some unmeasured probes. Also returns how long the virtual CPUs ran and
/// waited, if known.
pub fn measure(
    count: usize,
    interval_ms: u32,
    engaged: &Engaged,
) -> Result<(Replies, Option<Usage>)> {
    run(WARM_UP, interval_ms, engaged)?;
    let (replies, host) = Usage::during(|| run(count, interval_ms, engaged));
    Ok((replies?, host))
}

/// Sends `count` probes from the UE to the N6 address, one every `interval_ms`.
pub fn run(count: usize, interval_ms: u32, engaged: &Engaged) -> Result<Replies> {
    // A file in memory: a pipe would wake a reader for each line.
    let file = Path::new("/tmp/testbed-ping.txt");
    let mut command = Command::new("ping");
    command
        .args(["-n", "-I", plane::TUN, "-W", "1", "-i"])
        .arg(format!("{}.{:03}", interval_ms / 1000, interval_ms % 1000))
        .args(["-c", &count.to_string(), &plane::DN.to_string()])
        .stdin(Stdio::null())
        .stdout(File::create(file).context("cannot create ping's output file")?);
    netns::inside(&mut command, plane::RAN)?;
    engaged.favour(&mut command);
    let status = command.status().context("cannot run ping")?;
    let output = fs::read_to_string(file)?;
    // 1 means that replies are missing, which is a result.
    ensure!(matches!(status.code(), Some(0 | 1)), "ping failed ({status}): {output}");
    let replies = parse(&output)?;
    ensure!(replies.sent == count, "ping sent {} of {count} probes", replies.sent);
    Ok(replies)
}

/// Reads ping's output. A second answer to the same probe does not count.
pub fn parse(output: &str) -> Result<Replies> {
    let mut rtts = BTreeMap::new();
    let mut sent = None;
    for line in output.lines() {
        if let Some((sequence, rtt)) = reply(line) {
            rtts.entry(sequence).or_insert(rtt);
        } else if let Some((count, _)) = line.split_once(" packets transmitted, ") {
            sent = Some(count.parse().with_context(|| format!("not a count: {line}"))?);
        }
    }
    let Some(sent) = sent else { bail!("ping printed no summary: {output}") };
    ensure!(rtts.len() <= sent, "more replies than probes");
    Ok(Replies { sent, rtt_ms: rtts.into_values().collect() })
}

/// Sequence number and time of a line such as
/// `64 bytes from 10.200.0.2: icmp_seq=1 ttl=63 time=0.543 ms`.
fn reply(line: &str) -> Option<(u32, f64)> {
    let field = |name: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    line.contains(" bytes from ").then_some(())?;
    Some((field("icmp_seq")?.parse().ok()?, field("time")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
PING 10.200.0.2 (10.200.0.2) from 10.60.0.1 uesimtun0: 56(84) bytes of data.
64 bytes from 10.200.0.2: icmp_seq=1 ttl=63 time=0.543 ms
64 bytes from 10.200.0.2: icmp_seq=3 ttl=63 time=12.3 ms
64 bytes from 10.200.0.2: icmp_seq=2 ttl=63 time=101 ms
64 bytes from 10.200.0.2: icmp_seq=2 ttl=63 time=102 ms (DUP!)
From 10.60.0.1 icmp_seq=4 Destination Host Unreachable

--- 10.200.0.2 ping statistics ---
4 packets transmitted, 3 received, +1 duplicates, +1 errors, 25% packet loss, time 31ms
rtt min/avg/max/mdev = 0.543/37.947/101.000/44.831 ms
";

    #[test]
    fn replies_in_order_without_duplicates() {
        let replies = parse(OUTPUT).unwrap();
        assert_eq!(replies, Replies { sent: 4, rtt_ms: vec![0.543, 101.0, 12.3] });
    }

    #[test]
    fn no_summary_is_an_error() {
        assert!(parse("64 bytes from 10.200.0.2: icmp_seq=1 ttl=63 time=0.543 ms").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn all_lost() {
        let replies = parse("3 packets transmitted, 0 received, 100% packet loss, time 31ms");
        assert_eq!(replies.unwrap(), Replies { sent: 3, rtt_ms: vec![] });
    }
}
