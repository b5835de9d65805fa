//! Sends echo requests and measures how long the answers take.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};

use super::echo;
use super::times::Times;
use crate::base::error::{Error, Result};

/// How long to wait for answers after the last probe.
const GRACE: Duration = Duration::from_secs(1);

/// A socket that sends echo requests to one address.
pub struct Prober<'s> {
    socket: UdpSocket,
    to: SocketAddr,
    /// When each probe that has no answer yet was sent.
    sent: BTreeMap<u16, SystemTime>,
    answered: Vec<Duration>,
    signals: &'s SignalFd,
}

impl<'s> Prober<'s> {
    /// A signal that `signals` catches ends a run. Fails if there is no route to that address.
    pub fn new(to: SocketAddr, signals: &'s SignalFd) -> Result<Self> {
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let failed = |e| Error::because_of(to, e);
        let socket = UdpSocket::bind(any).map_err(failed)?;
        // A connected socket is told that the port is closed, and receives only from its peer.
        socket.connect(to).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        setsockopt(&socket, ReceiveTimestampns, &true).map_err(|e| failed(e.into()))?;
        Ok(Self { socket, to, sent: BTreeMap::new(), answered: Vec::new(), signals })
    }

    /// Sends a probe every `interval` for `duration`, then waits for the last answers. A signal
    /// ends the run. `None` if no probe was answered or lost by then.
    pub fn run(&mut self, duration: Duration, interval: Duration) -> Result<Option<Times>> {
        let begin = Instant::now();
        let all = (duration.as_nanos() / interval.as_nanos().max(1)).max(1) as u32;
        let mut probes = 0;
        while probes < all && !self.listen_until(begin + interval * probes)? {
            self.send(probes as u16)?;
            probes += 1;
        }
        let mut stopped = probes < all || self.listen_until(begin + interval * all)?;
        let last = Instant::now() + GRACE;
        while !stopped && !self.sent.is_empty() && Instant::now() < last {
            let next = (Instant::now() + Duration::from_millis(10)).min(last);
            stopped = self.listen_until(next)?;
        }
        self.result(probes, stopped)
    }

    /// The times of `probes` probes that were sent. `stopped` says that a signal ended the run.
    fn result(&mut self, mut probes: u32, stopped: bool) -> Result<Option<Times>> {
        // Answers may have come with the signal, or while this process did not run.
        self.take()?;
        if stopped {
            probes -= self.under_way();
        }
        match self.answered.is_empty() {
            true if stopped && probes == 0 => Ok(None),
            true => {
                let what = format!("{}: none of {probes} echo requests was answered", self.to);
                Err(Error::failure(what)
                    .help("does a user plane listen there, and no firewall drop them?"))
            }
            false => Ok(Some(Times::of(probes as usize, &self.answered))),
        }
    }

    /// How many probes are without an answer and not lost yet.
    fn under_way(&self) -> u32 {
        let now = SystemTime::now();
        let is_young = |sent: &&SystemTime| now.duration_since(**sent).unwrap_or_default() < GRACE;
        self.sent.values().filter(is_young).count() as u32
    }

    fn send(&mut self, sequence: u16) -> Result<()> {
        let now = SystemTime::now();
        match self.socket.send(&echo::request(sequence)) {
            // If the queue is full, the probe is lost, as it may be in a network.
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(self.failed(e)),
            _ => self.sent.insert(sequence, now),
        };
        Ok(())
    }

    /// Takes answers until `end`; true if a signal comes first.
    fn listen_until(&mut self, end: Instant) -> Result<bool> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // poll(2) waits in whole milliseconds, and sleep covers the rest. Answers that come in
            // that time wait in the socket, where the kernel has timestamped them.
            let whole = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            let fds = [self.signals.as_fd(), self.socket.as_fd()];
            let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, whole) {
                Ok(_) if fds[0].any().unwrap_or(false) => return Ok(true),
                Ok(0) => std::thread::sleep(end.saturating_duration_since(Instant::now())),
                Ok(_) => self.take()?,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(self.failed(e.into())),
            }
        }
    }

    /// Takes the answers that have arrived.
    fn take(&mut self) -> Result<()> {
        let mut bytes = [0; 64];
        let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
        loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let fd = self.socket.as_raw_fd();
            let (length, at) =
                match recvmsg::<()>(fd, &mut parts, Some(&mut space), MsgFlags::empty()) {
                    Ok(message) => (message.bytes, arrival(message.cmsgs())),
                    Err(Errno::EAGAIN) => return Ok(()),
                    Err(e) => return Err(self.failed(e.into())),
                };
            let sequence = echo::response(&bytes[..length]);
            if let Some(sent) = sequence.and_then(|sequence| self.sent.remove(&sequence)) {
                let at = at.unwrap_or_else(SystemTime::now);
                // Zero if the clock was set back meanwhile.
                self.answered.push(at.duration_since(sent).unwrap_or_default());
            }
        }
    }

    fn failed(&self, e: std::io::Error) -> Error {
        match e.kind() {
            ErrorKind::ConnectionRefused => {
                let what = format!("{}: no program has this UDP port open", self.to);
                Error::failure(what).help("is the user plane running?")
            }
            _ => Error::because_of(self.to, e),
        }
    }
}

