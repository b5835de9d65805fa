//! The built program as a user sees it, without root: help, version and messages about bad input.
//! Every run ends before it touches the kernel.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use tempfile::TempDir;

/// Exit code, standard output and standard error of one run.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gthctl"));
    command.current_dir(directory).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn gthctl(args: &[&str]) -> Outcome {
    outcome(command(Path::new("/")).args(args))
}

/// A new directory with the given files: name and contents.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, contents) in files {
        fs::write(directory.path().join(name), contents).unwrap();
        set_mode(&directory.path().join(name), 0o644);
    }
    directory
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Like [`outcome`], for a command that must end by itself.
#[track_caller]
fn outcome_soon(command: &mut Command) -> Outcome {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("still running after 10 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut texts = [String::new(), String::new()];
    child.stdout.take().unwrap().read_to_string(&mut texts[0]).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut texts[1]).unwrap();
    let [stdout, stderr] = texts;
    Outcome { code: child.wait().unwrap().code(), stdout, stderr }
}

/// Exactly one line on standard error, nothing on standard output, exit code 2.
#[track_caller]
fn assert_refused(outcome: &Outcome, message: &str) {
    assert_eq!(outcome.stderr, format!("gthctl: error: {message}\n"));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
}

#[track_caller]
fn assert_config_refused(config: &[u8], message: &str) {
    let directory = directory(&[("c.yaml", config)]);
    let outcome = outcome(command(directory.path()).args(["run", "-c", "c.yaml"]));
    assert_refused(&outcome, message);
}

#[track_caller]
fn assert_policy_refused(policy: &str, message: &str) {
    let directory = directory(&[("c.yaml", b""), ("p.yaml", policy.as_bytes())]);
    let outcome = outcome(command(directory.path()).args(["run", "-c", "c.yaml", "-p", "p.yaml"]));
    assert_refused(&outcome, message);
}

