//! The CPUs of `cpus: allocated`: cpusets as the kubelet's static CPU manager writes them.

use std::time::{Duration, Instant};

use crate::exclusive::seen_on;
use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::gthctl::report;
use crate::support::kernel::{self, cpu_of, runs_on};
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

/// How long something may take, however busy the host is.
const SOON: Duration = Duration::from_secs(20);
const WATCH: Duration = Duration::from_secs(1);

/// The kubelet's cgroups: of the pods A and E, guaranteed, and of B, burstable.
struct Node {
    // Dropped in this order: what is below goes first.
    a: Option<Cgroup>,
    b: Cgroup,
    _above: Vec<Cgroup>,
}

impl Node {
    /// A on these CPUs, B on those of the shared pool.
    fn new(a: &str, pool: &str) -> Self {
        let mut above: Vec<Cgroup> = ["kubepods", "kubepods/burstable"]
            .into_iter()
            .chain(["kubepods/burstable/podB", "kubepods/podA"])
            .map(|name| Cgroup::on(name, ""))
            .collect();
        above.reverse();
        let a = Some(Cgroup::on("kubepods/podA/c", a));
        Self { a, b: Cgroup::on("kubepods/burstable/podB/c", pool), _above: above }
    }

    fn a(&self) -> &Cgroup {
        self.a.as_ref().unwrap()
    }

    fn add(&mut self, tasks: usize) {
        self.a = self.a.take().map(|a| a.and_spinners(tasks));
    }
}

fn exclusive_cpus() -> String {
    report(&["status"])["exclusive_cpus"].as_str().unwrap().to_owned()
}

/// True once these are the exclusive CPUs; says how long that took.
fn becomes(cpus: &str) -> bool {
    let begin = Instant::now();
    let done = kernel::wait(SOON, || exclusive_cpus() == cpus);
    println!("exclusive CPUs {cpus:?} after {:?}", begin.elapsed());
    done
}

/// True once none of the tasks is on the CPU; then none comes there.
fn leave(tasks: &[Task], cpu: usize) -> bool {
    kernel::wait(SOON, || tasks.iter().all(|task| cpu_of(task.pid) != Some(cpu)))
        && seen_on(cpu, tasks, WATCH) == 0
}

/// True once one of the tasks runs on the CPU.
fn come(tasks: &[Task], cpu: usize) -> bool {
    kernel::wait(SOON, || tasks.iter().any(|task| cpu_of(task.pid) == Some(cpu)))
}

const POLICY: &str =
    "strategies: [{name: upf, cgroup: /kubepods/podA, cpus: allocated, exclusive: true}]";

#[test]
fn a_pod_has_its_cpus_alone_while_they_change_and_until_it_goes() {
    let cold = task::spinners(2 * kernel::cpus(), "cold");
    let gthctl = shared::scheduler(POLICY);
    assert_eq!(exclusive_cpus(), "");
    let mut node = Node::new("2", "0-1,3");
    node.add(2);
    assert!(becomes("2") && leave(&cold, 2));
    let used = cpus_used(&[node.a()], WATCH)[0];
    assert!(used > 0.9, "{used:.3} of CPU 2");

    // The kernel lets them run there at once; then nobody else does.
    node.b.set("cpuset.cpus", "0-1");
    node.a().set("cpuset.cpus", "2-3");
    assert!(becomes("2-3") && leave(&cold, 2) && leave(&cold, 3));
    let used = cpus_used(&[node.a()], WATCH)[0];
    assert!(used > 1.8, "{used:.3} of CPUs 2 and 3");
    node.a().set("cpuset.cpus", "2");
    assert!(becomes("2") && come(&cold, 3));
    assert!(node.a().tasks().iter().all(|task| cpu_of(task.pid) == Some(2)) && leave(&cold, 2));

    // A cpuset that has moved as a whole.
    node.a().set("cpuset.cpus", "3");
    assert!(becomes("3") && come(&cold, 2) && leave(&cold, 3));
    assert!(node.a().tasks().iter().all(|task| cpu_of(task.pid) == Some(3)));

    node.a = None;
    assert!(becomes("") && come(&cold, 3));
    gthctl.stop();
}

#[test]
fn pods_of_a_rule_stay_on_their_own_cpus_and_the_shared_pool_is_for_all() {
    let cold = task::spinners(kernel::cpus(), "cold");
    let mut node = Node::new("2", "0-1");
    node.add(1);
    let _above = Cgroup::on("kubepods/podE", "");
    let e = Cgroup::on("kubepods/podE/c", "3").and_spinners(3);
    node.b.add(Task::spinner_in_cgroup("burstable", &node.b.file()));
    let gthctl = shared::scheduler(
        "strategies: [{name: all, cgroup: /kubepods, cpus: allocated, exclusive: true}]",
    );
    assert!(becomes("2-3") && leave(&cold, 2) && leave(&cold, 3));
    assert!(runs_on(node.a().tasks()[0].pid, 2));
    let used = cpus_used(&[node.a(), &e, &node.b], 2 * WATCH);
    println!("CPUs used by A, E and B: {used:.3?}");
    assert!(used[0] > 0.9 && used[1] > 0.9, "{used:.3?}");
    // B shares its CPUs with the others.
    assert!((0.1..0.95).contains(&used[2]), "{used:.3?}");
    let status = report(&["status"]);
    let found: Vec<(&str, &str, bool)> = status["allocated"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap();
            (text("cgroup"), text("cpus"), one["exclusive"].as_bool().unwrap())
        })
        .collect();
    let wanted = [
        ("/kubepods/burstable/podB/c", "0-1", false),
        ("/kubepods/podA/c", "2", true),
        ("/kubepods/podE/c", "3", true),
    ];
    assert_eq!(found, wanted);
    assert_eq!(gthctl.counter("COUNT_RESERVED_MISSED"), 0);

    // One that the kubelet gives CPUs that it has not taken from the pool yet.
    node.a().set("cpuset.cpus", "1");
    assert!(becomes("3") && come(&cold, 1) && come(&cold, 2));
    node.b.set("cpuset.cpus", "0");
    assert!(becomes("1,3") && leave(&cold, 1));
    gthctl.stop();
}
