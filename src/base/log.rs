//! Output on standard output and standard error that never waits for its reader.
//!
//! After [`start`], lines queue for a thread that writes them: a reader that stops reading holds up
//! only that thread. If the reader is gone, the disk is full or the terminal has hung up, only the
//! lines are lost.
//!
//! Where standard error is the journal, each line on it begins with its priority
//! (sd-daemon(3)).

use std::collections::VecDeque;
use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::{escape, signals};

/// A queue that holds more bytes than this takes no more texts. The last text may be long: the
/// verifier's log of one program, with `--debug`.
const MOST: usize = 4 << 20;
/// How often to retry when the reader has made the descriptor O_NONBLOCK and does not read.
const RETRY: Duration = Duration::from_millis(20);

static STREAMS: OnceLock<[Arc<Stream>; 2]> = OnceLock::new();

/// Whether standard error is the journal.
static IN_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    env::var("JOURNAL_STREAM").is_ok_and(|journal| is_file(io::stderr(), &journal))
});

/// How much a line on standard error matters: a priority of syslog(3).
#[derive(Clone, Copy)]
enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
    Debug = 7,
}

/// From now on output never waits for its readers.
///
/// Fails when the process can get no more threads or descriptors.
pub fn start() -> Result<()> {
    let failed = |e: io::Error| Error::failure(format!("starting the log: {e}"));
    let own = |fd: io::Result<_>| fd.map(File::from);
    let out = own(io::stdout().as_fd().try_clone_to_owned()).map_err(failed)?;
    let err = own(io::stderr().as_fd().try_clone_to_owned()).map_err(failed)?;
    let streams = [Stream::start(out).map_err(failed)?, Stream::start(err).map_err(failed)?];
    let _ = STREAMS.set(streams);
    Ok(())
}

/// A line on standard output.
pub fn out(line: impl Display) {
    say(0, format!("{line}\n"));
}

/// Logs what gthctl does or sees, in one line on standard error. As in [`note`] and [`error`], `what`
/// may contain names from outside.
pub fn info(what: impl Display) {
    line(Level::Info, "", &what);
}

/// Logs what the user should know, in one line on standard error.
pub fn note(what: impl Display) {
    line(Level::Warning, "note: ", &what);
}

/// Logs several notes.
pub fn notes(notes: &[String]) {
    notes.iter().for_each(note);
}

/// Logs an error after which gthctl goes on, in one line on standard error.
pub fn error(what: impl Display) {
    line(Level::Error, "error: ", &what);
}

