//! Rules for tasks that process GTP packets.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::gthctl::{notes, report};
use crate::support::hot::{CPU, SOON, assert_places, is_cold, is_hot};
use crate::support::kernel;
use crate::support::plane::{Plane, succeeds};
use crate::support::sender::{self, send, sender, spinning_sender};
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

const SEEN: &str = "packets are seen by";
const NONE: [i32; 0] = [];
const MODULE: &str = "/modules/gtp.ko";

/// One rule, `{module: gtp}` with these keys.
fn policy(keys: &str) -> String {
    format!("strategies: [{{name: traffic, gtp: {{module: gtp, {keys}}}, priority: 1}}]")
}

/// gthctl with that policy, once it sees packets.
fn start(policy: &str) -> Lease {
    let gthctl = shared::scheduler(policy);
    gthctl.sees_packets();
    gthctl
}

fn traffic() -> Value {
    report(&["status"])["traffic"].clone()
}

/// The gNB's thread that handles its packets.
fn gnb_worker(plane: &Plane) -> i32 {
    let threads = plane.gnb_threads();
    threads.into_iter().find(|&tid| tid != plane.gnb()).unwrap()
}

/// The marked threads, in order.
fn marked() -> Vec<i32> {
    let tasks = traffic()["tasks"].clone();
    let mut tids: Vec<i32> =
        tasks.as_array().unwrap().iter().map(|task| task["tid"].as_i64().unwrap() as i32).collect();
    tids.sort_unstable();
    tids
}

/// What has been counted during this test so far; gthctl's own count starts when the scheduler is loaded.
fn counter(gthctl: &Lease, name: &str) -> u64 {
    let (counter, told) = match name {
        "marked" => ("COUNT_MARKED", traffic()["marked"].as_u64()),
        "ended" => ("COUNT_MARKS_ENDED", traffic()["ended"].as_u64()),
        _ => ("COUNT_MARKS_REFUSED", traffic()["refused"].as_u64()),
    };
    // The status and the map agree.
    assert_eq!(told, Some(gthctl.counters().get(counter)), "{name}");
    gthctl.counter(counter)
}

/// Whether the thread is scheduled by the rule.
fn in_force(tid: i32) -> bool {
    let explanation = report(&["explain", &tid.to_string()]);
    explanation["rule"] == "traffic" && explanation["in_force"] == true
}

/// The verdict on the only condition of the only rule.
fn why(tid: i32) -> String {
    let explanation = report(&["explain", &tid.to_string()]);
    explanation["rules"][0]["conditions"][0]["why"].as_str().unwrap().to_owned()
}

/// Where the kernel has kprobes in the module.
fn kprobes() -> Vec<String> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    let mut symbols: Vec<String> = list
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("gtp")))
        .map(|place| place.split('+').next().unwrap().to_owned())
        .collect();
    symbols.sort();
    symbols
}

#[test]
fn whoever_handles_packets_falls_under_the_rule() {
    let plane = sender::plane();
    let worker = gnb_worker(&plane);
    let gthctl = start(&policy("hold: 60s"));
    assert_eq!(marked(), NONE);
    assert_eq!(why(worker), "no packet has been seen");
    std::thread::scope(|scope| {
        scope.spawn(|| plane.ping_for_long(44));
        assert!(kernel::wait(SOON, || in_force(worker)));
        // ping itself, which only writes to the gNB's interface, is not.
        assert_eq!(marked(), [worker]);
        assert!(!in_force(plane.gnb()), "its other thread handles no packets");
    });
    assert_eq!(marked(), [worker]);
    let task = traffic()["tasks"][0].clone();
    assert_eq!((&task["comm"], task["pid"].as_i64()), (&"nr-gnb".into(), Some(plane.gnb().into())));
    assert_eq!(task["rules"], serde_json::json!(["traffic"]));
    assert_eq!(task["function"], "gtp_encap_recv");
    // Each probe goes up and its answer down. ksoftirqd handles one now and then.
    assert!(task["packets"].as_u64().unwrap() >= 80, "{task}");
    assert!((1..=60_000).contains(&task["ends_in_ms"].as_u64().unwrap()), "{task}");
    assert!(why(worker).contains(" ago by gtp_encap_recv, "), "{}", why(worker));
    assert_eq!(counter(&gthctl, "marked"), 1);
    gthctl.stop();
}

