//! User-space data planes: Debian's osmo-ggsn, with the SGSN emulator of the same package.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::gettid;
use serde_json::Value;

use crate::support::gthctl::{self, report};
use crate::support::hot::SOON;
use crate::support::kernel;
use crate::support::plane::{answered, succeeds};
use crate::support::shared;
use crate::support::trace::Trace;
use crate::support::vm::{self, Vm};
use crate::trace::{of_threads, sum, totals};

pub const VM: Vm = vm::SHARED;

const PROBES: u64 = 40;
/// The size of a probe with its GTP-U header.
const PROBE_BYTES: u64 = 84 + 12;
const SGSN: &str = "10.101.0.1";
const GGSN: &str = "10.101.0.2";
/// The GGSN's end of the tunnels.
const GATEWAY: &str = "172.16.222.1";

/// How long a program may take to start, however busy the host is.
const STARTED: Duration = Duration::from_secs(30);

/// osmo-ggsn, and a UE behind the emulated SGSN, until dropped.
struct Plane {
    ggsn: Child,
    sgsn: Option<Child>,
}

impl Plane {
    fn start() -> Self {
        let config = format!(
            "ggsn ggsn0\n gtp state-dir /tmp\n gtp bind-ip {GGSN}\n apn internet\n  gtpu-mode tun\n  \
             tun-device tun4\n  type-support v4\n  ip prefix dynamic 172.16.222.0/24\n  \
             ip ifconfig {GATEWAY}/24\n  no shutdown\n default-apn internet\n no shutdown ggsn\n"
        );
        std::fs::write("/tmp/osmo-ggsn.cfg", config).unwrap();
        for line in [
            "netns add ggsn",
            "link add gn type veth peer name gn netns ggsn",
            &format!("addr add {SGSN}/24 dev gn"),
            "link set gn up",
            &format!("-n ggsn addr add {GGSN}/24 dev gn"),
            "-n ggsn link set gn up",
            "-n ggsn link set lo up",
        ] {
            succeeds(Command::new("ip").args(line.split(' ')));
        }
        let mut ggsn = Command::new("ip");
        ggsn.args(["netns", "exec", "ggsn"]).arg(program("osmo-ggsn"));
        let ggsn = started(ggsn.args(["-c", "/tmp/osmo-ggsn.cfg"]));
        let mut plane = Self { ggsn, sgsn: None };
        let sockets = format!("/proc/{}/net/udp", plane.ggsn());
        // 2152, GTP-U.
        let is_open = || std::fs::read_to_string(&sockets).is_ok_and(|all| all.contains(":0868 "));
        assert!(kernel::wait(STARTED, is_open), "osmo-ggsn does not start");
        let mut sgsn = Command::new(program("sgsnemu"));
        sgsn.args(["--listen", SGSN, "--remote", GGSN, "--statedir", "/tmp"]);
        sgsn.args(["--pidfile", "/tmp/sgsnemu.pid", "--createif", "--tun-device", "ue0"]);
        plane.sgsn = Some(started(&mut sgsn));
        let has_address = || {
            let show = Command::new("ip").args(["addr", "show", "ue0"]).output();
            String::from_utf8_lossy(&show.unwrap().stdout).contains("inet 172.16.222.")
        };
        assert!(kernel::wait(STARTED, has_address), "there is no tunnel");
        plane
    }

    /// The process id of osmo-ggsn.
    fn ggsn(&self) -> i32 {
        self.ggsn.id() as i32
    }

