//! Notifies the service manager that started gthctl, such as systemd (sd_notify(3)), and serves its
//! watchdog (sd_watchdog_enabled(3)).

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::base::escape;
use crate::base::log;
use crate::base::time::monotonic;

/// How often to retry while the manager has no room for a message.
const RETRY: Duration = Duration::from_millis(100);
/// How many messages may wait for room. Beyond that, a new message replaces the oldest.
const MOST: usize = 64;

/// Does nothing where no manager listens.
#[derive(Default)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Messages that the manager had no room for, oldest first.
    unsent: VecDeque<String>,
    /// The last status that the manager was told.
    status: String,
    /// The manager was told that gthctl schedules.
    is_ready: bool,
    /// The manager was told of a reload that has not ended yet.
    is_reloading: bool,
    /// The manager was told that gthctl is stopping.
    is_stopping: bool,
    watchdog: Option<Watchdog>,
    /// A failure to send was reported.
    has_failed: bool,
}

/// The manager's watchdog, which restarts gthctl if it sends no keep-alive message.
struct Watchdog {
    /// How often to send one.
    every: Duration,
    next: Instant,
}

impl Manager {
    /// The manager that the environment names, if any.
    pub fn of_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let text = |name| env::var(name).ok();
        let watchdog = watchdog_time(text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
        Self::at(&name, watchdog).unwrap_or_else(|e| {
            log::note(format_args!("NOTIFY_SOCKET: {e}: gthctl cannot notify the service manager"));
            Self::default()
        })
    }

    /// The manager that listens at `name`; `watchdog` is the timeout of its watchdog.
    fn at(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // gthctl does not wait for the manager.
        socket.set_nonblocking(true)?;
        let half = |time| Watchdog { every: time / 2, next: Instant::now() };
        Ok(Self {
            socket: Some((socket, address(name)?)),
            watchdog: watchdog.map(half),
            ..Self::default()
        })
    }

    /// Whether a manager listens.
    pub fn listens(&self) -> bool {
        self.socket.is_some()
    }

    /// Tells the manager that the scheduler is in force, and that a reload, if there was one, has
    /// ended.
    pub fn ready(&mut self, status: &str) {
        if !self.is_ready || self.is_reloading {
            (self.is_ready, self.is_reloading) = (true, false);
            self.status = status.to_owned();
            self.tell(format!("READY=1\n{}", status_line(status)));
        }
        self.status(status);
    }

    /// Tells the manager that the files are about to be read again (systemd.service(5),
    /// `Type=notify-reload`).
    pub fn reloading(&mut self) {
        self.is_reloading = true;
        let now = monotonic().map(|ns| format!("\nMONOTONIC_USEC={}", ns / 1000));
        self.tell(format!("RELOADING=1{}", now.unwrap_or_default()));
    }

    /// Tells the manager what gthctl does, in one line.
    pub fn status(&mut self, status: &str) {
        if self.status != status {
            self.status = status.to_owned();
            self.tell(status_line(status));
        }
    }

    /// Tells the manager that gthctl is stopping.
    pub fn stopping(&mut self) {
        if !self.is_stopping {
            self.is_stopping = true;
            self.tell("STOPPING=1".to_owned());
        }
    }

    /// Sends a keep-alive message if one is due, and retries what could not be sent. Returns
    /// when to call again.
    pub fn go_on(&mut self) -> Option<Duration> {
        self.send();
        let now = Instant::now();
        let is_due = |watchdog: &mut Watchdog| {
            let is_due = watchdog.next <= now;
            if is_due {
                watchdog.next = now + watchdog.every;
            }
            is_due
        };
        if self.watchdog.as_mut().is_some_and(is_due) {
            self.tell("WATCHDOG=1".to_owned());
        }
        let next = self.watchdog.as_ref().map(|watchdog| watchdog.next - now);
        let retry = (!self.unsent.is_empty()).then_some(RETRY);
        next.into_iter().chain(retry).min()
    }

    fn tell(&mut self, message: String) {
        if self.listens() {
            if self.unsent.len() == MOST {
                self.unsent.pop_front();
            }
            self.unsent.push_back(message);
            self.send();
        }
    }

    /// Sends as many messages as there is room for.
    fn send(&mut self) {
        let Some((socket, address)) = &self.socket else { return };
        while let Some(message) = self.unsent.front() {
            match socket.send_to_addr(message.as_bytes(), address) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if !self.has_failed => {
                    self.has_failed = true;
                    log::note(format_args!("NOTIFY_SOCKET: {e}: a message is lost"));
                }
                _ => {}
            }
            self.unsent.pop_front();
        }
    }
}

/// The address of a path, or of a name in the abstract namespace after an `@` (unix(7)).
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(ErrorKind::Unsupported, "neither a path nor an abstract name")),
    }
}

/// The message for this status, escaped and cut. A line feed would begin another message.
/// systemd reads no message of more than 4096 bytes (NOTIFY_BUFFER_MAX, src/core/manager.c).
fn status_line(status: &str) -> String {
    const LONGEST: usize = 1000;
    let status = escape::line(status);
    let ends = status.char_indices().map(|(at, _)| at).take_while(|&at| at <= LONGEST);
    match ends.last().filter(|_| status.len() > LONGEST) {
        Some(end) => format!("STATUS={}...", &status[..end]),
        None => format!("STATUS={status}"),
    }
}

