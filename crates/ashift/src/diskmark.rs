//! `diskmark`.

use std::process::ExitCode;

/// `ashift diskmark`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("diskmark", 1, "not there yet")
}
