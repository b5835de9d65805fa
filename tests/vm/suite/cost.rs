//! The cost of tracing a packet, compared with printing a line of text for it.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, ObjectBuilder};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::gthctl;
use crate::support::kernel;
use crate::support::plane::{GNB, Plane, UPF, packet};
use crate::support::task;
use crate::support::vm::{self, Vm};
use crate::trace::{sum, totals};

/// An instruction takes the same time on every host, so each cost is measured once.
pub const VM: Vm = vm::VIRTUAL;

const PACKETS: u32 = 2_000;
/// Where a trace writes. A reader would take time of its own.
const LINES: &str = "/tmp/cost-lines";
const MESSAGES: &str = "/tmp/cost-messages";

/// The time per packet in ns. This thread sends many packets and carries each through the data
/// plane itself.
fn packet_ns(socket: &UdpSocket) -> f64 {
    let packet = packet();
    let send = || {
        for _ in 0..PACKETS {
            socket.send_to(&packet, (UPF, 2152)).unwrap();
        }
    };
    send(); // the first ones take longer
    let begin = Instant::now();
    send();
    begin.elapsed().as_nanos() as f64 / f64::from(PACKETS)
}

/// Calls `measure` on CPU 0 while `gthctl trace` runs on the other. Returns the result and the number
/// of packets that were traced in gtp_rx().
fn with_trace(args: &[&str], measure: impl Fn() -> f64) -> (f64, u64) {
    task::set_affinity(0, &[1]);
    let mut command = Command::new(gthctl::binary());
    command.arg("trace").args(args).args(["-o", "json"]);
    command.stdout(File::create(LINES).unwrap()).stderr(File::create(MESSAGES).unwrap());
    let mut trace = command.spawn().unwrap();
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let attached = ["fentry", "kprobe"].map(|how| format!("gtp_dev_xmit: {how}"));
    let is_attached = || attached.iter().any(|how| read(LINES).contains(how));
    let attached = kernel::wait(Duration::from_secs(30), is_attached);
    task::set_affinity(0, &[0]);
    let ns = measure();
    kill(Pid::from_raw(trace.id() as i32), Signal::SIGINT).unwrap();
    assert!(trace.wait().unwrap().success() && attached, "{}", read(MESSAGES));
    let lines: Vec<Value> =
        read(LINES).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let is_event = |line: &&Value| line["kind"] == "event" && line["function"] == "gtp_rx";
    let events = lines.iter().filter(is_event).count() as u64;
    (ns, events + sum(&totals(&lines), "gtp_rx", "packets"))
}

/// Like [`with_trace`], but each packet is printed in the same functions.
fn with_printk(measure: impl Fn() -> f64) -> f64 {
    task::set_affinity(0, &[1]);
    let object = std::env::var_os("PRINTK_OBJECT").expect("set by tests/vm/test");
    let object = ObjectBuilder::default().open_file(PathBuf::from(object)).unwrap().load().unwrap();
    let _links: Vec<Link> = object.progs_mut().map(|program| program.attach().unwrap()).collect();
    let mut cat = Command::new("cat");
    cat.arg("/sys/kernel/tracing/trace_pipe").stdout(Stdio::null());
    let mut cat: Child = cat.spawn().unwrap();
    task::set_affinity(0, &[0]);
    let ns = measure();
    cat.kill().unwrap();
    cat.wait().unwrap();
    ns
}

#[test]
fn a_counted_packet_costs_less_than_a_printed_one() {
    let _plane = Plane::on_gtp();
    let measured = std::thread::spawn(|| {
        setns(File::open("/run/netns/ran").unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let socket = UdpSocket::bind((GNB, 0)).unwrap();
        let measure = || packet_ns(&socket);
        task::set_affinity(0, &[0]);
        let none = measure();
        // An uplink packet passes two of the functions, gtp_encap_recv() and gtp_rx().
        let printed = with_printk(measure) - none;
        println!("a packet: {none:.0} ns; printed in two functions: {printed:+.0} ns");
        let ways = [&["gtp"][..], &["gtp", "--kprobe"], &["gtp", "--events"]];
        let costs = ways.map(|args| {
            let (ns, traced) = with_trace(args, measure);
            let cost = ns - none;
            println!(
                "  {args:?}: {cost:+.0} ns, {:.2} of printed; {traced} traced",
                cost / printed
            );
            (cost, traced)
        });
        (costs, printed)
    });
    let (costs, printed) = measured.join().unwrap();
    let [(counted, packets), (by_kprobe, packets_by_kprobe), (_, events)] = costs;
    let sent = u64::from(2 * PACKETS);
    assert_eq!((packets, packets_by_kprobe), (sent, sent));
    assert!(events > 0);
    assert!(counted > 0.0 && by_kprobe > 0.0, "{counted} and {by_kprobe}: nothing was at work");
    assert!(counted < printed && by_kprobe < printed, "{counted}, {by_kprobe} against {printed}");
}
