//! What it costs to trace a packet, compared with printing a line of text for it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, ObjectBuilder};
use nix::sched::{CloneFlags, setns};

use crate::support::gthctl;
use crate::support::plane::{GNB, Plane, UPF, packet};
use crate::support::task;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::TIMING;

const PACKETS: u32 = 4_000;
const ROUNDS: usize = 3;

/// The time per packet in ns. This thread sends many packets and carries each through the data
/// plane itself.
fn packet_ns(socket: &UdpSocket, packet: &[u8]) -> f64 {
    let begin = Instant::now();
    for _ in 0..PACKETS {
        socket.send_to(packet, (UPF, 2152)).unwrap();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(PACKETS)
}

/// What happens to each packet besides its delivery.
enum Extra {
    Trace(Child),
    /// The programs, and who reads what they print.
    Printk(#[allow(dead_code)] Vec<Link>, Child),
}

impl Extra {
    fn trace(args: &[&str]) -> Self {
        let mut command = Command::new(gthctl::binary());
        command.arg("trace").args(args).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let attached = BufReader::new(child.stderr.take().unwrap()).lines();
        let last = attached.map(Result::unwrap).find(|line| line.contains("gtp_dev_xmit"));
        assert!(last.is_some_and(|line| line.contains("kprobe") || line.contains("fentry")));
        std::thread::sleep(Duration::from_millis(100));
        Self::Trace(child)
    }

    fn printk() -> Self {
        let object = std::env::var_os("PRINTK_OBJECT").expect("set by tests/vm/test");
        let open = ObjectBuilder::default().open_file(PathBuf::from(object)).unwrap();
        let object = open.load().unwrap();
        let links = object.progs_mut().map(|program| program.attach().unwrap()).collect();
        let mut cat = Command::new("cat");
        cat.arg("/sys/kernel/tracing/trace_pipe").stdout(Stdio::null());
        Self::Printk(links, cat.spawn().unwrap())
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        let (Self::Trace(child) | Self::Printk(_, child)) = self;
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn a_counted_packet_costs_less_than_a_printed_one() {
    let _plane = Plane::on_gtp();
    let sender = std::thread::spawn(|| {
        let ran = File::open("/run/netns/ran").unwrap();
        setns(ran, CloneFlags::CLONE_NEWNET).unwrap();
        // The reader is on the other CPU.
        task::set_affinity(0, &[0]);
        let socket = UdpSocket::bind((GNB, 0)).unwrap();
        let packet = packet();
        // Every round measures each, so that drift of the machine affects all alike. The least
        // value is the least disturbed one.
        let mut least = [f64::MAX; 5];
        for _ in 0..ROUNDS {
            for (variant, least) in least.iter_mut().enumerate() {
                task::set_affinity(0, &[1]);
                let extra = match variant {
                    1 => Some(Extra::trace(&["gtp"])),
                    2 => Some(Extra::trace(&["gtp", "--kprobe"])),
                    3 => Some(Extra::trace(&["gtp", "--events"])),
                    4 => Some(Extra::printk()),
                    _ => None,
                };
                task::set_affinity(0, &[0]);
                packet_ns(&socket, &packet);
                *least = least.min(packet_ns(&socket, &packet));
                drop(extra);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        least
    });
    let [none, fentry, kprobe, events, printed] = sender.join().unwrap();
    // An uplink packet passes two of the functions, gtp_encap_recv and gtp_rx.
    println!("a packet without: {none:.0} ns");
    let extra = |what: &str, ns: f64| {
        let more = ns - none;
        println!(
            "  {what}: {more:+.0} ns in two functions, {:.2} of printed",
            more / (printed - none)
        );
        more
    };
    let counted = extra("counted by fentry and fexit", fentry);
    extra("counted by kprobe and kretprobe", kprobe);
    extra("events by fentry and fexit", events);
    let printed = extra("printed by fentry", printed);
    assert!(counted < printed, "{counted} against {printed}");
}
