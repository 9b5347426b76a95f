//! Where the commands of clients run: in threads of this process, or in those of a machine's simulation.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use base::{Error, Result};
use machine::{Running, World};
use service::Keeper;

use super::request::Restart;
use crate::caller::{self, Caller, STACK_BYTES};
use crate::failure::Fail;
use crate::trace::traced;

/// Where commands run, and what is open there.
#[derive(Clone)]
pub(super) enum Scene {
    /// This host, with its pools.
    Host(Arc<Keeper>),
    /// A machine that is switched on.
    Machine(Arc<Inside>),
}

/// A machine that is switched on, as seen from outside of its simulation.
pub(super) struct Inside {
    pub(super) folder: PathBuf,
    pub(super) door: rt::Door,
    pub(super) world: Arc<World>,
    pub(super) keeper: Arc<Keeper>,
    /// What the simulation's first thread waits for.
    pub(super) order: Arc<rt::OneShot<Order>>,
}

/// What a machine that is switched on is to do in the end.
pub(super) struct Order {
    /// `None`: nothing.
    pub(super) how: Option<Restart>,
    /// Is told when it has done it.
    pub(super) done: mpsc::Sender<Result<()>>,
}

impl Scene {
    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        match self {
            Scene::Host(keeper) => keeper,
            Scene::Machine(inside) => &inside.keeper,
        }
    }

    /// The machine's folder.
    pub(super) fn machine(&self) -> Option<PathBuf> {
        match self {
            Scene::Host(_) => None,
            Scene::Machine(inside) => Some(inside.folder.clone()),
        }
    }

    /// Runs a client's command, and returns its exit code; `None` if the machine is being switched off.
    pub(super) fn run(
        &self,
        caller: &Arc<Caller>,
        command: impl FnOnce() -> u8 + Send + 'static,
    ) -> Option<u8> {
        let inside = match self {
            Scene::Host(_) => return Some(caller::run(caller, command)),
            Scene::Machine(inside) => inside,
        };
        let (caller, world) = (Arc::clone(caller), Arc::clone(&inside.world));
        let act = move || {
            let code = caller::run(&caller, || {
                let run = || crate::world::enter(&world, |_| command());
                traced(&world, run)
                    .unwrap_or_else(|error| crate::exit_code(Err(Fail::from(error)), "ashift: "))
            });
            // If this fails, it is tried again after the next command, and reported in the end.
            let _ = world.running().map(Running::keep_clock);
            code
        };
        inside.enter(act)
    }

    /// Cuts a machine's power, whatever commands run.
    pub(super) fn cut_power(&self, seed: Option<u64>) -> Result<()> {
        let Scene::Machine(inside) = self else {
            return Ok(());
        };
        let world = Arc::clone(&inside.world);
        let cut = move || world.power_cut(seed.unwrap_or_else(rt::random_u64));
        inside.enter(cut).unwrap_or(Ok(()))
    }

    /// Closes everything, when no command runs any more. A machine begins anew if it is told `how`.
    pub(super) fn end(self, how: Option<Restart>) -> Result<()> {
        let inside = match self {
            Scene::Host(keeper) => return keeper.close(),
            Scene::Machine(inside) => inside,
        };
        let (done, end) = mpsc::channel();
        let order = Arc::clone(&inside.order);
        inside.enter(move || order.give(Order { how, done }));
        drop(inside);
        end.recv()
            .unwrap_or_else(|_| Err(Error::invalid("the machine did not start again")))
    }
}

impl Inside {
    /// Runs something as a thread of the machine; `None` if it is being switched off.
    fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let done = self.door.enter("command", STACK_BYTES, f)?;
        Some(done.unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
    }
}
