//! The CPUs of `cpus: allocated`: cpusets as the kubelet's static CPU manager writes them.

use std::fs;
use std::time::{Duration, Instant};

use ::gthctl::base::cpulist::CpuList;

use crate::exclusive::seen_on;
use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::gthctl::{notes, report};
use crate::support::kernel::{self, cpu_of, runs_on};
use crate::support::nic::{Pair, Restore, affinities, affinity, hold_irq_lock, irq_of, taken};
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

/// How long something may take, however busy the host is. gthctl looks every 30 s even if nothing
/// notifies it.
const SOON: Duration = Duration::from_secs(20);
const WATCH: Duration = Duration::from_secs(1);
/// Long compared with the time that the test waits for a CPU when it reads what was used.
const MEASURE: Duration = Duration::from_secs(3);

/// The kubelet's cgroups of the guaranteed pod A and the burstable pod B.
pub struct Node {
    // Dropped in this order: what is below goes first.
    a: Option<Cgroup>,
    b: Cgroup,
    _above: Vec<Cgroup>,
}

impl Node {
    /// Puts A on these CPUs, B on those of the shared pool.
    pub fn new(a: &str, pool: &str) -> Self {
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

    pub fn add(&mut self, tasks: usize) {
        self.a = self.a.take().map(|a| a.and_spinners(tasks));
    }
}

fn exclusive_cpus() -> String {
    report(&["status"])["exclusive_cpus"].as_str().unwrap().to_owned()
}

/// True once these are the exclusive CPUs; says how long that took.
pub fn becomes(cpus: &str) -> bool {
    let begin = Instant::now();
    let done = kernel::wait(SOON, || exclusive_cpus() == cpus);
    println!("exclusive CPUs {cpus:?} after {:?}", begin.elapsed());
    done
}

/// True once none of the tasks is on the CPU, and none comes there afterwards.
fn leave(tasks: &[Task], cpu: usize) -> bool {
    kernel::wait(SOON, || tasks.iter().all(|task| cpu_of(task.pid) != Some(cpu)))
        && seen_on(cpu, tasks, WATCH) == 0
}

/// True once one of the tasks runs on the CPU.
fn come(tasks: &[Task], cpu: usize) -> bool {
    kernel::wait(SOON, || tasks.iter().any(|task| cpu_of(task.pid) == Some(cpu)))
}

/// Why the task does not run on its rule's CPUs.
fn note_on(task: &Task) -> String {
    let explanation = report(&["explain", &task.pid.to_string()]);
    explanation["notes"][0].as_str().unwrap().to_owned()
}

const POLICY: &str =
    "strategies: [{name: upf, cgroup: /kubepods/podA, cpus: allocated, exclusive: true}]";

#[test]
fn a_pod_has_its_cpus_alone_while_they_change_and_until_it_goes() {
    let cold = task::spinners(kernel::cpus(), "cold");
    let gthctl = shared::scheduler(POLICY);
    assert_eq!(exclusive_cpus(), "");
    let mut node = Node::new("2", "0-1,3");
    node.add(2);
    assert!(becomes("2") && leave(&cold, 2));
    let used = cpus_used(&[node.a()], MEASURE)[0];
    assert!(used > 0.85, "{used:.3} of CPU 2");

    // The kernel lets the pod's tasks run there at once; after a while nobody else runs there.
    node.b.set("cpuset.cpus", "0-1");
    node.a().set("cpuset.cpus", "2-3");
    assert!(becomes("2-3") && leave(&cold, 2) && leave(&cold, 3));
    let used = cpus_used(&[node.a()], MEASURE)[0];
    assert!(used > 1.7, "{used:.3} of CPUs 2 and 3");
    node.a().set("cpuset.cpus", "2");
    assert!(becomes("2") && come(&cold, 3));
    assert!(node.a().tasks().iter().all(|task| cpu_of(task.pid) == Some(2)) && leave(&cold, 2));

    // The cpuset moves as a whole.
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
    let used = cpus_used(&[node.a(), &e, &node.b], MEASURE);
    println!("CPUs used by A, E and B: {used:.3?}");
    assert!(used[0] > 0.85 && used[1] > 0.85, "{used:.3?}");
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
    let why = note_on(&node.b.tasks()[0]);
    let wanted = "all: cpus: CPUs 0-1 of /kubepods/burstable/podB/c are not exclusive: the kubelet";
    assert!(why.starts_with(wanted), "{why}");
    assert_eq!(gthctl.counter("COUNT_RESERVED_MISSED"), 0);

    // The kubelet gives a pod CPUs that it has not taken from the pool yet.
    node.a().set("cpuset.cpus", "1");
    assert!(becomes("3") && come(&cold, 1) && come(&cold, 2));
    node.b.set("cpuset.cpus", "0");
    assert!(becomes("1,3") && leave(&cold, 1));
    gthctl.stop();
}

#[test]
fn interrupts_leave_cpus_that_become_exclusive_and_come_back() {
    let _restore = Restore;
    let pair = Pair::up();
    let input = irq_of("eth1", "input.0");
    fs::write(format!("/proc/irq/{input}/smp_affinity_list"), "3").unwrap();
    let before = ["eth0", "eth1"].map(affinities);
    let gthctl = shared::scheduler(&format!("irq: {{avoid: exclusive}}\n{POLICY}"));
    assert_eq!(["eth0", "eth1"].map(affinities), before);
    let mut node = Node::new("3", "0-2");
    node.add(1);
    let off = |cpu: &str| {
        let lists = || ["eth0", "eth1"].map(affinities).into_iter().flatten();
        let cpus = |list: String| list.parse::<CpuList>().unwrap();
        let all = || lists().all(|(_, list)| !cpus(list).contains(cpu.parse().unwrap()));
        kernel::wait(SOON, all)
    };
    assert!(becomes("3") && off("3"), "{:?}", affinities("eth0"));
    assert_eq!(affinity(input), "0-2");
    // The first interrupt after a move still comes in where the IRQ was.
    pair.ping(1);
    let counts = taken(input, || pair.ping(100));
    assert!(counts[3] == 0 && counts.iter().sum::<u64>() >= 50, "{counts:?}");

    node.a().set("cpuset.cpus", "2");
    assert!(becomes("2") && off("2"), "{:?}", affinities("eth0"));
    assert!(kernel::wait(SOON, || affinity(input) == "3"));
    node.a = None;
    assert!(becomes("") && kernel::wait(SOON, || ["eth0", "eth1"].map(affinities) == before));
    gthctl.stop();
}

/// The placement that the policy in force wants for its interrupts changes while another policy waits
/// for its own.
#[test]
fn a_policy_that_waits_for_its_interrupts_gets_them_though_cpusets_change() {
    let _restore = Restore;
    let with =
        |cpu: u32| format!("irq: [{{avoid: exclusive}}, {{nic: eth1, cpus: {cpu}}}]\n{POLICY}");
    let gthctl = shared::scheduler(&format!("irq: {{avoid: exclusive}}\n{POLICY}"));
    let generation = || report(&["status"])["generation"].as_u64().unwrap();
    let waiting = "waits for its interrupts to be placed";
    let waits = || notes(&report(&["status"])).iter().any(|note| note.ends_with(waiting));
    let lock = hold_irq_lock();
    let before = generation();
    fs::write(gthctl.policy(), with(1)).unwrap();
    assert!(kernel::wait(SOON, waits));
    // The first policy's interrupts are being placed; this policy comes after it.
    fs::write(gthctl.policy(), with(2)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut node = Node::new("3", "0-2");
    node.add(1);
    assert!(becomes("3"));
    drop(lock);
    assert!(kernel::wait(SOON, || !waits()), "{}", gthctl.stderr());
    let on_2 = || affinities("eth1").values().all(|cpus| cpus == "2");
    let off_3 = || affinities("eth0").values().all(|cpus| !cpus.ends_with('3'));
    let placed = || on_2() && off_3();
    assert!(kernel::wait(SOON, placed), "{:?}", ["eth0", "eth1"].map(affinities));
    assert!(generation() > before);
    node.a = None;
    gthctl.stop();
}

#[test]
fn a_task_whose_cpuset_has_none_of_its_rules_cpus_runs_there_and_that_is_told() {
    let mut node = Node::new("2", "0-1,3");
    node.add(1);
    for exclusive in ["", ", exclusive: true"] {
        let rule = format!("{{name: fixed, cgroup: /kubepods/podA, cpus: '3'{exclusive}}}");
        let gthctl = shared::scheduler(&format!("strategies: [{rule}]"));
        let task = &node.a().tasks()[0];
        assert!(runs_on(task.pid, 2));
        let wanted = "fixed: cpus: its affinity and cpuset allow none of 3; it runs on 2";
        assert_eq!(note_on(task), wanted);
        let told = notes(&report(&["status"]));
        let wanted = "fixed: cpus: 1 of its tasks may run on none of 3, by affinity or cpuset; \
                      they run on 2";
        assert!(told.len() == 1 && told[0].ends_with(wanted), "{told:?}");
        gthctl.stop();
    }
}