/// When the kernel received the datagram (SO_TIMESTAMPNS, socket(7)): before this process woke up.
fn arrival(messages: nix::Result<impl Iterator<Item = ControlMessageOwned>>) -> Option<SystemTime> {
    messages.ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(at) => {
            Some(SystemTime::UNIX_EPOCH + Duration::from(at))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sys::signal::{SigSet, Signal};

    use super::*;

    /// No signal ever comes.
    fn no_signals() -> SignalFd {
        SignalFd::new(&SigSet::empty()).unwrap()
    }

    /// Answers all but every fifth request, and also sends each request back, which is no answer.
    fn answer(socket: &UdpSocket, requests: usize) {
        let mut bytes = [0; 64];
        for i in 0..requests {
            let (length, from) = socket.recv_from(&mut bytes).unwrap();
            socket.send_to(&bytes[..length], from).unwrap();
            bytes[1] = 2;
            if i % 5 != 0 {
                socket.send_to(&bytes[..length], from).unwrap();
            }
        }
    }

    #[test]
    fn counts_what_is_answered_and_what_is_lost() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let server = thread::spawn(move || answer(&server, 20));
        let signals = no_signals();
        let mut prober = Prober::new(to, &signals).unwrap();
        let times = prober.run(Duration::from_millis(40), Duration::from_millis(2)).unwrap();
        let times = times.unwrap();
        server.join().unwrap();
        assert_eq!((times.sent, times.lost), (20, 4));
        assert!(times.worst_ns >= times.p50_ns && times.p50_ns > Some(0), "{times:?}");
    }

    /// Answers that came before the signal, or while this process did not run, count. Probes that have
    /// been under way for long are lost.
    #[test]
    fn answers_in_the_socket_count_and_old_probes_are_lost() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let signals = no_signals();
        let old = SystemTime::now() - 2 * GRACE;
        for (first_sent, stopped, expected) in
            [(None, true, (1, 0)), (None, false, (2, 1)), (Some(old), true, (2, 1))]
        {
            let mut prober = Prober::new(server.local_addr().unwrap(), &signals).unwrap();
            prober.send(0).unwrap();
            prober.send(1).unwrap();
            answer(&server, 2);
            // The second datagram to request 1 is its answer.
            let mut bytes = [0; 64];
            prober.socket.set_nonblocking(false).unwrap();
            for _ in 0..2 {
                prober.socket.recv(&mut bytes).unwrap();
            }
            prober.socket.peek(&mut bytes).unwrap();
            prober.socket.set_nonblocking(true).unwrap();
            prober.sent.extend(first_sent.map(|at| (0, at)));
            let times = prober.result(2, stopped).unwrap().unwrap();
            assert_eq!((times.sent, times.lost), expected, "{first_sent:?}, {stopped}");
        }
        let mut prober = Prober::new(server.local_addr().unwrap(), &signals).unwrap();
        prober.sent.extend([(0, old), (1, SystemTime::now())]);
        let why = prober.result(2, true).unwrap_err().what;
        assert!(why.ends_with(": none of 1 echo requests was answered"), "{why}");
    }

    /// What was measured by then counts, without the probes that are under way.
    #[test]
    fn a_signal_ends_it() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let server = thread::spawn(move || {
            answer(&server, 6);
            server
        });
        let set = SigSet::from(Signal::SIGUSR1);
        set.thread_block().unwrap();
        let signals = SignalFd::new(&set).unwrap();
        let mut prober = Prober::new(to, &signals).unwrap();
        // SAFETY: it takes no arguments.
        let thread = unsafe { libc::pthread_self() };
        let ended = thread::spawn(move || {
            let server = server.join().unwrap();
            // SAFETY: that thread waits for this one.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            server
        });
        let begin = Instant::now();
        let times = prober.run(Duration::from_secs(3600), Duration::from_millis(20)).unwrap();
        let _open = ended.join().unwrap();
        let times = times.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60) && times.sent >= 4, "{times:?}");
        let mut prober = Prober::new(to, &signals).unwrap();
        let none = prober.run(Duration::from_secs(3600), Duration::from_secs(60)).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn a_closed_port_and_silence_are_errors() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = silent.local_addr().unwrap();
        let signals = no_signals();
        let run = || {
            let mut prober = Prober::new(to, &signals).unwrap();
            prober.run(Duration::from_millis(20), Duration::from_millis(2)).unwrap_err().what
        };
        assert_eq!(run(), format!("{to}: none of 10 echo requests was answered"));
        drop(silent);
        assert_eq!(run(), format!("{to}: no program has this UDP port open"));
    }
}
