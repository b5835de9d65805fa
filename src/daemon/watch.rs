//! Reports when a file has new content, however it got there.
//!
//! It watches the directories that the file's path leads through (inotify(7), by the
//! `notify` crate), so it follows a file that is renamed over, deleted and recreated, or
//! reached through swapped symbolic links (a Kubernetes ConfigMap's `..data`). It watches
//! the file itself for writes through another path, such as the source of a bind mount.
//! It leaves a file alone until the writer closes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::base::error::{Error, Result};
use crate::base::symlinks::entries;

/// Delay after a close or a rename: several in a row count as one.
const SETTLE: Duration = Duration::from_millis(5);
/// Delay after a creation, which a first write may follow.
const SETTLE_CREATED: Duration = Duration::from_millis(20);
/// Delay after a removal: many programs rewrite a file by deleting it first.
const SETTLE_REMOVED: Duration = Duration::from_millis(250);
/// How often a file that keeps changing within these delays counts as new content.
const LONGEST: Duration = Duration::from_secs(1);

/// How long it may take from a writer's open(2), which empties the file, to the kernel's event.
/// In tests, the writer has already returned from open(2).
const REOPENED: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 20 });
/// How long the watcher's thread may take to hand over the events that the kernel has sent.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// How often to check the files without inotify.
const LOOK: Duration = Duration::from_secs(1);
/// How often to check the files with inotify. There is no event when a directory farther up is renamed,
/// when something is mounted over one, or when another machine changes a file on NFS. A path through a
/// process is checked as often as without inotify: there is no event when the process ends.
const SELDOM: Duration = Duration::from_secs(30);
/// How often a file's path may change while the watches are set up; later changes are left
/// to their events.
const CHANGES: usize = 8;
/// See inotify(7), /proc interfaces.
const LIMITS: &str = "/proc/sys/fs/inotify";

/// Watches some files; the descriptor is readable when [`Watch::changed`] has something to do.
pub struct Watch {
    files: Vec<Watched>,
    /// `None` without inotify.
    watcher: Option<RecommendedWatcher>,
    /// Directories and files with device and inode number.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    inbox: Arc<Inbox>,
    /// Its events come after all events that the kernel sent earlier.
    marker: Option<Marker>,
    /// Why the files are checked once a second.
    problem: Option<String>,
    /// When they are checked next.
    look_at: Option<Instant>,
}

struct Watched {
    path: PathBuf,
    /// The directory entries that its content depends on: every symbolic link on the path
    /// and the file itself, or the first missing part of the path.
    entries: BTreeSet<PathBuf>,
    state: State,
    /// The first change since it last counted as new content.
    since: Option<Instant>,
    /// Its state at the last check.
    print: Option<Print>,
}

/// What a change of content alters: device, inode, size, modification time.
type Print = (u64, u64, u64, (i64, i64));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unchanged,
    /// A writer has not closed it yet.
    Writing,
    /// It counts as new content at this time, unless more comes before.
    Settling(Instant),
}

/// A file that only this process uses.
struct Marker {
    /// Keeps the file open.
    _file: OwnedFd,
    path: PathBuf,
}

struct Inbox {
    mail: Mutex<Mail>,
    wake: EventFd,
}

#[derive(Default)]
struct Mail {
    events: Vec<Event>,
    /// The paths whose events count. Events of neighbouring files, as in /etc, wake nobody.
    awaited: BTreeSet<PathBuf>,
}

