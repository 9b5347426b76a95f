//! `parted`.

use std::process::ExitCode;

/// `ashift parted`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("parted", 1, "not there yet")
}
