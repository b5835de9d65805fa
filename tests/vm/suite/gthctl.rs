//! The gthctl under test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::kernel;

/// A `gthctl run` whose scheduler is in charge. Killed when dropped.
pub struct Gthctl {
    child: Child,
    files: TempDir,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// What a gthctl left when it ended.
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// The total of a counter in the last table that was printed.
    pub fn counter(&self, name: &str) -> u64 {
        let mut rows = self.stdout.lines().rev().map(|line| line.split('|').map(str::trim));
        let row = rows.find(|row| row.clone().next() == Some(name));
        let cell = row.unwrap_or_else(|| panic!("no counter {name:?} in\n{}", self.stdout)).nth(1);
        cell.unwrap().parse().unwrap()
    }
}

pub fn binary() -> PathBuf {
    std::env::var_os("GTHCTL_BIN").expect("GTHCTL_BIN is set by tests/vm/test").into()
}

/// A directory with config.yaml and policy.yaml.
pub fn files(config: &str, policy: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.yaml"), format!("{config}\npolicy: policy.yaml\n")).unwrap();
    fs::write(dir.path().join("policy.yaml"), policy).unwrap();
    dir
}

/// `gthctl run` on these files, not started yet.
pub fn command(files: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("run").arg("-c").arg(files.path().join("config.yaml")).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Whatever becomes of the test, no scheduler stays behind.
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
}

/// `gthctl policy` with these arguments.
pub fn policy(args: &[&str]) -> Output {
    output(Command::new(binary()).arg("policy").args(args).stdin(Stdio::null()))
}

/// As [`policy`], from a pipe.
pub fn policy_from(input: &str, args: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, input).unwrap();
    let stdin = fs::File::open(&file).unwrap();
    output(Command::new(binary()).arg("policy").args(args).stdin(stdin))
}

/// What `gthctl policy` reports in JSON; it must succeed.
#[track_caller]
pub fn report(args: &[&str]) -> Value {
    let output = policy(&[args, &["-o", "json"]].concat());
    assert_eq!(output.code(), 0, "{args:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// The notes of a status, but for those about interrupts on exclusive CPUs, as which CPUs they
/// come in on is up to the machine, and about rules that any user can come under, as most rules
/// of tests are.
pub fn notes(status: &Value) -> Vec<String> {
    const OTHERS: [&str; 2] = ["are exclusive, and interrupts", ": any user can "];
    let notes = status["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    notes.filter(|note| !OTHERS.iter().any(|other| note.contains(other))).map(Into::into).collect()
}

/// Runs a gthctl that is expected to end by itself.
pub fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Gthctl {
    /// Starts `gthctl run` with a policy and waits until it is in charge.
    pub fn start(policy: &str) -> Self {
        Self::start_with("", policy, &[])
    }

    pub fn start_with(config: &str, policy: &str, args: &[&str]) -> Self {
        Self::start_on(files(config, policy), args)
    }

    /// As [`Gthctl::start`], on files that are there already.
    pub fn start_on(files: TempDir, args: &[&str]) -> Self {
        let command = command(&files, args);
        Self::spawn(files, command)
    }

    /// As [`Gthctl::start_on`]; the kernel ends the scheduler when a task has waited so long.
    pub fn start_watched(files: TempDir, watchdog: Duration) -> Self {
        let mut command = command(&files, &[]);
        command.env("GTHCTL_WATCHDOG_MS", watchdog.as_millis().to_string());
        Self::spawn(files, command)
    }

    fn spawn(files: TempDir, mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr: Arc<Mutex<String>> = Arc::default();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *log.lock().unwrap() += &(line + "\n");
            }
        });
        let mut gthctl = Self { child, files, stderr, reader: Some(reader) };
        let up = kernel::wait(Duration::from_secs(60), || {
            gthctl.has_ended() || gthctl.has_said("gthctl: scheduling") > 0
        });
        assert!(gthctl.has_ended() || kernel::ops() == "gthctl");
        if !up || gthctl.has_ended() {
            let _ = gthctl.child.kill();
            panic!("gthctl did not start: {}", gthctl.collect().stderr);
        }
        gthctl
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its policy file.
    pub fn policy(&self) -> PathBuf {
        self.files.path().join("policy.yaml")
    }

    /// How often it has said that so far, on standard error.
    pub fn has_said(&self, what: &str) -> usize {
        self.stderr.lock().unwrap().matches(what).count()
    }

    /// All that it has said on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until it has said that so many times.
    pub fn says(&self, what: &str, times: usize) -> bool {
        kernel::wait(Duration::from_secs(10), || self.has_said(what) >= times)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Ctrl-C, as a user would; it must end well.
    pub fn stop(self) -> Output {
        self.signal(Signal::SIGINT);
        let output = self.wait();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        assert_eq!(kernel::state(), "disabled");
        output
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Output {
        self.collect()
    }

    fn collect(&mut self) -> Output {
        let status = self.child.wait().unwrap();
        let mut output = Output { status, stdout: String::new(), stderr: String::new() };
        self.child.stdout.take().unwrap().read_to_string(&mut output.stdout).unwrap();
        self.reader.take().unwrap().join().unwrap();
        output.stderr = std::mem::take(&mut self.stderr.lock().unwrap());
        output
    }
}

impl Drop for Gthctl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        kernel::wait(Duration::from_secs(10), || kernel::state() == "disabled");
    }
}
