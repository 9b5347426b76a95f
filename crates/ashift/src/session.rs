//! The pools that commands work on, and what they report of them meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use base::Result;
use dmu::SuspendEvent;
use indicatif::ProgressBar;
use machine::World;
use service::{Access, Environment, Observer, Pools, Progress, Session};

use crate::caller::{self, caller};
use crate::keys::Asked;
use crate::say::{self, progress};
use crate::state::{arc_bytes, state_folder, wait_ns};
use crate::world::{current, entered};

/// A session of a command in its world.
pub(crate) fn session(access: Access, command: impl Into<String>) -> Session {
    let world = entered();
    let state = world.running().map(machine::Running::state);
    pools(state.unwrap_or_else(state_folder), world).session(access, command)
}

/// A session that reads the pools of another state folder.
pub(crate) fn session_in(state: PathBuf) -> Result<Session> {
    Ok(pools(state, current()?).session(Access::Read, ""))
}

fn pools(state: PathBuf, world: Arc<World>) -> Pools {
    let environment = Environment {
        // `main` has refused values that are not numbers.
        wait_ns: wait_ns().unwrap_or_default(),
        arc_bytes: arc_bytes().unwrap_or_default(),
        observer: Arc::new(Stderr),
        keys: Arc::new(Asked),
    };
    let pools = Pools::new(state, world, environment);
    let caller = caller();
    let keeper = caller.as_client().and_then(|client| client.keeper.as_ref());
    match keeper {
        Some(keeper) => pools.kept_by(Arc::clone(keeper)),
        None => pools,
    }
}

/// The pools of this host, for its holder.
pub(crate) fn pools_of_host(state: PathBuf) -> Result<Pools> {
    Ok(pools(state, current()?))
}

/// The pools of a machine, for what keeps them open.
pub(crate) fn pools_of_machine(world: &Arc<World>) -> Option<Pools> {
    let state = world.running()?.state();
    Some(pools(state, Arc::clone(world)))
}

/// Reports on stderr.
struct Stderr;

impl Observer for Stderr {
    fn waiting(&self, what: &str) {
        say::waiting(what);
    }

    fn suspended(&self, pool: &str, event: &SuspendEvent<'_>) {
        say::suspended(pool, event);
    }

    fn progress(&self) -> Progress {
        let shown = Shown(progress(None, true));
        Arc::new(move |done, total| shown.update(done, total))
    }

    fn notice(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// A bar that is cleared when the work ends.
struct Shown(ProgressBar);

impl Shown {
    fn update(&self, done: u64, total: u64) {
        caller::check();
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
