//! How a second gthctl talks to the running one.
//!
//! They use a Unix socket in a directory of root's rather than pinned BPF maps, because
//! only the running process writes the tables, knows why the file on disk was rejected
//! and what was in force before, and replaces file and tables in one step. A write to
//! pinned maps would bypass it.
//!
//! One connection carries one [`Request`] and one [`Reply`], each a JSON document; the
//! client shuts down its half after the request.

pub mod client;
pub mod server;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::reports::{Applied, Explanation, Health, Metrics, Plan, RuleTasks, Shown, Status};
use crate::base::error::{Error, Location};

/// Where the running gthctl listens. Only root may enter the directory.
pub const SOCKET: &str = "/run/gthctl/control.sock";

/// The lock file of `gthctl run`. Only root may enter the directory: a process that can
/// open a lock file, even for reading, can hold the lock (flock(2)).
pub const RUN_LOCK: &str = "/run/gthctl/lock";

/// The longest request or reply, in bytes. It may hold a policy file with the overhead of
/// JSON, or one line for each of many threads.
const MAX_BYTES: u64 = 32 << 20;

/// A request to the running gthctl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered without looking at any task.
    Health,
    Status,
    Metrics,
    Show,
    /// Lists the tasks under a rule.
    Tasks,
    Explain {
        tid: u32,
    },
    /// Reports what would change; changes nothing.
    Plan(Proposal),
    /// As `Plan`, but also works without a policy file that the proposal could replace.
    Diff(Proposal),
    /// Makes the proposal live if `generation` is still the live one.
    Apply {
        proposal: Proposal,
        generation: u32,
    },
}

/// A policy proposed to replace the live one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proposal {
    /// The text of a file; the path is for messages.
    Text { path: PathBuf, text: String },
    /// The policy in force before the live one.
    Previous,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Health(Health),
    Status(Box<Status>),
    Metrics(Box<Metrics>),
    Show(Shown),
    Tasks(RuleTasks),
    Explain(Explanation),
    Plan(Plan),
    Applied(Applied),
    Failed(Failure),
}

/// An [`Error`] in the form in which the socket carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    code: u8,
    at: Option<(PathBuf, usize, usize)>,
    what: String,
    help: Option<String>,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let code = e.exit_code();
        Self { code, at: e.at.map(|at| (at.file, at.line, at.column)), what: e.what, help: e.help }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let code = i32::from(failure.code);
        let mut error = Error::new(code.into(), failure.what);
        error.at = failure.at.map(|(file, line, column)| Location { file, line, column });
        error.help = failure.help;
        error
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::socket::{Backlog, listen};

    use super::server::Server;
    use super::*;
    use crate::base::error::ExitCode;

    fn serve(path: &Path, reply: Reply) -> thread::JoinHandle<Request> {
        let mut server = Server::listen(path).unwrap();
        thread::spawn(move || {
            loop {
                if let Some(asked) = server.take().into_iter().next() {
                    asked.reply.send(reply);
                    return asked.request;
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    }

    #[test]
    fn a_request_and_its_reply() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let failure = Error::new(ExitCode::Usage, "bad")
            .at(Location { file: "p.yaml".into(), line: 2, column: 3 })
            .help("mend it");
        let message = failure.to_string();
        let server = serve(&path, Reply::Failed(failure.into()));
        let e = client::ask(&path, &Request::Explain { tid: 7 }).unwrap_err();
        assert_eq!((e.to_string(), e.code), (message, ExitCode::Usage));
        assert_eq!(server.join().unwrap(), Request::Explain { tid: 7 });
    }

    #[test]
    fn only_its_owner_may_come_near() {
        assert_eq!(Path::new(RUN_LOCK).parent(), Path::new(SOCKET).parent());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let server = Server::listen(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(fs::metadata(&path).unwrap().uid(), nix::unistd::geteuid().as_raw());
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_wider_directory_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(&path, "").unwrap();
        let _server = Server::listen(&path).unwrap();
        let mode = fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn nobody_there_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let e = client::ask(&dir.path().join("none"), &Request::Status).unwrap_err();
        assert_eq!(e.code, ExitCode::NotRunning);
        let left = dir.path().join("left");
        drop(UnixListener::bind(&left).unwrap());
        let e = client::ask(&left, &Request::Status).unwrap_err();
        assert_eq!(e.code, ExitCode::NotRunning);
    }

    /// Covers a server that does not answer and one whose socket takes no more clients.
    #[test]
    fn nobody_waits_for_a_server_that_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let _server = Server::listen(&path).unwrap();
        let full = dir.path().join("full");
        let listener = UnixListener::bind(&full).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _first = UnixStream::connect(&full).unwrap();
        for path in [path, full] {
            let begin = Instant::now();
            let patience = Duration::from_millis(200);
            let e = client::ask_within(&path, &Request::Health, patience).unwrap_err();
            assert_eq!(e.what, "the running gthctl did not answer within 200ms");
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        }
    }

    #[test]
    fn an_answer_of_another_version_is_not_called_silence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_to_string(&mut String::new()).unwrap();
            stream.write_all(br#"{"Metrics":{}}"#).unwrap();
        });
        let e = client::ask(&path, &Request::Metrics).unwrap_err();
        let what =
            "unexpected answer from the running gthctl; is it another version? (missing field";
        assert!(e.what.starts_with(what), "{e}");
        server.join().unwrap();
    }

    #[test]
    fn nonsense_is_answered_and_the_next_one_served() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let server = serve(&path, Reply::Failed(Error::failure("as told").into()));
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(b"{nonsense").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("not a request"), "{answer}");
        let e = client::ask(&path, &Request::Status).unwrap_err();
        assert_eq!(e.what, "as told");
        assert_eq!(server.join().unwrap(), Request::Status);
    }

    #[test]
    fn nobody_waits_for_silent_and_slow_clients_who_are_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let mut server = Server::listen(&path).unwrap();
        let begin = Instant::now();
        let mut silent = UnixStream::connect(&path).unwrap();
        let mut slow = UnixStream::connect(&path).unwrap();
        let drip = thread::spawn(move || {
            while slow.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
            begin.elapsed()
        });
        let asking = path.clone();
        let client = thread::spawn(move || client::ask(&asking, &Request::Status));
        let asked = loop {
            if let Some(asked) = server.take().pop() {
                break asked;
            }
            thread::sleep(Duration::from_millis(1));
        };
        // The others are not dropped yet.
        silent.set_nonblocking(true).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        silent.set_nonblocking(false).unwrap();
        asked.reply.send(Reply::Failed(Error::failure("as told").into()));
        assert_eq!(client.join().unwrap().unwrap_err().what, "as told");
        // Each is dropped after a second, whatever it sends.
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
        assert!(drip.join().unwrap() < Duration::from_secs(5));
    }

    #[test]
    fn more_clients_than_are_served_at_a_time_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let server = serve(&path, Reply::Failed(Error::failure("as told").into()));
        let _silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(client::ask(&path, &Request::Status).unwrap_err().what, "as told");
        assert_eq!(server.join().unwrap(), Request::Status);
    }

    #[test]
    fn a_request_that_is_dropped_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let server = Server::listen(&path).unwrap();
        let asking = path.clone();
        let client = thread::spawn(move || client::ask(&asking, &Request::Status));
        // The descriptor is readable once the request is there.
        let mut fds = [PollFd::new(server.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(60_000_u16)).unwrap(), 1);
        drop(server);
        let e = client.join().unwrap().unwrap_err();
        assert!(e.what.contains("ended or restarted without an answer"), "{e}");
    }
}
