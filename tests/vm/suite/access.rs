//! Only root may ask a running gthctl.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::policy::{
    HOT_ON_1, HOT_ON_2, SOCKET, apply_request, ask, assert_fails, beside, in_force,
};
use crate::support::gthctl::{self, Gthctl, policy, report};
use crate::support::shared;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

const NOBODY: u32 = 65534;

/// Runs the job in an unprivileged thread; only that thread gives up its privileges.
fn as_nobody<T: Send>(job: impl FnOnce() -> T + Send) -> T {
    let as_nobody = || {
        // SAFETY: no pointers; the raw call changes the calling thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        job()
    };
    std::thread::scope(|scope| scope.spawn(as_nobody).join().unwrap())
}

#[test]
fn only_root_is_answered_while_it_runs() {
    shared::unload();
    let status = policy(&["status"]);
    assert_fails(&status, 10, "no gthctl run is active");
    let gthctl = Gthctl::start(HOT_ON_1);
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(SOCKET), mode("/run/gthctl")), (0o600, 0o700));
    let untouched = in_force(&gthctl);
    assert_eq!(report(&["status"])["can_roll_back"], false);
    let rolled = policy(&["rollback", "--yes"]);
    assert_fails(&rolled, 1, "there is no policy before this one");
    assert_eq!(in_force(&gthctl), untouched);
    let good = beside(&gthctl, "good.yaml", HOT_ON_2);
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(Path::new(&good).parent().unwrap(), open.clone()).unwrap();
    // The VM's own root directory is closed to others.
    fs::set_permissions("/", open).unwrap();
    let program = readable_by_all(&gthctl::binary());
    let mut command = std::process::Command::new(&program.1);
    command.args(["policy", "apply", &good, "--yes"]);
    let refused = as_nobody(|| gthctl::output(&mut command));
    assert_fails(&refused, 3, "only root may ask");
    // This bypasses the directory's mode, and then even the socket's.
    let dir = File::open("/run/gthctl").unwrap();
    let around = PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd()));
    let request = apply_request(HOT_ON_2, untouched.generation);
    let refused = as_nobody(|| ask(&around, &request)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    fs::set_permissions(SOCKET, Permissions::from_mode(0o666)).unwrap();
    let reply = as_nobody(|| ask(&around, &request)).unwrap_or_default();
    assert_eq!(reply, "");
    assert_eq!(in_force(&gthctl), untouched);
    let reply = ask(&around, &request).unwrap();
    assert!(reply.contains("Applied"), "{reply}");
    gthctl.stop();
    assert!(!Path::new(SOCKET).exists());
    assert_fails(&policy(&["status"]), 10, "no gthctl run is active");
}

/// A copy of the program that anybody may run.
fn readable_by_all(program: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("gthctl");
    fs::copy(program, &copy).unwrap();
    (dir, copy)
}
