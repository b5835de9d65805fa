//! `gthctl trace` with `--drops`, `--by teid`, `--latency` and `--histogram`: every packet that does
//! not get through the data plane, and why; whose packets they are; how long they take.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt,
    socket, sockopt,
};
use serde_json::Value;

use crate::support::kernel;
use crate::support::plane::{self, GNB, Plane, UPF, in_namespace, packet, succeeds};
use crate::support::sender;
use crate::support::trace::Trace;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

const SOON: Duration = Duration::from_secs(20);
const PROBES: u64 = 20;

/// Sends packets from the gNB's network namespace to the UPF's GTP-U port.
fn send_uplink(packets: &[Vec<u8>]) {
    in_namespace("ran", || {
        let socket = UdpSocket::bind((GNB, 0)).unwrap();
        for packet in packets {
            socket.send_to(packet, (UPF, 2152)).unwrap();
        }
    });
}

fn ip(arguments: &str) {
    succeeds(Command::new("ip").args(arguments.split(' ')));
}

/// A G-PDU with other bytes from `at` on.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut packet = packet();
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

/// A probe that nobody answers.
fn ping_in_vain(namespace: &str, to: &str, count: u64) {
    let ping = format!("netns exec {namespace} ping -n -q -i 0.05 -W 0.3 -c {count} {to}");
    let output = Command::new("ip").args(ping.split(' ')).output().unwrap();
    assert!(!output.status.success(), "somebody answered");
}

/// The packets and bytes of each kind of drop (direction, outcome, stretch and why), by the last line
/// of each.
fn drops(lines: &[Value]) -> Vec<(String, u64, u64)> {
    let kind = |line: &Value| {
        let fields = ["direction", "outcome", "stretch", "why"];
        fields.map(|field| line[field].as_str().unwrap().to_owned()).join(" ")
    };
    let mut last: Vec<&Value> = Vec::new();
    for line in lines.iter().filter(|line| line["kind"] == "drop") {
        last.retain(|old| kind(old) != kind(line) || old["at"] != line["at"]);
        last.push(line);
    }
    let number = |line: &Value, field: &str| line[field].as_u64().unwrap();
    let mut sums: Vec<(String, u64, u64)> = Vec::new();
    for line in last {
        let (packets, bytes) = (number(line, "packets"), number(line, "bytes"));
        match sums.iter_mut().find(|(known, ..)| *known == kind(line)) {
            Some((_, all, all_bytes)) => (*all, *all_bytes) = (*all + packets, *all_bytes + bytes),
            None => sums.push((kind(line), packets, bytes)),
        }
    }
    sums
}

fn packets(trace: &Trace, kind: &str) -> u64 {
    let drops = drops(&trace.lines());
    drops.iter().find(|(known, ..)| known == kind).map_or(0, |(_, packets, _)| *packets)
}

#[track_caller]
fn has(trace: &Trace, kind: &str, wanted: u64) {
    let is_there = kernel::wait(SOON, || packets(trace, kind) >= wanted);
    let drops = drops(&trace.lines());
    assert!(is_there, "no {wanted} of {kind}: {drops:#?}\n{}", trace.stderr());
    assert_eq!(packets(trace, kind), wanted, "{drops:#?}");
}

