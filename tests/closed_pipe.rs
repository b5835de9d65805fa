//! Output into a pipe that nobody reads. This test has its own file, and so its own process:
//! children of other tests would hold the pipe's other end open.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn ends_it_quietly() {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    let gthctl = env!("CARGO_BIN_EXE_gthctl");
    let output = Command::new(gthctl).args(["run", "--help"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.signal(), Some(nix::libc::SIGPIPE));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
