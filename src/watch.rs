//! Tells when a file has a new content, in whatever way it came there.
//!
//! Not only the file is watched but the directories through which its path leads
//! (inotify(7), by the `notify` crate), so that a file that is renamed over,
//! deleted and made again, or reached through symbolic links that are swapped
//! (a Kubernetes ConfigMap's `..data`) is followed. The file itself is watched
//! for what is written through another path to it, such as the source of a bind
//! mount. What is still being written is left alone until it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf, absolute};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::error::{Error, Result};

/// After a close or a rename: several in a row count as one.
const SETTLE: Duration = Duration::from_millis(5);
/// After a creation, which a first write may follow.
const SETTLE_CREATED: Duration = Duration::from_millis(20);
/// After a removal: many programs write a file anew by deleting it first.
const SETTLE_REMOVED: Duration = Duration::from_millis(250);
/// Symbolic links that a path may lead through (MAXSYMLINKS, include/linux/namei.h).
const MAX_LINKS: usize = 40;

/// Watches some files; the descriptor is readable when [`Watch::changed`] has something to do.
pub struct Watch {
    files: Vec<Watched>,
    watcher: RecommendedWatcher,
    /// Directories and files with device and inode number.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    inbox: Arc<Inbox>,
}

struct Watched {
    path: PathBuf,
    /// The directory entries that its content depends on: every symbolic link on
    /// the way and the file itself, or the first part of the path that is missing.
    entries: BTreeSet<PathBuf>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unchanged,
    /// Somebody has written to it and not closed it yet.
    Writing,
    /// It has a new content, unless more comes before that time.
    Settling(Instant),
}

struct Inbox {
    events: Mutex<Vec<Event>>,
    wake: EventFd,
}

impl Watch {
    /// Starts watching nothing.
    ///
    /// Fails when inotify cannot be had (`fs.inotify.max_user_instances`).
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| failed(e.to_string()))?;
        let inbox = Arc::new(Inbox { events: Mutex::default(), wake });
        let sender = Arc::clone(&inbox);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error (a queue that ran over) is passed on as "anything may have changed".
            let event = event.unwrap_or_else(|_| Event::new(EventKind::Any));
            if let Ok(mut events) = sender.events.lock() {
                events.push(event);
            }
            let _ = sender.wake.write(1);
        })
        .map_err(|e| failed(e.to_string()))?;
        Ok(Self { files: Vec::new(), watcher, watched: BTreeMap::new(), inbox })
    }

    /// Watches `path` too, which need not exist, and returns its number, from 0.
    pub fn add(&mut self, path: &Path) -> Result<usize> {
        let path = absolute(path).map_err(|e| failed(e.to_string()))?;
        self.files.push(Watched { path, entries: BTreeSet::new(), state: State::Unchanged });
        self.follow();
        Ok(self.files.len() - 1)
    }

    /// The files, by number, that have a new content now,
    /// and when to ask again if nothing happens before.
    pub fn changed(&mut self) -> (Vec<usize>, Option<Instant>) {
        let _ = self.inbox.wake.read();
        let events =
            self.inbox.events.lock().map(|mut e| std::mem::take(&mut *e)).unwrap_or_default();
        let now = Instant::now();
        for event in &events {
            self.files.iter_mut().for_each(|file| file.take(event, now));
        }
        if !events.is_empty() {
            // Before anybody reads: what changes from here on is seen.
            self.follow();
        }
        let mut changed = Vec::new();
        let mut next = None;
        for (index, file) in self.files.iter_mut().enumerate() {
            match file.state {
                State::Settling(at) if at <= now => {
                    file.state = State::Unchanged;
                    changed.push(index);
                }
                State::Settling(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                State::Unchanged | State::Writing => {}
            }
        }
        (changed, next)
    }

    /// Watches the directories that the paths lead through now, and where they end.
    fn follow(&mut self) {
        for file in &mut self.files {
            let entries = entries(&file.path);
            if !file.entries.is_empty() && entries != file.entries && file.state == State::Unchanged
            {
                file.state = State::Settling(Instant::now() + SETTLE);
            }
            file.entries = entries;
        }
        let entries = || self.files.iter().flat_map(|file| &file.entries);
        let dirs = entries().filter_map(|entry| entry.parent());
        let files = entries().map(PathBuf::as_path).filter(|entry| entry.is_file());
        let identity = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((path.to_owned(), (metadata.dev(), metadata.ino())))
        };
        let watched: BTreeMap<PathBuf, (u64, u64)> =
            dirs.chain(files).filter_map(identity).collect();
        for (path, identity) in &self.watched {
            if watched.get(path) != Some(identity) {
                let _ = self.watcher.unwatch(path);
            }
        }
        // Those that are new, and those that may be new under an old number.
        for path in watched.keys() {
            let _ = self.watcher.watch(path, RecursiveMode::NonRecursive);
        }
        self.watched = watched;
    }
}

