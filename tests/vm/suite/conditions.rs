//! The conditions of a rule other than the task's name (matching.rs), while tasks run and change.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chroot, gettid};

use crate::support::cgroup::{Cgroup, Cgroups, CpuHierarchy, enter as enter_cgroup, take_out};
use crate::support::gthctl;
use crate::support::hot::{CPU, SOON, assert_places, on_order, other_threads, policy, with_thread};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::{self, Task};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 4711;

/// A rule for each of these conditions, all with the same CPU.
fn policy_of_each(conditions: &[&str]) -> String {
    let rule = |conditions| format!("- {{{conditions}, cpus: {CPU}, exclusive: true}}\n");
    format!("strategies:\n{}", conditions.iter().map(rule).collect::<String>())
}

/// Only the second thread of a process acts on orders.
fn thread_on_order(act: impl FnMut(u32) + Send + 'static) -> impl FnOnce(&task::Shared) {
    move |shared| {
        std::thread::scope(|scope| {
            scope.spawn(move || on_order(shared, act));
            task::spin_on();
        });
    }
}

#[test]
fn threads_by_their_own_name_only() {
    let before = Task::fork("cold", with_thread("hot"));
    let gthctl = shared::scheduler(&policy("threads: ^hot$"));
    let one = Task::fork("cold", with_thread("hot"));
    let leader = Task::fork("hot", with_thread("worker"));
    let [before_thread, one_thread, worker] =
        [&before, &one, &leader].map(|task| other_threads(task)[0]);
    // The thread begins with the name of its process.
    let named = || kernel::read(&format!("/proc/{worker}/comm")) == "worker";
    assert!(kernel::wait(SOON, named));
    assert_places(&[before_thread, one_thread, leader.pid], &[before.pid, one.pid, worker]);
    leader.order(2);
    one.order(1);
    assert_places(&[before_thread, one_thread, one.pid], &[before.pid, leader.pid, worker]);
    gthctl.stop();
}

/// A directory with programs that never sleep.
struct Programs(tempfile::TempDir);

impl Programs {
    fn new(dirs: &[&str]) -> Self {
        let programs = Self(tempfile::tempdir().unwrap());
        for dir in dirs {
            fs::create_dir_all(programs.path(dir)).unwrap();
            fs::copy("/bin/busybox", programs.path(dir).join("prog")).unwrap();
        }
        programs
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Executes one of the programs at once.
    fn run(&self, path: &str) -> Task {
        self.run_after(&self.path(path), || ())
    }

    /// Runs `prepare`, then executes the program at `path`.
    fn run_after(&self, path: &Path, prepare: impl FnOnce()) -> Task {
        // The task already has the name that it will have as the program.
        Task::fork(path.file_name().unwrap().to_str().unwrap(), |_| {
            write_to_nowhere();
            prepare();
            exec(path);
        })
    }
}

fn write_to_nowhere() {
    let null = File::options().write(true).open("/dev/null").unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), 1) }, 1);
}

/// Executes the busybox at that path, which writes forever.
fn exec(path: &Path) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let argv = [c"yes".as_ptr(), std::ptr::null()];
    // SAFETY: a null-terminated array of C strings.
    unsafe { libc::execv(path.as_ptr(), argv.as_ptr()) };
    panic!("{path:?}: {}", std::io::Error::last_os_error());
}

