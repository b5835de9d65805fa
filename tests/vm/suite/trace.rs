//! `gthctl trace` counts what was sent, and names the right task and CPU.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::cgroup::{Cgroups, enter};
use crate::support::gthctl::{self, NO_RULES};
use crate::support::kernel;
use crate::support::nic::{self, Pair};
use crate::support::plane::{self, GTP5G_FUNCTIONS, Plane, packet, succeeds};
use crate::support::sender;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::trace::Trace;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

/// The kernel's function for getppid(2).
const GETPPID: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__x64_sys_getppid" };

const PROBES: usize = 40;
const SOON: Duration = Duration::from_secs(10);
/// A probe in its tunnel, from the UDP header on, and without.
const UPLINK_BYTES: u64 = 100;
const DOWNLINK_BYTES: u64 = 84;

/// The last count for each task, CPU, context and function.
pub fn totals(lines: &[Value]) -> Vec<Value> {
    let key = |v: &Value| ["tid", "cpu", "context", "function"].map(|name| v[name].to_string());
    let mut last: Vec<Value> = Vec::new();
    for line in lines.iter().filter(|line| line["kind"] == "count") {
        match last.iter_mut().find(|known| key(known) == key(line)) {
            Some(known) => *known = line.clone(),
            None => last.push(line.clone()),
        }
    }
    last
}

pub fn sum(rows: &[Value], function: &str, field: &str) -> u64 {
    let of = rows.iter().filter(|row| row["function"] == function);
    of.map(|row| row[field].as_u64().unwrap()).sum()
}

pub fn of_threads(rows: &[Value], threads: &[i32]) -> Vec<Value> {
    let is_one = |row: &&Value| threads.iter().any(|&tid| row["tid"] == tid);
    rows.iter().filter(is_one).cloned().collect()
}

#[test]
fn counts_every_packet_for_the_thread_that_sends_it() {
    let plane = Plane::on_gtp();
    for args in [&["gtp"][..], &["gtp", "--kprobe"]] {
        let trace = Trace::start(args);
        plane.ping(PROBES);
        let lines = trace.stop();
        let how = lines.iter().find(|line| line["function"] == "gtp_encap_recv").unwrap();
        let wanted = if args.len() > 1 { "kprobe, kretprobe" } else { "fentry, fexit" };
        assert_eq!(how["how"], format!("gtp_encap_recv: {wanted}"));
        let rows = totals(&lines);
        let gnb = of_threads(&rows, &plane.gnb_threads());
        let probes = PROBES as u64;
        assert_eq!(sum(&gnb, "gtp_encap_recv", "packets"), probes, "{rows:#?}");
        assert_eq!(sum(&gnb, "gtp_dev_xmit", "packets"), probes, "{rows:#?}");
        assert_eq!(sum(&gnb, "gtp_encap_recv", "bytes"), probes * UPLINK_BYTES, "{rows:#?}");
        assert_eq!(sum(&gnb, "gtp_dev_xmit", "bytes"), probes * DOWNLINK_BYTES, "{rows:#?}");
        for row in &gnb {
            assert_eq!((&row["comm"], &row["context"]), (&"nr-gnb".into(), &"task".into()));
            assert_eq!(row["tgid"], plane.gnb());
            assert_ne!(row["tid"], plane.gnb(), "it is the worker that sends");
            let (p50, p99) = (row["p50_ns"].as_u64(), row["p99_ns"].as_u64());
            assert!(p50.is_some_and(|ns| ns > 100) && p50 <= p99, "{row}");
        }
    }
}

