//! Builds the data plane (see the crate's picture) and takes it down.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::netns::{self, ip};
use crate::pdp::{self, Pdp};
use crate::process;

/// Network namespaces.
pub const RAN: &str = "ran";
pub const UPF: &str = "upf";
pub const DATA_NETWORK: &str = "dn";
/// The UE's interface in [`RAN`].
pub const TUN: &str = "uesimtun0";

pub const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
const GNB: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
const UPF_N3: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 2);
const UPF_N6: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// The N6 address behind the UPF: the far end of every measurement.
pub const DN: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);

const UPLINK_TEID: u32 = 0x101;
const DOWNLINK_TEID: u32 = 0x202;

const PID_FILE: &str = "/run/nr-gnb.pid";
const LOG_FILE: &str = "/run/nr-gnb.log";

/// The data plane's own CPU, for schedulers that give it one (benches/vm/dedicated.yaml). It is the
/// last of two.
pub const CPU: usize = 1;

/// What carries the tunnel in [`UPF`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// The kernel's own
    #[default]
    Gtp,
    /// The module tests/vm/modules/gtp5g.c, inserted before
    Gtp5g,
}

impl Driver {
    fn device(self) -> &'static str {
        match self {
            Self::Gtp => "gtp0",
            Self::Gtp5g => "upfgtp",
        }
    }

    /// What `ip link add` takes after the device's name. The sockets that either driver
    /// makes for itself live as long as the device.
    fn link(self) -> &'static str {
        match self {
            Self::Gtp => "type gtp role ggsn",
            Self::Gtp5g => "type gtp5g",
        }
    }

    fn downlink_teid(self) -> u32 {
        match self {
            Self::Gtp => DOWNLINK_TEID,
            // The module answers in the tunnel a packet came in.
            Self::Gtp5g => UPLINK_TEID,
        }
    }
}

/// Rebuilds the data plane and starts `nr-gnb`, which is in this program's directory. With
/// [`Driver::Gtp5g`] nothing reaches the UE before the UE has sent a packet.
pub fn up(driver: Driver) -> Result<()> {
    let device = driver.device();
    down()?;
    for namespace in [RAN, UPF, DATA_NETWORK] {
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
    }
    veth((RAN, GNB), (UPF, UPF_N3), "n3")?;
    veth((UPF, UPF_N6), (DATA_NETWORK, DN), "n6")?;

    ip(&format!("-n {UPF} link add {device} {}", driver.link()))?;
    // No router solicitations: the only packets to count are the UE's.
    ip(&format!("-n {UPF} link set {device} addrgenmode none"))?;
    ip(&format!("-n {UPF} link set {device} up"))?;
    ip(&format!("-n {UPF} route add {UE}/32 dev {device}"))?;
    ip(&format!("-n {DATA_NETWORK} route add {UE}/32 via {UPF_N6}"))?;
    netns::with(UPF, || {
        // /proc/sys/net shows the namespace of the thread that opens it.
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot turn on forwarding")?;
        let downlink = driver.downlink_teid();
        match driver {
            Driver::Gtp => {
                pdp::add(device, &Pdp { ue: UE, gnb: GNB, uplink: UPLINK_TEID, downlink })
            }
            Driver::Gtp5g => Ok(()),
        }
    })?;
    start_gnb(driver.downlink_teid())
}

/// Restarts `nr-gnb` beside [`Driver::Gtp`], each time at another phase of the kernel's ticks and
/// on another CPU: tasks that were once on the same CPU may stay together.
pub fn restart(time: usize) -> Result<()> {
    stop_gnb()?;
    thread::sleep(Duration::from_micros(1370 * time as u64));
    start_gnb(Driver::Gtp.downlink_teid())?;
    let all = sched_getaffinity(Pid::from_raw(0))?;
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|&cpu| all.is_set(cpu) == Ok(true)).collect();
    let mut one = CpuSet::new();
    one.set(cpus[time % cpus.len()])?;
    for mask in [one, all] {
        for task in process::threads(gnb_pid()?)? {
            sched_setaffinity(Pid::from_raw(task), &mask)?;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Stops `nr-gnb` and removes the namespaces; it is no error if they are missing.
pub fn down() -> Result<()> {
    stop_gnb()?;
    for namespace in [RAN, UPF, DATA_NETWORK] {
        if Path::new("/run/netns").join(namespace).exists() {
            ip(&format!("netns delete {namespace}"))?;
        }
    }
    Ok(())
}

fn stop_gnb() -> Result<()> {
    let Ok(pid) = gnb_pid() else { return Ok(()) };
    match kill(pid, Signal::SIGTERM) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(e) => bail!("cannot stop nr-gnb ({pid}): {e}"),
    }
    // Its first thread may have ended while others still hold its sockets: only wait(2) waits for
    // all of them.
    match waitpid(pid, None) {
        Ok(_) => {}
        Err(Errno::ECHILD) => wait_until("nr-gnb to end", || !is_gnb(pid))?,
        Err(e) => bail!("cannot wait for nr-gnb ({pid}): {e}"),
    }
    Ok(fs::remove_file(PID_FILE)?)
}

/// The running simulator.
pub fn gnb_pid() -> Result<Pid> {
    let text = fs::read_to_string(PID_FILE).context("nr-gnb is not running; run `testbed up`")?;
    Ok(Pid::from_raw(text.trim().parse().with_context(|| format!("bad {PID_FILE}"))?))
}

/// A veth pair: `name` at both ends, each with its address in a network of 24 bits.
fn veth(a: (&str, Ipv4Addr), b: (&str, Ipv4Addr), name: &str) -> Result<()> {
    ip(&format!("-n {} link add {name} type veth peer name {name} netns {}", a.0, b.0))?;
    for (namespace, address) in [a, b] {
        ip(&format!("-n {namespace} address add {address}/24 dev {name}"))?;
        ip(&format!("-n {namespace} link set {name} up"))?;
    }
    Ok(())
}

fn start_gnb(downlink_teid: u32) -> Result<()> {
    let gnb = std::env::current_exe()?.with_file_name("nr-gnb");
    let log = File::create(LOG_FILE)?;
    let mut command = Command::new(&gnb);
    command
        .args(["--gnb", &GNB.to_string(), "--upf", &UPF_N3.to_string()])
        .args(["--ue", &UE.to_string(), "--tun", TUN])
        .args(["--uplink-teid", &UPLINK_TEID.to_string()])
        .args(["--downlink-teid", &downlink_teid.to_string()])
        .args(["--route", &format!("{DN}/32")])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    netns::inside(&mut command, RAN)?;
    let mut child = command.spawn().with_context(|| format!("cannot start {}", gnb.display()))?;
    fs::write(PID_FILE, child.id().to_string())?;
    wait_until("nr-gnb to be ready", || {
        fs::read_to_string(LOG_FILE).is_ok_and(|log| log.contains("ready"))
            || child.try_wait().is_ok_and(|status| status.is_some())
    })?;
    if let Some(status) = child.try_wait()? {
        bail!("nr-gnb ended ({status}): {}", fs::read_to_string(LOG_FILE)?.trim());
    }
    Ok(())
}

/// True if the process is alive and not only waiting for its parent.
fn is_gnb(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.contains("(nr-gnb)") && !stat.contains("(nr-gnb) Z"))
}

/// With eight virtual CPUs on two real ones, `nr-gnb` once took more than 10 s to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for as long as [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            bail!("waited {} s for {what}", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
