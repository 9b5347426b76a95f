//! `gpart`.

use std::process::ExitCode;

/// `ashift gpart`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("gpart", 1, "not there yet")
}