/// The kernel's driver leaves packets that it does not know to the socket, which nobody reads.
#[test]
fn uplink_packets_of_the_kernels_driver() {
    let plane = sender::plane();
    for args in [&["gtp", "--drops"][..], &["gtp", "--drops", "--kprobe"]] {
        let trace = Trace::start(args);
        plane.ping(5);
        let unknown = changed(4, &0x7070_7070_u32.to_be_bytes());
        let other_ue = changed(8 + 12, &Ipv4Addr::new(10, 60, 0, 9).octets());
        let end_marker = changed(1, &[254]);
        send_uplink(&vec![unknown.clone(); 7]);
        send_uplink(&vec![other_ue; 6]);
        send_uplink(&vec![end_marker; 5]);
        // A header without a packet, and half a header.
        send_uplink(&vec![packet()[..8].to_vec(); 4]);
        send_uplink(&vec![packet()[..5].to_vec(); 3]);
        has(&trace, "uplink left-to-socket data-plane unknown-teid", 7);
        has(&trace, "uplink left-to-socket data-plane ue-address", 6);
        has(&trace, "uplink left-to-socket data-plane not-a-g-pdu", 5);
        has(&trace, "uplink dropped data-plane bad-header", 7);
        let lines = trace.stop();
        let all = drops(&lines);
        assert_eq!(all.len(), 4, "{all:#?}");
        let bytes = all.iter().find(|(kind, ..)| kind.ends_with("unknown-teid")).unwrap().2;
        assert_eq!(bytes, 7 * (8 + unknown.len() as u64));
        let dropped = lines.iter().filter(|l| l["kind"] == "drop" && l["outcome"] == "dropped");
        for line in dropped {
            assert_eq!(line["kernel_reason"], "NOT_SPECIFIED", "{line}");
            let at = line["at"].as_str().unwrap();
            assert!(at.starts_with("gtp_encap_recv+0x") && at.ends_with(" [gtp]"), "{line}");
        }
    }
}

