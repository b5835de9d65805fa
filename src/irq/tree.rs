//! A directory with a made-up /proc and /sys, for the tests.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::host::{Host, Hurry};
use super::place::pin::{Placed, apply};
use super::place::plan::Plan;
use super::place::saved::{By, Saved};
use super::place::wanted::{OnIrqbalance, Placement};
use crate::base::cpulist::CpuList;
use crate::base::error::Result;
use crate::base::root::Root;

/// A machine with four CPUs and one NIC.
pub struct Machine {
    /// The NIC's device, under sys/devices.
    device: &'static str,
    driver: &'static str,
    nic: &'static str,
    /// The virtio device under that one, if there is one.
    virtio: Option<&'static str>,
    /// The CPUs of each NUMA node. The NIC is on the last node.
    nodes: &'static [&'static str],
    irqs: &'static [(u32, &'static str)],
    queues: u32,
}

impl Machine {
    /// QEMU's machine, as in the VM tests.
    pub const VIRTIO: Self = Self {
        device: "pci0000:00/0000:00:03.0",
        driver: "virtio-pci",
        nic: "eth0",
        virtio: Some("virtio0"),
        nodes: &["0-3"],
        irqs: &[
            (37, "virtio0-config"),
            (38, "virtio0-input.0"),
            (39, "virtio0-output.0"),
            (40, "virtio0-input.1"),
            (41, "virtio0-output.1"),
        ],
        queues: 2,
    };
    /// A server with two sockets.
    pub const TWO_NODES: Self = Self {
        device: "pci0000:80/0000:85:00.0",
        driver: "ixgbe",
        nic: "enp5s0",
        virtio: None,
        nodes: &["0-1", "2-3"],
        irqs: &[(129, "enp5s0-TxRx-0"), (130, "enp5s0-TxRx-1"), (131, "enp5s0-TxRx-2")],
        queues: 3,
    };
}

pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path("sys/class/net")).unwrap();
        tree
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn sys(&self) -> PathBuf {
        self.path("sys")
    }

    pub fn proc(&self) -> PathBuf {
        self.path("proc")
    }

    pub fn host(&self) -> Host {
        Host {
            root: Root::at(self.0.path()),
            kind_of: |name| (name == "ipvl0").then(|| "ipvlan".into()),
            hurry: Hurry::default(),
        }
    }

    /// Writes a file and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Links `path` to `target`, both relative to the top of the tree.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.path(target), path).unwrap();
    }

    /// A process of root that runs irqbalance.
    pub fn irqbalance(&self, pid: u32) {
        let program = "usr/sbin/irqbalance";
        self.write(program, "");
        fs::set_permissions(self.path(program), Permissions::from_mode(0o755)).unwrap();
        self.write(&format!("proc/{pid}/comm"), "irqbalance\n");
        self.write(&format!("proc/{pid}/status"), "Name:\tirqbalance\nUid:\t0\t0\t0\t0\n");
        let exe = format!("proc/{pid}/exe");
        let _ = fs::remove_file(self.path(&exe));
        self.link(&exe, program);
    }

    /// A PCI function at `dir` under sys/devices, with its driver and MSI vectors.
    pub fn pci(&self, dir: &str, driver: &str, msi_irqs: &[u32]) {
        let address = dir.rsplit('/').next().unwrap();
        let dir = format!("sys/devices/{dir}");
        self.link(&format!("sys/bus/pci/devices/{address}"), &dir);
        self.link(&format!("{dir}/subsystem"), "sys/bus/pci");
        self.link(&format!("{dir}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        for irq in msi_irqs {
            self.write(&format!("{dir}/msi_irqs/{irq}"), "msix\n");
        }
    }

    /// A network device of the device at `device` under sys/devices.
    pub fn nic(&self, name: &str, device: &str) {
        let dir = format!("sys/devices/{device}/net/{name}");
        self.link(&format!("{dir}/device"), &format!("sys/devices/{device}"));
        self.link(&format!("sys/class/net/{name}"), &dir);
    }

    /// A network device of a PCI function at `dir` under sys/devices, as [`Tree::pci`].
    pub fn pci_nic(&self, name: &str, dir: &str, driver: &str, msi_irqs: &[u32]) {
        self.pci(dir, driver, msi_irqs);
        self.nic(name, dir);
    }

    /// IRQs that are in use and have arrived on CPU 0. They may go to all CPUs.
    pub fn irqs(&self, chip: &str, irqs: &[(u32, &str)]) {
        let file = self.path("proc/interrupts");
        let head = "           CPU0       CPU1       CPU2       CPU3\n";
        let mut text = fs::read_to_string(file).unwrap_or(head.into());
        for (vector, (irq, name)) in irqs.iter().enumerate() {
            let counts = format!("{:10} {:10} {:10} {:10}", irq * 10, 0, 0, 0);
            text += &format!("{irq:4}: {counts}  {chip} {vector:4}-edge      {name}\n");
            self.allow(*irq, "0-3");
            self.write(&format!("proc/irq/{irq}/effective_affinity_list"), "0\n");
        }
        self.write("proc/interrupts", &text);
    }

    /// Sets the CPUs that an IRQ may go to.
    pub fn allow(&self, irq: u32, cpus: &str) {
        self.write(&format!("proc/irq/{irq}/smp_affinity_list"), &format!("{cpus}\n"));
    }

    /// A network device of the virtio device at `device` under sys/devices.
    pub fn virtio_nic(&self, name: &str, device: &str) {
        self.link(&format!("sys/devices/{device}/subsystem"), "sys/bus/virtio");
        self.link(&format!("sys/devices/{device}/driver"), "sys/bus/virtio/drivers/virtio_net");
        self.nic(name, device);
    }

    /// A machine whose IRQs may all go to any CPU, and have arrived on CPU 0.
    pub fn machine(machine: &Machine) -> Self {
        let tree = Self::new();
        let &Machine { device, driver, nic, virtio, nodes, irqs, queues } = machine;
        let numbers: Vec<u32> = irqs.iter().map(|&(irq, _)| irq).collect();
        tree.pci(device, driver, &numbers);
        tree.write(&format!("sys/devices/{device}/numa_node"), &format!("{}\n", nodes.len() - 1));
        match virtio {
            Some(virtio) => tree.virtio_nic(nic, &format!("{device}/{virtio}")),
            None => tree.nic(nic, device),
        }
        for (node, cpus) in nodes.iter().enumerate() {
            for cpu in cpus.parse::<CpuList>().unwrap().iter() {
                let dir = format!("sys/devices/system/cpu/cpu{cpu}/node{node}");
                fs::create_dir_all(tree.path(&dir)).unwrap();
            }
        }
        for file in ["possible", "online"] {
            tree.write(&format!("sys/devices/system/cpu/{file}"), "0-3\n");
        }
        for queue in 0..queues {
            tree.write(&format!("sys/class/net/{nic}/queues/rx-{queue}/rps_cpus"), "0\n");
            tree.write(&format!("sys/class/net/{nic}/queues/tx-{queue}/xps_cpus"), "0\n");
        }
        tree.irqs(&format!("PCI-MSIX-{}", device.rsplit('/').next().unwrap()), irqs);
        tree.write("proc/sys/kernel/random/boot_id", "0f0e0d0c-0000-4000-8000-000000000001\n");
        tree
    }

    /// On [`Machine::VIRTIO`], another device takes the number of IRQ 40.
    pub fn irq_40_passes_to_another_device(&self) {
        let text = fs::read_to_string(self.path("proc/interrupts")).unwrap();
        self.write("proc/interrupts", &text.replace("   3-edge", "   9-edge"));
    }

    /// Makes `path` a file that nobody can write. It reads as a list or a mask of CPUs.
    pub fn refuse_writes(&self, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink("/proc/sys/kernel/cap_last_cap", path).unwrap();
    }

    /// Makes the kernel refuse to move an IRQ until the result is dropped.
    pub fn fix(&self, irq: u32, cpus: &str) -> File {
        let file = File::from(memfd_create("irq", MFdFlags::MFD_ALLOW_SEALING).unwrap());
        (&file).write_all(format!("{cpus}\n").as_bytes()).unwrap();
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        let path = self.path(&format!("proc/irq/{irq}/smp_affinity_list"));
        fs::remove_file(&path).unwrap();
        symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), path).unwrap();
        file
    }

    /// QEMU's machine, in which this process runs.
    pub fn with_this_process() -> Self {
        let tree = Self::machine(&Machine::VIRTIO);
        let stat = format!("proc/{}/stat", std::process::id());
        tree.write(&stat, &fs::read_to_string(format!("/{stat}")).unwrap());
        tree
    }

    /// A virtual network device on top of `lower`.
    pub fn on_top(&self, name: &str, lower: &[&str]) {
        let dir = format!("sys/devices/virtual/net/{name}");
        fs::create_dir_all(self.path(&dir)).unwrap();
        self.link(&format!("sys/class/net/{name}"), &dir);
        for lower in lower {
            let link = format!("sys/class/net/{name}/lower_{lower}");
            self.link(&link, &format!("sys/class/net/{lower}"));
        }
    }

    /// Sets the index of a network device of type Ethernet, and that of its other end.
    pub fn index(&self, name: &str, ifindex: u32, iflink: u32) {
        for (file, number) in [("ifindex", ifindex), ("iflink", iflink), ("type", 1)] {
            self.write(&format!("sys/class/net/{name}/{file}"), &format!("{number}\n"));
        }
    }

    /// A veth with the index `ifindex`, whose other end has the index `iflink`.
    pub fn veth(&self, name: &str, ifindex: u32, iflink: u32) {
        self.on_top(name, &[]);
        self.index(name, ifindex, iflink);
    }
}

