//! `drives`.

use std::process::ExitCode;

/// `ashift drives`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("drives", 1, "not there yet")
}