#[test]
fn the_cpu_is_where_the_thread_was_put() {
    let plane = Plane::on_gtp();
    let trace = Trace::start(&["gtp"]);
    let sent = Cell::new(0_u64);
    // Waits until all packets are reported: a probe passes each of the functions once.
    let ping = |count: usize| {
        plane.ping(count);
        sent.set(sent.get() + count as u64);
        let all = || {
            let rows = totals(&trace.lines());
            let is_told = |function: &str| sum(&rows, function, "packets") == sent.get();
            ["gtp_encap_recv", "gtp_dev_xmit"].into_iter().all(is_told)
                && rows.iter().all(|row| is_told(row["function"].as_str().unwrap()))
        };
        let told = kernel::wait(SOON, all);
        assert!(told, "{} sent: {:#?}", sent.get(), totals(&trace.lines()));
    };
    let cpus_of = |cpu: usize| {
        let before = trace.lines().len();
        ping(10);
        let lines = trace.lines()[before..].to_vec();
        let rows = of_threads(&totals(&lines), &plane.gnb_threads());
        assert!(!rows.is_empty());
        assert!(rows.iter().all(|row| row["cpu"] == cpu), "{cpu} wanted: {rows:#?}");
    };
    for cpu in [2, 0] {
        for tid in plane.gnb_threads() {
            task::set_affinity(tid, &[cpu]);
        }
        cpus_of(cpu);
    }
    let all: Vec<usize> = (0..kernel::cpus()).collect();
    for tid in plane.gnb_threads() {
        task::set_affinity(tid, &all);
    }
    // The scheduler's rule does the same.
    let gthctl = shared::scheduler(
        "strategies: [{command_regex: ^nr-gnb$, priority: true, cpus: 1, exclusive: true}]",
    );
    ping(3);
    cpus_of(1);
    drop(trace);
    gthctl.stop();
}

/// The kubelet's cgroups (see src/policy/cgroups.rs) identify the pod and the container.
#[test]
fn the_pod_and_the_container_are_told() {
    const UID: &str = "6a7c2f0e-0000-4000-8000-0123456789ab";
    let id = "0123456789abcdef".repeat(4);
    let plane = Plane::on_gtp();
    let mut cgroups = Cgroups::default();
    let cgroup = cgroups.make(&format!("/kubepods/burstable/pod{UID}/{id}"));
    enter(&cgroup, plane.gnb());
    let trace = Trace::start(&["gtp"]);
    plane.ping(5);
    let rows = of_threads(&totals(&trace.stop()), &plane.gnb_threads());
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!((&row["pod"], &row["container"]), (&UID.into(), &id.as_str().into()), "{row}");
    }
    drop(plane);
}

/// RPS hands received packets to another CPU (Documentation/networking/scaling.rst), which takes
/// them in a softirq that interrupts whatever runs there.
#[test]
fn softirq_is_nobodys() {
    let plane = Plane::on_gtp();
    // Neither nr-gnb nor ping, which this thread starts, is ever on that CPU.
    for tid in plane.gnb_threads().into_iter().chain([0]) {
        task::set_affinity(tid, &[0]);
    }
    sender::steer_uplink_to(1);
    let in_kernel = |_: &task::Shared| {
        let mut zero = fs::File::open("/dev/zero").unwrap();
        let mut bytes = vec![0; 1 << 20];
        loop {
            zero.read_exact(&mut bytes).unwrap();
        }
    };
    const PACKETS: u64 = PROBES as u64;
    for args in [&["gtp"][..], &["gtp", "--kprobe"]] {
        let trace = Trace::start(args);
        let uplink = || -> Vec<Value> {
            let rows = totals(&trace.lines());
            rows.into_iter().filter(|row| row["function"] == "gtp_encap_recv").collect()
        };
        let counts = || {
            ["idle", "softirq", "task"].map(|context| -> u64 {
                let rows = uplink().into_iter().filter(|row| row["context"] == context);
                rows.map(|row| row["packets"].as_u64().unwrap()).sum()
            })
        };
        let mut before = [0; 3];
        for (round, load, context) in [(1, "", 0), (2, "spins", 1), (3, "reads", 1)] {
            let _load = match load {
                "" => None,
                "spins" => Some(Task::fork_on(load, Some(&[1]), task::spin)),
                _ => Some(Task::fork_on(load, Some(&[1]), in_kernel)),
            };
            plane.ping(PROBES);
            let all = || counts().iter().sum::<u64>() == round * PACKETS;
            assert!(kernel::wait(SOON, all), "{args:?}, {load}: {:#?}", uplink());
            let now = counts();
            assert_eq!(now[2], 0, "{args:?}, {load}: {:#?}", uplink());
            // Now and then the CPU does something else.
            let most = PACKETS * 3 / 4;
            let these = now[context] - before[context];
            assert!(these >= most, "{args:?}, {load}: {:#?}", uplink());
            before = now;
        }
        let rows = uplink();
        assert!(rows.iter().all(|row| row["cpu"] == 1), "{args:?}: {rows:#?}");
        let rows = totals(&trace.stop());
        assert_eq!(sum(&rows, "gtp_encap_recv", "packets"), 3 * PACKETS, "{args:?}: {rows:#?}");
    }
}

