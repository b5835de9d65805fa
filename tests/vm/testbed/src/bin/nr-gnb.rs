//! A gNB with one UE behind it: packets from the UE's interface go to the UPF in
//! GTP-U, and back.
//!
//! As in UERANSIM, the busy thread is not the process's first one, so a rule that only looks at
//! thread-group leaders misses it. Both are called nr-gnb.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Parser;
use gthctl_testbed::gtp::{self, Message};
use gthctl_testbed::netns::ip;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::signal::{SigSet, Signal};

#[derive(Parser)]
#[command(about = "Simulates a gNB and one UE in the current network namespace")]
struct Options {
    /// The gNB's own address on N3
    #[arg(long)]
    gnb: Ipv4Addr,
    /// The UPF's address on N3
    #[arg(long)]
    upf: Ipv4Addr,
    /// The UE's address
    #[arg(long)]
    ue: Ipv4Addr,
    /// The UE's interface, created here
    #[arg(long, default_value = "uesimtun0")]
    tun: String,
    /// TEID of packets to the UPF
    #[arg(long)]
    uplink_teid: u32,
    /// TEID of packets from the UPF
    #[arg(long)]
    downlink_teid: u32,
    /// Networks reached through the UE's interface
    #[arg(long)]
    route: Vec<String>,
}

#[derive(Default)]
struct Counters {
    uplink: AtomicU64,
    downlink: AtomicU64,
    echoes: AtomicU64,
    malformed: AtomicU64,
    dropped: AtomicU64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nr-gnb: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    // Blocks the signals before the worker starts, so that only this thread takes them.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    // Reading a page back from the shared checkout would delay a packet by milliseconds.
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)?;

    let udp = UdpSocket::bind((options.gnb, gtp::PORT)).context("cannot bind to N3")?;
    let tun = open_tun(&options.tun)?;
    // The UE has no IPv6: no router solicitations through the tunnel.
    ip(&format!("link set {} addrgenmode none", options.tun))?;
    ip(&format!("address add {}/32 dev {}", options.ue, options.tun))?;
    ip(&format!("link set {} up", options.tun))?;
    for route in &options.route {
        ip(&format!("route add {route} dev {}", options.tun))?;
    }

    let counters = Arc::new(Counters::default());
    let tunnel = Tunnel {
        tun,
        udp,
        upf: (options.upf, gtp::PORT).into(),
        uplink: options.uplink_teid,
        downlink: options.downlink_teid,
        counters: Arc::clone(&counters),
    };
    thread::Builder::new().name("nr-gnb".into()).spawn(move || {
        let Err(error) = tunnel.forward();
        eprintln!("nr-gnb: {error:#}");
        std::process::exit(1);
    })?;
    eprintln!("nr-gnb: ready");

    let signal = signals.wait()?;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    eprintln!(
        "nr-gnb: {signal}: {} packets up, {} down, {} echo requests, {} malformed, {} dropped",
        read(&counters.uplink),
        read(&counters.downlink),
        read(&counters.echoes),
        read(&counters.malformed),
        read(&counters.dropped),
    );
    Ok(())
}

/// What the worker needs.
struct Tunnel {
    tun: File,
    udp: UdpSocket,
    upf: SocketAddr,
    uplink: u32,
    downlink: u32,
    counters: Arc<Counters>,
}

impl Tunnel {
    /// Moves packets, one at a time, and sleeps while there are none.
    fn forward(&self) -> Result<std::convert::Infallible> {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let mut ready = [
                PollFd::new(self.tun.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.udp.as_fd(), PollFlags::POLLIN),
            ];
            poll(&mut ready, PollTimeout::NONE)?;
            let [from_ue, from_upf] = ready.map(|fd| fd.any().unwrap_or(true));
            if from_ue {
                self.uplink(&mut buffer)?;
            }
            if from_upf {
                self.downlink(&mut buffer)?;
            }
        }
    }

    fn uplink(&self, buffer: &mut [u8]) -> Result<()> {
        let (head, packet) = buffer.split_at_mut(gtp::HEADER);
        let length = (&self.tun).read(packet).context("cannot read from the UE's interface")?;
        head.copy_from_slice(&gtp::header(self.uplink, u16::try_from(length)?));
        self.send(&buffer[..gtp::HEADER + length], self.upf, &self.counters.uplink);
        Ok(())
    }

    fn downlink(&self, buffer: &mut [u8]) -> Result<()> {
        let (length, from) = self.udp.recv_from(buffer).context("cannot receive on N3")?;
        match gtp::decode(&buffer[..length]) {
            Ok(Message::Packet { teid, payload }) if teid == self.downlink => {
                match (&self.tun).write_all(payload) {
                    Ok(_) => self.count(&self.counters.downlink),
                    Err(error) => {
                        eprintln!("nr-gnb: the UE's interface refuses a packet: {error}");
                        self.count(&self.counters.dropped)
                    }
                }
            }
            Ok(Message::EchoRequest { sequence }) => {
                self.send(&gtp::echo_response(sequence), from, &self.counters.echoes);
                Ok(())
            }
            Ok(Message::Packet { teid, .. }) => {
                eprintln!("nr-gnb: unknown TEID {teid:#x}");
                self.count(&self.counters.dropped)
            }
            Ok(Message::Other(kind)) => {
                eprintln!("nr-gnb: message type {kind} ignored");
                self.count(&self.counters.dropped)
            }
            Err(malformed) => {
                eprintln!("nr-gnb: malformed packet: {malformed}");
                self.count(&self.counters.malformed)
            }
        }
    }

    /// Sends and counts. If the network is full or refuses it, only this packet is lost.
    fn send(&self, datagram: &[u8], to: SocketAddr, counter: &AtomicU64) {
        let counter =
            if self.udp.send_to(datagram, to).is_ok() { counter } else { &self.counters.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, counter: &AtomicU64) -> Result<()> {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

nix::ioctl_write_int!(tun_set_iff, b'T', 202);

/// Creates the TUN device `name`: IP packets without a header in front.
fn open_tun(name: &str) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun")?;
    // SAFETY: an ifreq is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        bail!("the name {name} is too long for an interface");
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    unsafe { tun_set_iff(file.as_raw_fd(), &raw mut request as libc::c_ulong) }
        .with_context(|| format!("cannot create {name}"))?;
    Ok(file)
}