/// If the kernel hides its addresses, gthctl does not know which softirqs are a task's own.
#[test]
fn a_note_says_that_the_kernel_hides_its_addresses() {
    const RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";
    let told = || notes(&report(&["status"]));
    let _plane = sender::plane();
    let before = kernel::read(RESTRICT);
    for (restrict, hidden) in [("2", true), (before.trim(), false)] {
        fs::write(RESTRICT, restrict).unwrap();
        let gthctl = start(&policy("hold: 1s"));
        let notes = told();
        fs::write(RESTRICT, &before).unwrap();
        let is_told = notes.iter().any(|note| note.contains("the kernel hides its addresses"));
        assert_eq!(is_told, hidden, "{restrict}: {notes:?}");
        gthctl.stop();
    }
}

/// ping handles no packet of the tunnel, but waits for what the gNB takes out of it.
#[test]
fn whoever_they_wake_up_too_if_asked_for() {
    let plane = sender::plane();
    let worker = gnb_worker(&plane);
    let gthctl = start(&policy("woken: true, min_pps: 5, hold: 5s"));
    let pinging = plane.pinging(&[]);
    assert!(kernel::wait(SOON, || marked().len() == 2), "{}", traffic());
    let tasks = traffic()["tasks"].clone();
    let ping = tasks.as_array().unwrap().iter().find(|task| task["comm"] == "ping").cloned();
    let ping = ping.unwrap_or_else(|| panic!("{tasks}"));
    assert_eq!(ping["function"], "wake-up");
    let ping = ping["tid"].as_i64().unwrap() as i32;
    let both = kernel::wait(SOON, || in_force(ping) && in_force(worker));
    assert!(both, "{}", traffic());
    pinging.stop();
    gthctl.stop();
}

#[test]
fn softirqs_are_nobodys() {
    let plane = sender::plane();
    let gthctl = start(&policy("hold: 3600s"));
    // Neither nr-gnb nor ping, which this thread starts, is ever on that CPU.
    for tid in [gnb_worker(&plane), 0] {
        task::set_affinity(tid, &[0]);
    }
    sender::steer_uplink_to(CPU);
    // Softirqs interrupt the idle CPU, then tasks that have nothing to do with the packets.
    plane.ping(40);
    assert_eq!(marked(), NONE, "{}", traffic());
    let busy = Task::fork_on("busy", Some(&[CPU]), task::spin);
    let in_kernel = Task::fork_on("in-kernel", Some(&[CPU]), |_| {
        loop {
            let _ = fs::read("/proc/self/stat");
        }
    });
    plane.ping(100);
    assert_eq!(marked(), NONE, "{}", traffic());
    drop((busy, in_kernel));
    assert_eq!(counter(&gthctl, "marked"), 0);
    gthctl.stop();
}

#[test]
fn a_mark_ends_after_the_last_packet() {
    let _plane = sender::plane();
    const HOLD: Duration = Duration::from_millis(1500);
    let gthctl = start(&policy("hold: 1500ms"));
    let sender = sender("sender");
    // The mark lasts while packets come. Packets that a stall of the host keeps apart prove nothing.
    let mut marks = 0;
    let goes_on = || {
        marks += 1;
        let mut last = Instant::now();
        send(&sender, 1);
        assert!(kernel::wait(SOON, || in_force(sender.pid)));
        let mut apart = Duration::ZERO;
        for _ in 0..12 {
            std::thread::sleep(Duration::from_millis(200));
            let begin = Instant::now();
            send(&sender, 1);
            apart = apart.max(last.elapsed());
            last = begin;
        }
        let marked = counter(&gthctl, "marked");
        if apart < HOLD {
            assert_eq!(marked, marks, "packets were {apart:?} apart at most");
            return true;
        }
        assert!(kernel::wait(SOON, || !in_force(sender.pid)));
        marks = marked;
        false
    };
    assert!(kernel::wait(3 * SOON, goes_on), "the host stalls all the time");
    std::thread::sleep(HOLD + Duration::from_millis(100));
    assert!(!in_force(sender.pid));
    assert_eq!(marked(), NONE);
    assert_eq!((counter(&gthctl, "marked"), counter(&gthctl, "ended")), (marks, marks));
    send(&sender, 1);
    assert!(kernel::wait(SOON, || in_force(sender.pid)));
    // It also ends with the task.
    drop(sender);
    let counts = || (counter(&gthctl, "marked"), counter(&gthctl, "ended"));
    assert!(kernel::wait(SOON, || counts() == (marks + 1, marks + 1)), "{:?}", counts());
    gthctl.stop();
}