/// Sends at most `most` G-PDUs from the peer to eth1, while `go_on` is true. It sends from CPU 0, as
/// the sender serves an interrupt that comes in on its CPU.
fn send_through_eth1(most: usize, go_on: impl Fn() -> bool + Send) {
    let send = move || {
        task::set_affinity(0, &[0]);
        setns(fs::File::open("/run/netns/peer").unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in (0..most).take_while(|_| go_on()) {
            socket.send_to(&packet(), "10.44.0.1:2152").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| scope.spawn(send).join().unwrap());
}

#[test]
fn what_a_nic_receives_is_processed_where_its_interrupt_comes_in() {
    /// A gtp device: its socket receives what comes to port 2152, whatever the tunnel.
    struct Gtp;
    impl Drop for Gtp {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["link", "del", "gtp0"]).status();
        }
    }
    let pair = Pair::up();
    let _restore = nic::Restore;
    succeeds(Command::new("ip").args("link add gtp0 type gtp role ggsn".split(' ')));
    let _gtp = Gtp;
    for cpu in [2, 1] {
        nic::report(&["pin", "eth1", "--cpus", &cpu.to_string()]);
        // The first interrupt after a move still comes in where the IRQ was.
        pair.ping(5);
        let trace = Trace::start(&["gtp"]);
        send_through_eth1(PROBES, || true);
        // Some packets may still be on their way.
        let came = || sum(&totals(&trace.lines()), "gtp_encap_recv", "packets");
        kernel::wait(SOON, || came() >= PROBES as u64);
        let lines = trace.stop();
        let rows = totals(&lines);
        let uplink: Vec<&Value> =
            rows.iter().filter(|row| row["function"] == "gtp_encap_recv").collect();
        assert_eq!(sum(&rows, "gtp_encap_recv", "packets"), PROBES as u64, "{rows:#?}");
        for row in uplink {
            assert_eq!(row["cpu"], cpu, "{rows:#?}");
            assert_ne!(row["context"], "task", "{rows:#?}");
        }
        let fed = lines.iter().filter(|line| line["kind"] == "cpu" && line["cpu"] == cpu);
        let mut feeds = fed.filter_map(|line| line["irqs"].as_array()).flatten();
        assert!(feeds.any(|feed| feed["nic"] == "eth1"), "CPU {cpu}: {lines:#?}");
    }
    let mut suggest = Command::new(gthctl::binary());
    suggest.args(["trace", "gtp", "--suggest", "--duration", "2s"]);
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| send_through_eth1(usize::MAX, || !done.load(Ordering::Relaxed)));
        let output = gthctl::output(&mut suggest);
        done.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let text = output.stdout;
    assert!(text.contains("\n  - nic: \"eth1\"\n    cpus: \"1\"\n"), "{text}");
    assert!(text.contains("\nstrategies: []\n"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("suggested.yaml");
    fs::write(&file, &text).unwrap();
    let mut check = Command::new(gthctl::binary());
    let check = gthctl::output(check.args(["policy", "check"]).arg(file));
    assert_eq!(check.code(), 0, "{text}\n{}", check.stderr);
}

#[test]
fn both_ids_of_a_task_in_a_pid_namespace() {
    let trace = Trace::start(&["--function", "icmp_rcv"]);
    let ping = ["-p", "-f", "ping", "-q", "-n", "-i", "0.2", "-c", "1000", "127.0.0.1"];
    let mut ping = Command::new("unshare").args(ping).stdout(Stdio::null()).spawn().unwrap();
    assert!(trace.has_line(|line| line["comm"] == "ping"), "{}", trace.stderr());
    let row = trace.lines().iter().find(|line| line["comm"] == "ping").cloned();
    let row = row.unwrap();
    let status = kernel::read(&format!("/proc/{}/status", row["tid"]));
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let ids: Vec<u64> =
        ids.expect("it still runs").split_whitespace().map(|id| id.parse().unwrap()).collect();
    // This ends unshare, too.
    kill(Pid::from_raw(ids[0] as i32), Signal::SIGKILL).unwrap();
    assert_eq!(ids.len(), 2, "{status}");
    assert_eq!((&row["tid"], &row["tid_inside"]), (&ids[0].into(), &ids[1].into()));
    assert_eq!((&row["tgid"], &row["tgid_inside"]), (&ids[0].into(), &ids[1].into()));
    ping.wait().unwrap();
    // BTF tells which argument is the packet: 84 bytes without the header.
    let rows = totals(&trace.stop());
    assert_eq!(sum(&rows, "icmp_rcv", "bytes"), sum(&rows, "icmp_rcv", "packets") * 64);
}

#[test]
fn one_task_and_one_cpu_only() {
    let getppid = |_: &task::Shared| loop {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::getppid() };
        std::thread::sleep(Duration::from_millis(1));
    };
    let tasks = [0, 1].map(|cpu| Task::fork_on("asks", Some(&[cpu]), getppid));
    let function = ["--function", GETPPID];
    let pid = tasks[0].pid.to_string();
    for more in [["--pid", pid.as_str()], ["--cpu", "0"]] {
        let trace = Trace::start(&[&function[..], &more].concat());
        std::thread::sleep(Duration::from_millis(500));
        let rows = totals(&trace.stop());
        assert!(!rows.is_empty());
        assert!(rows.iter().all(|row| row["tid"] == tasks[0].pid && row["cpu"] == 0), "{rows:?}");
    }
}

