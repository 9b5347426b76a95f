//! `zfs`.

use std::process::ExitCode;

/// Runs `zfs ARGS`.
pub fn run(args: &[String]) -> ExitCode {
    let _ = args;
    crate::say::fail("zfs", 2, "no command given")
}