/// The CPUs that an IRQ may go to.
pub fn affinity(tree: &Tree, irq: u32) -> String {
    let path = tree.path(&format!("proc/irq/{irq}/smp_affinity_list"));
    fs::read_to_string(path).unwrap().trim_end().into()
}

/// [`affinity`] of each IRQ of [`Machine::VIRTIO`].
pub fn affinities(tree: &Tree) -> Vec<String> {
    (37..=41).map(|irq| affinity(tree, irq)).collect()
}

/// What is saved.
pub fn saved(tree: &Tree) -> Option<Saved> {
    Saved::load(&tree.host()).unwrap()
}

/// The placement of all IRQs of `nic` on `cpus`.
pub fn on(nic: &str, cpus: &str) -> Placement {
    Placement { nic: nic.into(), cpus: cpus.parse().unwrap(), ..Placement::default() }
}

/// The placement of the IRQs of the pods' n3, which stands for these devices, on `cpus`.
pub fn of_pods(devices: &[&str], cpus: &str) -> Placement {
    let of_pods = Some(devices.iter().map(|&name| name.into()).collect());
    Placement { of_pods, ..on("n3", cpus) }
}

/// Makes a placement by hand.
pub fn place(tree: &Tree, placement: Placement) -> Result<Placed> {
    apply(&tree.host(), &Plan::of(&tree.host(), &[placement])?, By::Hand)
}

/// Pins all IRQs of a device.
pub fn pin(tree: &Tree, nic: &str, cpus: &str) {
    place(tree, Placement { irqbalance: OnIrqbalance::Ignore, ..on(nic, cpus) }).unwrap();
}

/// irqbalance's end of its socket, in this process.
pub struct Daemon {
    thread: JoinHandle<Vec<String>>,
    /// Still accepts connections after the thread has ended, but nobody answers.
    listener: UnixListener,
}

impl Daemon {
    /// Has the socket of the irqbalance with this process's PID, which bans IRQ 7.
    /// Reads a request after each of `pauses`, in milliseconds, then no more.
    pub fn new(tree: &Tree, pauses: &[u64]) -> Self {
        Self::at(tree, Self::bind(tree), vec![7], pauses)
    }

    /// The socket of the irqbalance with this process's PID.
    pub fn bind(tree: &Tree) -> UnixListener {
        fs::create_dir_all(tree.path("run/irqbalance")).unwrap();
        let name = format!("run/irqbalance/irqbalance{}.sock", std::process::id());
        UnixListener::bind(tree.path(&name)).unwrap()
    }

    /// As [`Daemon::new`], with another socket and other bans.
    pub fn at(tree: &Tree, listener: UnixListener, banned: Vec<u32>, pauses: &[u64]) -> Self {
        tree.irqbalance(std::process::id());
        tree.write("proc/1/comm", "init\n");
        let (pauses, heard) = (pauses.to_owned(), listener.try_clone().unwrap());
        let answer = |irqs: Vec<String>| -> String {
            irqs.iter().map(|irq| format!("IRQ {irq} LOAD 0 DIFF 0 CLASS 0 ")).collect()
        };
        let thread = spawn(move || {
            let mut banned = answer(banned.iter().map(u32::to_string).collect());
            let mut asked = Vec::new();
            for pause in pauses {
                sleep(Duration::from_millis(pause));
                let (mut stream, request) = loop {
                    let mut request = [0; 4096];
                    let (mut stream, _) = heard.accept().unwrap();
                    // Another test may have connected to the wrong socket and gone.
                    match stream.read(&mut request).unwrap_or(0) {
                        0 => continue,
                        n => break (stream, String::from_utf8_lossy(&request[..n]).into_owned()),
                    }
                };
                if request == "setup" {
                    // The client may have stopped waiting.
                    let _ = write!(stream, "SLEEP 10 {banned}BANNED 0");
                } else if let Some(list) = request.strip_prefix("settings ban irqs ") {
                    let irqs = list.trim_end_matches('\0').split(' ').filter(|irq| *irq != "NONE");
                    banned = answer(irqs.map(Into::into).collect());
                }
                asked.push(request);
            }
            asked
        });
        Self { thread, listener }
    }

    /// The requests, once it has read all.
    pub fn asked(self) -> Vec<String> {
        let asked = self.thread.join().unwrap();
        drop(self.listener);
        asked
    }
}