#[test]
fn help_lists_what_is_built_with_examples() {
    let help = gthctl(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for (command, about) in [
        ("run", "Load the scheduler"),
        ("policy", "Show and change the live policy"),
        ("doctor", "Check the machine before anything is loaded"),
        ("top", "Show live what the scheduler does"),
        ("metrics", "Print the running gthctl's metrics"),
        ("trace", "Show which tasks handle GTP packets"),
        ("irq", "See and place the interrupts of NICs"),
    ] {
        let is_listed = |line: &str| {
            let described = line.trim_start().strip_prefix(command);
            described.is_some_and(|text| text.starts_with("  ") && text.contains(about))
        };
        assert!(help.stdout.lines().any(is_listed), "{command}: {}", help.stdout);
    }
    assert!(help.stdout.contains("\nExamples:\n"), "{}", help.stdout);
    let help = gthctl(&["run", "--help"]);
    assert_eq!(help.code, Some(0));
    for part in [
        "--config <FILE>",
        "[default: /etc/gthctl/config.yaml, if it exists]",
        "--stats <SECONDS>",
        "\nExamples:\n",
    ] {
        assert!(help.stdout.contains(part), "{part}: {}", help.stdout);
    }
}

#[test]
fn version_names_version_commit_and_kernels() {
    let version = gthctl(&["--version"]);
    assert_eq!(version.code, Some(0));
    let lines: Vec<&str> = version.stdout.lines().collect();
    assert_eq!(lines[0], concat!("gthctl ", env!("CARGO_PKG_VERSION")));
    let commit = lines[1].strip_prefix("commit: ").unwrap();
    assert!(!commit.is_empty());
    assert_eq!(lines[2], "sched_ext: Linux 6.12 to 7.3");
    assert!(lines[3].starts_with("libbpf: 1."), "{lines:?}");
}

#[test]
fn a_bad_command_line_is_a_usage_error() {
    for args in [
        &[][..],
        &["runn"],
        &["run", "--stats", "0"],
        &["run", "--stats", "x"],
        &["run", "--stats", "86401"],
        &["run", "-c"],
        &["run", "--frobnicate"],
        &["--color", "blue", "run"],
        &["top", "-d", "0"],
        &["top", "-d", "NaN"],
        &["irq", "frobnicate"],
        &["irq", "pin", "eth0"],
        &["irq", "pin", "eth0", "--cpus", "1", "--ban", "--force"],
        &["irq", "list", "--duration", "1s"],
        &["doctor", "--nfd", "file"],
        &["trace", "udp:0"],
        &["trace", "udp:65536"],
        &["trace", "udp:x"],
        &["trace", "upf"],
        &["trace", "xdp:"],
        &["trace", "xdp:eth0", "--pid", "1"],
        &["trace", "xdp:eth0", "--drops"],
        &["trace", "xdp:eth0", "--suggest"],
        &["trace", "udp:2152", "--kprobe"],
        &["trace", "udp:2152", "--latency"],
        &["trace", "udp:2152", "--histogram"],
        &["trace", "udp:2152", "--by", "teid"],
        &["trace", "udp:2152", "--drops", "--pid", "1"],
    ] {
        let outcome = gthctl(args);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(!outcome.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn unreadable_files() {
    let directory = directory(&[
        ("latin1.yaml", b"debug: true\nx: na\xefve\n"),
        ("large.yaml", &[b'\n'; (256 << 10) + 1]),
        ("c.yaml", b"policy: sub/p.yaml\n"),
    ]);
    fs::create_dir(directory.path().join("sub")).unwrap();
    let run = |args: &[&str]| outcome(command(directory.path()).arg("run").args(args));
    let hint = "name one with --config FILE";
    for (file, why) in [
        ("missing.yaml", "no such file"),
        ("sub", "it is a directory"),
        ("large.yaml", "it is larger than 256 KiB"),
    ] {
        let message = format!("{file}: cannot read the config file: {why}; {hint}");
        assert_refused(&run(&["-c", file]), &message);
    }
    assert_refused(
        &run(&["-c", "latin1.yaml"]),
        "latin1.yaml:2:6: not UTF-8 text; the config file is YAML in UTF-8",
    );
    let missing = "sub/p.yaml: cannot read the policy file: no such file";
    assert_refused(&run(&["-c", "c.yaml"]), missing);
    assert_refused(
        &run(&["-c", "c.yaml", "-p", "sub"]),
        "sub: cannot read the policy file: it is a directory",
    );
}

#[test]
fn what_is_followed_is_a_regular_file() {
    let directory = directory(&[("c.yaml", b"")]);
    nix::unistd::mkfifo(&directory.path().join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
    let run = |args: &[&str]| outcome_soon(command(directory.path()).arg("run").args(args));
    for file in ["fifo", "socket", "/dev/null"] {
        let why = "it is not a regular file";
        let hint = "name one with --config FILE";
        let message = format!("{file}: cannot read the config file: {why}; {hint}");
        assert_refused(&run(&["-c", file]), &message);
        let message = format!("{file}: cannot read the policy file: {why}");
        assert_refused(&run(&["-c", "c.yaml", "-p", file]), &message);
    }
}

#[test]
fn a_file_that_others_can_change_is_noted() {
    let directory = directory(&[("c.yaml", b""), ("p.yaml", POLICY.as_bytes())]);
    let at = fs::canonicalize(directory.path()).unwrap();
    let note = |name: &str, mode: &str| {
        let file = at.join(name);
        let file = file.display();
        format!(
            "{name}: other users can change it: {file} has the mode {mode}; to prevent that: \
             chmod go-w {file}"
        )
    };
    set_mode(&at.join("c.yaml"), 0o666);
    set_mode(&at.join("p.yaml"), 0o664);
    let check = |args: &[&str]| outcome(command(&at).args(["policy", "check"]).args(args));
    let of_policy = note("p.yaml", "0664");
    let table = check(&["p.yaml"]);
    assert_eq!((table.code, table.stderr), (Some(0), format!("gthctl: note: {of_policy}\n")));
    let json: serde_json::Value =
        serde_json::from_str(&check(&["p.yaml", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["notes"], serde_json::json!([of_policy]));
    // gthctl reads both files before it fails for the missing policy.
    let started = outcome(command(&at).args(["run", "-c", "c.yaml", "-p", "none"]));
    let of_config = format!("gthctl: note: {}\n", note("c.yaml", "0666"));
    assert!(started.stderr.starts_with(&of_config), "{}", started.stderr);
}

#[test]
fn the_policy_is_found_beside_the_config() {
    let directory = directory(&[]);
    fs::create_dir(directory.path().join("etc")).unwrap();
    fs::write(directory.path().join("etc/c.yaml"), "policy: p.yaml\n").unwrap();
    fs::write(directory.path().join("etc/p.yaml"), "rules: []\n").unwrap();
    let outcome = outcome(command(directory.path()).args(["run", "--config=etc/c.yaml"]));
    assert_refused(&outcome, "etc/p.yaml:1:1: rules: unknown key; allowed here: strategies, irq");
}

#[test]
fn bad_configs() {
    let root = "policy, kubelet_cgroup_root, scheduler, simple_scheduler, builtin_idle, early_processing, debug, api, monitor";
    let slice = "expected a time from 10us to 1s (nanoseconds, or such as 500us or 2ms)";
    for (config, message) in [
        ("debgu: true", format!("c.yaml:1:1: debgu: unknown key; did you mean debug? allowed here: {root}")),
        (
            "scheduler:\n  slice_ns_mni: 1",
            "c.yaml:2:3: scheduler.slice_ns_mni: unknown key; did you mean slice_ns_min? allowed here: \
             slice_ns_default, slice_ns_min, mode, scheduler_name, kernel_mode, max_time_watchdog"
                .into(),
        ),
        ("debug: yes", "c.yaml:1:8: debug: expected true or false, found \"yes\"".into()),
        ("scheduler:\n  slice_ns_default: 0", format!("c.yaml:2:21: scheduler.slice_ns_default: {slice}, found 0")),
        ("scheduler:\n  slice_ns_min: 2 s", format!("c.yaml:2:17: scheduler.slice_ns_min: {slice}, found \"2 s\"")),
        (
            "scheduler:\n  slice_ns_min: 3ms\n  slice_ns_default: 2ms",
            "c.yaml:2:17: scheduler.slice_ns_min: 3ms exceeds scheduler.slice_ns_default (2ms); expected at most that".into(),
        ),
        ("debug: true\ndebug: true", "c.yaml:2:1: debug: given twice; first in line 1".into()),
        ("a: 1\n---\nb: 1", "c.yaml:3:1: a second YAML document begins here; only one is allowed".into()),
        (
            "debug: [",
            "c.yaml:2:1: not valid YAML: did not find expected node content, while parsing a flow node".into(),
        ),
        ("- debug", format!("c.yaml:1:3: expected keys ({root}), found a list")),
        (
            "api: {enabled: true}",
            "c.yaml:1:16: api.enabled: true needs api.url, which is missing".into(),
        ),
    ] {
        assert_config_refused(config.as_bytes(), &message);
    }
}

#[test]
fn bad_policies() {
    for (policy, message) in [
        ("", "p.yaml:1:1: strategies: missing; expected a list of rules"),
        (
            "strategies:\n- command_regex: \"^nr-(gnb$\"\n  priority: true\n",
            "p.yaml:2:23: rule 1: command_regex: bad pattern at character 5: unclosed group",
        ),
        (
            "strategies:\n- {name: upf, pid: 1, priority: 21}\n",
            "p.yaml:2:33: rule 1 (\"upf\"): priority: expected true, false, or a whole number from 0 (strongest) to 20, found 21",
        ),
        (
            "strategies:\n- {pid: 1, cpus: 4-2}\n",
            "p.yaml:2:18: rule 1: cpus: \"4-2\": the range runs backwards; write 2-4",
        ),
        (
            "strategies:\n- {pid: 1, priority: 1}\n- {pid: 1, exclusive: true, priority: 1}\n",
            "p.yaml:3:23: rule 2: exclusive: needs cpus, which are not given",
        ),
        (
            "strategies:\n- {pid: 1, priority: 1, k8s_namespace: [1]}\n",
            "p.yaml:2:41: rule 1: k8s_namespace: expected a Kubernetes namespace, or a list of them (text; put it in quotes), found 1",
        ),
    ] {
        assert_policy_refused(policy, message);
    }
}

#[test]
fn an_error_is_one_line_whatever_the_input_holds() {
    let directory = directory(&[("c\n.yaml", b"\"a\\nb\\e[31m\": 1\n")]);
    let outcome = outcome(command(directory.path()).args(["run", "-c", "c\n.yaml"]));
    assert_eq!(outcome.code, Some(2));
    assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("gthctl: error: c .yaml:1:1: a\\nb\\u{1b}[31m: unknown key")
    );
}

#[test]
fn colour_only_when_asked_for_off_a_terminal() {
    let run = |args: &[&str]| outcome(command(Path::new("/")).args(args));
    for args in [&["--color", "always", "run"], &["run", "--color", "always"]] {
        let args: Vec<&str> = args.iter().copied().chain(["-c", "/missing"]).collect();
        let stderr = run(&args).stderr;
        assert!(stderr.starts_with("gthctl: \x1b[1;31merror:\x1b[0m /missing: "), "{stderr:?}");
    }
    assert!(run(&["--color=always", "--help"]).stdout.contains('\x1b'));
    for args in [&["--color", "auto"][..], &["--color", "never"], &[]] {
        let all = [args, &["run", "-c", "/missing"]].concat();
        assert!(run(&all).stderr.starts_with("gthctl: error: /missing: "));
        assert!(!run(&[args, &["--help"]].concat()).stdout.contains('\x1b'));
    }
}

const POLICY: &str = "strategies:\n- {name: upf, command_regex: ^upf$, user: root, priority: 3, execution_time: 20ms}\n";

#[test]
fn a_policy_is_checked_without_a_running_one() {
    let bad = "strategies:\n- {pid: 1, priority: 21}\n";
    let why = "2:22: rule 1: priority: expected true, false, or a whole number from 0 (strongest) \
               to 20, found 21";
    let directory = directory(&[("p.yaml", POLICY.as_bytes()), ("bad.yaml", bad.as_bytes())]);
    let check = |args: &[&str], input: &str| {
        let mut command = command(directory.path());
        let command = command.args(["policy", "check"]).args(args).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Outcome { code: output.status.code(), stdout, stderr }
    };
    for (file, input) in [("p.yaml", ""), ("-", POLICY), ("/dev/stdin", POLICY)] {
        let table = check(&[file], input);
        assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""), "{file}");
        for part in ["upf", "command_regex: ^upf$", "priority: 3", "execution_time: 20ms"] {
            assert!(table.stdout.contains(part), "{part} in {}", table.stdout);
        }
        assert!(!table.stdout.contains("tasks"), "{}", table.stdout);
        let expected = serde_json::json!({
            "rules": [{
                "name": "upf",
                "conditions": {"command_regex": "^upf$", "user": "root"},
                "effects": {"priority": 3, "execution_time": 20_000_000},
            }],
            "exclusive_cpus": "",
            "notes": [],
        });
        let json = check(&[file, "-o", "json"], input).stdout;
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), expected);
        let yaml = check(&[file, "-o", "yaml"], input).stdout;
        assert_eq!(serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap(), expected);
    }
    let mark = "  |\n2 | - {pid: 1, priority: 21}\n  |                      ^^";
    assert_refused(&check(&["bad.yaml"], ""), &format!("bad.yaml:{why}\n{mark}"));
    assert_refused(&check(&["-", "-o", "json"], bad), &format!("<stdin>:{why}\n{mark}"));
    let missing = "missing.yaml: cannot read the policy file: no such file";
    assert_refused(&check(&["missing.yaml"], ""), missing);
}

#[test]
fn a_rule_that_any_user_can_come_under_is_noted() {
    let policy = "strategies:\n- {command_regex: ^upf$, priority: 3}\n- {gtp: gtp, weight: 200}\n";
    let note = "p.yaml:2:4: rule 1: any user can name a task like that and get priority 3; \
                user: or systemd_unit: prevents that";
    let directory = directory(&[("p.yaml", policy.as_bytes())]);
    let check = |args: &[&str]| {
        outcome(command(directory.path()).args(["policy", "check", "p.yaml"]).args(args))
    };
    let table = check(&[]);
    assert_eq!((table.code, table.stderr), (Some(0), format!("gthctl: note: {note}\n")));
    let json: serde_json::Value = serde_json::from_str(&check(&["-o", "json"]).stdout).unwrap();
    assert_eq!(json["notes"], serde_json::json!([note]));
}

#[test]
fn policy_commands_need_a_running_one() {
    if Path::new("/run/gthctl").exists() {
        return;
    }
    let directory = directory(&[("p.yaml", POLICY.as_bytes())]);
    for args in [
        &["status"][..],
        &["show", "-o", "json"],
        &["explain", "1"],
        &["rollback", "--yes"],
        &["apply", "p.yaml"],
    ] {
        let outcome = outcome(command(directory.path()).arg("policy").args(args));
        let message = "gthctl: error: no gthctl run is active; start one with: sudo gthctl run\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(10), message), "{args:?}");
        assert_eq!(outcome.stdout, "", "{args:?}");
    }
}

/// A line for each mistake, and the place in the file.
#[test]
fn every_mistake_is_shown_in_its_line() {
    let bad = "strategies:\n- {pid: 1, priority: 21}\n- {pid: 1, cpus: 0-9999}\n\
               - command_regex: \"a(\"\n  priority: true\n";
    let directory =
        directory(&[("p.yaml", bad.as_bytes()), ("yaml.yaml", b"strategies: [\n- a: }")]);
    let policy = |file: &str| outcome(command(directory.path()).args(["policy", "check", file]));
    let shown = policy("p.yaml");
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(2), ""));
    let lines: Vec<&str> = shown.stderr.lines().collect();
    assert_eq!(lines.len(), 12, "{}", shown.stderr);
    assert!(lines[0].starts_with("gthctl: error: p.yaml:2:22: rule 1: priority: "), "{lines:#?}");
    assert_eq!(lines[1..4], ["  |", "2 | - {pid: 1, priority: 21}", "  |                      ^^"]);
    assert!(lines[4].starts_with("gthctl: error: p.yaml:3:18: rule 2: cpus: "), "{lines:#?}");
    assert_eq!(lines[7], "  |                  ^^^^^^");
    assert!(
        lines[8].starts_with("gthctl: error: p.yaml:4:20: rule 3: command_regex: "),
        "{lines:#?}"
    );
    assert_eq!(lines[10..], ["4 | - command_regex: \"a(\"", "  |                    ^^"]);
    // YAML that cannot be read is one mistake.
    let broken = policy("yaml.yaml").stderr;
    assert!(broken.starts_with("gthctl: error: yaml.yaml:2:1: not valid YAML: "), "{broken}");
    assert_eq!(broken.lines().count(), 4, "{broken}");
}

