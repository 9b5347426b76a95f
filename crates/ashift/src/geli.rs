//! `geli`.

use std::process::ExitCode;

/// `ashift geli`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("geli", 1, "not there yet")
}
