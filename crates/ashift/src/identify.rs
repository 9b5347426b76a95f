//! `camcontrol`.

use std::process::ExitCode;

/// `ashift camcontrol`
pub(crate) fn camcontrol(_args: &[String]) -> ExitCode {
    crate::say::fail("camcontrol", 1, "not there yet")
}

/// `ashift diskinfo`
pub(crate) fn diskinfo(_args: &[String]) -> ExitCode {
    crate::say::fail("diskinfo", 1, "not there yet")
}
