//! `zpool`.

use std::process::ExitCode;

/// Runs `zpool ARGS`.
pub fn run(args: &[String]) -> ExitCode {
    let _ = args;
    crate::say::fail("zpool", 2, "no command given")
}