    /// Sends probes through the tunnel to the GGSN's own address; each must be answered.
    fn ping(&self) {
        let ping = format!("-n -I ue0 -i 0.05 -W 5 -c {PROBES} {GATEWAY}");
        answered(&ping, "ue0", PROBES);
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for child in self.sgsn.iter_mut().chain([&mut self.ggsn]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for line in ["link del gn", "netns del ggsn"] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

/// Starts a program of osmo-ggsn's package, with its libraries.
fn started(command: &mut Command) -> Child {
    command.env("LD_LIBRARY_PATH", folder()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The directory that tests/vm/osmo-ggsn prints.
fn folder() -> PathBuf {
    std::env::var_os("OSMO_GGSN").expect("set by tests/vm/test").into()
}

fn program(name: &str) -> PathBuf {
    folder().join(name)
}

#[test]
fn the_trace_names_who_receives_and_sends() {
    let plane = Plane::start();
    let trace = Trace::start(&["udp:2152"]);
    plane.ping();
    let lines = trace.stop();
    let how = |symbol: &str| lines.iter().find(|line| line["function"] == symbol).unwrap();
    assert_eq!(how("udp_recvmsg")["how"], "udp_recvmsg: fexit");
    let rows = totals(&lines);
    let its = of_threads(&rows, &[plane.ggsn()]);
    for (function, direction) in [("udp_recvmsg", "received"), ("udp_sendmsg", "sent")] {
        assert_eq!(sum(&its, function, "packets"), PROBES, "{rows:#?}");
        assert_eq!(sum(&its, function, "bytes"), PROBES * PROBE_BYTES, "{rows:#?}");
        let mut of_function = its.iter().filter(|row| row["function"] == function);
        assert!(of_function.all(|row| row["direction"] == direction), "{rows:#?}");
    }
    for row in &its {
        assert_eq!((&row["comm"], &row["context"]), (&"osmo-ggsn".into(), &"task".into()));
    }
    // The other end, in another network namespace.
    let names: Vec<&Value> = rows.iter().map(|row| &row["comm"]).collect();
    assert!(names.iter().all(|name| *name == "osmo-ggsn" || *name == "sgsnemu"), "{names:?}");
    let socket = lines.iter().rfind(|line| line["address"] == format!("{GGSN}:2152")).unwrap();
    assert_eq!((&socket["kind"], &socket["drops"]), (&"socket".into(), &0.into()), "{socket}");
    assert_eq!(socket["processes"][0]["pid"], plane.ggsn());
}

#[test]
fn a_trace_becomes_a_policy() {
    let plane = Plane::start();
    let mut trace = Command::new(gthctl::binary());
    trace.args(["trace", "udp:2152", "--suggest", "--duration", "5s"]);
    let mut trace = trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Waits until it is attached.
    let mut said = BufReader::new(trace.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("tracing: ")));
    plane.ping();
    let policy = String::from_utf8(trace.wait_with_output().unwrap().stdout).unwrap();
    assert!(
        policy.contains("#   - {name: traffic, gtp: {port: 2152}, priority: true}"),
        "{policy}"
    );
    assert!(policy.contains("- name: \"osmo-ggsn\"\n"), "{policy}");
}

#[test]
fn a_rule_by_the_port_matches_it() {
    let plane = Plane::start();
    let rule = "{name: upf, gtp: {port: 2152, hold: 60s}, user: root, priority: 1}";
    let gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
    gthctl.sees_packets();
    let explanation = || report(&["explain", &plane.ggsn().to_string()]);
    // This verdict comes after the one on the user.
    let why = || explanation()["rules"][0]["conditions"][1]["why"].as_str().unwrap().to_owned();
    assert_eq!(why(), "no packet has been seen");
    plane.ping();
    assert_eq!(explanation()["rule"], "upf", "{:#}", explanation());
    assert!(kernel::wait(SOON, || explanation()["in_force"] == true), "{:#}", explanation());
    assert!(why().contains(" ago by udp_recvmsg, "), "{}", why());
    let traffic = report(&["status"])["traffic"].clone();
    assert_eq!(traffic["functions"], serde_json::json!(["udp:2152"]));
    let its = traffic["tasks"].as_array().unwrap().iter().find(|task| task["tid"] == plane.ggsn());
    let its = its.unwrap_or_else(|| panic!("{traffic:#}"));
    assert!(its["packets"].as_u64().unwrap() >= 2 * PROBES, "{its}");
    // The program does not match a rule by another port.
    gthctl.replace(&format!("strategies: [{}]", rule.replace("2152", "2153")));
    assert_eq!(explanation()["rule"], Value::Null);
    plane.ping();
    assert_eq!(why(), "no packet has been seen");
    gthctl.stop();
}

/// IPv6, IPv4 through an IPv6 socket, peeks and failures: nothing counts twice.
#[test]
fn each_datagram_counts_once() {
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let peers = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
    let trace = Trace::start(&[&format!("udp:{port}")]);
    let mut buffer = [0; 100];
    for (peer, of_socket) in peers.iter().zip(["127.0.0.1", "::1"]) {
        for _ in 0..3 {
            peer.send_to(&[0; 10], (of_socket, port)).unwrap();
            socket.peek(&mut buffer).unwrap();
            let (size, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&buffer[..2 * size], from).unwrap();
            peer.recv(&mut buffer).unwrap();
        }
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut buffer).is_err());
    // The port of the other end is not a local one.
    assert!(socket.send_to(&[0; 70_000], peers[1].local_addr().unwrap()).is_err());
    let rows = of_threads(&totals(&trace.stop()), &[gettid().as_raw()]);
    assert_eq!(
        (sum(&rows, "udpv6_recvmsg", "packets"), sum(&rows, "udpv6_recvmsg", "bytes")),
        (6, 60)
    );
    assert_eq!(
        (sum(&rows, "udpv6_sendmsg", "packets"), sum(&rows, "udpv6_sendmsg", "bytes")),
        (6, 120)
    );
    let symbols =
        rows.iter().filter(|row| !row["function"].as_str().unwrap().starts_with("udpv6_"));
    assert_eq!(symbols.count(), 0, "{rows:#?}");
}

/// Nobody receives: what waits and what did not fit is reported for the socket.
fn a_full_queue_is_told(ip: &str) {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let address: SocketAddr = socket.local_addr().unwrap();
    let small: libc::c_int = 4096;
    // SAFETY: an open socket, and a number with its size.
    let set = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let value = (&raw const small).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, size)
    };
    assert_eq!(set, 0);
    let trace = Trace::start(&[&format!("udp:{}", address.port()), "--drops"]);
    let is_ours = |line: &Value| line["address"] == address.to_string();
    assert!(trace.has_line(is_ours));
    let peer = UdpSocket::bind((ip, 0)).unwrap();
    for _ in 0..100 {
        peer.send_to(&[0; 100], address).unwrap();
    }
    assert!(trace.has_line(|line| is_ours(line) && line["new_drops"].as_u64() > Some(0)));
    let lines = trace.stop();
    let last = lines.iter().rfind(|line| is_ours(line)).unwrap();
    let [queued, drops] = ["queued_bytes", "drops"].map(|key| last[key].as_u64().unwrap());
    assert!((1000..=8192).contains(&queued), "{last}");
    assert!((50..100).contains(&drops), "{last}");
    assert_eq!(last["processes"][0]["pid"], std::process::id());
    let drop = lines.iter().rfind(|line| line["kind"] == "drop").unwrap();
    let [stretch, why] = ["stretch", "why"].map(|key| drop[key].as_str().unwrap());
    assert_eq!((stretch, why, &drop["packets"]), ("port", "socket-full", &drops.into()), "{drop}");
}

#[test]
fn a_full_queue_of_ipv4_is_told() {
    a_full_queue_is_told("127.0.0.1");
}

#[test]
fn a_full_queue_of_ipv6_is_told() {
    a_full_queue_is_told("::1");
}

/// A port that nobody has open is no mistake: the data plane may start later.
#[test]
fn a_port_may_be_opened_later() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let trace = Trace::start(&[&format!("udp:{port}")]);
    assert!(trace.says(&format!(
        "no socket has UDP port {port} in any process's network namespace; waiting for one"
    )));
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let has_it = |line: &Value| line["kind"] == "socket" && line["drops"] == 0;
    assert!(trace.has_line(has_it));
    socket.send_to(&[0; 10], ("127.0.0.1", 9)).unwrap();
    let is_send = |line: &Value| line["kind"] == "count" && line["direction"] == "sent";
    assert!(trace.has_line(is_send));
    drop(trace);
}
