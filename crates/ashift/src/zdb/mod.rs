//! `zdb`.

use std::process::ExitCode;

/// Runs `zdb ARGS`.
pub fn run(args: &[String]) -> ExitCode {
    let _ = args;
    crate::say::fail("zdb", 2, "no command given")
}
