//! gthctl's counts of the packets that pass a data plane, compared with what was sent.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::support::gthctl;
use crate::support::plane::succeeds;
use crate::support::sender;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

pub const MODULE: &str = "/modules/gtp.ko";
pub const PROBES: u64 = 40;
/// The size of one of ping's IPv4 packets.
const PROBE: u64 = 84;
/// A UDP header and a GTP-U header without options (3GPP TS 29.281, 5.1).
const HEADERS: u64 = 8 + 8;

pub fn metric(name: &str, plane: &str, direction: &str) -> Option<f64> {
    let output = gthctl::output(Command::new(gthctl::binary()).arg("metrics"));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let metric = format!("gthctl_gtp_{name}_total{{plane=\"{plane}\",direction=\"{direction}\"}} ");
    let value = output.stdout.lines().find_map(|line| line.strip_prefix(&metric));
    value.map(|value| value.parse().unwrap())
}

/// The packets and bytes; `None` without such metrics.
fn passed(plane: &str, direction: &str) -> Option<[u64; 2]> {
    let of = |name| metric(name, plane, direction).map(|value| value as u64);
    Some([of("packets")?, of("bytes")?])
}

/// Uplink first.
pub fn of_gtp() -> [Option<[u64; 2]>; 2] {
    ["uplink", "downlink"].map(|direction| passed("gtp", direction))
}

/// Packets are handled in a task's context and in that of a softirq, which belongs to no task.
#[test]
fn each_packet_of_the_kernels_driver_counts_once() {
    let plane = sender::plane();
    let gthctl = shared::scheduler("strategies: [{name: upf, gtp: gtp, priority: 1}]");
    gthctl.sees_packets();
    assert_eq!(of_gtp(), [Some([0, 0]); 2]);
    plane.ping(PROBES as usize);
    let (up, down) = (PROBES * (PROBE + HEADERS), PROBES * PROBE);
    assert_eq!(of_gtp(), [Some([PROBES, up]), Some([PROBES, down])]);
    assert_eq!(metric("seconds", "gtp", "uplink"), None);
    sender::steer_uplink_to(1);
    plane.ping(PROBES as usize);
    let both = [Some([2 * PROBES, 2 * up]), Some([2 * PROBES, 2 * down])];
    assert_eq!(of_gtp(), both);
    // The counts continue under another policy that asks for them.
    gthctl.replace("strategies: [{name: other, gtp: {module: gtp, min_pps: 7}, weight: 9}]");
    assert_eq!(of_gtp(), both);
    // Counts outlive the module.
    drop(plane);
    if Path::new(MODULE).exists() {
        succeeds(Command::new("rmmod").arg("gtp"));
        assert!(gthctl.says("the kernel module gtp is not loaded", 1), "{}", gthctl.stderr());
        assert_eq!(of_gtp(), both);
        succeeds(Command::new("insmod").arg(MODULE));
    }
    gthctl.replace("strategies: [{name: upf, command_regex: ^upf$, priority: 1}]");
    assert_eq!(of_gtp(), [None; 2]);
    gthctl.stop();
}

#[test]
fn each_datagram_of_a_port_counts_once() {
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let rule =
        |port: u16| format!("strategies: [{{name: upf, gtp: {{port: {port}}}, priority: 1}}]");
    let gthctl = shared::scheduler(&rule(port));
    gthctl.sees_packets();
    let ours = || ["received", "sent"].map(|way| passed(&format!("udp:{port}"), way));
    assert_eq!(ours(), [Some([0, 0]); 2]);
    let mut buffer = [0; 100];
    for (from, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let peer = UdpSocket::bind(from).unwrap();
        for _ in 0..3 {
            peer.send_to(&[0; 10], (to, port)).unwrap();
            socket.peek(&mut buffer).unwrap();
            let (size, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&buffer[..2 * size], from).unwrap();
            peer.recv(&mut buffer).unwrap();
        }
    }
    // A datagram that the kernel does not accept does not count as sent.
    for (bytes, to) in [(10, "2001:db8::1"), (70_000, "::1"), (70_000, "::ffff:127.0.0.1")] {
        socket.send_to(&vec![0; bytes], (to, 9)).unwrap_err();
    }
    assert_eq!(ours(), [Some([6, 60]), Some([6, 120])]);
    // Adding another port changes nothing; a port that was gone starts at zero again.
    let two = format!(
        "strategies: [{{name: upf, gtp: {{port: {port}}}, priority: 1}}, {{name: other, gtp: {{port: 1}}, priority: 2}}]"
    );
    gthctl.replace(&two);
    assert_eq!(ours(), [Some([6, 60]), Some([6, 120])]);
    assert_eq!(passed("udp:1", "sent"), Some([0, 0]));
    gthctl.replace(&rule(1));
    assert_eq!(ours(), [None; 2]);
    gthctl.replace(&rule(port));
    assert_eq!(ours(), [Some([0, 0]); 2]);
    gthctl.stop();
}

#[test]
fn top_shows_packets_a_second() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let rule = format!("{{name: upf, gtp: {{port: {}}}, priority: 1}}", address.port());
    let gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
    gthctl.sees_packets();
    let echo = Task::fork("echo", move |shared| {
        let mut buffer = [0; 100];
        for count in 1.. {
            socket.send_to(&[0; 10], address).unwrap();
            socket.recv(&mut buffer).unwrap();
            shared.answer.store(count, Ordering::Relaxed);
            task::sleep_until(task::now() + 5_000_000);
        }
    });
    let (begin, before) = (Instant::now(), echo.shared().answer.load(Ordering::Relaxed));
    let output =
        gthctl::output(Command::new(gthctl::binary()).args(["top", "-o", "json", "-d", "3"]));
    let sent = f64::from(echo.shared().answer.load(Ordering::Relaxed) - before);
    let rate = sent / begin.elapsed().as_secs_f64();
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    for way in ["received", "sent"] {
        let way = format!("udp:{} {way}", address.port());
        let shown = report["gthctl"]["packets_per_second"][&way].as_f64().unwrap_or(0.0);
        assert!(shown > 0.7 * rate && shown < 1.4 * rate, "{way}: {shown} of {rate}: {report:#}");
    }
    gthctl.stop();
}
