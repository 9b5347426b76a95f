//! `machine`.

use std::process::ExitCode;

/// `ashift machine`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("machine", 1, "not there yet")
}