/// The timeout of this process's watchdog, if it has one.
fn watchdog_time(usec: Option<String>, pid: Option<String>) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != std::process::id().to_string()) {
        return None;
    }
    let usec = usec?.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// A manager's socket.
    struct Listener {
        dir: TempDir,
        socket: UnixDatagram,
    }

    impl Listener {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
            socket.set_nonblocking(true).unwrap();
            Self { dir, socket }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("notify")
        }

        fn manager(&self, watchdog: Option<Duration>) -> Manager {
            Manager::at(self.path().as_os_str(), watchdog).unwrap()
        }

        /// The messages that have come since the last call.
        fn heard(&self) -> Vec<String> {
            heard(&self.socket)
        }
    }

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 4096];
        let mut next = || socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec());
        std::iter::from_fn(|| Some(String::from_utf8(next()?).unwrap())).collect()
    }

    #[test]
    fn it_is_told_each_thing_once() {
        let listener = Listener::new();
        let mut manager = listener.manager(None);
        manager.status("loading");
        assert_eq!(listener.heard(), ["STATUS=loading"]);
        manager.ready("2 rules");
        manager.ready("2 rules");
        assert_eq!(listener.heard(), ["READY=1\nSTATUS=2 rules"]);
        manager.ready("3 rules");
        assert_eq!(listener.heard(), ["STATUS=3 rules"]);
        manager.stopping();
        manager.stopping();
        assert_eq!(listener.heard(), ["STOPPING=1"]);
        assert_eq!(manager.go_on(), None);
    }

    #[test]
    fn a_reload_ends_with_ready() {
        let listener = Listener::new();
        let mut manager = listener.manager(None);
        manager.ready("2 rules");
        listener.heard();
        let before = monotonic().unwrap() / 1000;
        manager.reloading();
        let after = monotonic().unwrap() / 1000;
        let heard = listener.heard();
        let time = heard[0].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&heard[0]);
        assert!((before..=after).contains(&time.parse().unwrap()), "{before} {time} {after}");
        manager.ready("2 rules");
        assert_eq!(listener.heard(), ["READY=1\nSTATUS=2 rules"]);
    }

    #[test]
    fn a_status_is_no_other_message() {
        let listener = Listener::new();
        listener.manager(None).status("of /a\nREADY=1");
        assert_eq!(listener.heard(), ["STATUS=of /a\\nREADY=1"]);
    }

    /// The manager would not read the READY=1 in a longer message either.
    #[test]
    fn a_status_is_no_longer_than_the_manager_reads() {
        let listener = Listener::new();
        listener.manager(None).ready(&"\u{e9}".repeat(9000));
        let heard = listener.heard();
        assert!(heard[0].starts_with("READY=1\nSTATUS=\u{e9}") && heard[0].ends_with("..."));
        assert!(heard[0].len() < 1100, "{}", heard[0].len());
    }

    #[test]
    fn a_sign_of_life_is_shown_twice_in_the_watchdogs_time() {
        let listener = Listener::new();
        let mut manager = listener.manager(Some(Duration::from_secs(60)));
        let next = manager.go_on().unwrap();
        assert!(next <= Duration::from_secs(30) && next > Duration::from_secs(20), "{next:?}");
        assert_eq!(listener.heard(), ["WATCHDOG=1"]);
        manager.go_on();
        assert_eq!(listener.heard(), [""; 0]);
        manager.watchdog.as_mut().unwrap().next = Instant::now();
        manager.go_on();
        assert_eq!(listener.heard(), ["WATCHDOG=1"]);
    }

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let listener = Listener::new();
        let mut manager = listener.manager(None);
        let begin = Instant::now();
        // More than a socket's queue holds (unix(7), max_dgram_qlen).
        let texts: Vec<String> = (0..60).map(|i| format!("rule {i}")).collect();
        texts.iter().for_each(|text| manager.status(text));
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(manager.go_on(), Some(RETRY));
        // Nothing is lost, and the order stays.
        let mut all = Vec::new();
        while all.len() < texts.len() {
            let heard = listener.heard();
            assert!(!heard.is_empty(), "{all:?}");
            all.extend(heard);
            manager.go_on();
        }
        let told: Vec<String> = texts.iter().map(|text| format!("STATUS={text}")).collect();
        assert_eq!(all, told);
        assert_eq!(manager.go_on(), None);
    }

    #[test]
    fn a_manager_that_has_gone_costs_the_messages_only() {
        let listener = Listener::new();
        let mut manager = listener.manager(None);
        drop(listener);
        manager.ready("2 rules");
        assert_eq!(manager.go_on(), None);
    }

    #[test]
    fn an_abstract_name_begins_with_an_at() {
        let name = format!("gthctl-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut manager = Manager::at(format!("@{name}").as_ref(), None).unwrap();
        manager.stopping();
        assert_eq!(heard(&socket), ["STOPPING=1"]);
        assert!(Manager::at("vsock:2:1234".as_ref(), None).is_err());
    }

    #[test]
    fn a_watchdog_is_for_its_process() {
        let time = |usec: &str, pid: Option<&str>| {
            watchdog_time(Some(usec.into()), pid.map(Into::into)).map(|time| time.as_micros())
        };
        let own = std::process::id().to_string();
        assert_eq!(time("3000000", Some(&own)), Some(3_000_000));
        assert_eq!(time("3000000", None), Some(3_000_000));
        assert_eq!(time("3000000", Some("1")), None);
        assert_eq!((time("0", None), time("x", None)), (None, None));
        assert_eq!(watchdog_time(None, None), None);
    }

    #[test]
    fn without_one_nothing_happens() {
        let mut manager = Manager::default();
        manager.ready("2 rules");
        manager.reloading();
        manager.stopping();
        assert!(!manager.listens() && manager.unsent.is_empty());
        assert_eq!(manager.go_on(), None);
    }
}
