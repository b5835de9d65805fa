//! A running `gthctl trace`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::gthctl;
use crate::support::kernel;

/// How long a trace may take to attach and to report while other VMs run.
pub const SOON: Duration = Duration::from_secs(30);

/// A `gthctl trace -o json`. Killed when dropped.
pub struct Trace {
    pub child: Child,
    texts: Arc<Mutex<Vec<String>>>,
    /// The first `texts`, parsed.
    lines: Mutex<Vec<Value>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Trace {
    /// Starts it and returns once it is attached.
    pub fn start(args: &[&str]) -> Self {
        let begin = Instant::now();
        let trace = Self::start_waiting(args);
        assert!(trace.has_line(|line| line["kind"] == "function"), "{}", trace.stderr());
        println!("trace: attached in {:?}", begin.elapsed());
        // It reports all functions at once.
        if args[0] == "gtp" && !args.contains(&"--kprobe") {
            trace.assert_attached_as_asked_for(args);
        }
        trace
    }

    /// Tracepoints are attached only for the options that need them.
    #[track_caller]
    fn assert_attached_as_asked_for(&self, args: &[&str]) {
        let files = kernel::open_files(self.child.id() as i32);
        let attached = files.filter(|text| text.contains("link_type:\traw_tracepoint")).count();
        let has = |option| args.contains(&option);
        let wanted = if has("--drops") || has("teid") { 2 } else { 0 };
        assert_eq!(attached, wanted + usize::from(has("--latency")), "{args:?}");
    }

    pub fn start_waiting(args: &[&str]) -> Self {
        let mut command = Command::new(gthctl::binary());
        command.arg("trace").args(args).args(["-o", "json", "--interval", "100ms"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (texts, stderr): (Arc<Mutex<Vec<String>>>, Arc<Mutex<String>>) = Default::default();
        let read_lines = {
            let (texts, stdout) = (Arc::clone(&texts), child.stdout.take().unwrap());
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    texts.lock().unwrap().push(line);
                }
            }
        };
        let read_stderr = {
            let (text, pipe) = (Arc::clone(&stderr), child.stderr.take().unwrap());
            move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    *text.lock().unwrap() += &(line + "\n");
                }
            }
        };
        let readers = vec![std::thread::spawn(read_lines), std::thread::spawn(read_stderr)];
        Self { child, texts, lines: Mutex::default(), stderr, readers }
    }

    /// All lines so far. Each is parsed once and on demand, as gthctl may write 60,000 and waits for its
    /// reader.
    pub fn lines(&self) -> MutexGuard<'_, Vec<Value>> {
        let mut lines = self.lines.lock().unwrap();
        let new = self.texts.lock().unwrap()[lines.len()..].to_vec();
        lines.extend(new.iter().map(|text| serde_json::from_str::<Value>(text).expect(text)));
        lines
    }

    pub fn has_line(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        has_one(|| self.lines(), wanted)
    }

    /// Like [`Trace::has_line`], but parses no line.
    pub fn has_text(&self, text: &str) -> bool {
        has_one(|| self.texts.lock().unwrap(), |line| line.contains(text))
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn says(&self, what: &str) -> bool {
        kernel::wait(SOON, || self.stderr().contains(what))
    }

    pub fn has_said(&self, what: &str) -> usize {
        self.stderr().matches(what).count()
    }

    /// Ends it with Ctrl-C and returns all lines.
    pub fn stop(mut self) -> Vec<Value> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        let status = self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        assert!(status.success(), "{}", self.stderr());
        self.lines().clone()
    }
}

/// Whether one of `lines` is `wanted`, within half a minute.
fn has_one<'a, T: 'a>(
    lines: impl Fn() -> MutexGuard<'a, Vec<T>>,
    wanted: impl Fn(&T) -> bool,
) -> bool {
    // Looks at each line once.
    let mut seen = 0;
    kernel::wait(SOON, || {
        let lines = lines();
        let new = &lines[seen..];
        seen = lines.len();
        new.iter().any(&wanted)
    })
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
