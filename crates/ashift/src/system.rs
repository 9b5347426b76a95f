//! The operating system whose tools a command prints like.

use machine::{Running, System};

use crate::failure::{Fail, Outcome};
use crate::world;

/// The system whose layout is wanted: that of `--system`, or of the machine's host.
///
/// # Errors
/// For the name of another one.
pub(crate) fn system(given: Option<&str>) -> Outcome<System> {
    match given {
        None => Ok(host_system()),
        Some("freebsd") => Ok(System::FreeBsd),
        Some("linux") => Ok(System::Linux),
        Some(other) => {
            let text = format!("'{other}' is not a system: freebsd and linux are");
            Err(Fail::Usage(text))
        }
    }
}

/// The system of the machine's host; outside of machines Linux.
pub(crate) fn host_system() -> System {
    if !world::is_entered() {
        return System::Linux;
    }
    let world = world::entered();
    let host = world.running().map(Running::host);
    host.map_or(System::Linux, |host| host.system)
}
