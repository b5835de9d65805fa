//! TCP through the tunnel: iperf3 from the UE to the data network.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::scheduler::Engaged;
use crate::{netns, plane};

use super::record::Part;

/// How much iperf3 transfers. A time limit would be a second at least.
const BYTES: &str = "4M";
/// Real-time tasks on one CPU may keep the kernel's own tasks from handling their packets.
const PATIENCE: Duration = Duration::from_secs(3);

/// Both ends of iperf3 stand for machines of their own, so they are priority tasks too.
pub fn measure(engaged: &Engaged) -> Result<Vec<Part>> {
    let iperf3 = |namespace: &str, arguments: &[&str]| -> Result<Command> {
        let mut command = Command::new("iperf3");
        command.args(arguments).stdin(Stdio::null());
        netns::inside(&mut command, namespace)?;
        engaged.favour(&mut command);
        Ok(command)
    };
    let mut server = iperf3(plane::DATA_NETWORK, &["--server", "--one-off"])?
        .stdout(Stdio::null())
        .spawn()
        .context("cannot run iperf3")?;
    let listening = || {
        let read = || Ok(std::fs::read_to_string("/proc/thread-self/net/tcp6")?);
        netns::with(plane::DATA_NETWORK, read).is_ok_and(|table| listens(&table))
    };
    let result = plane::wait_until("iperf3 to listen", listening).and_then(|()| {
        let (server, client) = (plane::DN.to_string(), plane::UE.to_string());
        let arguments = [
            "--client",
            &server,
            "--bind",
            &client,
            "--bytes",
            BYTES,
            "--json",
            "--connect-timeout",
            "10000",
        ];
        let client = iperf3(plane::RAN, &arguments)?.stdout(Stdio::piped()).spawn()?;
        received(&output(client)?)
    });
    let _ = server.kill();
    let _ = server.wait();
    Ok(vec![Part::of([("Mbit/s", result? / 1e6)])])
}

/// What the client prints until its end.
fn output(mut client: Child) -> Result<String> {
    let start = Instant::now();
    while client.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            let _ = client.kill();
            let _ = client.wait();
            bail!("iperf3 has not sent {BYTES} in {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(String::from_utf8(client.wait_with_output()?.stdout)?)
}

/// True when iperf3's port, 5201, is in the state LISTEN in a table of proc_pid_net(5).
fn listens(table: &str) -> bool {
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, local, _, "0A", ..] if local.ends_with(":1451"))
    })
}

/// Bits per second, of iperf3's report.
fn received(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json).context("iperf3 printed no JSON")?;
    ensure!(report["error"].is_null(), "iperf3: {}", report["error"]);
    let rate = &report["end"]["sum_received"]["bits_per_second"];
    rate.as_f64().context("iperf3 reports no rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_listens_only() {
        let line =
            |state| format!("   0: 0000:1451 0000:0000 {state} 00000000:00000000 00:00000000");
        assert!(listens(&line("0A")));
        assert!(!listens(&line("06")));
    }

    #[test]
    fn a_rate_or_an_error() {
        let report = r#"{"end": {"sum_received": {"bits_per_second": 12.5}}}"#;
        assert_eq!(received(report).unwrap(), 12.5);
        let error = received(r#"{"error": "unable to connect", "end": {}}"#).unwrap_err();
        assert!(error.to_string().contains("unable to connect"));
    }
}
