//! `ashift machine mount`: the providers of a machine as files of this host.

use std::ffi::OsStr;
use std::path::Path;

use base::Result;

use crate::{background, world};

/// Runs `ashift machine mount DIR MNT`; unless in the foreground, returns once `folder` can be used.
pub(crate) fn run(machine: &Path, folder: &Path, foreground: bool) -> Result<()> {
    if foreground || background::is_background() {
        return serve(machine, folder);
    }
    let words = [
        OsStr::new("machine"),
        OsStr::new("mount"),
        machine.as_ref(),
        folder.as_ref(),
    ];
    background::start(&words, "ashift machine: ")
}

/// Mounts in this process, until unmounted.
fn serve(machine: &Path, folder: &Path) -> Result<()> {
    let is_background = background::is_background();
    if is_background {
        background::leave_session()?;
    }
    let machine = world::open(machine)?;
    let ready = || {
        if is_background {
            // It is mounted; who started it learns otherwise that it is not ready.
            let _ = background::ready(None);
        } else {
            eprintln!(
                "mounted on {}; unmount it, or press Ctrl-C, to end",
                folder.display()
            );
        }
    };
    world::in_machine(machine, |world| drivefs::mount(world, folder, ready))?
}
