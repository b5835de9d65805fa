//! The screen of `gthctl top` in a terminal: in tmux, with answers of this test's own instead of a
//! running gthctl's.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gthctl::base::error::Error;
use gthctl::daemon::control::server::Server;
use gthctl::daemon::control::{Reply, Request};
use gthctl::daemon::reports::RuleTasks;
use gthctl::top::drawing::Look;
use gthctl::top::full_screen;
use gthctl::top::sample::Source;
use serde_json::json;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);
/// The socket that a screen in tmux asks.
const SOCKET: &str = "GTHCTL_TEST_SOCKET";

/// A terminal of 80 columns and 24 lines, in a tmux server of its own.
struct Terminal {
    dir: TempDir,
}

impl Terminal {
    /// Runs this command; when it has ended, `ended with CODE` and the terminal's settings follow.
    fn start(command: &str) -> Self {
        let terminal = Self { dir: tempfile::tempdir().unwrap() };
        let script = terminal.dir.path().join("script");
        let end = "code=$?; echo ended with $code; stty -a | tr ' ;' '\\n\\n' | grep -x -e echo -e icanon; echo settings told";
        fs::write(&script, format!("{command}\n{end}\nexec sleep 600\n")).unwrap();
        let script = format!("sh {}", script.display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &script]);
        terminal
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.dir.path().join("tmux")).args(args);
        let output = command.env_remove("TMUX").stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as wanted, and returns it.
    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(begin.elapsed() < SOON, "not {what}:\n{text}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Asserts that the command has ended and that the terminal's text and settings are as before
    /// it.
    #[track_caller]
    fn assert_restored(&self, code: &str) -> String {
        let text = self.wait("restored", |text| text.contains("settings told"));
        assert!(text.contains(&format!("ended with {code}\n")), "{text}");
        assert!(
            ["echo", "icanon"].iter().all(|set| text.lines().any(|line| line == *set)),
            "{text}"
        );
        assert!(!text.contains("gthctl top"), "{text}");
        assert_eq!(self.tmux(&["display", "-p", "#{alternate_on}#{cursor_flag}"]), "01\n");
        text
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut kill = Command::new("tmux");
        kill.arg("-S").arg(self.dir.path().join("tmux")).arg("kill-server");
        let _ = kill.status();
    }
}

/// The command that runs the program, where no gthctl runs.
fn program() -> String {
    format!("{} top", env!("CARGO_BIN_EXE_gthctl"))
}

/// The command that runs one of the ignored tests below on the terminal.
fn this(test: &str, socket: &Path) -> String {
    let this = env::current_exe().unwrap();
    let args = "--exact --ignored --nocapture --quiet --test-threads 1";
    format!("{SOCKET}={} {} {args} {test} 2>&1", socket.display(), this.display())
}

fn socket() -> PathBuf {
    env::var_os(SOCKET).expect("only for the other tests").into()
}

/// Not a test: the screen, beside the gthctl at the socket.
#[test]
#[ignore = "for the other tests"]
fn screen() {
    let source = Source { socket: socket(), proc_root: "/proc".into() };
    let look = Look { colored: false, unicode: true };
    full_screen::run(&source, Duration::from_millis(200), look).unwrap();
}

/// Not a test: a screen that panics.
#[test]
#[ignore = "for the other tests"]
fn panicking() {
    let _screen = full_screen::Screen::open().unwrap();
    panic!("as told");
}

/// A gthctl with one rule and this test's own thread under it.
struct Gthctl {
    ends: Arc<AtomicBool>,
    answers: JoinHandle<()>,
}

impl Gthctl {
    fn start(socket: &Path) -> Self {
        let server = Server::listen(socket).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        Self { ends, answers: thread::spawn(move || serve(server, &until)) }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.answers.join().unwrap();
    }
}