/// The mark of a task that does not run and that nobody asks about.
#[test]
fn a_mark_ends_by_itself() {
    let _plane = sender::plane();
    let gthctl = start(&policy("max_tasks: 1, hold: 500ms"));
    let [one, two] = ["one", "two"].map(sender);
    send(&one, 1);
    kill(Pid::from_raw(one.pid), Signal::SIGSTOP).unwrap();
    // Read from the scheduler's own count: asking gthctl would end the mark, too.
    assert!(kernel::wait(SOON, || gthctl.counter("COUNT_MARKS_ENDED") == 1));
    send(&two, 1);
    assert_eq!((counter(&gthctl, "marked"), counter(&gthctl, "refused")), (2, 0));
    gthctl.stop();
}

#[test]
fn a_task_that_never_sleeps_comes_and_goes() {
    let _plane = sender::plane();
    let rule = "{name: traffic, gtp: {module: gtp, hold: 2s}, cpus: 1, exclusive: true}";
    let gthctl = start(&format!("strategies: [{rule}]"));
    let [hot, cold] = ["sender", "other"].map(spinning_sender);
    assert_places(&[], &[hot.pid, cold.pid]);
    send(&hot, 1);
    assert_places(&[hot.pid], &[cold.pid]);
    assert!(is_cold(hot.pid));
    send(&hot, 1);
    assert!(is_hot(hot.pid));
    gthctl.stop();
}