fn failed(e: String) -> Error {
    Error::failure(format!("watching files: {e}"))
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.wake.as_fd()
    }
}

impl Watched {
    fn take(&mut self, event: &Event, now: Instant) {
        let any = event.need_rescan() || event.kind == EventKind::Any;
        if !any && !event.paths.iter().any(|path| self.entries.contains(path)) {
            return;
        }
        self.state = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                State::Settling(now + SETTLE)
            }
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)) => return,
            EventKind::Modify(ModifyKind::Data(_)) => State::Writing,
            EventKind::Create(CreateKind::Folder) => State::Settling(now + SETTLE),
            EventKind::Create(_) => State::Settling(now + SETTLE_CREATED),
            // The end of a file that another one has replaced.
            EventKind::Remove(_) if event.paths.iter().all(|path| path.exists()) => {
                State::Settling(now + SETTLE)
            }
            EventKind::Remove(_) => State::Settling(now + SETTLE_REMOVED),
            EventKind::Modify(_) | EventKind::Any | EventKind::Other => {
                State::Settling(now + SETTLE)
            }
        };
    }
}

/// The directory entries that the content at `path`, an absolute one, depends on.
pub(crate) fn entries(path: &Path) -> BTreeSet<PathBuf> {
    let mut entries = BTreeSet::new();
    let mut rest: Vec<PathBuf> = parts(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            here.pop();
            continue;
        }
        let entry = here.join(&part);
        match fs::symlink_metadata(&entry) {
            Ok(metadata) if metadata.is_symlink() && links < MAX_LINKS => {
                links += 1;
                let target = fs::read_link(&entry).unwrap_or_default();
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                rest.extend(parts(&target));
                entries.insert(entry);
            }
            Ok(_) if !rest.is_empty() => here = entry,
            // The file itself, or the first part that is missing.
            _ => {
                entries.insert(entry);
                break;
            }
        }
    }
    entries
}

/// The components of a path, last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: &Component| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(named).map(|part| PathBuf::from(part.as_os_str())).rev().collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{File, rename};
    use std::io::Write;
    use std::os::unix::fs::symlink;

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

        fn watch(&mut self, name: &str) {
            let mut watch = Watch::new().unwrap();
            assert_eq!(watch.add(&self.path(name)).unwrap(), 0);
            self.watch = Some(watch);
        }

        /// How long until a change is told; `None` after a second without one.
        fn told(&mut self) -> Option<Duration> {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                if !self.watch.as_mut().unwrap().changed().0.is_empty() {
                    return Some(begin.elapsed());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            None
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
        let mut file = File::create(dir.path("f")).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(dir.told(), None);
        file.write_all(b"whole").unwrap();
        drop(file);
        dir.assert_told();
    }

    #[test]
    fn renamed_over() {
        let mut dir = Dir::new();
        dir.write("f", "1");
        dir.watch("f");
        // Who waited as for a removed file would do so each time; a busy machine does not.
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
        fs::remove_file(dir.path("f")).unwrap();
        dir.write("f", "2");
        dir.assert_told();
        fs::remove_file(dir.path("f")).unwrap();
        dir.assert_told();
        dir.write("f", "3");
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
}