impl Watch {
    /// Starts with nothing to watch. Without inotify the files are checked once a second.
    ///
    /// Fails when the process can get no more descriptors.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| failed(e.to_string()))?;
        Ok(Self {
            files: Vec::new(),
            watcher: None,
            watched: BTreeMap::new(),
            inbox: Arc::new(Inbox { mail: Mutex::default(), wake }),
            marker: None,
            problem: None,
            look_at: None,
        })
    }

    /// Why changes may be noticed a second late, and the remedy.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Watches `path` too, which need not exist, and returns its number, from 0.
    pub fn add(&mut self, path: &Path) -> Result<usize> {
        let path = absolute(path).map_err(|e| failed(e.to_string()))?;
        let print = print(&path);
        let (state, since) = (State::Unchanged, None);
        self.files.push(Watched { path, entries: BTreeSet::new(), state, since, print });
        self.follow();
        Ok(self.files.len() - 1)
    }

    /// Stops watching the files for whose numbers `is_kept` is false. Renumbers the others.
    pub fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut number = 0..;
        self.files.retain(|_| number.next().is_some_and(&is_kept));
        self.follow();
    }

    /// The files, by number, with new content now, and when to ask again if nothing
    /// happens before.
    pub fn changed(&mut self) -> (Vec<usize>, Option<Instant>) {
        let _ = self.inbox.wake.read();
        let now = Instant::now();
        let told = self.take_events(now);
        let look = self.look_at.is_some_and(|at| at <= now);
        if look {
            // Without events, the end of a write may stay unknown.
            let is_told = self.watcher.is_some() && self.problem.is_none();
            self.files.iter_mut().for_each(|file| file.look(now, is_told));
        }
        if look || told {
            // Before the files are read, so that later changes are seen.
            self.follow();
        }
        let mut changed = Vec::new();
        let mut next = self.look_at;
        for (index, file) in self.files.iter_mut().enumerate() {
            match file.state {
                State::Settling(at) if at <= now => {
                    file.state = State::Unchanged;
                    file.since = None;
                    // So that the next look finds only what comes later.
                    file.print = print(&file.path);
                    changed.push(index);
                }
                State::Settling(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                State::Unchanged | State::Writing => {}
            }
        }
        (changed, next)
    }

    /// Whether the file was only partly written when it was just read. [`Watch::changed`] names it
    /// again once its writer has closed it. Waits 20 ms for the writer's event, and longer if the
    /// watcher's thread has to wait for a CPU.
    pub fn is_being_written(&mut self, file: usize) -> bool {
        std::thread::sleep(REOPENED);
        self.wait_for_events();
        if self.take_events(Instant::now()) {
            self.follow();
        }
        !self.is_settled(file)
    }

    /// Whether no change of the file is known that [`Watch::changed`] has yet to name.
    pub fn is_settled(&self, file: usize) -> bool {
        self.files[file].state == State::Unchanged
    }

    /// Waits until the watcher's thread has handed over all events so far: an inotify instance
    /// keeps their order (inotify(7)).
    fn wait_for_events(&self) {
        let Some(marker) = &self.marker else { return };
        let begin = Instant::now();
        // Closing it is an event.
        let marked = OpenOptions::new().write(true).open(&marker.path).is_ok();
        let is_there = || {
            let mail = self.inbox.mail();
            mail.events.iter().any(|event| is_any(event) || event.paths.contains(&marker.path))
        };
        while marked && !is_there() && begin.elapsed() < HANDED_OVER {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Notes what has happened to the files. Returns whether there were events.
    fn take_events(&mut self, now: Instant) -> bool {
        let events = std::mem::take(&mut self.inbox.mail().events);
        for event in &events {
            self.files.iter_mut().for_each(|file| file.take(event, now));
        }
        !events.is_empty()
    }

    /// Watches the directories that the paths now lead through, and their ends.
    fn follow(&mut self) {
        let mut problem = None;
        for _ in 0..CHANGES {
            let known = std::mem::take(&mut self.watched);
            problem = self.follow_once(&known).err();
            // Something may have appeared before it was watched.
            if self.watched == known {
                break;
            }
        }
        let is_often = problem.is_some() || self.files.iter().any(Watched::leads_through_a_process);
        self.look_at = Some(Instant::now() + if is_often { LOOK } else { SELDOM });
        self.problem = problem.map(|problem| problem.to_string());
    }

    fn follow_once(
        &mut self,
        known: &BTreeMap<PathBuf, (u64, u64)>,
    ) -> std::result::Result<(), Problem> {
        for file in &mut self.files {
            let entries = entries(&file.path);
            if !file.entries.is_empty() && entries != file.entries && file.state == State::Unchanged
            {
                file.settle(Instant::now(), SETTLE);
            }
            file.entries = entries;
        }
        let entries = || self.files.iter().flat_map(|file| &file.entries);
        let dirs = entries().filter_map(|entry| entry.parent());
        let files = entries().map(PathBuf::as_path).filter(|entry| is_written_to(entry));
        let identity = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((path.to_owned(), (metadata.dev(), metadata.ino())))
        };
        self.watched = dirs.chain(files).filter_map(identity).collect();
        if self.watcher.is_none() {
            let mut watcher = start(&self.inbox).map_err(Problem::NoInotify)?;
            self.marker = Marker::new(&mut watcher);
            self.watcher = Some(watcher);
        }
        // Set before they are watched, so that no event is lost.
        let marker = self.marker.iter().map(|marker| &marker.path);
        let awaited = entries().chain(self.watched.keys()).chain(marker);
        self.inbox.mail().awaited = awaited.cloned().collect();
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        for (path, identity) in known {
            if self.watched.get(path) != Some(identity) {
                let _ = watcher.unwatch(path);
            }
        }
        let mut problem = Ok(());
        // Also those already known: a new file may have an old inode number.
        for path in self.watched.keys() {
            match watcher.watch(path, RecursiveMode::NonRecursive) {
                Err(e) if !is_gone(&e) => {
                    problem = problem.and(Err(Problem::NotWatched(path.clone(), e)))
                }
                _ => {}
            }
        }
        problem
    }
}

/// Why something is checked once a second instead of watched.
enum Problem {
    /// The error is the same for too many descriptors of the process and too many inotify
    /// instances of its user (inotify_init(2)).
    NoInotify(notify::Error),
    NotWatched(PathBuf, notify::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInotify(e) => {
                let limit = limit("max_user_instances");
                write!(
                    f,
                    "inotify is not available: {e} (fs.inotify.max_user_instances is {limit}); \
                     config and policy are checked once a second instead"
                )
            }
            Self::NotWatched(path, e) => {
                write!(f, "{}: cannot be watched: ", path.display())?;
                let instead = "it is checked once a second instead";
                match e.kind {
                    notify::ErrorKind::MaxFilesWatch => write!(
                        f,
                        "fs.inotify.max_user_watches ({}) is reached; {instead}; raise that with \
                         sysctl(8)",
                        limit("max_user_watches")
                    ),
                    _ => write!(f, "{e}; {instead}"),
                }
            }
        }
    }
}

