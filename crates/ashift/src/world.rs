//! The world in which a command runs: this host, or a machine of emulated drives.
//!
//! # What it is
//! Every command that needs providers runs inside [`with_world`]: in the machine of `-m` or
//! `$ASHIFT_MACHINE`, in simulated time, or on this host. A command run by another one runs in the same
//! world.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ErrorKind;
use machine::{Machine, Patience, World};
use service::Pools;

use crate::caller;
use crate::failure::{Fail, Outcome};
use crate::say;
use crate::state::{state_folder, wait_ns};
use crate::trace::traced;

/// How long to wait for another command that uses the machine, in ns. Bounded: it may be a mount, which
/// stays.
const PATIENCE_NS: u64 = 10_000_000_000;

thread_local! {
    static CURRENT: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// Records the machine to use: that folder, or that of `$ASHIFT_MACHINE`.
pub(crate) fn choose(folder: Option<PathBuf>) {
    let named = || {
        caller::var_os("ASHIFT_MACHINE")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    caller::caller().choose(folder.or_else(named));
}

/// The chosen machine's folder.
pub(crate) fn chosen() -> Option<PathBuf> {
    caller::caller().machine()
}

/// The world in which the calling command runs; this host if it runs in none.
pub(crate) fn current() -> base::Result<Arc<World>> {
    match CURRENT.with_borrow(Clone::clone) {
        Some(world) => Ok(world),
        None => this_host(),
    }
}

fn this_host() -> base::Result<Arc<World>> {
    let world = World::host(&state_folder())?;
    world.set_pools(Box::new(|| Pools::devices_in(&state_folder())));
    Ok(Arc::new(world))
}

/// The world that the calling command was started in.
///
/// # Panics
/// When it was started in none, as commands that need no providers are.
pub(crate) fn entered() -> Arc<World> {
    let world = CURRENT.with_borrow(Clone::clone);
    world.expect("commands that use pools are run in a world")
}

/// Whether the calling command was started in a world.
pub(crate) fn is_entered() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Whether the calling command runs in a machine of emulated drives.
pub(crate) fn is_machine() -> bool {
    CURRENT.with_borrow(|world| world.as_ref().is_some_and(|world| world.is_machine()))
}

/// Runs a command in its world: that of the calling command, the chosen machine, or this host. What is to
/// be kept of the world is saved when the command ends.
pub(crate) fn with_world(run: impl FnOnce() -> Outcome + Send) -> Outcome {
    if is_entered() {
        return run();
    }
    let mut failed = None;
    let act = || failed = run().err();
    let saved = match chosen() {
        Some(folder) => open(&folder).and_then(|machine| in_machine(machine, |_| act())),
        None => this_host().and_then(|world| {
            enter(&world, |_| act());
            world.close()
        }),
    };
    match (saved, failed) {
        // The command has already reported that the host is full.
        (Err(e), Some(fail)) if e.kind() == ErrorKind::NoSpace => Err(fail),
        (Err(error), _) => Err(Fail::from(error).say("ashift: ")),
        (Ok(()), failed) => failed.map_or(Ok(()), Err),
    }
}

/// Opens a machine; waits for a while if another command uses it.
pub(crate) fn open(folder: &Path) -> base::Result<Machine> {
    let patience = Patience {
        wait_ns: wait_ns()?.unwrap_or(PATIENCE_NS),
        on_wait: &say::waiting,
    };
    Machine::open(folder, &patience)
}

/// Runs something in a machine: in the one that the calling command runs in, if it is that; otherwise it is switched
/// on.
pub(crate) fn on<T: Send>(
    folder: &Path,
    run: impl FnOnce(&Arc<World>) -> T + Send,
) -> base::Result<T> {
    if let Some(world) = CURRENT.with_borrow(Clone::clone)
        && world
            .running()
            .is_some_and(|running| is_same(&running.state(), &folder.join("state")))
    {
        return Ok(run(&world));
    }
    in_machine(open(folder)?, run)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let canonical = std::fs::canonicalize;
    canonical(one).is_ok_and(|one| canonical(other).is_ok_and(|other| one == other))
}

/// Switches a machine on and runs something in it.
pub(crate) fn in_machine<T: Send>(
    machine: Machine,
    run: impl FnOnce(&Arc<World>) -> T + Send,
) -> base::Result<T> {
    let (state, caller) = (machine.state(), caller::caller());
    machine.run(|world| {
        world.set_pools(Box::new(move || Pools::devices_in(&state)));
        caller::enter(caller, || traced(world, || enter(world, run)))
    })?
}

/// Runs something in this world.
pub(crate) fn enter<T>(world: &Arc<World>, run: impl FnOnce(&Arc<World>) -> T) -> T {
    CURRENT.set(Some(Arc::clone(world)));
    let value = run(world);
    CURRENT.set(None);
    value
}