/// Every packet is either an event or counted as lost.
#[test]
fn events_that_are_not_read_are_counted() {
    const CALLS: u32 = 100_000;
    let caller = Task::fork("calls", |shared| {
        while shared.order.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..CALLS {
            // SAFETY: takes nothing and cannot fail.
            unsafe { libc::getppid() };
        }
        shared.answer.store(1, std::sync::atomic::Ordering::Relaxed);
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let pid = caller.pid.to_string();
    let trace = Trace::start(&["--function", GETPPID, "--events", "--pid", &pid]);
    let tracer = Pid::from_raw(trace.child.id() as i32);
    kill(tracer, Signal::SIGSTOP).unwrap();
    caller.order(1);
    let done = || caller.shared().answer.load(std::sync::atomic::Ordering::Relaxed) == 1;
    assert!(kernel::wait(Duration::from_secs(60), done));
    kill(tracer, Signal::SIGCONT).unwrap();
    let begin = Instant::now();
    assert!(trace.has_text(r#""kind":"lost""#), "{}", trace.stderr());
    println!("the loss is told after {:?}", begin.elapsed());
    let lines = trace.stop();
    let events: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "event").collect();
    let lost: u64 = lines
        .iter()
        .filter(|line| line["kind"] == "lost")
        .map(|line| line["packets"].as_u64().unwrap())
        .sum();
    assert!(events.len() > 10_000 && lost > 10_000, "{} and {lost}", events.len());
    assert_eq!(events.len() as u64 + lost, u64::from(CALLS));
    let times: Vec<u64> = events.iter().map(|event| event["at_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 0);
    assert!(events.iter().all(|event| event["tid"] == caller.pid), "{}", events[0]);
}

/// Its standard output is full, so it would wait for the reader forever.
#[test]
fn a_trace_that_nobody_reads_ends_when_it_is_told_to() {
    let caller = Task::fork("calls", |_| {
        loop {
            // SAFETY: takes nothing and cannot fail.
            unsafe { libc::getppid() };
        }
    });
    let mut command = Command::new(gthctl::binary());
    command.args(["trace", "--function", GETPPID, "--events", "--pid", &caller.pid.to_string()]);
    let mut trace = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let held = || {
        let (mut bytes, out) = (0, trace.stdout.as_ref().unwrap().as_raw_fd());
        // SAFETY: it writes an int.
        unsafe { libc::ioctl(out, libc::FIONREAD, &raw mut bytes) };
        bytes
    };
    // About a page less than 64 KiB, as no line is split across two writes.
    assert!(kernel::wait(Duration::from_secs(60), || held() > 60_000), "{} bytes", held());
    std::thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(trace.id() as i32), Signal::SIGTERM).unwrap();
    assert!(
        kernel::wait(Duration::from_secs(10), || trace.try_wait().unwrap().is_some()),
        "it goes on"
    );
    assert!(trace.wait().unwrap().success());
}

#[test]
fn a_module_that_is_not_there() {
    let output = gthctl::output(Command::new(gthctl::binary()).args(["trace", "gtp5g", "--once"]));
    assert_eq!(output.code(), 1, "{}", output.stderr);
    assert_eq!(
        output.stderr,
        "gthctl: error: the kernel module gtp5g is not loaded; load it (modprobe gtp5g), or wait \
         for it with --wait\n"
    );
    let output = gthctl::output(Command::new(gthctl::binary()).args([
        "trace",
        "--function",
        "no_such_function",
        "--once",
    ]));
    assert_eq!(output.code(), 7, "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("nothing to trace: no_such_function: not traced: not in this kernel"),
        "{}",
        output.stderr
    );
}

const MODULE: &str = "/modules/gtp.ko";

/// Restores the module for the other tests, whatever the outcome of a test.
struct RestoreGtp;

impl RestoreGtp {
    /// Returns `None` and prints why if there is no such module.
    fn new() -> Option<Self> {
        if !Path::new(MODULE).exists() {
            println!("skipped: gtp is built into this kernel");
            return None;
        }
        Some(Self)
    }
}

impl Drop for RestoreGtp {
    fn drop(&mut self) {
        // The loaded module may be the one without the functions.
        let _ = Command::new("rmmod").arg("gtp").stderr(Stdio::null()).status();
        let _ = Command::new("insmod").arg(MODULE).stderr(Stdio::null()).status();
    }
}

fn insert(module: &Path) {
    succeeds(Command::new("insmod").arg(module));
}

/// A build of gtp whose functions have other names.
fn without_functions(dir: &Path) -> PathBuf {
    const SIGNED: &[u8] = b"~Module signature appended~\n";
    let mut module = fs::read(MODULE).unwrap();
    // A wrong signature is an error; a missing one is not (module_sig_check(), kernel/module/signing.c).
    if module.ends_with(SIGNED) {
        module.truncate(module.len() - SIGNED.len());
    }
    for prefix in ["gtp_", "gtp0_", "gtp1u_"].map(str::as_bytes) {
        for at in 0..=module.len() - prefix.len() {
            if module[at..].starts_with(prefix) {
                module[at + 2] = b'x';
            }
        }
    }
    let file = dir.join("gtp.ko");
    fs::write(&file, module).unwrap();
    file
}

#[test]
fn a_module_without_the_functions() {
    let Some(_restore) = RestoreGtp::new() else { return };
    if fs::read_to_string("/sys/module/module/parameters/sig_enforce").is_ok_and(|on| on == "Y\n") {
        println!("skipped: this kernel takes signed modules only");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let other = without_functions(dir.path());
    let remove = || succeeds(Command::new("rmmod").arg("gtp"));
    let why = "gtp_encap_recv: not traced: not in this gtp, or inlined";
    remove();
    let mut trace = Trace::start_waiting(&["gtp", "--wait"]);
    assert!(trace.says("waiting for the kernel module gtp"));
    insert(&other);
    assert!(trace.says(&format!("nothing to trace: {why}")), "{}", trace.stderr());
    assert_eq!(trace.child.wait().unwrap().code(), Some(7), "{}", trace.stderr());
    assert_eq!((trace.has_said(why), trace.lines().len()), (1, 0), "{}", trace.stderr());
    remove();

    // The same during a trace, which continues.
    insert(Path::new(MODULE));
    let trace = Trace::start(&["gtp", "--kprobe"]);
    let told = |how: &str| {
        let is_told = |line: &Value| {
            line["kind"] == "function" && line["function"] == "gtp_encap_recv" && line["how"] == how
        };
        trace.lines().iter().filter(|line| is_told(line)).count()
    };
    let traced = "gtp_encap_recv: kprobe, kretprobe";
    assert_eq!(told(traced), 1, "{}", trace.stderr());
    remove();
    assert!(trace.says("the kernel module gtp was unloaded"));
    insert(&other);
    let why = format!("{why}; what it does counts in its caller");
    assert!(kernel::wait(SOON, || told(&why) == 1), "{}", trace.stderr());
    remove();
    assert!(kernel::wait(SOON, || trace.has_said("the kernel module gtp was unloaded") == 2));
    insert(Path::new(MODULE));
    assert!(kernel::wait(SOON, || told(traced) == 2), "{}", trace.stderr());
    trace.stop();
}

#[test]
fn a_module_that_comes_and_goes() {
    let Some(_restore) = RestoreGtp::new() else { return };
    let insert = || insert(Path::new(MODULE));
    let remove = || succeeds(Command::new("rmmod").arg("gtp"));
    remove();
    let trace = Trace::start_waiting(&["gtp", "--wait", "--kprobe"]);
    assert!(trace.says("waiting for the kernel module gtp"));
    insert();
    assert!(trace.has_line(|line| line["kind"] == "function"), "{}", trace.stderr());
    let mut packets = 0;
    for round in 1..=3 {
        let plane = Plane::on_gtp();
        plane.ping(10);
        packets += 10;
        let counted = |lines: &[Value]| {
            let gnb: Vec<Value> =
                totals(lines).into_iter().filter(|row| row["comm"] == "nr-gnb").collect();
            sum(&gnb, "gtp_encap_recv", "packets")
        };
        let all = || counted(&trace.lines()) == packets;
        assert!(kernel::wait(Duration::from_secs(10), all), "round {round}");
        drop(plane);
        remove();
        assert!(kernel::wait(Duration::from_secs(10), || {
            trace.has_said("the kernel module gtp was unloaded") == round
        }));
        insert();
        assert!(kernel::wait(Duration::from_secs(30), || {
            trace
                .lines()
                .iter()
                .filter(|l| l["function"] == "gtp_rx" && l["traced"] == true)
                .count()
                == round + 1
        }));
    }
    trace.stop();
}

#[test]
fn gtp5g_with_and_without_btf() {
    for (variant, wanted) in [("btf", "fentry, fexit"), ("no-btf", "kprobe, kretprobe")] {
        let Some(plane) = Plane::on_gtp5g(variant) else { return };
        let trace = Trace::start(&["gtp5g", "--stages"]);
        plane.ping(PROBES);
        let gnb = plane.gnb_threads();
        let lines = trace.stop();
        let rows = of_threads(&totals(&lines), &gnb);
        for function in GTP5G_FUNCTIONS {
            let how = lines.iter().find(|l| l["kind"] == "function" && l["function"] == function);
            assert_eq!(how.unwrap()["how"], format!("{function}: {wanted}"), "{variant}");
            // Packets pass this one in both directions.
            let times = if function == "policePacket" { 2 } else { 1 };
            let packets = sum(&rows, function, "packets");
            assert_eq!(packets, (times * PROBES) as u64, "{variant}: {function}: {rows:#?}");
        }
        assert_eq!(sum(&rows, "gtp5g_encap_recv", "bytes"), PROBES as u64 * UPLINK_BYTES);
        assert_eq!(sum(&rows, "gtp5g_dev_xmit", "bytes"), PROBES as u64 * DOWNLINK_BYTES);
        // It reports a missing function.
        let missing = lines.iter().find(|l| l["function"] == "gtp5g_buf_skb_encap").unwrap();
        assert_eq!(missing["traced"], false);
        assert!(missing["how"].as_str().unwrap().contains("not in this gtp5g, or inlined"));
        drop(plane);
        assert!(!Path::new("/sys/module/gtp5g").exists());
    }
    assert!(
        !plane::insert_gtp5g("btf")
            || Command::new("rmmod").arg("gtp5g").status().unwrap().success()
    );
}

#[test]
fn a_policy_for_what_was_seen() {
    let plane = Plane::on_gtp();
    let mut suggest = Command::new(gthctl::binary());
    suggest.args(["trace", "gtp", "--suggest", "--duration", "60s"]);
    let mut suggest = suggest.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(suggest.stderr.take().unwrap());
    // It reports all functions at once, when it has attached to them.
    let mut stderr = String::new();
    while !stderr.contains("fentry") {
        assert_ne!(said.read_line(&mut stderr).unwrap(), 0, "{stderr}");
    }
    plane.ping(PROBES);
    kill(Pid::from_raw(suggest.id() as i32), Signal::SIGINT).unwrap();
    said.read_to_string(&mut stderr).unwrap();
    let output = suggest.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stderr}");
    let gthctl = shared::scheduler(NO_RULES);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("suggested.yaml");
    fs::write(&file, &text).unwrap();
    let applied = gthctl::policy(&["apply", "--yes", file.to_str().unwrap()]);
    assert_eq!(applied.code(), 0, "{text}\n{}", applied.stderr);
    for tid in plane.gnb_threads() {
        let why = gthctl::report(&["explain", &tid.to_string()]);
        assert_eq!(why["rule"], "nr-gnb", "{text}");
    }
    gthctl.stop();
}

/// The call begins on one CPU and ends on another. Its recorded beginning stays behind, and belongs to no
/// later call.
#[test]
fn a_call_whose_task_moves_has_no_time() {
    extern "C" fn wake(_: i32) {}
    let sleeper = Task::fork("sleeper", |shared| {
        // SAFETY: the handler does nothing.
        unsafe { signal(Signal::SIGUSR1, SigHandler::Handler(wake)) }.unwrap();
        loop {
            let order = shared.order.load(Ordering::Relaxed);
            if order != shared.answer.load(Ordering::Relaxed) {
                let long = libc::timespec { tv_sec: 600, tv_nsec: 0 };
                // SAFETY: a valid time; the remaining time is not requested.
                unsafe { libc::nanosleep(&long, std::ptr::null_mut()) };
                shared.answer.store(order, Ordering::Relaxed);
            }
        }
    });
    let pid = sleeper.pid.to_string();
    let trace = Trace::start(&["--function", "hrtimer_nanosleep", "--pid", &pid, "--histogram"]);
    let mut last = Duration::ZERO;
    for (order, from, to) in [(1, 0, 1), (2, 1, 0), (3, 0, 0)] {
        task::set_affinity(sleeper.pid, &[from]);
        assert!(kernel::runs_on(sleeper.pid, from));
        let begin = Instant::now();
        sleeper.order(order);
        assert!(kernel::wait(SOON, || kernel::is_asleep(sleeper.pid)));
        task::set_affinity(sleeper.pid, &[to]);
        kill(Pid::from_raw(sleeper.pid), Signal::SIGUSR1).unwrap();
        assert!(kernel::wait(SOON, || sleeper.answer() == order));
        last = begin.elapsed();
    }
    let times = |lines: &[Value]| -> Vec<u64> {
        let lines = lines.iter().filter(|line| line["kind"] == "times");
        lines.map(|line| line["max_ns"].as_u64().unwrap()).collect()
    };
    assert!(kernel::wait(SOON, || !times(&trace.lines()).is_empty()), "{}", trace.stderr());
    let lines = trace.stop();
    assert_eq!(sum(&totals(&lines), "hrtimer_nanosleep", "packets"), 3, "{lines:#?}");
    let times = times(&lines);
    println!("{times:?} ns of {last:?}");
    // The time is rounded up to the next power of two at most.
    assert!(times.len() == 1 && Duration::from_nanos(times[0]) < 2 * last, "{times:?}, {last:?}");
}