/// A watcher that puts events about the files into `inbox`.
fn start(inbox: &Arc<Inbox>) -> notify::Result<RecommendedWatcher> {
    let inbox = Arc::clone(inbox);
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        // An error (a queue overflow) means "anything may have changed".
        let event = event.unwrap_or_else(|_| Event::new(EventKind::Any));
        let mut mail = inbox.mail();
        if concerns(&event, &mail.awaited) {
            mail.events.push(event);
            let _ = inbox.wake.write(1);
        }
    })
}

/// Whether the event may mean new content. Events of mere readers do not count.
fn concerns(event: &Event, awaited: &BTreeSet<PathBuf>) -> bool {
    let changes = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)) => false,
        _ => true,
    };
    is_any(event) || changes && event.paths.iter().any(|path| awaited.contains(path))
}

fn is_any(event: &Event) -> bool {
    event.need_rescan() || event.kind == EventKind::Any
}

/// Whether the file vanished after it was found and before it was watched; its directory reports
/// that.
fn is_gone(e: &notify::Error) -> bool {
    match &e.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(e) => e.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn limit(name: &str) -> String {
    let value = fs::read_to_string(Path::new(LIMITS).join(name)).unwrap_or_default();
    value.trim_end().to_owned()
}

/// Whether it is a file that may be written to. A namespace is not, and a watch would keep it alive
/// (nsfs_evict(), fs/nsfs.c).
fn is_written_to(path: &Path) -> bool {
    path.is_file() && statfs(path).is_ok_and(|fs| fs.filesystem_type() != NSFS_MAGIC)
}

/// Whether it is a file without content.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0)
}

/// The state of the file at `path`; `None` while there is none.
fn print(path: &Path) -> Option<Print> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), (file.mtime(), file.mtime_nsec())))
}

fn failed(e: String) -> Error {
    Error::failure(format!("watching files: {e}"))
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.wake.as_fd()
    }
}

impl Marker {
    /// A marker that `watcher` watches; `None` without memory or /proc.
    fn new(watcher: &mut RecommendedWatcher) -> Option<Self> {
        let file = memfd_create("gthctl-watch", MFdFlags::MFD_CLOEXEC).ok()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        watcher.watch(&path, RecursiveMode::NonRecursive).ok()?;
        Some(Self { _file: file, path })
    }
}

