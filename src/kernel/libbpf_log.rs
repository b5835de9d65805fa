//! What libbpf says while it loads a program, kept for a later error.

use std::sync::{LazyLock, Mutex};

use libbpf_rs::{ErrorKind, PrintLevel, set_print};

use crate::base::error::{Error, ExitCode};
use crate::base::log;

/// libbpf's messages since the last call of [`capture`].
static MESSAGES: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

/// Keeps libbpf's warnings from now on; with `debug` also prints all messages.
pub fn capture(debug: bool) {
    fn keep(_: PrintLevel, message: String) {
        if let Ok(mut messages) = MESSAGES.lock() {
            messages.push(message);
        }
    }
    fn keep_and_print(level: PrintLevel, message: String) {
        log::err_raw(&message);
        keep(level, message);
    }
    if let Ok(mut messages) = MESSAGES.lock() {
        messages.clear();
    }
    match debug {
        true => set_print(Some((PrintLevel::Debug, keep_and_print))),
        false => set_print(Some((PrintLevel::Warn, keep))),
    };
}

/// The error that says that the kernel or libbpf refused `what`, with the most telling message.
///
/// Its code is [`ExitCode::KernelUnsupported`], unless the machine only lacks some resource at the
/// moment.
pub fn refused(what: &str, e: &libbpf_rs::Error) -> Error {
    let messages = MESSAGES.lock().map(|m| m.concat()).unwrap_or_default();
    let telling = |line: &&str| {
        !line.trim().is_empty()
            && !line.contains("-- BEGIN PROG LOAD LOG --")
            && !line.contains("-- END PROG")
    };
    let verifier = messages.split("-- END PROG LOAD LOG --").next().unwrap_or_default();
    let last = verifier.lines().filter(telling).rfind(|line| !line.starts_with("processed "));
    let why = last.map_or_else(String::new, |line| format!(": {}", line.trim()));
    let is_short =
        matches!(e.kind(), ErrorKind::OutOfMemory | ErrorKind::Interrupted | ErrorKind::WouldBlock);
    let code = if is_short { ExitCode::Failure } else { ExitCode::KernelUnsupported };
    Error::new(code, format!("the kernel refused the {what}: {e}{why}"))
}