/// Logs the error that ends a command, in one line on standard error; `colored` if that is a
/// terminal with colours.
pub fn report(error: &Error, colored: bool) {
    let (red, plain) = if colored { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    err(Level::Error, format!("gthctl: {red}error:{plain} {error}\n"));
}

/// Adds lines on standard error to the previous one.
pub fn more(lines: impl Display) {
    err(Level::Info, format!("{lines}\n"));
}

/// Writes raw text to standard error, for debugging.
pub fn err_raw(text: &str) {
    err(Level::Debug, text.to_owned());
}

fn line(level: Level, word: &str, what: &dyn Display) {
    err(level, in_line(word, what));
}

fn in_line(word: &str, what: &dyn Display) -> String {
    format!("gthctl: {word}{}\n", escape::line(&what.to_string()))
}

fn err(level: Level, text: String) {
    say(1, if *IN_JOURNAL { for_journal(&text, level) } else { text });
}

/// Each line with its priority.
fn for_journal(text: &str, level: Level) -> String {
    text.split_inclusive('\n').map(|line| format!("<{}>{line}", level as u8)).collect()
}

/// Whether `file` is the one whose device and inode `numbers` gives (systemd.exec(5),
/// `$JOURNAL_STREAM`).
fn is_file(file: impl AsFd, numbers: &str) -> bool {
    nix::sys::stat::fstat(file)
        .is_ok_and(|stat| numbers == format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn say(stream: usize, text: String) {
    match (STREAMS.get(), stream) {
        (Some(streams), _) => streams[stream].push(text),
        (None, 0) => drop(io::stdout().write_all(text.as_bytes())),
        (None, _) => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Waits until everything has been written, at most `patience`.
pub fn finish(patience: Duration) {
    let end = Instant::now() + patience;
    for stream in STREAMS.get().into_iter().flatten() {
        stream.finish(end);
    }
}

/// Lines on their way to one descriptor.
#[derive(Default)]
struct Stream {
    queue: Mutex<Queue>,
    /// Notified of each change of the queue.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    texts: VecDeque<String>,
    bytes: usize,
    /// How many texts did not fit since the last one that did.
    dropped: u64,
    writing: bool,
}

impl Stream {
    fn start(to: File) -> io::Result<Arc<Self>> {
        let stream: Arc<Self> = Arc::default();
        let from = Arc::clone(&stream);
        signals::spawn("gthctl-log", move || from.write_to(to))?;
        Ok(stream)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, text: String) {
        let mut queue = self.queue();
        if queue.bytes > MOST {
            queue.dropped += 1;
            return;
        }
        if queue.dropped > 0 {
            let dropped = std::mem::take(&mut queue.dropped);
            let note = format!(
                "gthctl: note: messages dropped because nothing was reading them: {dropped}\n"
            );
            queue.bytes += note.len();
            queue.texts.push_back(note);
        }
        queue.bytes += text.len();
        queue.texts.push_back(text);
        self.changed.notify_all();
    }

    fn write_to(&self, mut to: File) {
        loop {
            let mut queue = self.queue();
            queue.writing = false;
            self.changed.notify_all();
            while queue.texts.is_empty() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let text = queue.texts.pop_front().unwrap_or_default();
            queue.bytes -= text.len();
            queue.writing = true;
            drop(queue);
            // Text that nobody can read is dropped.
            let _ = write_all(&mut to, text.as_bytes());
        }
    }

    fn finish(&self, end: Instant) {
        let mut queue = self.queue();
        while !queue.texts.is_empty() || queue.writing {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn write_all(to: &mut File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match to.write(text) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    const BRIEFLY: Duration = Duration::from_millis(200);

    fn pipe() -> (File, Arc<Stream>) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        (reader.into(), Stream::start(writer.into()).unwrap())
    }

    #[test]
    fn the_journal_gets_priorities() {
        assert_eq!(for_journal("a\n", Level::Error), "<3>a\n");
        assert_eq!(for_journal("a\nb", Level::Warning), "<4>a\n<4>b");
        assert_eq!(for_journal("error: a\n", Level::Info), "<6>error: a\n");
        assert_eq!(for_journal("a\n\nb\n", Level::Debug), "<7>a\n<7>\n<7>b\n");
    }

    #[test]
    fn others_names_begin_no_line() {
        assert_eq!(in_line("note: ", &"a\n\x1b[2Jb"), "gthctl: note: a\\n\\u{1b}[2Jb\n");
    }

    #[test]
    fn the_journal_is_known_by_its_numbers() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let stat = nix::sys::stat::fstat(&writer).unwrap();
        assert!(is_file(&writer, &format!("{}:{}", stat.st_dev, stat.st_ino)));
        assert!(!is_file(&writer, &format!("{}:{}", stat.st_dev, stat.st_ino + 1)));
        assert!(!is_file(&reader, "") && !is_file(&reader, "1"));
    }

    #[test]
    fn a_reader_who_has_stopped_is_not_waited_for() {
        let (reader, stream) = pipe();
        // Longer than the pipe: once the writer is stuck in it, the queue only grows.
        stream.push(format!("{}\n", "x".repeat(1 << 20)));
        let is_stuck = || {
            let queue = stream.queue();
            queue.writing && queue.texts.is_empty()
        };
        while !is_stuck() {
            thread::sleep(Duration::from_millis(1));
        }
        let line = format!("{}\n", "x".repeat(1023));
        let lines = 2 * MOST / line.len();
        let begin = Instant::now();
        for _ in 0..lines {
            stream.push(line.clone());
        }
        stream.finish(Instant::now() + BRIEFLY);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let queued = MOST / line.len() + 1;
        let dropped = lines - queued;
        assert_eq!(stream.queue().dropped, dropped as u64);
        // Once there is room, a line says how many messages were dropped.
        let mut texts = BufReader::new(reader).lines().map(io::Result::unwrap);
        assert_eq!(texts.next().unwrap().len(), 1 << 20);
        assert!(texts.by_ref().take(queued).all(|text| text.len() == 1023));
        stream.push("last\n".into());
        let note =
            format!("gthctl: note: messages dropped because nothing was reading them: {dropped}");
        assert_eq!([texts.next(), texts.next()], [Some(note), Some("last".into())]);
    }

    #[test]
    fn a_text_longer_than_the_queue_is_written() {
        let (reader, stream) = pipe();
        stream.push("one\n".into());
        stream.push(format!("{}\n", "x".repeat(2 * MOST)));
        let lengths: Vec<_> =
            BufReader::new(reader).lines().take(2).map(|text| text.unwrap().len()).collect();
        assert_eq!(lengths, [3, 2 * MOST]);
    }

    #[test]
    fn all_is_written_before_the_end() {
        let (reader, stream) = pipe();
        stream.push("one\n".into());
        stream.push("two\n".into());
        stream.finish(Instant::now() + Duration::from_secs(10));
        let texts: Vec<_> =
            BufReader::new(reader).lines().take(2).map(std::result::Result::unwrap).collect();
        assert_eq!(texts, ["one", "two"]);
    }

    #[test]
    fn a_reader_who_has_gone_costs_the_lines_only() {
        let (reader, stream) = pipe();
        drop(reader);
        stream.push("one\n".into());
        stream.finish(Instant::now() + Duration::from_secs(10));
        assert!(stream.queue().texts.is_empty());
        // A full disk.
        let full = Stream::start(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        full.push("one\n".into());
        full.finish(Instant::now() + Duration::from_secs(10));
        assert!(full.queue().texts.is_empty());
    }
}
