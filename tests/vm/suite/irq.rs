//! `gthctl irq` on virtio-net's interrupts. eth0 has a queue pair for each CPU; eth1 and
//! eth2, with one each, are connected with each other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::placement::SOON;
use crate::support::gthctl;
use crate::support::kernel;
use crate::support::nic::{
    Pair, Restore, SAVED, affinities, affinity, counts, ip, irq, irq_of, irqs_of, on, report, taken,
};
use crate::support::plane::{Plane, succeeds};
use crate::support::task;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

/// Whether this kernel has the module: the image inserts all it has.
fn has_module(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

/// Runs `ip` with each of these when dropped, whatever the outcome of the test.
struct Cleanup(&'static [&'static str]);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for command in self.0 {
            let _ = Command::new("ip").args(command.split(' ')).status();
        }
    }
}

#[test]
fn the_list_is_what_the_kernel_says() {
    let list = report(&["list", "eth0"]);
    let nic = &list["nics"][0];
    assert_eq!((&nic["name"], &nic["driver"]), (&"eth0".into(), &"virtio_net".into()));
    let expected = irqs_of("eth0");
    assert_eq!(expected.len(), 2 * kernel::cpus() + 1);
    let listed = nic["irqs"].as_array().unwrap();
    assert_eq!(listed.len(), expected.len());
    for (row, (irq, name)) in listed.iter().zip(&expected) {
        assert_eq!(row["irq"], *irq);
        assert!(row["name"].as_str().unwrap().ends_with(name.as_str()), "{row}");
        assert_eq!(row["smp_affinity"], affinity(*irq));
        let effective = kernel::read(&format!("/proc/irq/{irq}/effective_affinity_list"));
        assert_eq!(row["effective_affinity"], effective);
        assert_eq!(row["total"], counts(*irq).iter().sum::<u64>());
        assert_ne!(row["managed"], true);
    }
    assert_eq!((&listed[1]["queue"], &listed[2]["queue"]), (&"rx0".into(), &"tx0".into()));
    assert_eq!(list["irqbalance"], serde_json::json!([]));
    // Any user may list them.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(gthctl::binary());
    let table = gthctl::output(command.args(["irq", "--color", "never"]));
    assert_eq!(table.code(), 0, "{}", table.stderr);
    assert!(table.stdout.contains("virtio_net") && !table.stdout.contains("| lo"));
}

#[test]
fn pinned_read_back_and_restored() {
    let _restore = Restore;
    let before = affinities("eth0");
    let dry = report(&["pin", "eth0", "--cpus", "2", "--dry-run"]);
    assert_eq!(dry["changes"].as_array().unwrap().len(), before.len());
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before.clone(), false));

    let placed = report(&["pin", "eth0", "--cpus", "2"]);
    for change in placed["changes"].as_array().unwrap() {
        assert_eq!((&change["now"], &change["kind"]), (&"2".into(), &"irq".into()), "{change}");
        let irq = change["irq"].as_u64().unwrap() as u32;
        assert_eq!(change["before"], before[&irq].as_str());
        let effective = kernel::read(&format!("/proc/irq/{irq}/effective_affinity_list"));
        assert_eq!(change["effective"], effective);
        assert_eq!(change["state"] == "in-place", effective == "2", "{change}");
    }
    assert!(affinities("eth0").values().all(|cpus| cpus == "2"));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(SAVED), mode("/run/gthctl/irq")), (0o600, 0o700));

    // After a second pin the saved state is still the first one.
    report(&["pin", "eth0", "--cpus", "1,3", "--queue", "1"]);
    let input = irq_of("eth0", "input.1");
    assert_eq!((affinity(input), affinity(irq_of("eth0", "input.0"))), ("1,3".into(), "2".into()));
    assert_eq!(irq(&["drift"]).code(), 0);
    fs::write(format!("/proc/irq/{input}/smp_affinity_list"), "0").unwrap();
    let drift = irq(&["drift", "-o", "json"]);
    assert_eq!(drift.code(), 1);
    let moved: Value = serde_json::from_str(&drift.stdout).unwrap();
    let moved = moved["placed"].as_array().unwrap().iter().filter(|one| one["state"] == "moved");
    assert_eq!(moved.map(|one| one["irq"].as_u64()).collect::<Vec<_>>(), [Some(input.into())]);

    let restored = report(&["restore", "eth0"]);
    for back in restored["restored"].as_array().unwrap() {
        assert_eq!(back["state"], "restored");
        assert_eq!(back["moved_by_others"], back["irq"] == input, "{back}");
    }
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
    assert_eq!(irq(&["restore"]).stdout, "nothing to restore\n");
}

