//! What users can do to impersonate others: rules by executable and by cgroup do not reach a task
//! that only has the name.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::support::cgroup::{Cgroups, enter};
use crate::support::gthctl::report;
use crate::support::hot::{CPU, SOON, assert_places, on_order, policy};
use crate::support::kernel;
use crate::support::shared;
use crate::support::task::Task;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::SHARED;

const NOBODY: u32 = 65534;

/// The calling process becomes the user nobody and loses all privileges.
fn become_nobody() {
    // SAFETY: no list of groups, and no other pointer.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(NOBODY, NOBODY, NOBODY), 0);
        assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
    }
}

/// Two copies of busybox that anybody may execute, `real/prog` and `fake/prog`.
struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Self {
        let programs = Self(tempfile::tempdir().unwrap());
        // The VM's own root directory is closed to others.
        for dir in [Path::new("/"), Path::new("/tmp"), programs.0.path()] {
            fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        }
        for program in ["real/prog", "fake/prog"].map(|path| programs.path(path)) {
            fs::create_dir(program.parent().unwrap()).unwrap();
            fs::copy("/bin/busybox", program).unwrap();
        }
        programs
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
}

/// A process that runs `prepare`, then executes the program at `path`; it never sleeps.
fn run_after(path: &Path, prepare: impl FnOnce()) -> Task {
    Task::fork("prog", |_| {
        let null = File::options().write(true).open("/dev/null").unwrap();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), 1) }, 1);
        prepare();
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let argv = [c"yes".as_ptr(), std::ptr::null()];
        // SAFETY: a null-terminated array of C strings.
        unsafe { libc::execv(path.as_ptr(), argv.as_ptr()) };
        panic!("{path:?}: {}", std::io::Error::last_os_error());
    })
}

/// Whether a user may create a user namespace: not on 6.12 as built here.
fn users_have_namespaces() -> bool {
    let task = Task::fork("unshare", |shared| {
        become_nobody();
        let done = unshare(CloneFlags::CLONE_NEWUSER).is_ok();
        shared.answer.store(1 + u32::from(done), Ordering::Relaxed);
    });
    task.answer() == 2
}

#[test]
fn a_program_that_a_user_mounts_over_another() {
    if !users_have_namespaces() {
        println!("this kernel gives users no namespaces, so they can mount nothing over a program");
        return;
    }
    let programs = Programs::new();
    let [real, fake] = ["real/prog", "fake/prog"].map(|path| programs.path(path));
    let gthctl = shared::scheduler(&policy(&format!("exe: {}", real.display())));
    let as_root = run_after(&real, || ());
    let as_nobody = run_after(&real, become_nobody);
    // unshare -Urm, mount --bind, exec.
    let mounted = run_after(&real, || {
        become_nobody();
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        mount(Some(&fake), &real, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    });
    let runs = |task: &Task| {
        let shown = || fs::read_link(format!("/proc/{}/exe", task.pid)).unwrap();
        assert!(kernel::wait(SOON, || shown() == real), "{:?}", shown());
    };
    runs(&mounted);
    // The same file, reached through that process from the initial namespaces.
    let inside = format!("/proc/{}/root{}", mounted.pid, real.display());
    let through = run_after(Path::new(&inside), become_nobody);
    runs(&through);
    assert_places(&[as_root.pid, as_nobody.pid], &[mounted.pid, through.pid]);

    let exe = |task: &Task| {
        let explained = report(&["explain", &task.pid.to_string()]);
        explained["rules"][0]["conditions"][0].clone()
    };
    assert_eq!(exe(&as_nobody).get("why"), None);
    let why = exe(&mounted)["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("user namespace"), "{why:?}");
    gthctl.stop();
}

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_cgroup_that_a_user_names() {
    let mut cgroups = Cgroups::default();
    let names = ["upf.service".into(), format!("docker-{ID}.scope")];
    let real = names.clone().map(|name| cgroups.make(&format!("/system.slice/{name}")));
    // As systemd delegates it (Documentation/admin-guide/cgroup-v2.rst, "Delegation").
    let delegated = cgroups.make("/user.slice/user-65534.slice/user@65534.service");
    let session = cgroups.make("/user.slice/user-65534.slice/user@65534.service/init.scope");
    for dir in [&delegated, &session] {
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            chown(dir.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let rules = ["systemd_unit: upf.service", &format!("container: {ID}")]
        .map(|condition| format!("- {{{condition}, cpus: {CPU}, exclusive: true}}\n"));
    let gthctl = shared::scheduler(&format!("strategies:\n{}", rules.concat()));

    let of_root = real.each_ref().map(|cgroup| {
        let task = Task::spinner("any");
        enter(cgroup, task.pid);
        task
    });
    // systemd-run --user --unit=upf.service, --slice=system.slice; and without systemd.
    let fakes = [
        format!("app.slice/{}", names[0]),
        format!("system.slice/{}", names[0]),
        names[0].clone(),
        format!("app.slice/{}", names[1]),
        format!("docker/{ID}"),
    ];
    let of_nobody = fakes.map(|path| {
        let cgroup = delegated.join(path);
        let task = Task::fork("any", |shared| {
            on_order(shared, |_| {
                become_nobody();
                fs::create_dir_all(&cgroup).unwrap();
                enter(&cgroup, std::process::id() as i32);
                shared.answer.store(1, Ordering::Relaxed);
            });
        });
        enter(&session, task.pid);
        task.order(1);
        task.answer();
        task
    });
    assert_places(
        &of_root.each_ref().map(|task| task.pid),
        &of_nobody.each_ref().map(|task| task.pid),
    );
    gthctl.stop();
}