#[test]
fn a_first_policy_is_written_once_and_is_right() {
    let directory = directory(&[]);
    let policy = |args: &[&str]| outcome(command(directory.path()).arg("policy").args(args));
    let file = directory.path().join("new/upf.yaml");
    let init = ["init", "-o", "new/upf.yaml"];
    let written = policy(&init);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let next = "new/upf.yaml is written. Look at it, then: gthctl policy apply new/upf.yaml, \
                or gthctl run -p new/upf.yaml\n";
    assert_eq!(written.stdout, next);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(policy(&["init", "-o", "-"]).stdout, text);
    let checked = policy(&["check", "new/upf.yaml"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);

    fs::write(&file, "mine").unwrap();
    let refused = policy(&init);
    let why = "gthctl: error: new/upf.yaml: exists already; nothing is written; replace it with \
               --force, or name another with --output\n";
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.ends_with(why), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(policy(&["init", "--force", "--output", "new/upf.yaml"]).code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    // Any user may have put a link into a directory such as /tmp.
    let other = directory.path().join("other");
    fs::write(&other, "mine").unwrap();
    symlink(&other, directory.path().join("link")).unwrap();
    let refused = policy(&["init", "--force", "-o", "link"]);
    let why = "gthctl: error: link: it is a symbolic link\n";
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.ends_with(why), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
}

/// A new file in the current directory, named without a directory.
#[test]
fn a_name_alone_is_a_file_here() {
    let directory = directory(&[]);
    let init =
        |args: &[&str]| outcome(command(directory.path()).args(["policy", "init"]).args(args));
    let written = init(&["--force", "-o", "new.yaml"]);
    let shown = init(&["-o", "-"]);
    // A user other than root gets a note each time.
    assert_eq!((written.code, written.stderr), (Some(0), shown.stderr));
    assert_eq!(fs::read_to_string(directory.path().join("new.yaml")).unwrap(), shown.stdout);
}

#[test]
fn a_full_disk_is_an_error_in_one_line() {
    let directory = directory(&[("p.yaml", POLICY.as_bytes())]);
    for format in ["table", "json"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(directory.path());
        let command = command.args(["policy", "check", "p.yaml", "-o", format]);
        let outcome = outcome(command.stdout(full));
        let why = "gthctl: error: standard output: No space left on device (os error 28)\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), why), "{format}");
    }
}

#[test]
fn the_journal_gets_a_priority_with_each_line() {
    let directory = directory(&[("c.yaml", b"monitor: {enabled: true}\nno: 1\n")]);
    let log = directory.path().join("log");
    let said = |numbers: &dyn Fn(&Metadata) -> String| {
        let file = File::create(&log).unwrap();
        let numbers = numbers(&file.metadata().unwrap());
        let mut command = command(directory.path());
        command.args(["run", "-c", "c.yaml"]).env("JOURNAL_STREAM", numbers).stderr(file);
        assert_eq!(command.status().unwrap().code(), Some(2));
        fs::read_to_string(&log).unwrap()
    };
    let message = "gthctl: error: c.yaml:2:1: no: unknown key";
    let in_journal = said(&|log| format!("{}:{}", log.dev(), log.ino()));
    assert!(in_journal.starts_with(&format!("<3>{message}")), "{in_journal}");
    let elsewhere = said(&|log| format!("{}:{}", log.dev(), log.ino() + 1));
    assert!(elsewhere.starts_with(message), "{elsewhere}");
}

/// The findings depend on this machine, so only their form and the exit code are checked.
#[test]
fn doctor_reports_its_findings_and_fails_for_an_error() {
    let directory = directory(&[("c.yaml", b"policy: p.yaml\n"), ("p.yaml", b"strategies: 1\n")]);
    let doctor = |args: &[&str]| {
        let outcome = outcome(command(directory.path()).arg("doctor").args(args));
        let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        (outcome, json)
    };
    let (outcome, json) = doctor(&["-o", "json", "-c", "c.yaml", "--nfd=features.d/gthctl"]);
    let findings = json["findings"].as_array().unwrap();
    let checks: Vec<&str> =
        findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    for check in ["kernel", "CONFIG_BPF_JIT", "btf", "sched_ext", "capabilities", "cgroups"] {
        assert!(checks.contains(&check), "{check} in {checks:?}");
    }
    let of = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    for (count, level) in [("errors", "error"), ("warnings", "warning"), ("notes", "note")] {
        assert_eq!(json[count], of(level), "{level}");
    }
    let policy = findings.iter().find(|finding| finding["check"] == "policy").unwrap();
    assert_eq!(policy["level"], "error");
    assert!(policy["what"].as_str().unwrap().starts_with("p.yaml:1:13: strategies: "), "{policy}");
    let errors = of("error");
    let what = if errors == 1 { "1 error found".into() } else { format!("{errors} errors found") };
    let help = "gthctl run does not work until they are fixed";
    assert_eq!(outcome.stderr, format!("gthctl: error: {what}; {help}\n"));
    assert_eq!(outcome.code, Some(1));
    let features = fs::read_to_string(directory.path().join("features.d/gthctl")).unwrap();
    assert!(features.lines().any(|line| line == "gthctl.ready=false"), "{features}");
    let here = Path::new("/sys/kernel/sched_ext/state").exists();
    assert!(features.contains(&format!("gthctl.sched_ext={here}\n")), "{features}");
}

#[test]
fn doctor_finds_that_no_server_answers() {
    let api = b"api: {enabled: true, url: \"http://127.0.0.1:9\"}\n";
    let directory = directory(&[("c.yaml", api)]);
    let args = ["doctor", "-c", "c.yaml", "-o", "json"];
    let stdout = outcome(command(directory.path()).args(args)).stdout;
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let api = findings.iter().find(|finding| finding["check"] == "api").unwrap();
    assert_eq!(api["level"], "warning");
    assert!(api["what"].as_str().unwrap().contains("http://127.0.0.1:9"), "{api}");
}

#[test]
fn doctor_needs_no_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let directory = directory(&[]);
    set_mode(directory.path(), 0o755);
    let binary = directory.path().join("gthctl");
    fs::copy(env!("CARGO_BIN_EXE_gthctl"), &binary).unwrap();
    let mut command = Command::new(binary);
    command.args(["doctor", "-o", "json"]).uid(65534).gid(65534).current_dir("/");
    let outcome = outcome(&mut command);
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).expect(&outcome.stderr);
    let findings = json["findings"].as_array().unwrap();
    let is_missing = |finding: &&serde_json::Value| {
        finding["check"] == "capabilities" && finding["level"] == "error"
    };
    assert_eq!(findings.iter().filter(is_missing).count(), 1, "{json}");
    assert_eq!(outcome.code, Some(1));
}