#[test]
fn traffic_moves_with_the_interrupt_and_back() {
    let pair = Pair::up();
    let _restore = Restore;
    let input = irq_of("eth1", "input.0");
    // With one queue, it may at first go to any CPU.
    fs::write(format!("/proc/irq/{input}/smp_affinity_list"), "0").unwrap();
    for cpu in [3, 1, 2] {
        let placed = report(&["pin", "eth1", "--cpus", &cpu.to_string()]);
        assert_eq!(placed["devices"][0]["nics"][0], "eth1");
        let taken = taken(input, || pair.ping(100));
        assert!(on(&taken, cpu), "CPU {cpu}: {taken:?}");
        let effective = kernel::read(&format!("/proc/irq/{input}/effective_affinity_list"));
        assert_eq!(effective, cpu.to_string());
    }
    let watch = irq(&["list", "eth1", "--watch", "--duration", "100ms", "-o", "json"]);
    assert_eq!(watch.code(), 0, "{}", watch.stderr);
    let line: Value = serde_json::from_str(watch.stdout.lines().next().unwrap()).unwrap();
    assert!(line["nics"][0]["irqs"][0]["per_second"].is_number(), "{line}");
    report(&["restore"]);
    assert_eq!(affinity(input), "0");
    let taken = taken(input, || pair.ping(100));
    assert!(on(&taken, 0), "back on CPU 0: {taken:?}");
}

/// Sends frames through eth0 from a CPU. The CPU selects the queue, by the queue's XPS mask.
fn send_from(cpu: usize, frames: usize) {
    task::set_affinity(0, &[cpu]);
    // SAFETY: a socket, an address that outlives the call and a buffer of the length given.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
        let mut frame = [0_u8; 60];
        frame[..6].fill(0xff);
        // For experiments (IEEE 802, local experimental EtherType 1).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        for _ in 0..frames {
            let sent = libc::sendto(
                socket,
                frame.as_ptr().cast(),
                frame.len(),
                0,
                std::ptr::from_ref(&address).cast(),
                size_of_val(&address) as u32,
            );
            assert_eq!(sent, 60);
            std::thread::sleep(Duration::from_millis(2));
        }
        libc::close(socket);
    }
    let all: Vec<usize> = (0..kernel::cpus()).collect();
    task::set_affinity(0, &all);
}

#[test]
fn a_queue_a_cpu_with_masks() {
    let _restore = Restore;
    let cpus = kernel::cpus();
    let (before, mask) = (affinities("eth0"), |file: &str| {
        kernel::read(&format!("/sys/class/net/eth0/queues/{file}"))
    });
    let masks = || {
        (0..cpus).map(|q| (mask(&format!("rx-{q}/rps_cpus")), mask(&format!("tx-{q}/xps_cpus"))))
    };
    let masks_before: Vec<_> = masks().collect();
    // The queues take the CPUs of the list in ascending order.
    let list = format!("1-{}", cpus - 1);
    report(&["pin", "eth0", "--cpus", &list, "--spread", "--rps", "--xps"]);
    for queue in 0..cpus {
        let cpu = 1 + queue % (cpus - 1);
        for name in ["input", "output"] {
            assert_eq!(affinity(irq_of("eth0", &format!("{name}.{queue}"))), cpu.to_string());
        }
        let hex = format!("{:x}", 1 << cpu);
        assert_eq!(mask(&format!("rx-{queue}/rps_cpus")), hex);
        assert_eq!(mask(&format!("tx-{queue}/xps_cpus")), hex);
    }
    assert_eq!(affinity(irq_of("eth0", "config")), list);
    // What CPU 2 sends leaves through queue 1, whose interrupts now come to CPU 2.
    let output = irq_of("eth0", "output.1");
    let taken = taken(output, || send_from(2, 600));
    assert!(on(&taken, 2), "{taken:?}");
    assert_eq!(irq(&["drift"]).code(), 0);
    report(&["pin", "eth0", "--cpus", &list, "--spread", "--rps=off"]);
    assert_eq!(mask("rx-1/rps_cpus"), "0");
    report(&["restore"]);
    assert_eq!((affinities("eth0"), masks().collect::<Vec<_>>()), (before, masks_before));
}

