//! The gthctl under test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::gthctl::daemon::control::client::ask;
use ::gthctl::daemon::control::{Reply, Request, SOCKET};
use ::gthctl::daemon::reports::Status;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{kernel, shared};

/// A policy without rules.
pub const NO_RULES: &str = "strategies: []";
/// How long a changed file may take to come into force or to be reported, however busy the host is.
const IN_FORCE: Duration = Duration::from_secs(30);
/// How long a load may take: the verifier needs seconds on a CPU that it shares with others.
pub const LOADED: Duration = Duration::from_secs(180);

/// A `gthctl run` whose scheduler is in charge. Killed when dropped.
pub struct Gthctl {
    child: Child,
    files: TempDir,
    stderr: Arc<Mutex<String>>,
    /// How much of `stderr` gthctl wrote before this test.
    heard: usize,
    reader: Option<JoinHandle<()>>,
    /// How often it had read from files by the time it was in charge.
    pub reads: u64,
}

/// The exit status and output of a gthctl that has ended.
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
        let (_, last) = self.stdout.rsplit_once("dispatched by").expect(&self.stdout);
        let mut rows = last.lines().map(|line| line.split('|').map(str::trim));
        let Some(mut row) = rows.find(|row| row.clone().next() == Some(name)) else {
            // The table has no row for a counter that is zero.
            let names = include_str!("../../../../src/sched/stats.rs");
            assert!(names.contains(&format!("\"{name}\"")), "no counter {name:?}");
            return 0;
        };
        row.nth(1).unwrap().parse().unwrap()
    }
}

pub fn binary() -> PathBuf {
    std::env::var_os("GTHCTL_BIN").expect("GTHCTL_BIN is set by tests/vm/test").into()
}

/// `count` rules of every kind, none of which matches anything here.
pub fn many_rules(count: usize, first: &str) -> String {
    let rule = |i: usize| {
        let condition = match i % 9 {
            0 => format!("command_regex: '^none-{i}-[a-z]+$'"),
            1 => format!("threads: '^none-{i}-(rx|tx)'"),
            2 => format!("exe: '/opt/none-{i}/**/bin/*'"),
            3 => format!("cgroup: /none-{i}.slice/*/upf"),
            4 => format!("systemd_unit: 'none-{i}@*.service'"),
            5 => format!("container: '{i:016x}'"),
            6 => format!("user: {}", 100_000 + i),
            7 => format!("netns: {}", 1 + i),
            _ => format!("command_regex: '^none-{i}$', include_children: true"),
        };
        format!("- {{name: {first}-{i}, {condition}, priority: {}}}\n", i % 21)
    };
    format!("strategies:\n{}", (0..count).map(rule).collect::<String>())
}

/// A directory with config.yaml and policy.yaml.
pub fn files(config: &str, policy: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.yaml"), format!("{config}\npolicy: policy.yaml\n")).unwrap();
    fs::write(dir.path().join("policy.yaml"), policy).unwrap();
    dir
}

/// `gthctl run` on these files, not started yet. Unloads the scheduler that tests share.
pub fn command(files: &TempDir, args: &[&str]) -> Command {
    let mut command = run();
    command.arg("-c").arg(files.path().join("config.yaml")).args(args);
    command
}

