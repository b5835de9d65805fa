//! Tests on a real kernel. They drive gthctl as a user would, and check what it did in the kernel
//! (sysfs, /proc), not only in gthctl's own output.
//!
//! tests/vm/test runs them as root in VMs, one at a time: a machine has only one scheduler. Each
//! module has one topic and names the VM that its tests need.

mod support;

// These need programs of Kubernetes: tests/vm/test-kubernetes runs them.
mod apiserver;
mod container;

mod access;
mod allocated;
mod builtin_idle;
mod bursts;
mod cgroups;
mod conditions;
mod confined;
mod cost;
mod daemon;
mod decision_maker;
mod decisions;
mod descriptors;
mod doctor;
mod drops;
mod exclusive;
mod fairness;
mod files;
mod forks;
mod gtp5g;
mod gtp_metrics;
mod handovers;
mod identity;
mod irq;
mod irqbalance;
mod isolated;
mod kubernetes;
mod large;
mod lifecycle;
mod limits;
mod lock;
mod manager;
mod marks;
mod matching;
mod messages;
mod metrics;
mod output;
mod pinned;
mod placement;
mod pod_counters;
mod pod_nics;
mod policy;
mod priority;
mod reload;
mod robustness;
mod roundtrip;
mod rule_counters;
mod shares;
mod stalls;
mod starts;
mod tickless;
mod timing;
mod top;
mod trace;
mod traffic;
mod user_planes;
mod verifier;
mod wakeups;
mod without;
mod xdp;

use support::vm::{self, Vm};

/// The modules of tests, with the VM of each.
macro_rules! modules {
    ($($module:ident),* $(,)?) => { [$((stringify!($module), $module::VM)),*] };
}

const MODULES: [(&str, Vm); 59] = modules![
    access,
    allocated,
    builtin_idle,
    bursts,
    cgroups,
    conditions,
    confined,
    cost,
    daemon,
    decision_maker,
    decisions,
    descriptors,
    doctor,
    drops,
    exclusive,
    fairness,
    files,
    forks,
    gtp5g,
    gtp_metrics,
    handovers,
    identity,
    irq,
    irqbalance,
    isolated,
    kubernetes,
    large,
    lifecycle,
    limits,
    lock,
    manager,
    marks,
    matching,
    messages,
    metrics,
    output,
    pinned,
    placement,
    pod_counters,
    pod_nics,
    policy,
    priority,
    reload,
    robustness,
    roundtrip,
    rule_counters,
    shares,
    stalls,
    starts,
    tickless,
    timing,
    top,
    trace,
    traffic,
    user_planes,
    verifier,
    wakeups,
    without,
    xdp,
];

/// Not a test: tells tests/vm/test which VM each module needs.
#[test]
#[ignore = "for tests/vm/test"]
fn vms() {
    let mut modules = MODULES;
    let order = |vm: &Vm| vm::ORDER.iter().position(|known| known.name == vm.name);
    modules.sort_by_key(|(_, vm)| order(vm).expect("it is in ORDER"));
    for (module, Vm { name, smp, parameters, alone, turn }) in modules {
        println!("vm:{module}:{name}:{smp}:{alone}:{turn}:{parameters}");
    }
}