#[test]
fn one_refusal_takes_all_of_the_call_back() {
    let _restore = Restore;
    report(&["pin", "eth0", "--cpus", "1"]);
    let (before, saved) = (affinities("eth0"), fs::read(SAVED).unwrap());
    let last = irqs_of("eth0").last().unwrap().0;
    let file = format!("/proc/irq/{last}/smp_affinity_list");
    succeeds(Command::new("mount").args(["-o", "bind", &file, &file]));
    succeeds(Command::new("mount").args(["-o", "remount,bind,ro", &file]));
    let output = irq(&["pin", "eth0", "--cpus", "2"]);
    let restored = irq(&["restore"]);
    succeeds(Command::new("umount").arg(&file));
    assert_eq!((output.code(), output.stdout.as_str()), (1, ""));
    let wanted = format!(
        "gthctl: error: eth0: IRQ {last} to CPUs 2: {file} is read-only; all is as before;"
    );
    assert!(output.stderr.starts_with(&wanted), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1);
    // Restoring continues after a failure and keeps what failed for the next time.
    assert_eq!(restored.code(), 1);
    assert!(restored.stdout.contains("NOT restored"), "{}", restored.stdout);
    assert_eq!(affinity(last), "1");
    let kept: Value = serde_json::from_slice(&fs::read(SAVED).unwrap()).unwrap();
    assert_eq!(kept["entries"].as_array().unwrap().len(), 1);
    let first: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(first["entries"].as_array().unwrap().len(), before.len());
    assert!(before.values().all(|cpus| cpus == "1"));
    report(&["restore"]);
    assert!(!Path::new(SAVED).exists());
}

/// A CPU that is offline until this is dropped.
struct Offline(String);

impl Offline {
    fn take(cpu: usize) -> Self {
        let offline = Self(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        fs::write(&offline.0, "0").unwrap();
        offline
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "1");
    }
}

#[test]
fn what_is_wrong_is_one_line_and_changes_nothing() {
    let before = affinities("eth0");
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = irq(&[&["pin"], args].concat());
        assert_eq!((output.code(), output.stdout.as_str()), (code, ""), "{args:?}");
        assert!(output.stderr.starts_with(&format!("gthctl: error: {why}")), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    };
    let last = kernel::cpus() - 1;
    refused(&["eth0", "--cpus", "900"], 2, &format!("CPUs 900: this machine has CPUs 0-{last}"));
    refused(&["eth0", "--cpus", ""], 2, "--cpus \"\": ");
    refused(&["eth0", "--cpus", "2-x"], 2, "--cpus \"2-x\": ");
    refused(&["eth9", "--cpus", "2"], 1, "\"eth9\": no such network device");
    refused(&["lo", "--cpus", "2"], 1, "lo: no physical NIC is under it");
    refused(&["eth0", "--cpus", "2", "--irq", "1"], 2, "IRQ 1 is not one of eth0");
    refused(&["eth0", "--cpus", "2", "--queue", "99"], 2, "eth0 has no IRQ of queue 99");
    let _restore = Restore;
    // Pins them elsewhere meanwhile: otherwise the kernel would move that CPU's interrupts for good.
    report(&["pin", "eth0", "--cpus", "0"]);
    let offline = Offline::take(last);
    let output = irq(&["pin", "eth0", "--cpus", &last.to_string()]);
    drop(offline);
    assert_eq!(output.code(), 2);
    let wanted = format!("gthctl: error: CPUs {last} are not online; CPUs 0-{} are\n", last - 1);
    assert_eq!(output.stderr, wanted);
    report(&["restore"]);
    assert_eq!((affinities("eth0"), Path::new(SAVED).exists()), (before, false));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(gthctl::binary());
    let nobody = gthctl::output(command.args(["irq", "pin", "eth0", "--cpus", "2"]));
    assert_eq!(nobody.code(), 3, "{}", nobody.stderr);
}

/// The kernel keeps only a mask's online CPUs: the other CPUs cannot be restored.
#[test]
fn a_mask_is_put_back_as_far_as_its_cpus_are_online() {
    const MASK: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    let _restore = Restore;
    fs::write(MASK, "f").unwrap();
    // The interrupts of other queues may be for CPU 3 alone.
    report(&["pin", "eth0", "--cpus", "1", "--queue", "0", "--rps"]);
    assert_eq!(kernel::read(MASK), "2");
    let offline = Offline::take(3);
    let restored = irq(&["restore"]);
    let mask = kernel::read(MASK);
    drop(offline);
    fs::write(MASK, "0").unwrap();
    assert_eq!((restored.code(), mask.as_str()), (0, "7"), "{}", restored.stderr);
    assert!(!Path::new(SAVED).exists());
}