/// `gthctl run` without arguments, not started yet. Unloads the scheduler that tests share.
pub fn run() -> Command {
    shared::unload();
    let mut command = Command::new(binary());
    command.arg("run");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // No scheduler stays behind, whatever the outcome of the test.
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

/// Like [`policy`], with `input` on standard input.
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

/// The notes of a status, except two kinds. Notes about interrupts on exclusive CPUs depend on the
/// machine. Notes about rules that any user can match apply to most rules of the tests.
pub fn notes(status: &Value) -> Vec<String> {
    const OTHERS: [&str; 2] = ["are exclusive and take interrupts", ": any user can "];
    let notes = status["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    notes.filter(|note| !OTHERS.iter().any(|other| note.contains(other))).map(Into::into).collect()
}

/// Asks the running gthctl for its status, without starting another process.
pub fn status() -> Option<Status> {
    match ask(Path::new(SOCKET), &Request::Status) {
        Ok(Reply::Status(status)) => Some(*status),
        _ => None,
    }
}

/// Replaces the contents of a file in one step.
pub fn replace_file(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// The BPF maps that a process has open, by their ids.
pub fn maps_of(pid: i32) -> Vec<u32> {
    kernel::open_files(pid)
        .filter_map(|info| {
            let line = info.lines().find_map(|line| line.strip_prefix("map_id:"))?;
            line.trim().parse().ok()
        })
        .collect()
}

/// The scheduler's counters, summed over the CPUs.
pub struct Counters(Vec<u64>);

impl Counters {
    /// Reads the map of the gthctl with that PID.
    fn read(pid: i32) -> Self {
        let ids = maps_of(pid);
        let mut maps = MapInfoIter::default().filter(|map| ids.contains(&map.id));
        let stats = maps.find(|map| map.name == "stats").expect("gthctl has a map of counters");
        let stats = MapHandle::from_map_id(stats.id).unwrap();
        let cpus = stats.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let mut sum = vec![0; cpus[0].len() / 8];
        for cpu in &cpus {
            for (sum, one) in sum.iter_mut().zip(cpu.chunks_exact(8)) {
                *sum += u64::from_ne_bytes(one.try_into().unwrap());
            }
        }
        Self(sum)
    }

    /// One counter by its name in bpf/intf.h, without `GTH_`.
    pub fn get(&self, name: &str) -> u64 {
        let header = include_str!("../../../../bpf/intf.h");
        let names = |of: &str, end: &str| -> Vec<&str> {
            let list = header.split_once(&format!("enum {of} {{")).unwrap().1;
            let list = list.split_once(end).unwrap().0.lines();
            list.filter_map(|line| line.trim().strip_prefix("GTH_")?.split(',').next()).collect()
        };
        let mut all = names("gth_path", "GTH_NR_PATHS");
        all.extend(names("gth_counter", "GTH_NR_COUNTERS"));
        let at = all.iter().position(|one| *one == name);
        self.0[at.unwrap_or_else(|| panic!("no counter {name}"))]
    }
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

    /// Like [`Gthctl::start`], on files that already exist.
    pub fn start_on(files: TempDir, args: &[&str]) -> Self {
        let command = command(&files, args);
        Self::spawn(files, command)
    }

    /// Starts it without rules, with this watchdog or, if `None`, the kernel's.
    pub fn start_shared(config: &str, watchdog: Option<Duration>) -> Self {
        let files = files(config, NO_RULES);
        match watchdog {
            Some(watchdog) => Self::start_watched(files, watchdog),
            None => Self::start_on(files, &[]),
        }
    }

    /// Like [`Gthctl::start_on`]; the kernel ends the scheduler when a task has waited that long.
    pub fn start_watched(files: TempDir, watchdog: Duration) -> Self {
        let mut command = command(&files, &[]);
        command.env("GTHCTL_WATCHDOG_MS", watchdog.as_millis().to_string());
        Self::spawn(files, command)
    }

    pub fn spawn(files: TempDir, command: Command) -> Self {
        let begin = Instant::now();
        let mut gthctl = Self::spawn_until(files, command, "gthctl: scheduling");
        gthctl.reads = kernel::reads(gthctl.pid());
        assert_eq!(kernel::ops(), "gthctl");
        println!("gthctl: loaded in {:?}", begin.elapsed());
        gthctl
    }

    /// Like [`Gthctl::spawn`], but waits only until it has said that.
    pub fn spawn_until(files: TempDir, mut command: Command, says: &str) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr: Arc<Mutex<String>> = Arc::default();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *log.lock().unwrap() += &(line + "\n");
            }
        });
        let mut gthctl = Self { child, files, stderr, heard: 0, reader: Some(reader), reads: 0 };
        let up = kernel::wait(LOADED, || gthctl.has_ended() || gthctl.has_said(says) > 0);
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

    /// Its config file.
    pub fn config(&self) -> PathBuf {
        self.files.path().join("config.yaml")
    }

    /// Replaces the policy and waits until the new one is in force.
    #[track_caller]
    pub fn replace(&self, policy: &str) {
        self.changes(|| replace_file(&self.policy(), policy));
    }

    /// Waits until the change that `change` makes to the policy is in force.
    #[track_caller]
    pub fn changes(&self, change: impl FnOnce()) {
        let generation = || status().map(|status| status.generation);
        let before = generation();
        change();
        let changed = kernel::wait(IN_FORCE, || {
            generation().is_some_and(|generation| Some(generation) != before)
        });
        assert!(changed, "{:?}\n{}", status(), self.stderr());
        self.has_told_all();
    }

    /// Waits until it has reported the generation in force: another thread writes its messages a
    /// little later.
    #[track_caller]
    pub fn has_told_all(&self) {
        let generation = status().map(|status| status.generation);
        let said = format!("generation {} ", generation.expect("it answers"));
        let told = || generation == Some(1) || self.stderr.lock().unwrap().contains(&said);
        assert!(kernel::wait(IN_FORCE, told), "{said}in {}", self.stderr());
    }

    /// Waits until the file on disk has been refused.
    #[track_caller]
    pub fn refuses(&self, change: impl FnOnce()) {
        let refused = || status().and_then(|status| status.rejected);
        let before = refused();
        change();
        let refuses =
            kernel::wait(IN_FORCE, || refused().is_some_and(|refused| Some(refused) != before));
        assert!(refuses, "{:?}\n{}", status(), self.stderr());
    }

    /// Waits until a rule about packets can see them.
    #[track_caller]
    pub fn sees_packets(&self) {
        let sees = |status: Status| status.traffic.is_some_and(|of| !of.functions.is_empty());
        let sees = kernel::wait(IN_FORCE, || status().is_some_and(sees));
        assert!(sees, "{:?}\n{}", status(), self.stderr());
    }

    /// The scheduler's counters since it was loaded.
    pub fn counters(&self) -> Counters {
        Counters::read(self.pid())
    }

    /// From now on [`Gthctl::stderr`] and the like cover only new messages.
    pub fn begin_to_hear(&mut self) {
        self.heard = self.stderr.lock().unwrap().len();
    }

    /// How often it has said that on standard error so far.
    pub fn has_said(&self, what: &str) -> usize {
        self.stderr().matches(what).count()
    }

    /// Whether it has ever said that, even before this test.
    pub fn has_ever_said(&self, what: &str) -> bool {
        self.all_stderr().contains(what)
    }

    /// Everything it has said on standard error, even before this test.
    pub fn all_stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Everything it has said on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap()[self.heard..].to_owned()
    }

    /// Waits until it has said that at least `times` times.
    pub fn says(&self, what: &str, times: usize) -> bool {
        kernel::wait(IN_FORCE, || self.has_said(what) >= times)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Ends it with Ctrl-C, as a user would; it must succeed.
    pub fn stop(self) -> Output {
        self.signal(Signal::SIGINT);
        let output = self.wait();
        assert_eq!(output.code(), 0, "{}", output.stderr);
        assert_eq!(kernel::state(), "disabled");
        output
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> Output {
        self.collect()
    }

    fn collect(&mut self) -> Output {
        let status = self.child.wait().unwrap();
        let mut output = Output { status, stdout: String::new(), stderr: String::new() };
        self.child.stdout.take().unwrap().read_to_string(&mut output.stdout).unwrap();
        self.reader.take().unwrap().join().unwrap();
        output.stderr = self.stderr();
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