/// Gives this process its own mounts.
fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn exe_as_proc_shows(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

#[test]
fn programs_by_their_path() {
    let programs = Programs::new(&["hot", "hot/sub", "cold", "hotter"]);
    let hot = programs.path("hot");
    symlink("../hot/prog", programs.path("cold/link")).unwrap();
    symlink("../cold/prog", programs.path("hot/link")).unwrap();
    let before = [programs.run("hot/prog"), programs.run("cold/prog")];
    let gthctl = shared::scheduler(&policy(&format!("exe: '{}/*'", hot.display())));
    assert_places(&[before[0].pid], &[before[1].pid]);

    let later = ["hot", "cold"].map(|dir| {
        let path = programs.path(dir).join("prog");
        Task::fork("later", move |shared| {
            write_to_nowhere();
            task::spin_until_order(shared);
            exec(&path);
        })
    });
    assert_places(&[before[0].pid], &[later[0].pid, later[1].pid]);
    later.iter().for_each(|task| task.order(1));
    let deeper = [programs.run("hot/sub/prog"), programs.run("hotter/prog")];
    assert_places(&[later[0].pid], &[later[1].pid, deeper[0].pid, deeper[1].pid]);
    drop((before, later, deeper));

    // /proc does not show a symbolic link.
    let links = [programs.run("cold/link"), programs.run("hot/link")];
    assert_places(&[links[0].pid], &[links[1].pid]);
    assert_eq!(exe_as_proc_shows(links[0].pid), hot.join("prog"));
    gthctl.stop();
}

#[test]
fn programs_by_their_path_in_their_own_mount_namespace() {
    let programs = Programs::new(&["hot", "cold"]);
    let [hot, cold, root, empty] = ["hot", "cold", "root", "empty"].map(|dir| programs.path(dir));
    for dir in ["root/opt/upf", "root/opt/other", "empty"] {
        fs::create_dir_all(programs.path(dir)).unwrap();
    }
    let gthctl =
        shared::scheduler(&policy(&format!("exe: '{{{}/prog,/opt/upf/prog}}'", hot.display())));
    let swapped = [(&cold, &hot), (&hot, &cold)].map(|(from, to)| {
        programs.run_after(&to.join("prog"), || {
            own_mounts();
            bind(from, to);
        })
    });
    // In its mount namespace, each path leads to the other directory's file.
    assert_places(&[swapped[0].pid], &[swapped[1].pid]);

    // As in a container: the root is an overlay with other mounts in it.
    let contained = ["/opt/upf/prog", "/opt/other/prog"].map(|path| {
        programs.run_after(Path::new(path), || {
            own_mounts();
            let layers = format!("lowerdir={}:{}", empty.display(), root.display());
            let overlay = Some("overlay");
            mount(overlay, &root, overlay, MsFlags::empty(), Some(layers.as_str())).unwrap();
            bind(&cold, &root.join("opt/upf"));
            bind(&hot, &root.join("opt/other"));
            std::env::set_current_dir(&root).unwrap();
            let none = None::<&str>;
            mount(Some("."), "/", none, MsFlags::MS_MOVE, none).unwrap();
            chroot(".").unwrap();
        })
    });
    assert_places(&[contained[0].pid], &[contained[1].pid]);

    // A different root directory alone changes nothing.
    let jailed = ["/hot/prog", "/cold/prog"]
        .map(|path| programs.run_after(Path::new(path), || chroot(&programs.path("")).unwrap()));
    assert_places(&[jailed[0].pid], &[jailed[1].pid]);
    gthctl.stop();
}

/// Sets the user ids of the calling thread only, unlike libc's; -1 keeps an id.
fn set_users(real: i32, effective: i32, saved: i32) {
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn by_the_effective_user() {
    let [nobody, somebody] = [NOBODY as i32, SOMEBODY as i32];
    let before = Task::fork("any", move |shared| {
        set_users(nobody, nobody, nobody);
        task::spin(shared);
    });
    // Only this policy asks about users, so gthctl begins to notice them once the policy is in force.
    let gthctl = shared::scheduler("strategies: []");
    let users = policy_of_each(&["user: nobody", &format!("user: {SOMEBODY}")]);
    gthctl.replace(&users);
    let by_number = Task::fork("any", move |shared| {
        set_users(somebody, somebody, somebody);
        task::spin(shared);
    });
    let real = Task::fork("any", move |shared| {
        set_users(nobody, 0, nobody);
        task::spin(shared);
    });
    // 1: become nobody, 2: fork a child, 3: change back.
    let changes = Task::fork("any", move |shared| {
        on_order(shared, |order| match order {
            1 => set_users(-1, nobody, 0),
            2 => shared.answer.store(task::fork_below(task::spin_on) as u32, Ordering::Relaxed),
            _ => set_users(-1, 0, -1),
        });
    });
    let one_thread = Task::fork(
        "any",
        thread_on_order(move |order| match order {
            1 => set_users(-1, nobody, 0),
            _ => set_users(-1, 0, -1),
        }),
    );
    let thread = other_threads(&one_thread)[0];
    assert_places(&[before.pid, by_number.pid], &[real.pid, changes.pid, one_thread.pid, thread]);
    changes.order(1);
    one_thread.order(1);
    assert_places(&[before.pid, changes.pid, thread], &[real.pid, one_thread.pid]);
    changes.order(2);
    let child = changes.answer() as i32;
    changes.order(3);
    one_thread.order(3);
    assert_places(&[child], &[changes.pid, one_thread.pid, thread]);
    gthctl.stop();
}

/// If a task is preempted in the program that notices such a change, the kernel skips that program
/// for all other tasks of the CPU.
#[test]
fn changes_by_tasks_that_preempt_each_other() {
    const TASKS: u32 = 8;
    let gthctl = shared::scheduler(&policy("user: nobody"));
    let become_hot = || set_users(-1, NOBODY as i32, 0);
    let become_cold = || set_users(-1, 0, -1);
    // 1: change back and forth, 2 or 3: end as one of the two.
    let tasks: Vec<Task> = (0..TASKS)
        .map(|i| {
            Task::fork("any", move |shared| {
                on_order(shared, |order| match order {
                    1 => {
                        while shared.order.load(Ordering::Relaxed) == 1 {
                            become_hot();
                            become_cold();
                        }
                    }
                    _ if (order + i) % 2 == 0 => become_hot(),
                    _ => become_cold(),
                });
            })
        })
        .collect();
    for round in 0..3 {
        tasks.iter().for_each(|task| task.order(1));
        std::thread::sleep(Duration::from_secs(1));
        tasks.iter().for_each(|task| task.order(2 + round % 2));
        // Wait until each had a turn and gthctl has checked whether the kernel missed any.
        std::thread::sleep(Duration::from_millis(500));
        let (hot, cold): (Vec<_>, Vec<_>) =
            tasks.iter().zip(0..TASKS).partition(|(_, i)| (2 + round % 2 + i) % 2 == 0);
        let pids =
            |tasks: Vec<(&Task, u32)>| tasks.iter().map(|(task, _)| task.pid).collect::<Vec<_>>();
        assert_places(&pids(hot), &pids(cold));
    }
    gthctl.stop();
}

/// Forks a spinner at the first order.
fn fork_on_order(shared: &task::Shared) {
    on_order(shared, |_| {
        shared.answer.store(task::fork_below(task::spin_on) as u32, Ordering::Relaxed);
    });
}

#[test]
fn by_cgroup() {
    let [hot, below, hotter, other, inner] =
        ["/hot", "/hot/below", "/hotter", "/other", "/other/hot"].map(Cgroup::new);
    let before = Task::spinner("any");
    below.take(before.pid);
    let gthctl = shared::scheduler(&policy("cgroup: /hot"));
    let born = Task::spinner_in_cgroup("any", &hot.file());
    let moved = Task::fork("any", fork_on_order);
    let threads = Task::fork("any", with_thread("worker"));
    let second = other_threads(&threads)[0];
    let elsewhere = [Task::spinner("any"), Task::spinner("any")];
    hotter.take(elsewhere[0].pid);
    inner.take(elsewhere[1].pid);
    let elsewhere = elsewhere.each_ref().map(|task| task.pid);
    assert_places(
        &[before.pid, born.pid],
        &[&elsewhere[..], &[moved.pid, threads.pid, second]].concat(),
    );

    below.take(moved.pid);
    hot.take(threads.pid);
    assert_places(&[before.pid, moved.pid, threads.pid, second], &elsewhere);
    moved.order(1);
    let child = moved.answer() as i32;
    assert_places(&[moved.pid, child], &[]);
    take_out(moved.pid);
    other.take(threads.pid);
    assert_places(&[child], &[moved.pid, threads.pid, second]);
    hot.take(moved.pid);
    take_out(child);
    assert_places(&[before.pid, moved.pid], &[child]);
    gthctl.stop();
}

#[test]
fn single_threads_by_cgroup() {
    let process = Cgroup::new("/process");
    let hot = Cgroup::new("/process/hot");
    let cold = Cgroup::new("/process/cold");
    for threads in [&hot, &cold] {
        threads.set("cgroup.type", "threaded");
    }
    let gthctl = shared::scheduler(&policy("cgroup: /process/hot"));
    let task = Task::fork("any", with_thread("worker"));
    let second = other_threads(&task)[0];
    process.take(task.pid);
    hot.set("cgroup.threads", &second.to_string());
    assert_places(&[second], &[task.pid]);
    cold.set("cgroup.threads", &second.to_string());
    hot.set("cgroup.threads", &task.pid.to_string());
    assert_places(&[task.pid], &[second]);
    gthctl.stop();
}

#[test]
fn by_unit_and_container() {
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let other_id = ID.replace("0123", "3210");
    let hot = [
        "/system.slice/system-upf.slice/upf@1.service".into(),
        "/system.slice/system-upf.slice/upf@2.service/worker".into(),
        format!("/system.slice/docker-{ID}.scope"),
        format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope/init"),
        format!("/kubepods/burstable/pod1/{ID}"),
    ];
    let cold = [
        "/system.slice/my-upf@1.service".into(),
        "/system.slice/system-upf.slice".into(),
        format!("/system.slice/docker-{other_id}.scope"),
        format!("/kubepods/burstable/pod1/{other_id}"),
    ];
    let gthctl = shared::scheduler(&policy_of_each(&[
        "systemd_unit: 'upf@*.service'",
        &format!("container: 'containerd://{}'", &ID[..12]),
    ]));
    let mut cgroups = Cgroups::default();
    let [hot, cold] = [&hot[..], &cold].map(|paths| {
        let inside = |path: &String| {
            let task = Task::spinner("any");
            enter_cgroup(&cgroups.make(path), task.pid);
            task
        };
        paths.iter().map(inside).collect::<Vec<_>>()
    });
    let pids = |tasks: &[Task]| tasks.iter().map(|task| task.pid).collect::<Vec<_>>();
    assert_places(&pids(&hot), &pids(&cold));
    gthctl.stop();
}

#[test]
fn by_cgroup_of_the_cpu_controller_where_there_is_no_other() {
    let Some(cpu) = CpuHierarchy::mount() else { return };
    let hot = Cgroup::below(cpu.path(), "/hot");
    let both = Cgroup::new("/both");
    let gthctl = shared::scheduler(&policy("cgroup: /hot"));
    let task = Task::fork("any", with_thread("worker"));
    let second = other_threads(&task)[0];
    let in_both = Task::spinner("any");
    both.take(in_both.pid);
    assert_places(&[], &[task.pid, second]);
    hot.take(task.pid);
    hot.take(in_both.pid);
    // The unified hierarchy comes first.
    assert_places(&[task.pid, second], &[in_both.pid]);
    fs::write(cpu.path().join("tasks"), second.to_string()).unwrap();
    assert_places(&[task.pid], &[second]);
    gthctl.stop();
}

/// A network namespace with a name; both go when it is dropped.
struct Netns(&'static str);

impl Netns {
    fn new(name: &'static str) -> Self {
        assert!(Command::new("ip").args(["netns", "add", name]).status().unwrap().success());
        Self(name)
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", self.0]).status();
    }
}

fn enter(netns: &str) {
    setns(File::open(netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

#[test]
fn by_network_namespace() {
    const FIRST: &str = "/proc/1/ns/net";
    let names = ["hot", "cold"].map(Netns::new);
    let [hot, cold] = names.each_ref().map(Netns::path);
    let unshared = [(); 2].map(|()| {
        let task = Task::fork("any", |shared| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            shared.answer.store(1, Ordering::Relaxed);
            task::spin(shared);
        });
        task.answer();
        task
    });
    let file = |pid: i32| format!("/proc/{pid}/ns/net");
    let inode = fs::metadata(file(unshared[1].pid)).unwrap().ino();
    let gthctl = shared::scheduler("strategies: []");
    let namespaces = policy_of_each(&[
        "netns: hot",
        &format!("netns: {}", file(unshared[0].pid)),
        &format!("netns: {inode}"),
    ]);
    gthctl.replace(&namespaces);
    let changes = |order| match order {
        1 => enter("/run/netns/hot"),
        2 => enter(FIRST),
        3 => enter("/run/netns/cold"),
        _ => unshare(CloneFlags::CLONE_NEWNET).unwrap(),
    };
    let task = Task::fork("any", |shared| on_order(shared, changes));
    let one_thread = Task::fork("any", thread_on_order(changes));
    let thread = other_threads(&one_thread)[0];
    let inside = [&hot, &cold].map(|netns| {
        Task::fork("any", |shared| {
            enter(netns);
            task::spin(shared);
        })
    });
    assert_places(
        &[unshared[0].pid, unshared[1].pid, inside[0].pid],
        &[inside[1].pid, task.pid, one_thread.pid, thread],
    );
    for (order, is_hot) in [(1, true), (2, false), (1, true), (4, false), (1, true), (3, false)] {
        task.order(order);
        one_thread.order(order);
        let changed = [task.pid, thread];
        let others = [one_thread.pid, inside[1].pid];
        match is_hot {
            true => assert_places(&changed, &others),
            false => assert_places(&[inside[0].pid], &[&changed[..], &others].concat()),
        }
    }
    gthctl.stop();
}

/// A process, its child and its grandchild; only the first keeps its name. When `order` becomes 1,
/// the child ends; at 2 the grandchild executes `program`; at 3 the first process takes the name
/// cold and forks once more.
fn family(program: PathBuf) -> impl FnOnce(&task::Shared) {
    move |shared| {
        let last = || {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            task::set_name("last");
            write_to_nowhere();
            on_order(shared, |order| {
                if order == 2 {
                    exec(&program);
                }
                if order == 4 {
                    let answer = ptr::from_ref(&shared.answer) as usize;
                    std::thread::spawn(move || {
                        // SAFETY: the memory is shared and lives as long as the process.
                        let answer = unsafe { &*(answer as *const AtomicU32) };
                        answer.store(gettid().as_raw() as u32, Ordering::Relaxed);
                        task::spin_on();
                    });
                }
            });
        };
        task::fork_below(|| {
            task::set_name("middle");
            shared.answer.store(task::fork_below(last) as u32, Ordering::Relaxed);
            task::spin_until_order(shared);
        });
        on_order(shared, |order| {
            if order == 1 {
                // SAFETY: a null pointer is allowed.
                unsafe { libc::wait(std::ptr::null_mut()) };
            }
            if order == 3 {
                task::set_name("cold");
                shared.answer.store(task::fork_below(task::spin_on) as u32, Ordering::Relaxed);
            }
        });
    }
}

/// Killed when dropped.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

/// Read from /proc/PID/stat: not every kernel has /proc/PID/task/PID/children.
fn children_of(pid: i32) -> Vec<i32> {
    let is_child = |child: &i32| {
        let stat = kernel::read(&format!("/proc/{child}/stat"));
        // The parent is the second field after the name in parentheses.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1).is_some_and(|parent| parent == pid.to_string())
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

#[test]
fn children_and_theirs() {
    let rule =
        "{name: NAME, command_regex: ^hot$, include_children: true, cpus: 1, exclusive: true}";
    let policy = |name| {
        let other = "{name: other, netns: later, weight: 200}";
        format!("strategies: [{}, {other}]", rule.replace("NAME", name))
    };
    let programs = Programs::new(&["any"]);
    let program = || programs.path("any/prog");
    let before = ["hot", "cold"].map(|name| Task::fork(name, family(program())));
    let gthctl = shared::scheduler(&policy("first"));
    let later = Task::fork("hot", family(program()));
    let [(before_middle, before_last), (cold_middle, cold_last), (later_middle, later_last)] =
        [&before[0], &before[1], &later].map(|task| {
            let last = Orphan(task.answer() as i32);
            (children_of(task.pid)[0], last)
        });
    let cold = [before[1].pid, cold_middle, cold_last.0];
    assert_places(
        &[before[0].pid, before_middle, before_last.0, later.pid, later_middle, later_last.0],
        &cold,
    );

    later.order(1);
    assert!(kernel::wait(SOON, || !children_of(later.pid).contains(&later_middle)));
    // The grandchild's parent has ended; a new thread comes under the rule of its process.
    later.shared().answer.store(0, Ordering::Relaxed);
    later.order(4);
    let thread = later.answer() as i32;
    assert_places(&[later.pid, later_last.0, thread], &cold);

    later.order(2);
    let renamed = || kernel::read(&format!("/proc/{}/comm", later_last.0)) == "prog";
    assert!(kernel::wait(SOON, renamed));
    assert_places(&[later.pid, later_last.0], &cold);

    later.shared().answer.store(0, Ordering::Relaxed);
    later.order(3);
    let child_of_cold = later.answer() as i32;
    assert_places(&[later_last.0], &[later.pid, child_of_cold]);

    // The rules stay the same when something that one of them refers to appears.
    let generation = || gthctl::status().unwrap().generation;
    let before_it = generation();
    let _netns = Netns::new("later");
    assert!(kernel::wait(SOON, || generation() > before_it), "{}", gthctl.stderr());
    assert_places(&[before[0].pid, later_last.0], &[later.pid, child_of_cold]);

    // Parents that still exist pass the new rule on to their children.
    gthctl.replace(&policy("second"));
    assert_places(
        &[before[0].pid, before_middle, before_last.0],
        &[later.pid, later_last.0, child_of_cold],
    );
    gthctl.stop();
}

#[test]
fn all_conditions_at_once() {
    let cgroup = Cgroup::new("/hot");
    let gthctl = shared::scheduler(&policy("threads: ^hot$, user: nobody, cgroup: /hot"));
    let meets = |name: &str, user: u32, inside: bool| {
        let task = Task::fork(name, move |shared| {
            set_users(user as i32, user as i32, user as i32);
            task::spin(shared);
        });
        if inside {
            cgroup.take(task.pid);
        }
        task
    };
    let all = meets("hot", NOBODY, true);
    let without_one =
        [meets("cold", NOBODY, true), meets("hot", SOMEBODY, true), meets("hot", NOBODY, false)];
    assert_places(&[all.pid], &without_one.each_ref().map(|task| task.pid));
    cgroup.take(without_one[2].pid);
    take_out(all.pid);
    assert_places(&[without_one[2].pid], &[all.pid]);
    gthctl.stop();
}
