//! Why the scheduler ended, from the kernel (struct scx_exit_info).

use std::fmt::Write;
use std::fs;

use super::kernel_types::KernelTypes;
use crate::base::error::{Error, ExitCode};
use crate::kernel::comm;
use crate::kernel::skeletons::scheduler::types;

/// The kernel's report on the end of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub cause: Cause,
    /// The kernel's short reason, such as "runnable task stall".
    pub reason: String,
    /// The details; may be empty.
    pub message: String,
    /// Kernel addresses, innermost first; may be empty.
    pub backtrace: Vec<u64>,
}

/// Who ended the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// gthctl itself.
    Unregistered,
    /// The kernel, which wants it reloaded (a CPU went on- or offline).
    Restart,
    /// An outside request: sysrq-S, or another program unregistered the scheduler.
    Evicted,
    /// An error in the scheduler, or the watchdog.
    Error,
}

impl Ended {
    /// Reads the copy that ops.exit made; `None` while the scheduler runs. `detached` says that
    /// gthctl has unregistered it.
    pub(super) fn read(
        exit: &types::gth_exit,
        kernel: &KernelTypes<'_>,
        detached: bool,
    ) -> Option<Self> {
        // ops.exit writes the kind last, on another CPU.
        // SAFETY: `exit` is valid; the BPF program may write to it meanwhile.
        let kind = i64::from(unsafe { (&raw const exit.kind).read_volatile() });
        if kind == 0 {
            return None;
        }
        let kind_of = |name| kernel.enum_value("scx_exit_kind", name);
        let restart = kernel.enum_value("scx_exit_code", "SCX_ECODE_ACT_RESTART").unwrap_or(0);
        let cause = if kind_of("SCX_EXIT_ERROR").is_some_and(|error| kind >= error) {
            Cause::Error
        } else if exit.exit_code & restart != 0 {
            Cause::Restart
        } else if kind_of("SCX_EXIT_UNREG") == Some(kind) && detached {
            Cause::Unregistered
        } else {
            Cause::Evicted
        };
        let length = (exit.bt_len as usize).min(exit.bt.len());
        Some(Self {
            cause,
            reason: text(&exit.reason),
            message: text(&exit.msg),
            backtrace: exit.bt[..length].to_vec(),
        })
    }

    /// The error to exit with, or `None` if the end was requested.
    pub fn error(&self) -> Option<Error> {
        let code = match self.cause {
            Cause::Unregistered | Cause::Restart => return None,
            Cause::Evicted => ExitCode::SchedulerEvicted,
            Cause::Error => ExitCode::SchedulerError,
        };
        let mut what = format!("the kernel ended the scheduler: {}", self.reason);
        if !self.message.is_empty() {
            let _ = write!(what, " ({})", self.message);
        }
        Some(Error::new(code, what).help("the default scheduler is back in charge"))
    }

    /// The backtrace as lines of `address symbol+offset`, with symbols if /proc/kallsyms
    /// is readable.
    pub fn backtrace_lines(&self) -> Vec<String> {
        let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        self.backtrace.iter().map(|&address| symbolize(&kallsyms, address)).collect()
    }
}

/// The text without its trailing newline.
fn text(chars: &[i8]) -> String {
    comm::text(chars).trim_end().to_owned()
}

fn symbolize(kallsyms: &str, address: u64) -> String {
    let symbols = kallsyms.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok().filter(|&start| start != 0)?;
        let name = words.nth(1)?;
        Some((start, name))
    });
    match symbols.filter(|(start, _)| *start <= address).max_by_key(|(start, _)| *start) {
        Some((start, name)) => format!("{address:#x} {name}+{:#x}", address - start),
        None => format!("{address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_the_nearest_below() {
        let kallsyms = "0000000000001000 T first\n0000000000002000 t second\t[module]\n";
        assert_eq!(symbolize(kallsyms, 0x1010), "0x1010 first+0x10");
        assert_eq!(symbolize(kallsyms, 0x2000), "0x2000 second+0x0");
        assert_eq!(symbolize(kallsyms, 0x10), "0x10");
        assert_eq!(symbolize("0000000000000000 T hidden\n", 0x10), "0x10");
    }

    #[test]
    fn an_error_has_reason_and_message() {
        let mut ended = Ended {
            cause: Cause::Error,
            reason: "runnable task stall".into(),
            message: "x[12] failed to run for 30.1s".into(),
            backtrace: vec![],
        };
        let e = ended.error().unwrap();
        assert_eq!(e.code, ExitCode::SchedulerError);
        assert_eq!(
            e.what,
            "the kernel ended the scheduler: runnable task stall (x[12] failed to run for 30.1s)"
        );
        ended.cause = Cause::Evicted;
        assert_eq!(ended.error().unwrap().code, ExitCode::SchedulerEvicted);
        ended.cause = Cause::Unregistered;
        assert!(ended.error().is_none());
    }
}
