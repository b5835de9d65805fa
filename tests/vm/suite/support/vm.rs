//! The VMs that tests need. Each module of tests names its own (`VM`); tests/vm/test asks the suite
//! for them ([`crate::vms`]).

/// A VM to be booted. All have eth0, with a queue pair for each CPU, and eth1 and eth2, which
/// are connected with each other.
pub struct Vm {
    pub name: &'static str,
    /// Its CPUs, as `-s` of tests/vm/run takes them; each die has a last-level cache.
    pub smp: &'static str,
    /// Kernel parameters.
    pub parameters: &'static str,
    /// Whether no other VM may run meanwhile.
    pub alone: bool,
    /// How long a round of the CPUs' turns takes in virtual time (docs/performance.md), us; 0 in real time.
    /// Tests that measure times run in virtual time: other work on the host has no effect there, and CPUs
    /// cost the host nothing while all are halted. The others run in real time, with the CPUs in parallel.
    pub turn: u32,
}

/// The order in which the VMs are started, each when there is room for it: those that take longest
/// come first.
pub const ORDER: [Vm; 10] =
    [SHARED, OWN, SHARES, STALLS, VIRTUAL, PACKETS, TIMING, TICKLESS, ISOLATED, LARGE];

/// For tests that measure no time and share one scheduler ([`crate::support::shared`]).
pub const SHARED: Vm =
    Vm { name: "shared", smp: "4,sockets=2,cores=2", parameters: "", alone: false, turn: 0 };

/// For tests that measure no time and have their own scheduler, or none.
pub const OWN: Vm = Vm { name: "own", ..SHARED };

/// Like [`OWN`], for tests about packets. In one VM, all these tests would take longer than those of
/// [`SHARED`], which run at the same time.
pub const PACKETS: Vm = Vm { name: "packets", ..SHARED };

/// For tests that measure the tasks' shares of the CPUs. A halted CPU counts as used.
pub const SHARES: Vm = Vm { name: "shares", turn: 10_000, ..SHARED };

/// For tests that measure the longest waits, of tasks or of those who ask gthctl for something.
pub const STALLS: Vm = Vm { name: "stalls", turn: 1_000, ..SHARED };

/// For tests that measure times: as many CPUs as the smallest machine has.
pub const TIMING: Vm = Vm { name: "timing", smp: "2,sockets=1,cores=2", ..STALLS };

/// For tests that compare short times with each other, or with what tasks do in them.
pub const VIRTUAL: Vm = Vm { name: "virtual", turn: 100, ..TIMING };

/// For a test that the kernel refuses a scheduler where CPUs are isolated.
pub const ISOLATED: Vm = Vm { name: "isolated", parameters: "isolcpus=1", turn: 0, ..TIMING };

/// Like [`TIMING`], with one more CPU; the last two CPUs need no tick.
pub const TICKLESS: Vm =
    Vm { name: "tickless", smp: "3,sockets=1,cores=3", parameters: "nohz_full=1-2", ..TIMING };

/// A large machine: two sockets, eight last-level caches, two threads a core.
pub const LARGE: Vm =
    Vm { name: "large", smp: "64,sockets=2,dies=4,cores=4,threads=2", alone: true, ..SHARED };