#[test]
fn a_macvlan_means_the_nic_under_it() {
    if !has_module("macvlan") {
        println!("skipped: this kernel has no macvlan");
        return;
    }
    let _restore = Restore;
    let _cleanup = Cleanup(&["link del n6", "link del veth-host", "netns del pod"]);
    ip(&[
        "link add link eth0 name n6 type macvlan",
        "link add veth-host type veth peer name n3",
        "netns add pod",
        "link set n3 netns pod",
    ]);
    let list = report(&["list", "n6"]);
    let placed = report(&["pin", "n6", "--cpus", "2"]);
    let affinities = affinities("eth0");
    let veth = irq(&["list", "veth-host"]);
    let all = irq(&[]);
    let restored = report(&["restore", "n6"]);
    assert_eq!(
        (&list["nics"][0]["name"], &list["on_top"][0]["kind"]),
        (&"eth0".into(), &"macvlan".into())
    );
    assert_eq!(placed["notes"][0], "n6 is a macvlan on eth0; gthctl places the interrupts there");
    assert!(affinities.values().all(|cpus| cpus == "2"));
    assert_eq!(restored["restored"].as_array().unwrap().len(), affinities.len());
    assert!(all.stdout.contains("\nn6 is a macvlan on eth0\n"), "{}", all.stdout);
    assert_eq!(veth.code(), 1);
    assert!(veth.stderr.contains("veth-host leads to another one"), "{}", veth.stderr);
    assert!(all.stdout.contains("\nto other network namespaces: veth-host\n"), "{}", all.stdout);
}

#[test]
fn a_pods_veth_means_the_nic_of_its_bridge() {
    if !has_module("bridge") {
        println!("skipped: this kernel has no bridge");
        return;
    }
    let _restore = Restore;
    let _cleanup = Cleanup(&["link del veth-host", "link del br0", "netns del pod"]);
    ip(&[
        "netns add pod",
        "link add br0 type bridge",
        "link add veth-host type veth peer name eth0 netns pod",
        "link set veth-host master br0",
        "link set eth2 master br0",
    ]);
    let list = report(&["list", "veth-host"]);
    assert_eq!(list["nics"].as_array().unwrap().len(), 1);
    assert_eq!(list["nics"][0]["name"], "eth2");
    let veth = serde_json::json!(
        {"name": "veth-host", "kind": "veth", "nics": ["eth2"], "elsewhere": ["veth-host"]}
    );
    assert_eq!(list["on_top"], serde_json::json!([veth]));
    let table = irq(&["list", "br0"]).stdout;
    let below = "\nbr0 is a bridge on eth2\nto other network namespaces: veth-host\n";
    assert!(table.contains(below), "{table}");
    let placed = report(&["pin", "veth-host", "--cpus", "2"]);
    assert_eq!(
        placed["notes"][0],
        "veth-host is a veth on eth2; gthctl places the interrupts there"
    );
    assert!(affinities("eth2").values().all(|cpus| cpus == "2"));
    // In the pod, eth0 is another device, without a NIC.
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", "pod"]).arg(gthctl::binary()).args(["irq", "list", "eth0"]);
    let inside = gthctl::output(&mut inside);
    assert_eq!(inside.code(), 1);
    assert!(inside.stderr.contains("; eth0 leads to another one"), "{}", inside.stderr);
}

