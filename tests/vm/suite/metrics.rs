//! Metrics for Prometheus: from the command, in a file, over HTTP; and for sched_ext's tools.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::gthctl::{self, Gthctl, Output};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const ADDRESS: &str = "127.0.0.1:9464";
const SOON: Duration = Duration::from_secs(10);
const POLICY: &str = "strategies: [{name: upf, command_regex: ^upf$, priority: true}]";

/// The value of a metric, named as in the text, with its labels.
#[track_caller]
fn value(text: &str, metric: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of).unwrap_or_else(|| panic!("no {metric} in\n{text}"))
}

fn metrics(args: &[&str]) -> Output {
    gthctl::output(Command::new(gthctl::binary()).arg("metrics").args(args))
}

/// gthctl serves the same text for half a second, so this waits until it serves a new one.
fn over_http() -> String {
    std::thread::sleep(Duration::from_millis(500));
    let mut stream = TcpStream::connect(ADDRESS).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{text}");
    body.to_owned()
}

/// Also if another scheduler has the socket for sched_ext's tools, which gthctl leaves alone.
#[test]
fn they_follow_the_policy_and_its_tasks() {
    shared::unload();
    fs::create_dir_all(Path::new(STATS).parent().unwrap()).unwrap();
    let _other = UnixListener::bind(STATS).unwrap();
    let gthctl = Gthctl::start_with("", POLICY, &["--metrics", ADDRESS]);
    assert!(gthctl.has_ever_said(&format!("metrics: http://{ADDRESS}/metrics")));
    let text = over_http();
    assert_eq!(value(&text, "gthctl_rule_tasks{rule=\"upf\"}"), 0.0);
    assert_eq!(value(&text, "gthctl_policy_changes_total"), 0.0);
    let generation = value(&text, "gthctl_policy_generation");
    let wakeups = value(&text, "gthctl_priority_wakeup_latency_seconds_count");

    let _upf = Task::fork("upf", task::wake_often(1_000_000));
    let more = || {
        let text = over_http();
        value(&text, "gthctl_rule_tasks{rule=\"upf\"}") == 1.0
            && value(&text, "gthctl_priority_wakeup_latency_seconds_count") > wakeups + 100.0
    };
    assert!(kernel::wait(SOON, more), "{}", over_http());
    let text = over_http();
    let count = value(&text, "gthctl_priority_wakeup_latency_seconds_count");
    let mean = value(&text, "gthctl_priority_wakeup_latency_seconds_sum") / count;
    assert!(mean > 1e-7 && mean < 1.0, "{mean}");
    assert!(value(&text, "gthctl_priority_wakeups_total") >= count, "{text}");

    gthctl.refuses(|| gthctl::replace_file(&gthctl.policy(), "strategies: [{priority: 77}]"));
    let text = over_http();
    assert_eq!(value(&text, "gthctl_policy_rejected"), 1.0);
    assert_eq!(value(&text, "gthctl_policy_rejections_total"), 1.0);
    assert_eq!(value(&text, "gthctl_policy_generation"), generation);

    gthctl.replace("strategies: [{name: load, command_regex: ^load$, cpus: 3, exclusive: true}]");
    let text = over_http();
    assert_eq!(value(&text, "gthctl_policy_rejected"), 0.0);
    assert_eq!(value(&text, "gthctl_policy_changes_total"), 1.0);
    assert_eq!(value(&text, "gthctl_exclusive_cpus"), 1.0);
    assert!(!text.contains("rule=\"upf\""), "{text}");
    let told = || gthctl.has_ever_said("another program serves it");
    assert!(kernel::wait(SOON, told), "{}", gthctl.stderr());
    a_file_is_replaced_and_stays_when_nothing_runs(gthctl);
    assert!(TcpStream::connect(ADDRESS).is_err());
    assert!(Path::new(STATS).exists());
    fs::remove_file(STATS).unwrap();
}

fn a_file_is_replaced_and_stays_when_nothing_runs(gthctl: Gthctl) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gthctl.prom");
    let name = file.to_str().unwrap();
    let output = metrics(&["--file", name]);
    assert_eq!((output.code(), &*output.stdout, &*output.stderr), (0, "", ""));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(value(&text, "gthctl_policy_in_step"), 1.0);
    let printed = metrics(&[]).stdout;
    assert_eq!(value(&printed, "gthctl_policy_in_step"), 1.0);
    assert_eq!(printed.lines().count(), text.lines().count());
    gthctl.stop();
    let output = metrics(&["--file", name]);
    assert_eq!(output.code(), 10, "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

pub const STATS: &str = "/var/run/scx/root/stats";

fn ask_stats(request: &str) -> Value {
    let mut stream = UnixStream::connect(STATS).unwrap();
    stream.write_all(format!("{{\"req\":\"{request}\",\"args\":{{}}}}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let mut answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["errno"], 0, "{line}");
    answer["args"]["resp"].take()
}

/// Also if a run that was killed has left its socket behind.
#[test]
fn the_tools_of_sched_ext_get_the_counters() {
    shared::unload();
    let gthctl = Gthctl::start(POLICY);
    assert!(kernel::wait(SOON, || UnixStream::connect(STATS).is_ok()), "{}", gthctl.stderr());
    assert!(ask_stats("stats")["tasks"].as_u64() > Some(0));
    let _upf = Task::fork("upf", task::wake_often(1_000_000));
    let wakeups = || ask_stats("stats")["rules"]["upf"]["wakeups"].as_u64();
    assert!(kernel::wait(SOON, || wakeups() > Some(100)), "{:#}", ask_stats("stats"));
    let (stats, meta) = (ask_stats("stats"), ask_stats("stats_meta"));
    for (name, value) in stats.as_object().unwrap() {
        assert!(meta["Gthctl"]["fields"][name].is_object(), "{name}: {value}\n{meta:#}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(Path::new(STATS)), 0o600);
    assert_eq!(mode(Path::new(STATS).parent().unwrap()) & 0o022, 0);
    // It ends while a tool stays connected.
    let _tool = UnixStream::connect(STATS).unwrap();
    gthctl.stop();
    assert!(!Path::new(STATS).exists());
}

#[test]
fn a_port_in_use_loads_nothing() {
    shared::unload();
    let _other = TcpListener::bind(ADDRESS).unwrap();
    let files = gthctl::files("", POLICY);
    let output = gthctl::output(&mut gthctl::command(&files, &["--metrics", ADDRESS]));
    assert_eq!(output.code(), 1);
    let told = output.stderr.lines().last().unwrap();
    assert!(
        told.contains(&format!("error: metrics at {ADDRESS}: Address already in use")),
        "{told}"
    );
    assert!(told.contains("name another address"), "{told}");
    assert_eq!(kernel::state(), "disabled");
}
