//! `lab`.

use std::process::ExitCode;

/// `ashift lab`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("lab", 1, "not there yet")
}