/// The lines of a command in a terminal of 80 columns.
fn in_terminal(directory: &Path, args: &str) -> Vec<String> {
    let gthctl = env!("CARGO_BIN_EXE_gthctl");
    let line = format!("stty cols 80 rows 24; exec {gthctl} {args}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(directory).stdin(Stdio::null());
    outcome(&mut script).stdout.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_table_fits_the_terminal_unless_it_may_be_wide() {
    let policy = "strategies: [{name: user-plane-of-the-core, command_regex: ^(open5gs-amfd|open5gs-smfd|open5gs-upfd|open5gs-nrfd)$, \
                  systemd_unit: open5gs-upfd.service, user: root, priority: 10, weight: 300}]";
    let directory = directory(&[("p.yaml", policy.as_bytes())]);
    let width = |line: &String| line.chars().count();
    let table = |args: &str| -> Vec<String> {
        let lines = in_terminal(directory.path(), args);
        lines.into_iter().filter(|line| line.contains('|') || line.contains('+')).collect()
    };
    let fitted = table("policy check p.yaml");
    assert!(fitted.len() > 3 && fitted.iter().all(|line| width(line) <= 80), "{fitted:#?}");
    let wide = table("policy check p.yaml --wide");
    assert!(wide.iter().any(|line| width(line) > 80), "{wide:#?}");
}
