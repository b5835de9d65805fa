//! The testbed's data plane: a UE behind `nr-gnb`, whose packets pass a GTP driver in
//! this kernel.

use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::kernel;

/// The N3 addresses, and the tunnel's endpoint at the UPF (tests/vm/testbed/src/plane.rs).
pub const GNB: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
pub const UPF: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 2);
pub const UPLINK_TEID: u32 = 0x101;

/// Functions of free5GC's gtp5g that every packet of the UE passes.
pub const GTP5G_FUNCTIONS: [&str; 13] = [
    "gtp5g_encap_recv",
    "gtp1u_udp_encap_recv",
    "pdr_find_by_gtp1u",
    "gtp5g_rx",
    "gtp5g_fwd_skb_encap",
    "gtp5g_dev_xmit",
    "gtp5g_handle_skb_ipv4",
    "pdr_find_by_ipv4",
    "gtp5g_fwd_skb_ipv4",
    "policePacket",
    "ip4_find_route",
    "gtp5g_push_header",
    "gtp5g_xmit_skb_ipv4",
];

/// Calls `run` in a thread in the network namespace `name` (ip-netns(8)).
pub fn in_namespace<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        setns(File::open(format!("/run/netns/{name}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        run()
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
}

/// The packets that a device of this thread's network namespace has received (proc_pid_net(5)).
fn received(device: &str) -> u64 {
    let devices = kernel::read("/proc/thread-self/net/dev");
    let counts =
        devices.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    counts.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs a ping of `count` probes through a tunnel, in this thread's network namespace. Each must be
/// answered, the last one perhaps after ping has ended: ping waits for it only twice as long as the
/// slowest answer took, whatever `-W` says.
pub fn answered(ping: &str, tunnel: &str, count: u64) {
    let before = received(tunnel);
    let output = succeeds(Command::new("ping").args(ping.split(' ')));
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains(&format!("{count} packets transmitted")), "{output}");
    let all = || output.contains(&format!(" {count} received"));
    let came = || received(tunnel) >= before + count;
    assert!(all() || kernel::wait(Duration::from_secs(5), came), "{output}");
}

/// The data plane, until dropped.
pub struct Plane {
    testbed: PathBuf,
    /// The module inserted for it.
    module: Option<&'static str>,
}

impl Plane {
    /// The plane on the kernel's own driver.
    pub fn on_gtp() -> Self {
        Self::on("gtp", None)
    }

    /// The plane on the module that stands in for free5GC's gtp5g (tests/vm/modules/gtp5g.c). Inserts
    /// its variant `btf` or `no-btf`. Returns `None` and prints why if the module could not be built.
    pub fn on_gtp5g(variant: &str) -> Option<Self> {
        insert_gtp5g(variant).then(|| Self::on("gtp5g", Some("gtp5g")))
    }

    fn on(driver: &str, module: Option<&'static str>) -> Self {
        let plane = Self { testbed: path("TESTBED_DIR").join("testbed"), module };
        succeeds(Command::new(&plane.testbed).args(["up", "--driver", driver]));
        plane
    }

    /// Sends probes from the UE to the data network; each must be answered.
    pub fn ping(&self, count: usize) {
        self.probe(count, "0.01");
    }

    /// Like [`Plane::ping`], but takes longer: it sends only 20 probes a second.
    pub fn ping_for_long(&self, count: usize) {
        self.probe(count, "0.05");
    }

    /// Sends 20 probes a second until stopped or dropped. The command begins with `before`.
    pub fn pinging(&self, before: &[&str]) -> Pinging {
        let mut command = before.to_vec();
        command.extend("ip netns exec ran ping -q -n -I uesimtun0 -i 0.05 10.200.0.2".split(' '));
        let before = in_namespace("ran", || received("uesimtun0"));
        let mut ping = Command::new(command[0]);
        Pinging { ping: ping.args(&command[1..]).stdout(Stdio::piped()).spawn().unwrap(), before }
    }

    fn probe(&self, count: usize, interval: &str) {
        let ping = format!("-n -I uesimtun0 -i {interval} -W 5 -c {count} 10.200.0.2");
        in_namespace("ran", || answered(&ping, "uesimtun0", count as u64));
    }

    /// The process id of `nr-gnb`.
    pub fn gnb(&self) -> i32 {
        kernel::read("/run/nr-gnb.pid").parse().unwrap()
    }

    /// The threads of `nr-gnb`.
    pub fn gnb_threads(&self) -> Vec<i32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.gnb())).unwrap();
        threads.map(|t| t.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }
}

/// A ping that ends when this is dropped.
pub struct Pinging {
    ping: Child,
    /// The packets that the tunnel had received before this ping.
    before: u64,
}

impl Pinging {
    /// Ends ping with Ctrl-C. Each probe must be answered, except one that may still be on its way. Some
    /// answers may come after ping has ended.
    #[track_caller]
    pub fn stop(mut self) {
        kill(Pid::from_raw(self.ping.id() as i32), Signal::SIGINT).unwrap();
        let mut output = String::new();
        self.ping.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let number = |after: &str| -> u64 {
            let before = output.split(after).next().unwrap();
            let word = before.split([' ', '\n']).next_back().unwrap();
            word.parse().unwrap_or_else(|_| panic!("{output}"))
        };
        let (sent, received) = (number(" packets transmitted"), number(" received"));
        let came = || in_namespace("ran", || self::received("uesimtun0")) - self.before;
        let all = || received + 1 >= sent || came() + 1 >= sent;
        assert!(received > 0 && kernel::wait(Duration::from_secs(5), all), "{output}");
    }
}

impl Drop for Pinging {
    fn drop(&mut self) {
        let _ = self.ping.kill();
        let _ = self.ping.wait();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Some(module) = self.module {
            // This removes its device, too, even while the device is in use.
            let _ = Command::new("rmmod").arg(module).status();
        }
        let _ = Command::new(&self.testbed).arg("down").status();
    }
}

/// Inserts a variant of the module that stands in for gtp5g, see [`insert`].
pub fn insert_gtp5g(variant: &str) -> bool {
    insert(variant, "gtp5g")
}

/// Inserts a module of tests/vm/modules. Returns false and prints why if it could not be built.
pub fn insert(variant: &str, name: &str) -> bool {
    insert_with(variant, name, &[])
}

/// Like [`insert`], with module parameters.
pub fn insert_with(variant: &str, name: &str, parameters: &[&str]) -> bool {
    if let Ok(why) = std::env::var("TEST_MODULES_SKIPPED") {
        println!("skipped: {why}");
        return false;
    }
    let module = path("TEST_MODULES").join(variant).join(format!("{name}.ko"));
    succeeds(Command::new("insmod").arg(module).args(parameters));
    true
}

/// Runs a command that must succeed.
#[track_caller]
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn path(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("set by tests/vm/test").into()
}

/// A G-PDU (3GPP TS 29.281, 5) with an unsolicited echo reply, which the data network drops.
pub fn packet() -> Vec<u8> {
    let (ue, dn) = (Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(10, 200, 0, 2));
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
    ip.extend(ue.octets().into_iter().chain(dn.octets()));
    let checksum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    let icmp = [0, 0, 0xff, 0xff, 0, 0, 0, 0];
    let mut packet = vec![0x30, 0xff, 0, 28];
    packet.extend(UPLINK_TEID.to_be_bytes().into_iter().chain(ip).chain(icmp));
    packet
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}