/// Runs `gthctl irq pin` and kills it when it is about to write the affinity of an IRQ for
/// the `n`th time.
fn killed_at_write(n: usize, args: &[&str]) {
    let mut command = Command::new(gthctl::binary());
    command.args(["irq", "pin"]).args(args).stdout(Stdio::null());
    // SAFETY: ptrace is async-signal-safe.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    let mut child: Child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    // It stops at its first instruction.
    waitpid(pid, None).unwrap();
    // Without this option, syscall_info() does not distinguish an entry from an exit.
    ptrace::setoptions(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
    let mut writes = 0;
    loop {
        ptrace::syscall(pid, None).unwrap();
        match waitpid(pid, None).unwrap() {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => panic!("it ended by itself"),
            _ => {}
        }
        let info = ptrace::syscall_info(pid).unwrap();
        if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
            continue;
        }
        // SAFETY: at an entry, this member is the valid one.
        let entry = unsafe { info.u.entry };
        if entry.nr == libc::SYS_write as u64 {
            let file = fs::read_link(format!("/proc/{pid}/fd/{}", entry.args[0])).unwrap();
            writes += usize::from(file.ends_with("smp_affinity_list"));
            if writes == n {
                break;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_before_and_between_its_writes() {
    let _restore = Restore;
    let before = affinities("eth0");
    for (n, changed) in [(1, 0), (4, 3)] {
        killed_at_write(n, &["eth0", "--cpus", "2"]);
        let differ = affinities("eth0").iter().filter(|(irq, cpus)| before[irq] != **cpus).count();
        // One of them may already have been on CPU 2.
        assert!(differ <= changed && differ + 1 >= changed, "{differ} of {changed}");
        let drift = irq(&["drift"]);
        assert_eq!(drift.code(), 1);
        assert!(drift.stderr.contains("the last change has not ended"), "{}", drift.stderr);
        assert!(drift.stdout.contains("never got there") && !drift.stdout.contains("MOVED"));
        let restored = report(&["restore"]);
        for back in restored["restored"].as_array().unwrap() {
            assert_eq!(
                (&back["state"], &back["moved_by_others"]),
                (&"restored".into(), &false.into())
            );
        }
        assert_eq!(affinities("eth0"), before);
    }
}

#[test]
fn advice_from_the_traffic() {
    let advise = |args: &[&str]| irq(&[&["advise"], args].concat());
    let before = affinities("eth0");
    // The VM has the module without a device.
    let idle = advise(&["eth0", "--duration", "500ms"]);
    assert_eq!(idle.code(), 0, "{}", idle.stderr);
    assert!(idle.stdout.contains("# traced gtp for 0.5 s\n"), "{}", idle.stdout);
    assert!(idle.stdout.contains("already in a good place"), "{}", idle.stdout);
    let plane = Plane::on_gtp();
    for tid in plane.gnb_threads() {
        task::set_affinity(tid, &[2]);
    }
    let advice = std::thread::scope(|scope| {
        let advice = scope.spawn(|| report(&["advise", "eth0", "--duration", "3s"]));
        while !advice.is_finished() {
            plane.ping_for_long(20);
        }
        advice.join().unwrap()
    });
    assert_eq!(advice["busy_cpus"], "2", "{advice}");
    let command = advice["commands"][0].as_str().unwrap();
    assert_eq!(command, "gthctl irq pin eth0 --cpus 0-1,3 --spread");
    assert_eq!(affinities("eth0"), before);
    advice_after_a_signal();
    // Its suggestion works.
    let _restore = Restore;
    succeeds(Command::new(gthctl::binary()).args(command.split(' ').skip(1)));
    assert!(affinities("eth0").iter().all(|(_, cpus)| cpus != "2"));
}

/// The advice covers what was seen before the signal.
fn advice_after_a_signal() {
    let mut advise = Command::new(gthctl::binary());
    advise.args(["irq", "advise", "eth0", "--duration", "600s"]).stdout(Stdio::piped());
    let mut advise = advise.spawn().unwrap();
    let status = format!("/proc/{}/status", advise.id());
    // SIGINT is blocked: it is caught from here on.
    let catches = || {
        let status = fs::read_to_string(&status).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        u64::from_str_radix(blocked, 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
    };
    assert!(kernel::wait(SOON, catches));
    kill(Pid::from_raw(advise.id() as i32), Signal::SIGINT).unwrap();
    let ended = kernel::wait(SOON, || advise.try_wait().unwrap().is_some());
    let _ = advise.kill();
    let output = advise.wait_with_output().unwrap();
    assert!(ended && output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("# traced gtp for ") && !stdout.contains(" 600.0 s"), "{stdout}");
}

#[test]
fn two_calls_do_not_interleave() {
    let _restore = Restore;
    let before = affinities("eth0");
    for _ in 0..5 {
        let pins: Vec<Child> = ["1", "2", "3"]
            .iter()
            .map(|cpus| {
                let mut command = Command::new(gthctl::binary());
                command.args(["irq", "pin", "eth0", "--cpus", cpus]);
                command.stdout(Stdio::null()).spawn().unwrap()
            })
            .collect();
        assert!(pins.into_iter().all(|mut pin| pin.wait().unwrap().success()));
        let after = affinities("eth0");
        assert!(after.values().all(|cpus| cpus == after.values().next().unwrap()), "{after:?}");
    }
    report(&["restore"]);
    assert_eq!(affinities("eth0"), before);
}
