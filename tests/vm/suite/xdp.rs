//! `gthctl trace xdp:DEV` with the suite's own program (tests/vm/xdp.bpf.c).

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{Link, Object, ObjectBuilder, ProgramInput};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::output;
use crate::support::gthctl::{self, Output};
use crate::support::kernel;
use crate::support::nic::{self, Pair};
use crate::support::plane::{in_namespace, succeeds};
use crate::support::task;
use crate::support::trace::{SOON, Trace};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

/// Packets with each verdict.
const PACKETS: u64 = 20;
/// The sender's CPU. A veth runs its program there, unless another CPU is handling a packet
/// for it (drivers/net/veth.c: veth_poll()).
const CPU: usize = 1;

/// The index of `xdp0` and its peer. No other device has it.
const INDEX: u32 = 7000;

/// Two devices with a sender at their other ends, until dropped.
struct Links;

impl Links {
    fn up() -> Self {
        ip("netns add sender");
        for i in [0, 1_u32] {
            // Both ends have the same index, each in its own network namespace.
            let same = format!("index {}", INDEX + i);
            for line in [
                format!("link add xdp{i} {same} type veth peer name to{i} {same} netns sender"),
                // The network stack itself must send nothing: such a packet, from any CPU, can
                // cause the sender's packets to be handled on that CPU.
                format!("link set xdp{i} address 02:00:00:00:00:0{i} addrgenmode none"),
                format!("-n sender link set to{i} address 02:00:00:00:01:0{i} addrgenmode none"),
                format!("addr add 10.102.{i}.1/24 dev xdp{i}"),
                format!("link set xdp{i} up"),
                format!("-n sender addr add 10.102.{i}.2/24 dev to{i}"),
                format!("-n sender link set to{i} up"),
                format!("neigh add 10.102.{i}.2 lladdr 02:00:00:00:01:0{i} dev xdp{i}"),
                format!("-n sender neigh add 10.102.{i}.1 lladdr 02:00:00:00:00:0{i} dev to{i}"),
            ] {
                ip(&line);
            }
        }
        Self
    }

