//! One scheduler for the tests that need no start, end or option of their own: loading one takes
//! seconds, replacing its policy takes milliseconds.
//!
//! The first test that asks for it loads it; a test that starts one of its own unloads it. After
//! each test it goes back to a policy without rules, and nothing of the test may be left.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ::gthctl::daemon::control::client::ask;
use ::gthctl::daemon::control::{Reply, Request, SOCKET};
use ::gthctl::daemon::reports::Status;

use crate::support::gthctl::{Counters, Gthctl, NO_RULES, replace_file, status};
use crate::support::kernel;

const SLICES: &str = "slices are in force";
/// The time within which all traces of a test must be gone, however busy the host is.
const CLEAN: Duration = Duration::from_secs(30);

/// What a scheduler reads only at its start.
#[derive(Clone, Copy, Default, PartialEq)]
struct Start {
    /// `None` for the kernel's own.
    watchdog: Option<Duration>,
    /// What its config begins with.
    config: &'static str,
}

/// The scheduler while no test uses it, and how it was started.
static IDLE: Mutex<Option<(Gthctl, Start)>> = Mutex::new(None);

fn idle() -> MutexGuard<'static, Option<(Gthctl, Start)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scheduler while a test uses it.
pub struct Lease {
    /// `None` once the lease has ended.
    gthctl: Option<Gthctl>,
    start: Start,
    /// Whether the config is not the default one.
    configured: bool,
    errors: bool,
    before: Counters,
}

/// The scheduler with that policy in force.
#[track_caller]
pub fn scheduler(policy: &str) -> Lease {
    lease(Start::default(), "", policy)
}

/// A scheduler that leaves the choice of an idle CPU to the kernel.
#[track_caller]
pub fn with_builtin_idle(policy: &str) -> Lease {
    lease(Start { config: "builtin_idle: true\n", ..Start::default() }, "", policy)
}

/// Like [`scheduler`], with other slices; nothing else in a config takes effect while it runs.
#[track_caller]
pub fn with_slices(config: &str, policy: &str) -> Lease {
    lease(Start::default(), config, policy)
}

/// Like [`with_slices`], but the kernel ends the scheduler when a task has waited for `watchdog`.
#[track_caller]
pub fn watched(watchdog: Duration, config: &str, policy: &str) -> Lease {
    lease(Start { watchdog: Some(watchdog), ..Start::default() }, config, policy)
}

/// Makes room for another scheduler.
pub fn unload() {
    let idle = idle().take();
    if let Some((gthctl, _)) = idle {
        gthctl.stop();
    }
}

/// The scheduler, for a test that ends it itself.
pub fn take() -> Gthctl {
    let mut lease = scheduler(NO_RULES);
    lease.gthctl.take().expect("until the end")
}

#[track_caller]
fn lease(how: Start, config: &str, policy: &str) -> Lease {
    let idle = idle().take();
    let mut gthctl = match idle {
        Some((gthctl, its)) if its == how => gthctl,
        Some((gthctl, _)) => {
            gthctl.stop();
            start(how)
        }
        None => start(how),
    };
    if gthctl.has_ended() {
        // It ended between tests: Lease::end() would have reported an end within one.
        gthctl = start(how);
    }
    gthctl.begin_to_hear();
    let configured = !config.is_empty();
    let before = gthctl.counters();
    let lease = Lease { gthctl: Some(gthctl), start: how, configured, errors: false, before };
    if configured {
        lease.configure(config);
    }
    if policy != NO_RULES {
        lease.replace(policy);
    }
    lease
}

/// A child is killed when the thread that forked it ends (PR_SET_PDEATHSIG), and each test has its
/// own thread. So a thread that never ends starts this gthctl.
fn start(how: Start) -> Gthctl {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(Gthctl::start_shared(how.config, how.watchdog));
        loop {
            std::thread::park();
        }
    });
    receiver.recv().expect("gthctl starts")
}

impl Lease {
    /// The test makes gthctl refuse something: errors are expected.
    pub fn expect_errors(&mut self) {
        self.errors = true;
    }

    /// A counter's growth in this test, by its name in bpf/intf.h without `GTH_`.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters().get(name) - self.before.get(name)
    }

    fn configure(&self, config: &str) {
        let times = self.has_said(SLICES);
        let config = format!("{}{config}\npolicy: policy.yaml\n", self.start.config);
        replace_file(&self.config(), &config);
        assert!(self.says(SLICES, times + 1), "{}", self.stderr());
    }

    /// Ends the test's use of it: nothing may be left.
    #[track_caller]
    pub fn stop(mut self) {
        self.end();
    }

    #[track_caller]
    fn end(&mut self) {
        assert!(!self.has_ended(), "it has ended: {}", self.stderr());
        if self.configured {
            self.configure("");
        }
        let policy = self.policy();
        for entry in fs::read_dir(policy.parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            if path != policy && path != self.config() {
                fs::remove_file(path).unwrap();
            }
        }
        replace_file(&policy, NO_RULES);
        let is_clean = |status: Status| {
            let Status { rules, tasks_matched, kernel_in_step, rejected, .. } = status;
            (rules, tasks_matched, kernel_in_step, rejected) == (0, 0, true, None)
                && (status.traffic, status.irqs, status.notes) == (None, None, vec![])
        };
        let clean = kernel::wait(CLEAN, || status().is_some_and(is_clean));
        assert!(clean, "after the test: {:?}\n{}", status(), self.stderr());
        self.has_told_all();
        let me = Request::Explain { tid: std::process::id() };
        let Ok(Reply::Explain(me)) = ask(Path::new(SOCKET), &me) else { panic!("no answer") };
        assert_eq!((me.rule, me.rules.len()), (None, 0));
        assert_eq!((kernel::ops(), kernel::state()), ("gthctl".into(), "enabled".into()));
        let said = self.stderr();
        assert!(self.errors || !said.contains("gthctl: error: "), "{said}");
        *idle() = self.gthctl.take().map(|gthctl| (gthctl, self.start));
    }
}

impl Deref for Lease {
    type Target = Gthctl;

    fn deref(&self) -> &Gthctl {
        self.gthctl.as_ref().expect("until the end")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Gthctl {
        self.gthctl.as_mut().expect("until the end")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.gthctl.is_none() {
            return;
        }
        if std::thread::panicking() {
            // gthctl is dropped, and with it whatever the test has left.
            println!("gthctl has said:\n{}", self.stderr());
        } else {
            self.end();
        }
    }
}