fn errors_of(device: &str) -> u64 {
    let file = format!("/sys/class/net/{device}/statistics/tx_errors");
    let read = ["netns", "exec", "upf", "cat", &file];
    let output = succeeds(Command::new("ip").args(read));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn downlink_packets_of_the_kernels_driver() {
    let _plane = sender::plane();
    let trace = Trace::start(&["gtp", "--drops"]);
    let before = errors_of("gtp0");
    in_namespace("upf", || {
        let socket = sender::socket();
        (0..9).for_each(|_| drop(socket.send(b"packet")));
    });
    has(&trace, "downlink dropped data-plane no-tunnel", 9);
    assert_eq!(errors_of("gtp0"), before + 9);
    ip("-n upf route del 10.100.0.0/24");
    ping_in_vain("dn", "10.60.0.1", 4);
    has(&trace, "downlink dropped data-plane no-route", 4);
    assert_eq!(errors_of("gtp0"), before + 13);
    // The driver frees them as if they had been sent, so the kernel has no drop reason.
    let lines = trace.stop();
    let mut drops = lines.iter().filter(|line| line["kind"] == "drop");
    assert!(drops.all(|drop| drop["kernel_reason"].is_null()), "{lines:#?}");
}

/// Sends packets from the gNB with a wrong UDP checksum; the kernel computes the IP checksum.
fn send_with_bad_checksum(count: usize) {
    let payload = packet();
    let length = (8 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(GNB.octets().into_iter().chain(UPF.octets()));
    for field in [2152, 2152, length, 0xbad] {
        packet.extend(u16::to_be_bytes(field));
    }
    packet.extend(payload);
    in_namespace("ran", || {
        let (flags, protocol) = (SockFlag::empty(), SockProtocol::Raw);
        let raw = socket(AddressFamily::Inet, SockType::Raw, flags, protocol).unwrap();
        for _ in 0..count {
            let to = SockaddrIn::from(std::net::SocketAddrV4::new(UPF, 0));
            sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
        }
    });
}

/// A packet socket (packet(7)) in the UPF's network namespace, which has room for few packets.
fn full_packet_socket() -> OwnedFd {
    in_namespace("upf", || {
        let (flags, all) = (SockFlag::empty(), SockProtocol::EthAll);
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, all).unwrap();
        setsockopt(&socket, sockopt::RcvBuf, &1).unwrap();
        socket
    })
}

/// Sends packets to a GTP-U port through a device whose driver frees sent packets as if they were
/// dropped.
fn send_through_freer(count: usize) {
    if !plane::insert("btf", "freer") {
        return;
    }
    ip("addr add 10.55.0.1/24 dev freer0");
    ip("link set freer0 up");
    let socket = UdpSocket::bind("10.55.0.1:0").unwrap();
    for _ in 0..count {
        socket.send_to(b"packet", "10.55.0.2:2152").unwrap();
    }
    drop(socket);
    let sent = kernel::read("/sys/class/net/freer0/statistics/tx_packets");
    assert!(sent.parse::<usize>().unwrap() >= count, "{sent}");
    succeeds(Command::new("rmmod").arg("freer"));
}

/// Packets that never reach the driver, and packets that do not get far after it.
#[test]
fn packets_that_the_kernel_drops_beside_the_data_plane() {
    let plane = sender::plane();
    let trace = Trace::start(&["gtp", "--drops"]);
    // These are not drops: copies that nobody reads, and packets that a driver has sent.
    let full = full_packet_socket();
    plane.ping(PROBES as usize);
    send_through_freer(8);
    send_with_bad_checksum(6);
    has(&trace, "both dropped port checksum", 6);
    ip("-n upf route del 10.60.0.1/32");
    sender::write_in_upf("1", "/proc/sys/net/ipv4/conf/gtp0/rp_filter");
    ping_in_vain("ran", "-I uesimtun0 10.200.0.2", 5);
    has(&trace, "uplink dropped device source-address", 5);
    let lines = trace.stop();
    drop(full);
    assert_eq!(drops(&lines).len(), 2, "{:#?}", drops(&lines));
    let reason = |why| lines.iter().find(|l| l["why"] == why).unwrap()["kernel_reason"].clone();
    assert_eq!(reason("checksum"), "UDP_CSUM");
    assert_eq!(reason("source-address"), "IP_RPFILTER");
}

#[test]
fn packets_of_gtp5g() {
    for variant in ["btf", "no-btf"] {
        let Some(plane) = Plane::on_gtp5g(variant) else { return };
        let trace = Trace::start(&["gtp5g", "--drops"]);
        plane.ping(3);
        // No control plane has told gtp5g about this UE.
        ip("-n upf route add 10.61.0.0/24 dev upfgtp");
        ping_in_vain("upf", "10.61.0.1", 4);
        has(&trace, "downlink dropped data-plane no-pdr", 4);
        fs::write("/sys/module/gtp5g/parameters/drop", "1").unwrap();
        ping_in_vain("dn", "10.60.0.1", 5);
        has(&trace, "downlink dropped data-plane pdr-actions", 5);
        send_uplink(&vec![packet(); 6]);
        has(&trace, "uplink dropped data-plane pdr-actions", 6);
        send_uplink(&vec![packet()[..5].to_vec(); 2]);
        has(&trace, "uplink dropped data-plane bad-header", 2);
        let all = drops(&trace.stop());
        assert_eq!(all.len(), 4, "{variant}: {all:#?}");
    }
    assert!(!plane::insert_gtp5g("btf") || rmmod("gtp5g"));
}

fn rmmod(module: &str) -> bool {
    Command::new("rmmod").arg(module).status().unwrap().success()
}

/// The packets and drops of a tunnel, by its last line.
fn tunnel(lines: &[Value], direction: &str, teid: &Value) -> (u64, u64) {
    let is_it = |line: &&Value| {
        line["kind"] == "teid" && line["direction"] == direction && line["teid"] == *teid
    };
    let number = |line: &Value, field: &str| line[field].as_u64().unwrap();
    let last = lines.iter().rev().find(is_it);
    last.map_or((0, 0), |line| (number(line, "packets"), number(line, "drops")))
}

#[test]
fn packets_and_drops_by_tunnel() {
    const UNKNOWN: u32 = 0x7070_7070;
    let gtp = |args: &[&str]| {
        let plane = sender::plane();
        let trace = Trace::start(args);
        plane.ping(PROBES as usize);
        send_uplink(&vec![changed(4, &UNKNOWN.to_be_bytes()); 7]);
        in_namespace("upf", || {
            let socket = sender::socket();
            (0..9).for_each(|_| drop(socket.send(b"packet")));
        });
        let all = |lines: &[Value]| tunnel(lines, "downlink", &Value::Null) == (9, 9);
        assert!(kernel::wait(SOON, || all(&trace.lines())), "{}", trace.stderr());
        let lines = trace.stop();
        for (direction, teid, wanted) in [
            ("uplink", "0x00000101", (PROBES, 0)),
            ("downlink", "0x00000202", (PROBES, 0)),
            ("uplink", "0x70707070", (7, 7)),
        ] {
            assert_eq!(tunnel(&lines, direction, &teid.into()), wanted, "{lines:#?}");
        }
        assert!(lines.iter().all(|line| line["kind"] != "drop"), "{lines:#?}");
    };
    gtp(&["gtp", "--by", "teid"]);
    gtp(&["gtp", "--by", "teid", "--kprobe"]);
    let Some(plane) = Plane::on_gtp5g("no-btf") else { return };
    let trace = Trace::start(&["gtp5g", "--by", "teid"]);
    plane.ping(PROBES as usize);
    let both = |lines: &[Value]| {
        let packets = |direction| tunnel(lines, direction, &"0x00000101".into());
        packets("uplink") == (PROBES, 0) && packets("downlink") == (PROBES, 0)
    };
    assert!(kernel::wait(SOON, || both(&trace.lines())), "{}", trace.stderr());
    trace.stop();
}

/// The sum of a field over all intervals.
fn sum(lines: &[Value], direction: &str, field: &str) -> u64 {
    let of = lines.iter().filter(|l| l["kind"] == "latency" && l["direction"] == direction);
    of.map(|line| line[field].as_u64().unwrap()).sum()
}

#[test]
fn the_latency_of_each_packet_that_arrived() {
    let plane = sender::plane();
    for args in [&["gtp", "--latency"][..], &["gtp", "--latency", "--kprobe"]] {
        let trace = Trace::start(args);
        plane.ping(PROBES as usize);
        in_namespace("upf", || {
            let socket = sender::socket();
            (0..9).for_each(|_| drop(socket.send(b"packet")));
        });
        let all = |lines: &[Value]| sum(lines, "downlink", "without_arrival") == 9;
        assert!(kernel::wait(SOON, || all(&trace.lines())), "{}", trace.stderr());
        let lines = trace.stop();
        for direction in ["uplink", "downlink"] {
            assert_eq!(sum(&lines, direction, "packets"), PROBES, "{direction}: {lines:#?}");
        }
        assert_eq!(sum(&lines, "uplink", "without_arrival"), 0);
        let latencies = lines.iter().filter(|line| line["kind"] == "latency");
        for line in latencies.filter(|line| line["packets"] != 0) {
            let ns = |field: &str| line[field].as_u64().unwrap();
            assert!(ns("p50_ns") <= ns("p99_ns") && ns("p99_ns") <= ns("max_ns"), "{line}");
            assert!(ns("max_ns") > 1_000 && ns("max_ns") < 5_000_000_000, "{line}");
            let bars = line["buckets"].as_array().unwrap();
            let packets = bars.iter().map(|bar| bar["packets"].as_u64().unwrap()).sum::<u64>();
            assert_eq!(packets, ns("packets"), "{line}");
        }
    }
}

#[test]
fn every_call_is_in_its_functions_plot() {
    let plane = Plane::on_gtp();
    let trace = Trace::start(&["gtp", "--histogram"]);
    plane.ping(PROBES as usize);
    let calls = |lines: &[Value], function: &str| -> u64 {
        let of = lines.iter().filter(|l| l["kind"] == "times" && l["function"] == function);
        of.map(|line| line["packets"].as_u64().unwrap()).sum()
    };
    for function in ["gtp_encap_recv", "gtp_dev_xmit"] {
        let all = || calls(&trace.lines(), function) >= PROBES;
        assert!(kernel::wait(SOON, all), "{function}: {}", trace.stderr());
    }
    let lines = trace.stop();
    for function in ["gtp_encap_recv", "gtp_dev_xmit"] {
        assert_eq!(calls(&lines, function), PROBES, "{function}: {lines:#?}");
    }
}

/// [`Trace::start`] checks this. Other tests start traces with one of these options or with none.
#[test]
fn nothing_more_is_attached_than_was_asked_for() {
    Trace::start(&["gtp", "--drops", "--latency"]);
}