    /// Sends packets with each verdict, and with a number that is not a verdict, to a device.
    fn send(&self, device: usize) {
        in_namespace("sender", || {
            task::set_affinity(0, &[CPU]);
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            for verdict in 0..=5 {
                for _ in 0..PACKETS {
                    socket.send_to(&[verdict], (format!("10.102.{device}.1"), 2152)).unwrap();
                }
            }
        });
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for line in ["link del xdp0", "link del xdp1", "netns del sender"] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

fn ip(line: &str) {
    succeeds(Command::new("ip").args(line.split(' ')));
}

fn user_plane() -> Object {
    let object = std::env::var_os("XDP_OBJECT").expect("set by tests/vm/test");
    ObjectBuilder::default().open_file(PathBuf::from(object)).unwrap().load().unwrap()
}

fn index(device: &str) -> i32 {
    fs::read_to_string(format!("/sys/class/net/{device}/ifindex")).unwrap().trim().parse().unwrap()
}

/// Runs the program for a device until dropped.
fn attach(user_plane: &Object, device: &str) -> Link {
    user_plane.progs_mut().next().unwrap().attach_xdp(index(device)).unwrap()
}

/// The sum over all CPUs of a verdict's last count.
fn verdicts(lines: &[Value], verdict: &str) -> u64 {
    let of_cpu = |cpu: usize| {
        let last = lines.iter().rfind(|line| line["kind"] == "xdp" && line["cpu"] == cpu);
        last.map_or(0, |line| line["verdicts"][verdict].as_u64().unwrap())
    };
    (0..kernel::cpus()).map(of_cpu).sum()
}

/// How many programs the trace has reported.
fn programs(trace: &Trace) -> usize {
    trace.lines().iter().filter(|line| line["kind"] == "program").count()
}

fn trace_once(device: &str) -> Output {
    let mut command = Command::new(gthctl::binary());
    gthctl::output(command.args(["trace", &format!("xdp:{device}"), "--once"]))
}

#[test]
fn runs_time_and_verdicts_on_each_cpu() {
    let links = Links::up();
    let user_plane = user_plane();
    let _attached = [attach(&user_plane, "xdp0"), attach(&user_plane, "xdp1")];
    let trace = Trace::start_waiting(&["xdp:xdp0"]);
    assert!(trace.has_line(|line| line["kind"] == "program"), "{}", trace.stderr());
    links.send(0);
    // The same program, but not for the traced device.
    links.send(1);
    let all = |line: &Value| line["verdicts"]["aborted"] == 2 * PACKETS;
    assert!(trace.has_line(all), "{}", trace.stderr());
    let lines = trace.stop();
    let program = &lines[0];
    assert_eq!((&program["device"], &program["mode"]), (&"xdp0".into(), &"driver".into()));
    // The kernel cuts the name.
    assert_eq!(program["name"], "user_plane_of_t");
    assert_eq!(program["entry"], "user_plane_of_the_suite");
    for verdict in ["drop", "pass", "tx", "redirect"] {
        assert_eq!(verdicts(&lines, verdict), PACKETS, "{verdict}: {lines:#?}");
    }
    assert_eq!(verdicts(&lines, "aborted"), 2 * PACKETS, "{lines:#?}");
    for line in lines.iter().filter(|line| line["kind"] == "xdp") {
        let [mean, longest] = ["mean_ns", "longest_ns"].map(|key| line[key].as_u64().unwrap());
        assert!(0 < mean && mean <= longest, "{line}");
        let share = line["share"].as_f64().unwrap();
        assert!(share > 0.0 && share < 1.0, "{line}");
        assert!(line["cpu"] == CPU || line["verdicts"]["drop"] == 0, "{line}");
    }
}

#[test]
fn a_device_of_another_namespace_is_another_one() {
    let _links = Links::up();
    let user_plane = user_plane();
    let _attached = attach(&user_plane, "xdp0");
    let program = user_plane.progs_mut().next().unwrap().as_fd().as_raw_fd();
    // SAFETY: numbers, and no options.
    let to = |at| unsafe { sys::bpf_xdp_attach(INDEX as i32, at, 0, null()) };
    assert_eq!(in_namespace("sender", || to(program)), 0);
    let trace = Trace::start_waiting(&["xdp:xdp0"]);
    assert!(trace.has_line(|line| line["kind"] == "program"), "{}", trace.stderr());
    let send = |address: &str| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        (0..PACKETS).for_each(|_| assert_eq!(socket.send_to(&[1], (address, 2152)).unwrap(), 1));
    };
    send("10.102.0.2");
    in_namespace("sender", || send("10.102.0.1"));
    assert!(
        kernel::wait(SOON, || verdicts(&trace.lines(), "drop") >= PACKETS),
        "{}",
        trace.stderr()
    );
    assert_eq!(verdicts(&trace.stop(), "drop"), PACKETS);
    in_namespace("sender", || to(-1));
}

/// The trace redraws its table on a terminal, which erases other text there.
#[test]
fn a_terminal_shows_under_the_table_what_it_says() {
    let _links = Links::up();
    let user_plane = user_plane();
    let (mut ours, its) = output::terminal();
    let mut command = Command::new(gthctl::binary());
    output::on_terminal(command.args(["trace", "xdp:xdp0", "--wait"]), its);
    let mut child = command.spawn().unwrap();
    drop(command);
    let shown = Arc::new(Mutex::new(Vec::new()));
    let reader = {
        let shown = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            // An error means that the terminal no longer has another end.
            while let Ok(length) = nix::unistd::read(&mut ours, &mut part) {
                shown.lock().unwrap().extend(&part[..length]);
            }
        })
    };
    let shown = || String::from_utf8_lossy(&shown.lock().unwrap()).into_owned();
    let last_table_has = |what: &str| {
        let shown = shown();
        let tables = shown.split("\x1b[H").skip(1).filter_map(|table| table.split_once("\x1b[J"));
        tables.last().is_some_and(|(table, _)| table.contains(what))
    };
    // There is no table yet.
    assert!(kernel::wait(SOON, || shown().contains("xdp0 has no XDP program; waiting for one")));
    let attached = attach(&user_plane, "xdp0");
    assert!(kernel::wait(SOON, || last_table_has("(driver mode; fentry, fexit at ")));
    drop(attached);
    assert!(kernel::wait(SOON, || last_table_has("xdp0 has lost its XDP program")));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
}