impl Inbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// The file counts as new content after `delay`, unless more comes before.
    fn settle(&mut self, now: Instant, delay: Duration) {
        let since = *self.since.get_or_insert(now);
        self.state = State::Settling((now + delay).min(since + LONGEST));
    }

    /// Treats new content as still being written. With `is_told`, leaves alone a file that a writer
    /// has open: closing it is an event.
    fn look(&mut self, now: Instant, is_told: bool) {
        let print = print(&self.path);
        let inode = |print: Option<Print>| print.map(|(dev, ino, ..)| (dev, ino));
        if is_told && self.state == State::Writing && inode(print) == inode(self.print) {
            return;
        }
        if print != self.print {
            self.settle(now, SETTLE_CREATED);
        }
        self.print = print;
    }

    fn leads_through_a_process(&self) -> bool {
        self.entries.iter().any(|entry| entry.starts_with("/proc"))
    }

    /// Whether an event for `path` is also one for the file. Renaming a directory moves what is in
    /// it.
    fn is_of(&self, kind: EventKind, path: &Path) -> bool {
        let is_renamed = matches!(kind, EventKind::Modify(ModifyKind::Name(_)));
        let is_in_it = |entry: &PathBuf| entry.parent() == Some(path);
        self.entries.contains(path) || is_renamed && self.entries.iter().any(is_in_it)
    }

    fn take(&mut self, event: &Event, now: Instant) {
        if !is_any(event) && !event.paths.iter().any(|path| self.is_of(event.kind, path)) {
            return;
        }
        let delay = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => SETTLE,
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)) => return,
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.state = State::Writing;
                return;
            }
            EventKind::Create(CreateKind::Folder) => SETTLE,
            // The writer may take longer until its first write. Closing the file is an event, too.
            EventKind::Create(_) if is_empty(&self.path) => LONGEST,
            EventKind::Create(_) => SETTLE_CREATED,
            // The removal of a file that another one has replaced.
            EventKind::Remove(_) if event.paths.iter().all(|path| path.exists()) => SETTLE,
            EventKind::Remove(_) => SETTLE_REMOVED,
            EventKind::Modify(_) | EventKind::Any | EventKind::Other => SETTLE,
        };
        self.settle(now, delay);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, rename};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    struct Dir {
        dir: tempfile::TempDir,
        watch: Option<Watch>,
    }

    impl Dir {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), watch: None }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        /// Writes half of the file and leaves it open.
        fn write_half(&self, name: &str) -> File {
            let mut file = File::create(self.path(name)).unwrap();
            file.write_all(b"half").unwrap();
            file
        }

        fn watch(&mut self, name: &str) {
            let mut watch = Watch::new().unwrap();
            assert_eq!(watch.add(&self.path(name)).unwrap(), 0);
            self.watch = Some(watch);
        }

        /// The time until a change is reported; `None` after a second without one.
        fn told(&mut self) -> Option<Duration> {
            let watch = self.watch.as_ref().unwrap();
            if watch.watcher.is_some() {
                watch.wait_for_events();
            }
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                if !self.watch.as_mut().unwrap().changed().0.is_empty() {
                    return Some(begin.elapsed());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            None
        }

        fn is_woken(&self, ms: u16) -> bool {
            let fd = self.watch.as_ref().unwrap().as_fd();
            let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(ms)).unwrap() > 0
        }

        fn assert_told(&mut self) {
            let took = self.told().expect("a change is told");
            assert!(took < Duration::from_millis(500), "{took:?}");
        }
    }

    #[test]
    fn written_in_place() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        dir.write("f", "2");
        dir.assert_told();
        assert_eq!(dir.told(), None);
    }

    #[test]
    fn not_before_it_is_closed() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        let mut file = dir.write_half("f");
        assert_eq!(dir.told(), None);
        file.write_all(b"whole").unwrap();
        drop(file);
        dir.assert_told();
    }

    #[test]
    fn made_anew_it_is_empty_until_it_is_closed() {
        let mut dir = Dir::new();
        dir.watch("f");
        let mut file = File::create(dir.path("f")).unwrap();
        let (watch, begin) = (dir.watch.as_mut().unwrap(), Instant::now());
        while begin.elapsed() < 10 * SETTLE_CREATED {
            assert!(watch.changed().0.is_empty());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!watch.is_settled(0));
        file.write_all(b"whole").unwrap();
        drop(file);
        dir.assert_told();
        assert!(dir.watch.unwrap().is_settled(0));
    }

    #[test]
    fn a_writer_opens_it_again_while_it_is_read() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        dir.write("f", "2");
        dir.assert_told();
        assert!(!dir.watch.as_mut().unwrap().is_being_written(0));
        let file = File::create(dir.path("f")).unwrap();
        assert!(dir.watch.as_mut().unwrap().is_being_written(0));
        drop(file);
        dir.assert_told();
    }

    #[test]
    fn renamed_over() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        // With the delay of a removal, all three would be slow. On a busy machine, only some
        // are.
        let took = [(); 3].map(|()| {
            dir.write("g", "2");
            rename(dir.path("g"), dir.path("f")).unwrap();
            dir.told().expect("a change is told")
        });
        assert!(took.iter().any(|took| *took < SETTLE_REMOVED / 2), "{took:?}");
    }

    #[test]
    fn deleted_and_made_again() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        // The delay of a removal takes half of the allowed time. On a busy machine, only some
        // removals are reported in time.
        let took = [(); 3].map(|()| {
            fs::remove_file(dir.path("f")).unwrap();
            dir.write("f", "2");
            dir.assert_told();
            fs::remove_file(dir.path("f")).unwrap();
            let took = dir.told().expect("a removal is told");
            dir.write("f", "3");
            dir.assert_told();
            took
        });
        assert!(took.iter().any(|took| *took < 2 * SETTLE_REMOVED), "{took:?}");
    }

    #[test]
    fn changed_all_the_time() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.write("other", "2");
        dir.watch("f");
        let (file, other) = (dir.path("f"), dir.path("other"));
        let begin = Instant::now();
        let writer = std::thread::spawn(move || {
            while begin.elapsed() < 3 * LONGEST {
                fs::remove_file(&file).unwrap();
                fs::hard_link(&other, &file).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut told = Vec::new();
        while !writer.is_finished() {
            if !dir.watch.as_mut().unwrap().changed().0.is_empty() {
                told.push(begin.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        writer.join().unwrap();
        assert!(told.len() >= 2, "{told:?}");
        // The writer's last change may have been told already.
        fs::remove_file(dir.path("f")).unwrap();
        fs::hard_link(dir.path("other"), dir.path("f")).unwrap();
        dir.assert_told();
    }

    #[test]
    fn a_hard_link_in_its_place() {
        let mut dir = Dir::new();
        dir.write("g", "2");
        dir.watch("f");
        fs::hard_link(dir.path("g"), dir.path("f")).unwrap();
        dir.assert_told();
    }

    #[test]
    fn written_by_another_path_to_it() {
        let mut dir = Dir::new();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = elsewhere.path().join("g");
        dir.write("f", "1");
        fs::hard_link(dir.path("f"), &other).unwrap();
        dir.watch("f");
        fs::write(&other, "2").unwrap();
        dir.assert_told();
        dir.write("g", "3");
        rename(dir.path("g"), dir.path("f")).unwrap();
        dir.assert_told();
        fs::write(&other, "4").unwrap();
        assert_eq!(dir.told(), None);
    }

    #[test]
    fn a_config_map_is_swapped() {
        let mut dir = Dir::new();
        for (version, text) in [("..1", "1"), ("..2", "2"), ("..3", "3")] {
            fs::create_dir(dir.path(version)).unwrap();
            dir.write(&format!("{version}/f"), text);
        }
        symlink("..1", dir.path("..data")).unwrap();
        symlink("..data/f", dir.path("f")).unwrap();
        dir.watch("f");
        for version in ["..2", "..3"] {
            symlink(version, dir.path("..data_tmp")).unwrap();
            rename(dir.path("..data_tmp"), dir.path("..data")).unwrap();
            dir.assert_told();
        }
        dir.write("..3/f", "4");
        dir.assert_told();
        dir.write("..1/f", "5");
        assert_eq!(dir.told(), None);
    }

    #[test]
    fn a_directory_that_appears_later() {
        let mut dir = Dir::new();
        dir.watch("a/b/f");
        fs::create_dir_all(dir.path("a/b")).unwrap();
        while dir.told().is_some() {}
        dir.write("a/b/f", "1");
        dir.assert_told();
    }

    #[test]
    fn other_files_and_other_modes_are_nothing() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        dir.write("g", "1");
        fs::read(dir.path("f")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(dir.path("f"), mode).unwrap();
        assert_eq!(dir.told(), None);
    }

    #[test]
    fn readers_and_neighbours_wake_nobody() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        while dir.told().is_some() {}
        dir.write("g", "1");
        rename(dir.path("g"), dir.path("h")).unwrap();
        fs::read(dir.path("f")).unwrap();
        fs::read_dir(dir.path(".")).unwrap();
        assert!(!dir.is_woken(300), "by what concerns no file");
        dir.write("f", "2");
        assert!(dir.is_woken(1000));
    }

    /// There is no event for that.
    #[test]
    fn a_directory_farther_up_is_exchanged() {
        let mut dir = Dir::new();
        for name in ["now/conf", "next/conf"] {
            fs::create_dir_all(dir.path(name)).unwrap();
            dir.write(&format!("{name}/f"), name);
        }
        dir.watch("now/conf/f");
        while dir.told().is_some() {}
        rename(dir.path("now"), dir.path("before")).unwrap();
        rename(dir.path("next"), dir.path("now")).unwrap();
        let watch = dir.watch.as_mut().unwrap();
        let left = watch.look_at.unwrap().saturating_duration_since(Instant::now());
        assert!(left > LOOK && left <= SELDOM, "{left:?}");
        watch.look_at = Some(Instant::now());
        assert!(dir.told().is_some());
        // The new directories are watched from then on, and each change is reported once.
        dir.write("now/conf/f", "2");
        dir.assert_told();
        dir.watch.as_mut().unwrap().look_at = Some(Instant::now());
        assert_eq!(dir.told(), None);
    }

    #[test]
    fn its_directory_is_exchanged() {
        let mut dir = Dir::new();
        for name in ["conf", "next"] {
            fs::create_dir(dir.path(name)).unwrap();
            dir.write(&format!("{name}/f"), name);
        }
        dir.watch("conf/f");
        while dir.told().is_some() {}
        rename(dir.path("conf"), dir.path("before")).unwrap();
        rename(dir.path("next"), dir.path("conf")).unwrap();
        dir.assert_told();
        dir.write("conf/f", "2");
        dir.assert_told();
    }

    /// The kernel sends no event for that, and a watch would keep the namespace alive.
    #[test]
    fn the_namespace_of_a_process_that_ends() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let path = PathBuf::from(format!("/proc/{}/ns/net", process.id()));
        let mut dir = Dir::new();
        dir.watch(path.to_str().unwrap());
        while dir.told().is_some() {}
        let watch = dir.watch.as_ref().unwrap();
        assert!(!watch.watched.contains_key(&path), "{:?}", watch.watched);
        process.kill().unwrap();
        process.wait().unwrap();
        let told = (0..5).find_map(|_| dir.told());
        assert!(told.is_some());
    }

    #[test]
    fn a_file_that_is_watched_no_more() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.write("g", "1");
        dir.watch("f");
        let g = dir.path("g");
        let watch = dir.watch.as_mut().unwrap();
        assert_eq!(watch.add(&g).unwrap(), 1);
        watch.retain(|file| file == 1);
        dir.write("f", "2");
        assert_eq!(dir.told(), None);
        dir.write("g", "2");
        dir.assert_told();
        assert_eq!(dir.watch.as_ref().unwrap().files.len(), 1);
    }

    /// The half that is already written may be valid.
    #[test]
    fn a_look_leaves_alone_what_is_half_written() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        let file = dir.write_half("f");
        assert_eq!(dir.told(), None);
        let watch = dir.watch.as_mut().unwrap();
        assert_eq!(watch.files[0].state, State::Writing);
        watch.look_at = Some(Instant::now());
        assert_eq!(dir.told(), None);
        // Another file replaces it, and that one is complete.
        dir.write("new", "2");
        let watch = dir.watch.as_mut().unwrap();
        (watch.watcher, watch.look_at) = (None, None);
        rename(dir.path("new"), dir.path("f")).unwrap();
        dir.watch.as_mut().unwrap().look_at = Some(Instant::now());
        dir.assert_told();
        drop(file);
    }

    #[test]
    fn looked_at_where_inotify_cannot_be_had() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        let watch = dir.watch.as_mut().unwrap();
        // As when the limit is reached: no more events from here on.
        (watch.watcher, watch.look_at) = (None, Some(Instant::now() + LOOK));
        dir.write("f", "22");
        let told = (0..5).find_map(|_| dir.told());
        assert!(told.is_some());
        // The watcher has restarted by then.
        assert_eq!(dir.watch.as_ref().unwrap().problem(), None);
        dir.write("f", "333");
        dir.assert_told();
    }
}