#[test]
fn a_slow_sender_is_not_meant() {
    let _plane = sender::plane();
    let gthctl = start(&policy("min_pps: 20, hold: 5s"));
    let [slow, fast] = ["slow", "fast"].map(sender);
    for _ in 0..4 {
        send(&slow, 5);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(marked(), NONE);
    assert!(why(slow.pid).ends_with("; 20 needed"), "{}", why(slow.pid));
    let within_a_second = || {
        let begin = Instant::now();
        send(&fast, 19);
        // Asking gthctl may take too long.
        assert_eq!(gthctl.counter("COUNT_MARKED"), 0);
        send(&fast, 1);
        let within = begin.elapsed() < Duration::from_millis(950);
        if gthctl.counter("COUNT_MARKED") == 1 {
            return true;
        }
        assert!(!within, "20 packets within a second: {}", traffic());
        // The host has stalled: start again, in another second.
        std::thread::sleep(Duration::from_millis(1100));
        false
    };
    assert!(kernel::wait(3 * SOON, within_a_second), "the host stalls all the time");
    assert_eq!(marked(), [fast.pid]);
    assert!(kernel::wait(SOON, || in_force(fast.pid)) && !in_force(slow.pid));
    gthctl.stop();
}

#[test]
fn no_more_tasks_than_max_tasks() {
    let _plane = sender::plane();
    let gthctl = start(&policy("max_tasks: 2, hold: 3600s, functions: [gtp_dev_xmit]"));
    let senders = ["one", "two", "three"].map(sender);
    senders.iter().for_each(|sender| send(sender, 3));
    assert_eq!(marked(), [senders[0].pid, senders[1].pid]);
    // A refusal counts once a second, not for each packet.
    assert_eq!((counter(&gthctl, "marked"), counter(&gthctl, "refused")), (2, 1));
    assert!(!in_force(senders[2].pid));
    let [one, two, three] = senders;
    drop(one);
    // Its place becomes free.
    assert!(kernel::wait(SOON, || {
        send(&three, 1);
        marked() == [two.pid, three.pid]
    }));
    assert_eq!(counter(&gthctl, "marked"), 3);
    assert!(counter(&gthctl, "refused") >= 1);
    gthctl.stop();
}

#[test]
fn the_module_goes_and_comes_again() {
    if !Path::new(MODULE).exists() {
        println!("skipped: gtp is built into this kernel");
        return;
    }
    let plane = sender::plane();
    let gthctl = start(&policy("hold: 3600s"));
    assert!(gthctl.says(SEEN, 1));
    assert_eq!(kprobes(), ["gtp_dev_xmit", "gtp_encap_recv"]);
    drop(plane);
    for time in 1..=3 {
        succeeds(Command::new("rmmod").arg("gtp"));
        assert!(gthctl.says("the kernel module gtp is not loaded", time));
        assert_eq!(kprobes(), [""; 0]);
        let status = report(&["status"]);
        let note =
            "the kernel module gtp is not loaded; rules with gtp: gtp match nothing until it is";
        assert_eq!(notes(&status), [note]);
        assert_eq!(status["traffic"]["functions"], serde_json::json!([]));
        succeeds(Command::new("insmod").arg(MODULE));
        assert!(gthctl.says(SEEN, 1 + time));
        assert_eq!(kprobes(), ["gtp_dev_xmit", "gtp_encap_recv"]);
        let _plane = sender::plane();
        let sender = sender("sender");
        send(&sender, 1);
        assert!(kernel::wait(SOON, || in_force(sender.pid)));
    }
    // So fast that gthctl may already find the new module.
    succeeds(Command::new("sh").args(["-c", &format!("rmmod gtp && insmod {MODULE}")]));
    assert!(gthctl.says(SEEN, 5), "{}", gthctl.stderr());
    let _plane = sender::plane();
    let sender = sender("sender");
    send(&sender, 1);
    assert!(kernel::wait(SOON, || in_force(sender.pid)));
    gthctl.stop();
}

/// A build of free5GC's module may lack BTF.
#[test]
fn whoever_handles_the_packets_of_gtp5g() {
    for variant in ["btf", "no-btf"] {
        let Some(plane) = Plane::on_gtp5g(variant) else { return };
        let worker = gnb_worker(&plane);
        let rule = "{name: traffic, gtp: {module: gtp5g, min_pps: 10, hold: 30s}, priority: 1}";
        let gthctl = start(&format!("strategies: [{rule}]"));
        plane.ping(40);
        assert!(kernel::wait(SOON, || in_force(worker)), "{}", why(worker));
        assert_eq!(marked(), [worker]);
        // It can be unloaded under gthctl.
        drop(plane);
        assert!(!Path::new("/sys/module/gtp5g").exists());
        assert!(gthctl.says("the kernel module gtp5g is not loaded", 1));
        gthctl.stop();
    }
}

#[test]
fn a_module_or_function_that_is_not_there() {
    let _plane = sender::plane();
    let here = "{name: traffic, gtp: {module: gtp, functions: [gtp_dev_xmit, no_such_function]}, priority: 1}";
    let gthctl = start(&format!("strategies: [{here}, {{name: upf, gtp: gtp5g, priority: 2}}]"));
    assert_eq!(
        notes(&report(&["status"])),
        [
            "the kernel module gtp5g is not loaded; rules with gtp: gtp5g match nothing until it is",
            "gtp: no_such_function: no such function in this version of the module",
        ]
    );
    let sender = sender("sender");
    send(&sender, 1);
    assert_eq!(marked(), [sender.pid]);
    assert_eq!(kprobes(), ["gtp_dev_xmit"]);
    gthctl.stop();
}

#[test]
fn marks_stay_over_a_reload_that_keeps_their_condition() {
    let _plane = sender::plane();
    let gthctl = start(&policy("hold: 3600s"));
    let sender = sender("sender");
    send(&sender, 3);
    assert_eq!(marked(), [sender.pid]);
    let before = traffic()["tasks"][0].clone();
    let apply = |rules: &str| {
        gthctl.replace(&format!("strategies: [{rules}]"));
    };
    let other = "{name: other, gtp: {module: gtp, min_pps: 500}, priority: 2}";
    let first = "{name: first, gtp: {module: gtp, hold: 3600s}, weight: 50}";
    let same = "{name: traffic, gtp: {module: gtp, hold: 3600s}, priority: 1}";
    apply(&format!("{other}, {same}"));
    assert!(kernel::wait(SOON, || in_force(sender.pid)));
    let after = traffic()["tasks"][0].clone();
    for key in ["tid", "packets", "function", "rules"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    // The mark counts for another rule, too.
    apply(&format!("{first}, {same}"));
    assert_eq!(traffic()["tasks"][0]["rules"], serde_json::json!(["first", "traffic"]));
    assert_eq!(counter(&gthctl, "marked"), 1);
    // Another hold is another condition.
    apply("{name: traffic, gtp: {module: gtp, hold: 59s}, priority: 1}");
    assert_eq!(marked(), NONE);
    assert!(!in_force(sender.pid));
    send(&sender, 1);
    assert_eq!(marked(), [sender.pid]);
    assert!(kernel::wait(SOON, || in_force(sender.pid)));
    assert_eq!(report(&["status"])["kernel_in_step"], true);
    gthctl.stop();
}

#[test]
fn without_such_rules_nothing_is_attached() {
    let _plane = sender::plane();
    let gthctl = start(&policy("hold: 3600s"));
    let sender = sender("sender");
    send(&sender, 1);
    assert!(kernel::wait(SOON, || in_force(sender.pid)));
    gthctl.replace("strategies: [{command_regex: ^x$, priority: 1}]");
    assert!(kernel::wait(SOON, || kprobes().is_empty()), "{:?}", kprobes());
    assert_eq!(traffic(), Value::Null);
    assert!(!in_force(sender.pid));
    gthctl.replace(&policy("hold: 3600s"));
    gthctl.sees_packets();
    assert_eq!(marked(), NONE, "another condition than the one before");
    gthctl.stop();
    assert!(kernel::wait(SOON, || kprobes().is_empty()), "{:?}", kprobes());
}
