//! A machine of emulated drives that stays switched on: `ashift machine up`.
//!
//! # What it is
//! The first thread of this process is that of the machine's simulation. It boots: layers that do not survive a loss of
//! power are gone, the boot script runs, and the imported pools are opened. Then it opens the door for commands, and
//! waits for the order to end. In order, pools are closed and drives write what their caches hold before they lose
//! their power; after a power cut nothing is. Then the simulation ends. A machine that begins anew is read anew, under
//! the same lock and with the same socket: commands that come meanwhile wait.
//!
//! # Crash argument
//! A holder that is killed leaves what a command leaves that is killed: for the drives that is a loss of power.

use std::path::Path;
use std::sync::{Arc, mpsc};

use base::Result;
use machine::{Machine, World};
use service::{Keeper, Pools};

use super::request::Restart;
use super::scene::{Inside, Order, Scene};
use super::server::{Holder, Whose};
use crate::background;
use crate::failure::Outcome;
use crate::session;
use crate::sh;

/// What messages begin with.
const LEAD: &str = "ashift machine: ";

/// Keeps a machine switched on until it is told to stop.
pub(crate) fn serve(folder: &Path) -> Outcome {
    let mut machine = crate::world::open(folder)?;
    let whose = Whose {
        what: format!("machine '{}'", folder.display()),
        end: format!("ashift machine down {}", folder.display()),
    };
    let holder = Holder::new(&machine.state(), whose)?;
    let (folder, lock) = (std::fs::canonicalize(folder)?, machine.lock());
    if background::is_background() {
        background::leave_session()?;
    }
    holder.stop_at_signals(LEAD)?;
    let server = Arc::clone(&holder);
    std::thread::spawn(move || server.accept());
    let mut waits: Option<mpsc::Sender<Result<()>>> = None;
    let mut is_up = false;
    loop {
        let mut ready = || {
            if let Some(waits) = waits.take() {
                // If that client is gone, nobody needs to know.
                let _ = waits.send(Ok(()));
            }
            if !is_up && background::is_background() {
                background::ready(Some(&holder.state.join("holder.log")))?;
            }
            is_up = true;
            Ok(())
        };
        let (order, closed) = machine.run(|world| hold(&holder, &folder, world, &mut ready))??;
        if order.how.is_none() {
            let _ = order.done.send(closed);
            // What waits for that ends the process.
            loop {
                std::thread::park();
            }
        }
        if let Err(error) = closed {
            eprintln!("{LEAD}{error}");
        }
        waits = Some(order.done);
        machine = Machine::open_locked(&folder, lock.clone())?;
    }
}

/// Boots a machine, lets clients run commands in it, and switches it off.
fn hold(
    holder: &Holder,
    folder: &Path,
    world: &Arc<World>,
    ready: &mut (dyn FnMut() -> Result<()> + Send),
) -> Result<(Order, Result<()>)> {
    let pools = session::pools_of_machine(world).expect("it is a machine");
    let (state, imported) = (holder.state.clone(), pools.names()?);
    world.set_pools(Box::new(move || Pools::devices_in(&state)));
    world.lose_layers()?;
    let keeper = Keeper::new(pools);
    sh::boot(folder, world, &keeper)?;
    for name in imported {
        if let Err(error) = keeper.keep(&name) {
            eprintln!("{LEAD}{error}");
        }
    }
    let order = Arc::new(rt::OneShot::default());
    let inside = Inside {
        folder: folder.to_owned(),
        door: rt::open_door(),
        world: Arc::clone(world),
        keeper: Arc::clone(&keeper),
        order: Arc::clone(&order),
    };
    holder.play(Scene::Machine(Arc::new(inside)));
    if let Err(error) = ready() {
        eprintln!("{LEAD}{error}");
    }
    let order: Order = order.take();
    rt::close_door();
    let closed = match order.how {
        Some(Restart::PowerCut(_)) => {
            keeper.lose();
            Ok(())
        }
        _ => {
            let closed = keeper.close();
            closed.and(world.switch_off())
        }
    };
    Ok((order, closed))
}
