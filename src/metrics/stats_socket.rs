//! The socket at which sched_ext's tools look for the scheduler's counters.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::background::Background;
use super::scx_stats;
use crate::base::error::Result;
use crate::daemon::reports::Metrics;

/// Where the tools look (rust/scx_stats/src/client.rs of <https://github.com/sched-ext/scx>).
pub const PATH: &str = "/var/run/scx/root/stats";
/// How many clients are served at a time; others wait.
const CLIENTS: usize = 16;
/// How long a client may stay silent, and how long it may take to read an answer. A tool keeps its
/// connection while it shows something else.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 600 });
/// The longest request, in bytes.
const LONGEST: u64 = 4096;
/// How long to wait when the machine has no descriptors or memory left for a client.
const RETRY: Duration = Duration::from_millis(100);

/// Asks the running gthctl.
type Ask = Arc<dyn Fn() -> Result<Metrics> + Send + Sync>;

/// The socket, to which only root may connect. Dropping it removes it and disconnects its clients.
pub struct StatsSocket {
    // Dropped first, so that no further client comes to a server that is ending.
    _place: Place,
    _server: Background,
}

impl StatsSocket {
    /// Listens at `path`. Replaces a socket that nobody listens at any more.
    ///
    /// Fails if another program listens there, such as another scheduler, or if something else is
    /// there.
    pub fn start(
        path: &Path,
        ask: impl Fn() -> Result<Metrics> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (listener, place) = bind(path)?;
        let server = Background::start("stats", move || serve(listener, Arc::new(ask)))?;
        Ok(Self { _place: place, _server: server })
    }
}

/// The socket's file. Dropping it removes the file, unless another has taken its place.
struct Place {
    path: PathBuf,
    own: Metadata,
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_own =
            |there: Metadata| (there.dev(), there.ino()) == (self.own.dev(), self.own.ino());
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind(path: &Path) -> io::Result<(UnixListener, Place)> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it is no socket"));
        }
        Ok(_) if is_served(path)? => {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another program serves it"));
        }
        _ => {}
    }
    // Binds under another name until only root may connect.
    let new = path.with_extension(format!("gthctl-{}", process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    let own = fs::symlink_metadata(&new)?;
    let mut place = Place { path: new, own };
    listener.set_nonblocking(true)?;
    fs::set_permissions(&place.path, Permissions::from_mode(0o600))?;
    fs::rename(&place.path, path)?;
    path.clone_into(&mut place.path);
    Ok((listener, place))
}

/// Whether somebody listens at the socket, even if no further client fits into its queue.
fn is_served(path: &Path) -> io::Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

async fn serve(listener: UnixListener, ask: Ask) {
    let seats = Arc::new(Semaphore::new(CLIENTS));
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let ask = Arc::clone(&ask);
        tokio::spawn(async move {
            // A client that leaves or is late gets no answer.
            let _ = converse(stream, ask).await;
            drop(seat);
        });
    }
}

/// Answers a client line by line until it leaves.
async fn converse(stream: UnixStream, ask: Ask) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(line) = timeout(PATIENCE, request(&mut reader)).await?? {
        let ask = Arc::clone(&ask);
        let made = tokio::task::spawn_blocking(move || scx_stats::answer(&line, || ask()));
        let answer = made.await? + "\n";
        timeout(PATIENCE, writer.write_all(answer.as_bytes())).await??;
    }
    Ok(())
}

/// The next line; `None` at the end, and after a line that is too long.
async fn request(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = reader.take(LONGEST).read_line(&mut line).await?;
    Ok((read > 0 && (line.ends_with('\n') || (read as u64) < LONGEST)).then_some(line))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Instant;

    use serde_json::Value;
    use tempfile::TempDir;

    use super::super::test_metrics::metrics;
    use super::*;

    fn start() -> (TempDir, PathBuf, StatsSocket) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scx/root/stats");
        let socket = StatsSocket::start(&path, || Ok(metrics())).unwrap();
        (dir, path, socket)
    }

    fn ask(stream: &mut UnixStream, request: &str) -> Value {
        stream.write_all(format!("{{\"req\":\"{request}\"}}\n").as_bytes()).unwrap();
        let mut line = String::new();
        io::BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// What the socket answers until it hangs up.
    fn rest(mut stream: UnixStream) -> String {
        let mut text = String::new();
        // A client that is disconnected before all that it has sent is read sees a reset.
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn a_client_asks_again_and_again() {
        let (_dir, path, socket) = start();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut stream = UnixStream::connect(&path).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&mut stream, "stats")["args"]["resp"]["generation"], 3);
            assert_eq!(ask(&mut stream, "stats_meta")["args"]["resp"]["Rule"]["name"], "Rule");
            assert_eq!(ask(&mut stream, "what")["errno"], 22);
        }
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        assert_eq!(rest(stream), "");
    }

    #[test]
    fn the_last_line_may_lack_its_end() {
        let (_dir, path, _socket) = start();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"req\":\"stats\"}").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(rest(stream).contains("\"generation\":3"));
    }

    #[test]
    fn a_request_without_end_is_not_read() {
        let (_dir, path, _socket) = start();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&[b' '; LONGEST as usize]).unwrap();
        assert_eq!(rest(stream), "");
    }

    /// Silent clients, and some that read no answers, hold all seats for as long as they may.
    #[test]
    fn clients_that_do_nothing_are_let_go() {
        let (_dir, path, _socket) = start();
        let begin = Instant::now();
        let idle: Vec<_> = (0..CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for mut stream in &idle[..CLIENTS / 2] {
            stream.set_nonblocking(true).unwrap();
            while stream.write_all(b"{\"req\":\"stats_meta\"}\n").is_ok() {}
        }
        assert_eq!(ask(&mut UnixStream::connect(&path).unwrap(), "stats")["errno"], 0);
        assert!(begin.elapsed() > PATIENCE, "{:?}", begin.elapsed());
        assert!(begin.elapsed() < PATIENCE * 30, "{:?}", begin.elapsed());
    }

    /// The end waits for the thread that asks the running gthctl.
    #[test]
    fn no_thread_outlives_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let (asked, is_asked) = mpsc::channel();
        let owned = Arc::new(());
        let held = Arc::clone(&owned);
        let slow = move || {
            let _ = (&held, asked.send(()));
            std::thread::sleep(Duration::from_millis(200));
            Ok(metrics())
        };
        let socket = StatsSocket::start(&path, slow).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"req\":\"stats\"}\n").unwrap();
        is_asked.recv().unwrap();
        drop(socket);
        assert_eq!(Arc::strong_count(&owned), 1);
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_served_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        drop(UnixListener::bind(&path).unwrap());
        let socket = StatsSocket::start(&path, || Ok(metrics())).unwrap();
        let e = StatsSocket::start(&path, || Ok(metrics())).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::AddrInUse);
        assert_eq!(ask(&mut UnixStream::connect(&path).unwrap(), "stats")["errno"], 0);
        // Another scheduler takes the name; what it has there stays.
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        fs::write(&path, "mine").unwrap();
        assert!(StatsSocket::start(&path, || Ok(metrics())).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