fn serve(mut server: Server, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        for asked in server.take() {
            let (pid, generation) = (std::process::id(), 3);
            let reply = match asked.request {
                Request::Metrics => {
                    Reply::Metrics(Box::new(serde_json::from_value(metrics()).unwrap()))
                }
                Request::Tasks => {
                    let tasks = json!([{"tid": pid, "pid": pid, "comm": "upf-rx", "rule": "fast",
                        "generation": generation, "in_force": true}]);
                    let tasks = serde_json::from_value(tasks).unwrap();
                    Reply::Tasks(RuleTasks { generation, tasks })
                }
                Request::Explain { tid } => {
                    let explained = json!({"tid": tid, "pid": pid, "generation": 3, "task": {},
                        "rule": "fast", "in_force": true, "rules": [], "threads": []});
                    Reply::Explain(serde_json::from_value(explained).unwrap())
                }
                _ => Reply::Failed(Error::failure("not asked by top").into()),
            };
            asked.reply.send(reply);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn metrics() -> serde_json::Value {
    json!({
        "status": {
            "pid": 42, "running_since": "then", "scheduler_since": "then", "policy_file": "/etc/gthctl/policy.yaml",
            "generation": 3, "in_force_since": "then", "rules": 1, "file_rules": 1,
            "exclusive_cpus": "0", "tasks_matched": 1, "tasks": 90, "kernel_in_step": true,
            "rejected": {"why": "policy.yaml:1:1: bad", "since": "noon"},
            "can_roll_back": false, "notes": []
        },
        "version": "1", "started": 1.0, "scheduler_started": 2.0, "in_force": 3.0,
        "policy_changes": 0, "policy_rejections": 1, "exclusive_cpus": 1,
        "rules": [{"rule": "fast", "tasks": 1}],
        "rule_counters": [], "counters": {"paths": {}, "counts": {}, "wakeups": [0, 5], "wakeup_sum_ns": 9}
    })
}

#[test]
fn without_a_gthctl_it_says_so_and_q_ends_it() {
    let terminal = Terminal::start(&program());
    let screen = terminal.wait_for("idle");
    assert!(screen.contains("waiting: "), "{screen}");
    // No gthctl runs where the tests run.
    assert!(screen.contains("no gthctl run is active"), "{screen}");
    terminal.press(&["h"]);
    terminal.wait_for("q, Ctrl-C       quit");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    let keys = |text: &str| text.lines().nth(29).is_some_and(|line| line.starts_with("Esc back"));
    terminal.wait("of 30 lines", keys);
    terminal.press(&["q"]);
    terminal.assert_restored("0");
}

#[test]
fn sigterm_and_a_panic_restore_the_terminal() {
    let pid = tempfile::tempdir().unwrap();
    let file = pid.path().join("pid");
    // The shell execs the program, which keeps the shell's PID.
    let command = format!("sh -c 'echo $$ > {}; exec {}'", file.display(), program());
    let terminal = Terminal::start(&command);
    terminal.wait_for("idle");
    let number = fs::read_to_string(&file).unwrap();
    assert!(Command::new("kill").arg(number.trim()).status().unwrap().success());
    terminal.assert_restored("0");
    drop(terminal);

    let terminal = Terminal::start(&this("panicking", Path::new("/nowhere")));
    let text = terminal.assert_restored("101");
    assert!(text.contains("as told"), "{text}");
}

#[test]
fn what_a_gthctl_says_in_every_view_and_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("run/control.sock");
    let gthctl = Gthctl::start(&socket);
    let terminal = Terminal::start(&this("screen", &socket));
    terminal.wait_for("PID 42  generation 3  FILE REJECTED");
    terminal.wait_for("REJECTED since noon: policy.yaml:1:1: bad");
    terminal.wait("exclusive", |text| {
        text.lines().any(|line| line.trim_start().starts_with("0 exclusive"))
    });
    terminal.press(&["2"]);
    terminal.wait("a rule", |text| text.lines().any(|line| line.starts_with("fast ")));
    terminal.press(&["Enter"]);
    let row = terminal.wait_for("upf-rx");
    assert!(row.contains("1 by run time, of rule fast"), "{row}");
    terminal.press(&["s"]);
    terminal.wait_for("1 by waiting time");
    terminal.press(&["/", "x", "x", "Enter"]);
    terminal.wait_for("no task falls under a rule, or none that the filter lets through");
    terminal.press(&["Escape"]);
    terminal.wait_for("upf-rx");
    terminal.press(&["Enter"]);
    terminal.wait_for("task | process");
    terminal.press(&["Escape"]);
    terminal.wait_for("1 by waiting time");
    terminal.press(&["f"]);
    terminal.wait_for("FROZEN");
    gthctl.end();
    assert!(terminal.text().contains("upf-rx"));
    terminal.press(&["f"]);
    terminal.wait_for("waiting: no gthctl run is active");
    let gthctl = Gthctl::start(&socket);
    terminal.wait_for("PID 42  generation 3");
    gthctl.end();
    terminal.press(&["q"]);
    terminal.assert_restored("0");
}

#[test]
fn on_a_dumb_terminal_it_waits_for_a_gthctl() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gthctl"));
    command.args(["top", "--delay", "0.2"]).env("TERM", "dumb");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut top = command.spawn().unwrap();
    // If an assertion fails, this end of the pipe closes, and that ends the program.
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().expect("it has ended").unwrap();
        assert!(line.starts_with("waiting: no gthctl run is active"), "{line}");
    }
    assert!(top.try_wait().unwrap().is_none());
    top.kill().unwrap();
    top.wait().unwrap();
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gthctl"));
    let output = command.arg("top").env("TERM", "xterm").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let what = "gthctl top needs a terminal for its keys and its screen";
    assert_eq!(stderr, format!("gthctl: error: {what}; use --once, or -o json\n"));
}