/// A NIC's program in the network stack's (generic) mode, until dropped.
struct Generic(i32);

/// XDP_FLAGS_SKB_MODE, include/uapi/linux/if_link.h.
const GENERIC: u32 = 1 << 1;

impl Generic {
    fn attach(user_plane: &Object, device: &str) -> Self {
        let program = user_plane.progs_mut().next().unwrap().as_fd().as_raw_fd();
        // SAFETY: numbers, and no options.
        let attached = unsafe { sys::bpf_xdp_attach(index(device), program, GENERIC, null()) };
        assert_eq!(attached, 0);
        Self(index(device))
    }
}

impl Drop for Generic {
    fn drop(&mut self) {
        // SAFETY: numbers, and no options.
        unsafe { sys::bpf_xdp_detach(self.0, GENERIC, null()) };
    }
}

#[test]
fn a_nics_packets_run_it_where_its_interrupt_comes_in() {
    const PROBES: u64 = 40;
    let pair = Pair::up();
    let _restore = nic::Restore;
    let user_plane = user_plane();
    let _attached = Generic::attach(&user_plane, "eth1");
    for cpu in [2, 1] {
        nic::report(&["pin", "eth1", "--cpus", &cpu.to_string()]);
        // The first interrupt after a move still comes in where the IRQ was.
        pair.ping(5);
        let trace = Trace::start_waiting(&["xdp:eth1"]);
        assert!(trace.has_line(|line| line["mode"] == "generic"), "{}", trace.stderr());
        pair.ping(PROBES as usize);
        // ping may end before the last answer has come.
        kernel::wait(SOON, || verdicts(&trace.lines(), "pass") >= PROBES);
        let lines = trace.stop();
        let runs: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "xdp").collect();
        assert!(runs.iter().all(|line| line["cpu"] == cpu), "CPU {cpu}: {lines:#?}");
        assert!(verdicts(&lines, "pass") >= PROBES, "{lines:#?}");
        let mut irqs = runs.iter().filter_map(|line| line["irqs"].as_array());
        assert!(irqs.any(|irqs| irqs[0]["nic"] == "eth1"), "CPU {cpu}: {lines:#?}");
    }
}

/// Also prints how much more a run costs when it is counted.
#[test]
fn each_of_many_runs_counts() {
    const RUNS: u32 = 50_000;
    let _links = Links::up();
    let user_plane = user_plane();
    let _attached = attach(&user_plane, "xdp0");
    let program = user_plane.progs_mut().next().unwrap();
    let run = || {
        // struct xdp_md, include/uapi/linux/bpf.h: a packet of 64 bytes that came from xdp0.
        let words = [0, 64, 0, index("xdp0") as u32, 0, 0];
        let mut context: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&[0; 64]),
            repeat: RUNS,
            ..Default::default()
        };
        program.test_run(input).unwrap().duration
    };
    let alone = run().min(run());
    let trace = Trace::start_waiting(&["xdp:xdp0"]);
    assert!(trace.has_line(|line| line["kind"] == "program"), "{}", trace.stderr());
    let traced = run().min(run());
    println!("a run of the program alone: {alone:?}; counted: {traced:?}");
    // The kernel may have moved this thread in between.
    let all = || verdicts(&trace.lines(), "pass") >= 2 * u64::from(RUNS);
    assert!(kernel::wait(SOON, all), "{}", trace.stderr());
}

#[test]
fn a_program_and_its_device_come_and_go() {
    let links = Links::up();
    let user_plane = user_plane();
    let trace = Trace::start_waiting(&["xdp:xdp0", "--wait"]);
    assert!(trace.says("xdp0 has no XDP program; waiting for one"), "{}", trace.stderr());
    for times in 1..=2 {
        let attached = attach(&user_plane, "xdp0");
        assert!(kernel::wait(SOON, || programs(&trace) == times), "{}", trace.stderr());
        drop(attached);
        let lost = || trace.has_said("xdp0 has lost its XDP program") == times;
        assert!(kernel::wait(SOON, lost), "{}", trace.stderr());
    }
    drop(links);
    let links = Links::up();
    let _attached = attach(&user_plane, "xdp0");
    assert!(kernel::wait(SOON, || programs(&trace) == 3), "{}", trace.stderr());
    links.send(0);
    assert!(trace.has_line(|line| line["verdicts"]["tx"] == PACKETS), "{}", trace.stderr());
}

