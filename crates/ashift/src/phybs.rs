//! `phybs`.

use std::process::ExitCode;

/// `ashift phybs`
pub(crate) fn run(_args: &[String]) -> ExitCode {
    crate::say::fail("phybs", 1, "not there yet")
}
