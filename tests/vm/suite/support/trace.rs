//! A running `gthctl trace`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::gthctl;
use crate::support::kernel;

/// A `gthctl trace -o json`. Killed when dropped.
pub struct Trace {
    pub child: Child,
    pub lines: Arc<Mutex<Vec<Value>>>,
    /// Lines that are parsed at the end.
    unparsed: Arc<Mutex<Vec<String>>>,
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
        // It reports all of them at once.
        trace
    }

    /// As [`Trace::start`]. Its lines are parsed at the end: this side reads as fast as gthctl writes.
    pub fn start_unparsed(args: &[&str]) -> Self {
        let trace = Self::spawn(args, false);
        assert!(trace.has_text(r#""kind":"function""#), "{}", trace.stderr());
        trace
    }

    pub fn start_waiting(args: &[&str]) -> Self {
        Self::spawn(args, true)
    }

    fn spawn(args: &[&str], parse: bool) -> Self {
        let mut command = Command::new(gthctl::binary());
        command.arg("trace").args(args).args(["-o", "json", "--interval", "100ms"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let unparsed = Arc::<Mutex<Vec<String>>>::default();
        let stderr = Arc::<Mutex<String>>::default();
        let read_lines = {
            let (lines, unparsed) = (Arc::clone(&lines), Arc::clone(&unparsed));
            let stdout = child.stdout.take().unwrap();
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if parse {
                        lines.lock().unwrap().push(parsed(&line));
                    } else {
                        unparsed.lock().unwrap().push(line);
                    }
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
        Self { child, lines, unparsed, stderr, readers }
    }

    pub fn has_line(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        // Looks at each line once: there may be 100,000, and the reader waits meanwhile.
        let mut seen = 0;
        kernel::wait(Duration::from_secs(30), || {
            let lines = self.lines.lock().unwrap();
            let new = &lines[seen..];
            seen = lines.len();
            new.iter().any(&wanted)
        })
    }

    /// Whether an unparsed line has this text, within half a minute.
    pub fn has_text(&self, text: &str) -> bool {
        let mut seen = 0;
        kernel::wait(Duration::from_secs(30), || {
            let lines = self.unparsed.lock().unwrap();
            let new = &lines[seen..];
            seen = lines.len();
            new.iter().any(|line| line.contains(text))
        })
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn says(&self, what: &str) -> bool {
        kernel::wait(Duration::from_secs(30), || self.stderr().contains(what))
    }

    pub fn has_said(&self, what: &str) -> usize {
        self.stderr().matches(what).count()
    }

    /// Ctrl-C; all lines.
    pub fn stop(mut self) -> Vec<Value> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        let status = self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        assert!(status.success(), "{}", self.stderr());
        let mut lines = self.lines.lock().unwrap().clone();
        lines.extend(self.unparsed.lock().unwrap().iter().map(|line| parsed(line)));
        lines
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect(line)
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
