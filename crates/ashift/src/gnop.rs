//! `gnop`.

use std::process::ExitCode;

/// `ashift gnop`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("gnop", 1, "not there yet")
}
