//! `dd`.

use std::process::ExitCode;

/// `ashift dd`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("dd", 1, "not there yet")
}
