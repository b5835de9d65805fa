//! `gthctl run` with peers that are slow, silent or gone.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ::gthctl::daemon::control::SOCKET;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::output::{Run, SOON, has_generation, pipe, policy};
use crate::support::host;
use crate::support::kernel;
use crate::support::nic::{Restore, SAVED, hold_irq_lock, irq_of};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::STALLS;

/// Sends a byte now and then, forever.
fn drip() {
    let mut client = UnixStream::connect(SOCKET).unwrap();
    std::thread::spawn(move || {
        while client.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

/// Silent and dripping clients, the lock of the interrupts, a FIFO for a policy file and a
/// log that nobody reads, all at once.
#[test]
fn nobody_is_waited_for() {
    let _restore = Restore;
    let (reader, writer) = pipe();
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let on_2 = "{nic: eth0, cpus: 2}";
    let log = writer.try_clone().unwrap();
    let mut run = Run::start(&policy(0, on_2), |command| {
        command.stderr(log);
    });
    let mut log = OpenOptions::new();
    log.write(true).custom_flags(libc::O_NONBLOCK);
    let mut log = log.open(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap();
    while log.write(b"x\n").is_ok() {}

    let lock = hold_irq_lock();
    let file = format!("/proc/irq/{}/smp_affinity_list", irq_of("eth0", "input.0"));
    fs::write(&file, "0").unwrap();
    let fifo = run.files.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    fs::rename(&fifo, run.files.path().join("policy.yaml")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let _silent = [(); 4].map(|()| UnixStream::connect(SOCKET).unwrap());
    drip();
    std::thread::sleep(Duration::from_millis(100));

    let mut reloads = Vec::new();
    for generation in 2..=6 {
        let begin = Instant::now();
        run.save(&policy(generation, on_2));
        let soon = kernel::wait(SOON, || has_generation(generation));
        assert!(soon, "generation {generation} is not in force after {:?}", begin.elapsed());
        reloads.push(begin.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    reloads.sort();
    println!("reloads: {reloads:?}");
    assert!(reloads[2] < Duration::from_millis(100), "{reloads:?}");
    let host = host::Watch::on_all();
    host.stall();
    kill(run.pid(), Signal::SIGTERM).unwrap();
    let took = run.ends();
    let stall = host.stall();
    println!("SIGTERM: {took:?}, of which the host stalled for {stall:?}");
    let took = took.saturating_sub(stall);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(Path::new(SAVED).exists());
    drop((lock, reader));
}
