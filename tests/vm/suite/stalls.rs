//! No task waits until the kernel's watchdog steps in, whatever a policy does to queued tasks and
//! whatever else wants the CPU.

use std::fs;
use std::io::{Read, Write, pipe};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::gthctl::daemon::reports::ThrottledCgroup;
use ::gthctl::kernel::ext_server::EXT_SERVERS;

use crate::support::cgroup::{Cgroup, cpus_used};
use crate::support::gthctl::{NO_RULES, report, status};
use crate::support::host::{self, Stalls};
use crate::support::hot::other_threads;
use crate::support::kernel;
use crate::support::mix::Mix;
use crate::support::plane;
use crate::support::shared::{self, Lease};
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::STALLS;

/// No task may wait that long, whatever the policy.
const LIMIT: Duration = Duration::from_secs(5);

/// gthctl under a watchdog that ends it soon after a task has waited too long.
fn start(config: &str, policy: &str) -> Lease {
    shared::watched(LIMIT, config, policy)
}

/// Each of the tasks gets CPU time, three times, some slices apart.
#[track_caller]
fn assert_all_run(what: &str, tasks: &[Task]) {
    for time in 1..=3 {
        let before: Vec<_> = tasks.iter().map(Task::cpu_time).collect();
        let all_run = || tasks.iter().zip(&before).all(|(task, before)| task.cpu_time() > *before);
        assert!(kernel::wait(Duration::from_secs(3), all_run), "{what}: not all run, time {time}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn spinners_on(count: usize, comm: &str, cpus: &[usize]) -> Vec<Task> {
    (0..count).map(|_| Task::fork_on(comm, Some(cpus), task::spin)).collect()
}

#[test]
fn a_policy_that_takes_the_cpus_of_queued_tasks() {
    let mut gthctl = start("", "strategies: [{command_regex: ^hot, priority: true}]");
    let confined = spinners_on(3, "confined", &[2, 3]);
    for _ in 0..4 {
        gthctl.replace("strategies: [{command_regex: ^hot, cpus: 2-3, exclusive: true}]");
        assert_all_run("exclusive", &confined);
        gthctl.replace("strategies: [{command_regex: ^hot, priority: true}]");
    }
    assert_all_run("no longer exclusive", &confined);
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// The rule stays, but its CPUs have other queues with each policy.
#[test]
fn a_reload_that_keeps_an_exclusive_rule() {
    let rule = "{command_regex: ^hot, cpus: 2-3, exclusive: true}";
    let mut gthctl = start("", &format!("strategies: [{rule}]"));
    let hot = spinners_on(3, "hot", &[2, 3]);
    for weight in 1..=4 {
        gthctl.replace(&format!("strategies: [{rule}, {{command_regex: ^x$, weight: {weight}}}]"));
        assert_all_run("the rule stays", &hot);
    }
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

#[test]
fn policies_that_follow_one_another_at_once() {
    let exclusive = "strategies: [{command_regex: ^hot, cpus: 2-3, exclusive: true, priority: 1}]";
    // So many tasks with such slices that the queue is not empty when the second policy comes.
    let mut gthctl = start("scheduler: {slice_ns_default: 20ms, slice_ns_min: 20ms}", exclusive);
    let hot = spinners_on(40, "hot", &[2, 3]);
    for round in 1..=8 {
        gthctl.replace("strategies: []");
        gthctl.replace(&format!("strategies: [{{command_regex: ^x$, weight: {round}}}]"));
        gthctl.replace(exclusive);
    }
    gthctl.replace("strategies: []");
    gthctl.replace("strategies: [{command_regex: ^x$, weight: 9}]");
    assert_all_run("no rule any more", &hot);
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// Four tasks of the strongest rank that sleep briefly want more CPU time than there is.
#[test]
fn the_weakest_rank_behind_the_strongest() {
    let mut gthctl = start(
        "",
        "strategies:
- {command_regex: ^strong$, priority: 0}
- {command_regex: ^weak$, priority: 9}",
    );
    let _strong: Vec<Task> = (0..4)
        .map(|_| Task::fork_on("strong", Some(&[1]), task::use_and_rest(3_000_000, 300_000)))
        .collect();
    let weak = Task::fork_on("weak", Some(&[1]), task::wake_often(1_000_000));
    let mut wakes = weak.shared().latencies().len();
    for second in 1..=2 {
        let more = || weak.shared().latencies().len() > wakes;
        assert!(kernel::wait(Duration::from_secs(4), more), "{second}: no turn in 4 s");
        wakes = weak.shared().latencies().len();
    }
    let worst = weak.shared().latencies().last().copied().unwrap_or(0);
    println!("longest wait {:?}", Duration::from_nanos(worst));
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// The longest wait of any of the spinners.
fn longest_gap(tasks: &[Task]) -> Duration {
    tasks.iter().map(|task| task.shared().gap()).max().unwrap()
}

#[test]
fn the_lightest_weight_beside_many() {
    let mut gthctl =
        start("scheduler: {slice_ns_default: 5ms, slice_ns_min: 5ms}", "strategies: []");
    let light = Task::fork_on("light", Some(&[1]), |shared| {
        task::set_nice(0, 19);
        task::spin(shared)
    });
    let _others = spinners_on(40, "others", &[1]);
    light.shared().longest_gap.store(0, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(8));
    let before = light.cpu_time();
    assert!(kernel::wait(LIMIT, || light.cpu_time() > before), "no turn in {LIMIT:?}");
    println!("longest wait {:?}", light.shared().gap());
    assert!(light.shared().gap() < LIMIT, "{:?}", light.shared().gap());
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

#[test]
fn slices_of_a_second_and_many_who_want_one() {
    let long = "strategies: [{command_regex: ^own, execution_time: 1s}]";
    for (config, policy) in
        [("scheduler: {slice_ns_default: 1s, slice_ns_min: 1s}", "strategies: []"), ("", long)]
    {
        let mut gthctl = start(config, policy);
        let tasks = spinners_on(11, "own", &[1]);
        std::thread::sleep(Duration::from_secs(1));
        let before: Vec<_> = tasks.iter().map(Task::cpu_time).collect();
        let ran = || {
            let tasks = tasks.iter().zip(&before);
            tasks.filter(|(task, before)| task.cpu_time() > **before).count()
        };
        kernel::wait(LIMIT, || ran() == tasks.len());
        let ran = ran();
        println!("{config}{policy}: {ran} of 11 ran, longest wait {:?}", longest_gap(&tasks));
        assert_eq!(ran, 11, "{config}{policy}");
        assert!(!gthctl.has_ended());
        gthctl.stop();
    }
}

const DUMP: &str = "/sys/kernel/tracing/events/sched_ext/sched_ext_dump/enable";

/// What the kernel printed about its queues when it ended the scheduler.
fn dump() -> String {
    let trace = kernel::read("/sys/kernel/tracing/trace");
    let lines = trace.lines().filter_map(|line| line.split_once("sched_ext_dump: "));
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

/// Runs the mixes of these seeds, one after the other, on one scheduler: tasks come, go, move and
/// change, and policies with them. The kernel's watchdog detects stalls.
fn watch_mixes(seeds: Range<u64>) {
    let mut gthctl = start("", "strategies: []");
    let mut mix = Mix::default();
    fs::write(DUMP, "1").unwrap();
    // So that the changes do not wait for the mix.
    task::set_nice(0, -20);
    for seed in seeds {
        mix.change(seed, &gthctl.policy());
        std::thread::sleep(Duration::from_millis(200));
        if gthctl.has_ended() {
            panic!("seed {seed}: {mix:?}\n{}\n{}", gthctl.stderr(), dump());
        }
    }
    task::set_nice(0, 0);
    fs::write(DUMP, "0").unwrap();
    let gap = mix.longest_gap();
    println!("longest wait of a spinner {gap:?}");
    drop(mix);
    assert_eq!(report(&["status"])["kernel_in_step"], true);
    gthctl.stop();
}

#[test]
fn any_mix_of_tasks_and_policies() {
    let first: u64 = std::env::var("MIX_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    watch_mixes(first..first + 80);
}

#[test]
#[ignore = "400 mixes take minutes"]
fn many_mixes_of_tasks_and_policies() {
    watch_mixes(81..481);
}

/// The longest wake-up latency of any of the tasks.
fn latest(tasks: &[Task]) -> Duration {
    let waits = tasks.iter().filter_map(|task| task.shared().latencies().last().copied());
    Duration::from_nanos(waits.max().expect("a wake-up"))
}

/// A real-time task takes the CPU on which tasks with and without priority sleep. They wake up on the
/// other CPU that they may use. They do not wait until the kernel ends the real-time task's turn after
/// 0.95 s.
#[test]
fn tasks_that_wake_up_keep_clear_of_a_real_time_one() {
    let mut gthctl = start("", "strategies: [{command_regex: ^prio$, priority: true}]");
    let _load = task::spinners(kernel::cpus() * 2, "load");
    // The real-time task detects stalls of its own CPU.
    let host = host::Watch::on(&[0, 2, 3]);
    for round in 1..=3 {
        // The other CPU of those without priority has the same last-level cache.
        let [prio, normal] = [("prio", 2), ("normal", 0)].map(|(comm, other)| {
            let sleeper = |_| Task::fork_on(comm, Some(&[1]), task::wake_often(100_000_000));
            let sleepers: Vec<Task> = (0..4).map(sleeper).collect();
            std::thread::sleep(Duration::from_millis(200));
            sleepers.iter().for_each(|task| task::set_affinity(task.pid, &[1, other]));
            sleepers
        });
        let realtime = Task::fork_on("realtime", Some(&[1]), |shared| {
            task::become_realtime();
            let mut stalls = Stalls::new();
            loop {
                stalls.look(shared);
            }
        });
        std::thread::sleep(Duration::from_millis(1500));
        let late = [&prio, &normal].map(|tasks| latest(tasks));
        let (ran, stall) = (realtime.cpu_time(), host.stall().max(realtime.shared().gap()));
        println!("{round}: the latest {late:?}, the real-time task ran {ran:?}, stall {stall:?}");
        assert!(ran > Duration::from_secs(1));
        let in_time = |late: &Duration| late.saturating_sub(stall) < Duration::from_millis(300);
        assert!(late.iter().all(in_time), "{round}: {late:?}");
    }
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// The clock that the kernel reads. Changing it stops all CPUs.
struct Clock {
    before: String,
    another: String,
}

impl Clock {
    const DIR: &str = "/sys/devices/system/clocksource/clocksource0";

    /// `None` if this machine has only one.
    fn find() -> Option<Self> {
        let read = |name: &str| kernel::read(&format!("{}/{name}", Self::DIR));
        let before = read("current_clocksource").trim().to_owned();
        let available = read("available_clocksource");
        let another = available.split_whitespace().find(|clock| *clock != before)?.to_owned();
        Some(Self { before, another })
    }

    fn set(clock: &str) -> std::io::Result<()> {
        fs::write(format!("{}/current_clocksource", Self::DIR), clock)
    }

    /// Stops all CPUs twice.
    fn change(&self) {
        for clock in [&self.another, &self.before] {
            Self::set(clock).unwrap();
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = Self::set(&self.before);
    }
}

/// The kernel's stopper runs before the priority task that preempts another one. The preempted task
/// keeps its place, but not ahead of the stronger task.
#[test]
fn the_stopper_lets_no_weaker_task_go_first() {
    let Some(clock) = Clock::find() else {
        println!("skipped: this machine has one clock only");
        return;
    };
    let gthctl = start(
        "",
        "strategies:
- {command_regex: '^(woken|waker)$', priority: true, execution_time: 200ms}
- {command_regex: ^long$, execution_time: 1s}",
    );
    let _long = Task::fork_on("long", Some(&[1]), task::spin);
    let ((mut wakes, mut wake), (mut answers, mut answer)) = (pipe().unwrap(), pipe().unwrap());
    let woken = Task::fork_on("woken", Some(&[1]), move |shared| {
        let mut at = [0; 8];
        loop {
            wakes.read_exact(&mut at).unwrap();
            shared.add_latency(task::now() - u64::from_ne_bytes(at));
            answer.write_all(&at).unwrap();
        }
    });
    let _waker = Task::fork_on("waker", Some(&[0]), move |_| {
        loop {
            task::sleep_until(task::now() + 1_000_000);
            wake.write_all(&task::now().to_ne_bytes()).unwrap();
            answers.read_exact(&mut [0; 8]).unwrap();
        }
    });
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(8) {
        clock.change();
        std::thread::sleep(Duration::from_millis(10));
    }
    let latencies = woken.shared().latencies();
    let longest = Duration::from_nanos(latencies[latencies.len() - 1]);
    println!("{} wake-ups, the longest took {longest:?}", latencies.len());
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    gthctl.stop();
}

/// Two tasks that slept on the only idle CPU are woken up at once. The first one gets that CPU, and
/// the second takes the CPU that runs something weaker: neither waits until the other has done its
/// work.
#[test]
fn an_idle_cpu_is_given_to_one_task_only() {
    const WORK: u64 = 20_000_000;
    let gthctl = start(
        "",
        "strategies:
- {command_regex: ^prio$, priority: true, execution_time: 20ms}
- {command_regex: ^waker$, priority: true, execution_time: 20ms}",
    );
    let _weaker = Task::fork_on("weaker", Some(&[2]), task::spin);
    // It has priority itself, so that the tasks that it wakes up do not take its CPU.
    let waker = Task::fork_on("waker", Some(&[0]), |shared| {
        loop {
            task::sleep_until(task::now() + 3 * WORK);
            task::wake_all(shared);
            task::run_for(WORK);
        }
    });
    let woken = [(); 2].map(|()| {
        Task::fork("prio", |shared| {
            loop {
                task::set_affinity(0, &[1]);
                task::set_affinity(0, &[1, 2]);
                shared.add_latency(task::wait_to_be_woken(waker.shared()));
                task::run_for(WORK);
            }
        })
    });
    let mut waits: Vec<u64> = woken.iter().flat_map(|task| task.samples(50)).collect();
    waits.sort_unstable();
    let [p50, p75] = [0.5, 0.75].map(|part| task::part(&waits, part));
    println!("p50 {p50:?}, p75 {p75:?} of {}", waits.len());
    // Otherwise half of them would wait for the other's work, plus the time that the emulation takes.
    assert!(p75 < Duration::from_nanos(WORK * 3 / 4), "{p75:?}");
    gthctl.stop();
}

/// A task that a real-time task displaces does not wait until that one ends.
#[test]
fn a_real_time_task_takes_the_cpu_of_others() {
    // Long slices: otherwise the task's slice may just have ended, and it is queued for any CPU.
    let mut gthctl = start(
        "",
        "strategies:
- {command_regex: ^prio$, priority: true, execution_time: 1s}
- {command_regex: ^normal$, execution_time: 1s}",
    );
    for comm in ["prio", "normal", "prio", "normal"] {
        let task = Task::fork_on(comm, Some(&[1, 2]), task::spin);
        std::thread::sleep(Duration::from_millis(200));
        let cpu = kernel::cpu_of(task.pid).unwrap();
        // It becomes real-time before it comes to that CPU. Once, on 6.12, a task that waited for a CPU
        // was seen to stay there when a task on that CPU became real-time.
        let realtime = Task::fork_on("realtime", Some(&[3]), |shared| {
            task::become_realtime();
            task::set_affinity(0, &[cpu]);
            task::spin(shared)
        });
        assert!(kernel::runs_on(realtime.pid, cpu));
        let before = task.cpu_time();
        std::thread::sleep(Duration::from_secs(1));
        let part = (task.cpu_time() - before).as_secs_f64();
        println!("{comm}: {part:.2} of a CPU, the real-time task {:?}", realtime.cpu_time());
        assert!(part > 0.5, "{comm}: {part:.2}");
    }
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// Beside a real-time task that never sleeps, the kernel's ext server gives its share to the other tasks
/// of a CPU. The server stops when one of them is held back by its limit, or is about to be matched, and
/// there is nothing else to run. gthctl then starts it again.
#[test]
fn a_real_time_task_leaves_the_kernels_part_to_others() {
    if !Path::new(EXT_SERVERS).exists() {
        println!("skipped: this kernel has no ext server");
        return;
    }
    let mut gthctl = start("", "strategies: [{command_regex: ^prio$, priority: true}]");
    let cgroup = Cgroup::with("limited", &[("cpu.max", "20000 100000")]);
    // gthctl has just been woken up for the policy. It must not wait for the CPU itself.
    std::thread::sleep(Duration::from_millis(500));
    for (comm, cpu) in [("renames", 1), ("limited", 2)] {
        // It becomes real-time before it comes to that CPU, as above.
        let _realtime = Task::fork_on("realtime", Some(&[3]), |shared| {
            task::become_realtime();
            task::set_affinity(0, &[cpu]);
            task::spin(shared)
        });
        let task = Task::launch(comm, Some(&[cpu]), |shared| {
            if comm == "limited" {
                task::spin(shared);
            }
            for name in ["this", "that"].iter().cycle() {
                task::set_name(name);
                task::run_for(50_000_000);
            }
        });
        if comm == "limited" {
            cgroup.take(task.pid);
        }
        for time in 1..=4 {
            let before = task.cpu_time();
            assert!(kernel::wait(LIMIT, || task.cpu_time() > before), "{comm}, {time}: {before:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// Two kernel threads of a CPU that never sleep leave a share of it to tasks that may run nowhere else.
#[test]
fn busy_kernel_threads_of_a_cpu_leave_it_to_others() {
    const CPU: usize = 2;
    let mut gthctl = start("", "strategies: []");
    if !plane::insert_with("no-btf", "busy", &[&format!("cpu={CPU}")]) {
        gthctl.stop();
        return;
    }
    let bound = spinners_on(2, "bound", &[CPU]);
    std::thread::sleep(Duration::from_secs(1));
    let parts = task::times(&bound, Duration::from_secs(3));
    plane::succeeds(Command::new("rmmod").arg("busy"));
    println!("{parts:.3?} of 3 s each");
    assert!(parts.iter().all(|part| *part > 0.3), "{parts:?}");
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// If the kernel has no ext server, nothing ends the turn of a real-time task that never sleeps. A task
/// whose other CPU is in another last-level cache is found from there.
#[test]
fn a_task_beside_a_real_time_one_is_found_from_another_cache() {
    if Path::new(EXT_SERVERS).exists() {
        println!("skipped: this kernel has ext servers");
        return;
    }
    let mut gthctl = start("", "strategies: []");
    let _load = task::spinners(kernel::cpus() * 2, "load");
    let normal = Task::fork_on("normal", Some(&[1]), task::wake_often(100_000_000));
    std::thread::sleep(Duration::from_millis(200));
    task::set_affinity(normal.pid, &[1, 2]);
    let _realtime = Task::fork_on("realtime", Some(&[1]), |shared| {
        task::become_realtime();
        task::spin(shared)
    });
    std::thread::sleep(LIMIT - Duration::from_secs(1));
    let late = latest(&[normal]);
    println!("the latest {late:?}");
    assert!(late < Duration::from_secs(3), "{late:?}");
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// More tasks wait ahead than a CPU skips to find one that may use it.
#[test]
fn a_crowd_that_may_not_run_elsewhere() {
    let mut gthctl = start("", "strategies: []");
    let _crowd = spinners_on(40, "crowd", &[0, 1]);
    std::thread::sleep(Duration::from_millis(500));
    let confined = spinners_on(4, "confined", &[0, 1, 2]);
    let before: Duration = confined.iter().map(Task::cpu_time).sum();
    let begin = std::time::Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let got = confined.iter().map(Task::cpu_time).sum::<Duration>() - before;
    let part = got.as_secs_f64() / begin.elapsed().as_secs_f64();
    println!("{part:.2} of a CPU");
    assert!(part > 0.5, "CPU 2 is theirs alone, yet they get {part:.2} of it");
    assert!(!gthctl.has_ended());
    gthctl.stop();
}

/// Tasks that are preempted within a BPF program cannot migrate there; the kernel asks
/// gthctl about them only if it is told to (SCX_OPS_ENQ_MIGRATION_DISABLED, since 6.14).
#[test]
fn tasks_that_cannot_migrate_are_asked_about() {
    const EVENTS: &str = "/sys/kernel/sched_ext/root/events";
    let gthctl = start("", "strategies: [{command_regex: ^prio$, priority: true}]");
    let skipped = || {
        let events = kernel::read(EVENTS);
        let line = events.lines().find(|line| line.contains("ENQ_SKIP_MIGRATION_DISABLED"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    if skipped().is_none() {
        println!("skipped: this kernel does not count it");
        gthctl.stop();
        return;
    }
    // Each setuid(2) runs one of gthctl's programs.
    let _setters: Vec<Task> = (0..kernel::cpus() * 3)
        .map(|_| {
            Task::fork("setter", |_| {
                loop {
                    // SAFETY: no pointers.
                    unsafe { libc::seteuid(0) };
                }
            })
        })
        .collect();
    let _prio: Vec<Task> = (0..4).map(|_| Task::fork("prio", task::wake_often(200_000))).collect();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(skipped(), Some(0));
    gthctl.stop();
}

const CROWD: usize = 120;

#[track_caller]
fn the_throttled() -> ThrottledCgroup {
    let mut all = status().unwrap().throttled_cgroups;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn tasks_that_a_tight_limit_holds_back_are_no_stall() {
    let mut crowd = Cgroup::with("crowd", &[]);
    let dir = crowd.file();
    crowd.add(Task::start_in_cgroup("crowd", &dir, |shared| {
        (1..CROWD).for_each(|_| drop(std::thread::spawn(task::spin_on)));
        task::spin(shared);
    }));
    let gthctl = start("", NO_RULES);
    crowd.set("cpu.max", "1000 100000");
    std::thread::sleep(Duration::from_secs(1));
    // The kernel checks once in half of LIMIT.
    let watched = 2 * LIMIT;
    let used = cpus_used(&[&crowd], watched);
    println!("{CROWD} tasks used {:.4} CPUs", used[0]);
    assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
    assert!(used[0] < 0.03, "{:.4} CPUs", used[0]);
    let cgroup = the_throttled();
    println!("{cgroup:?}");
    assert_eq!((&*cgroup.cgroup, cgroup.limit_cpus), ("/crowd", 0.01));
    assert!((1..=cgroup.nr_periods).contains(&cgroup.nr_throttled));
    // The cgroup has quota left for a moment after each refill that has paid for the last run.
    let held_back = Duration::from_micros(cgroup.throttled_usec);
    assert!(held_back > watched * 9 / 10 && held_back < watched + LIMIT, "{held_back:?}");
    // A turn overruns the quota of about seven periods. Looks that come as often as turns could all fall
    // on a turn, so they are shorter.
    let mut grown = 0;
    assert!(kernel::wait(LIMIT, || {
        let before = the_throttled();
        std::thread::sleep(Duration::from_millis(200));
        let after = the_throttled();
        grown = after.throttled_usec - before.throttled_usec;
        before.throttled && after.nr_throttled == before.nr_throttled
    }));
    assert!(grown > 150_000, "{grown} us in 200 ms in which it was held back throughout");
    // Each new nice value enqueues the tasks again, but the kernel's watchdog does not start its count again
    // (hold_back(), bpf/sched/refill.bpf.h).
    let begin = Instant::now();
    let threads = other_threads(&crowd.tasks()[0]);
    for nice in [1, 0].into_iter().cycle().take_while(|_| begin.elapsed() < watched) {
        for &tid in &threads {
            // SAFETY: no pointers.
            let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, nice) };
            assert_eq!(set, 0, "{tid}");
        }
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
    gthctl.stop();
}
