//! Many tasks that are runnable all the time.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{hint, thread};

use anyhow::{Context, Result, ensure};

use crate::alias::alias;
use crate::process;
use crate::scheduler::Engaged;

/// A process whose threads spin; ended when dropped.
pub struct Crowd {
    child: Child,
    /// The threads begin to spin when it is closed.
    gate: Option<ChildStdin>,
}

impl Crowd {
    /// Starts this program under the name `name`, with `count` threads that wait to begin.
    pub fn gather(name: &str, count: usize, favoured_by: Option<&Engaged>) -> Result<Self> {
        let mut command = Command::new(alias(&std::env::current_exe()?, name)?);
        command.args(["spin", &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(engaged) = favoured_by {
            engaged.favour(&mut command);
        }
        let mut child = command.spawn().context("cannot start the crowd")?;
        let gate = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the crowd did not gather");
        Ok(Self { child, gate })
    }

    pub fn begin(&mut self) {
        self.gate = None;
    }

    /// The CPU time of all threads so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process's work: it says "ready" once its `count` threads exist. They spin once its standard
/// input ends.
pub fn spin(count: usize) -> Result<()> {
    static GATE: AtomicU32 = AtomicU32::new(0);
    for _ in 0..count {
        let spin = || {
            while GATE.load(Relaxed) == 0 {
                futex(&GATE, libc::FUTEX_WAIT, 0);
            }
            // Without PAUSE, at which an emulated CPU ends its turn.
            loop {
                hint::black_box(());
            }
        };
        thread::Builder::new().stack_size(1 << 14).spawn(spin).context("no more threads")?;
    }
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    GATE.store(1, Relaxed);
    // One call wakes all of them, so that threads that already spin keep none waiting.
    futex(&GATE, libc::FUTEX_WAKE, i32::MAX as u32);
    loop {
        thread::park();
    }
}

/// Calls futex(2). A waiter checks the word again, whatever the call returns.
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call, and no timeout is given.
    unsafe {
        libc::syscall(libc::SYS_futex, word, operation, value, std::ptr::null::<libc::timespec>());
    }
}