/// Like devices under a bond, which passes its program on to them. A bridge's program runs by itself.
#[test]
fn devices_come_under_it() {
    let links = Links::up();
    let _bridge = Bridge::up();
    let user_plane = user_plane();
    let _attached = [attach(&user_plane, "br0"), attach(&user_plane, "xdp1")];
    let trace = Trace::start_waiting(&["xdp:br0"]);
    assert!(kernel::wait(SOON, || programs(&trace) == 1), "{}", trace.stderr());
    ip("link set xdp1 master br0");
    assert!(kernel::wait(SOON, || programs(&trace) == 2), "{}", trace.stderr());
    links.send(1);
    assert!(trace.has_line(|line| line["verdicts"]["drop"] == PACKETS), "{}", trace.stderr());
}

struct Bridge;

impl Bridge {
    fn up() -> Self {
        ip("link add name br0 type bridge");
        Self
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", "br0"]).status();
    }
}

#[test]
fn the_table_and_the_lines() {
    let links = Links::up();
    let user_plane = user_plane();
    let _attached = attach(&user_plane, "xdp0");
    for (format, wanted) in [("table", " CPU | runs | per s | mean"), ("lines", "cpu=1 runs=")] {
        let mut trace = Command::new(gthctl::binary());
        trace.args(["trace", "xdp:xdp0", "--interval", "500ms", "-o", format]);
        let mut trace = trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(trace.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(
            said.ends_with(" at xdp0 (driver mode; fentry, fexit at user_plane_of_the_suite)\n"),
            "{said}"
        );
        links.send(0);
        let mut lines = BufReader::new(trace.stdout.take().unwrap()).lines().map(Result::unwrap);
        let found = lines.find(|line| line.contains(wanted));
        kill(Pid::from_raw(trace.id() as i32), Signal::SIGINT).unwrap();
        let rest: Vec<String> = lines.collect();
        println!("{}\n{}", found.unwrap(), rest.join("\n"));
        assert!(trace.wait().unwrap().success());
    }
}

#[test]
fn what_cannot_be_traced_is_told() {
    let _links = Links::up();
    let refusal = |device: &str| {
        let output = trace_once(device);
        (output.code(), output.stderr)
    };
    let error = |code: i32, what: &str| (code, format!("gthctl: error: {what}\n"));
    let none = "xdp0 has no XDP program; start the user plane, or wait for it with --wait";
    assert_eq!(refusal("xdp0"), error(1, none));
    let missing = "there is no network device nodev; ip link lists those of this network namespace";
    assert_eq!(refusal("nodev"), error(1, missing));
    let id = without_btf(index("xdp0"));
    let no_btf = format!(
        "the XDP program passes (id {id}) of xdp0 has no BTF, so it cannot be traced; compile it with -g"
    );
    assert_eq!(refusal("xdp0"), error(1, &no_btf));
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    let output = gthctl::output(command.arg(gthctl::binary()).args(["trace", "xdp:xdp0"]));
    let privileges = "tracing an XDP program needs CAP_SYS_ADMIN; run it as root, with sudo";
    assert_eq!((output.code(), output.stderr), error(3, privileges));
}

/// Loads a program without BTF and attaches it for as long as the device lives. Returns its id.
fn without_btf(device: i32) -> u32 {
    // r0 = XDP_PASS; exit
    let instructions = [[0xb7_u8, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    // SAFETY: strings, and two instructions of 8 bytes each; the descriptor is used and closed.
    unsafe {
        let (kind, name, licence) = (sys::BPF_PROG_TYPE_XDP, c"passes", c"GPL");
        let code = instructions.as_ptr().cast();
        let fd = sys::bpf_prog_load(kind, name.as_ptr(), licence.as_ptr(), code, 2, null_mut());
        assert!(fd > 0, "{fd}");
        assert_eq!(sys::bpf_xdp_attach(device, fd, 0, null()), 0);
        let mut info = sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        assert_eq!(sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut size), 0);
        libc::close(fd);
        info.id
    }
}
