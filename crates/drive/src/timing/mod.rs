//! When the commands of an emulated drive are done: mechanics and caches, without any bytes.
//!
//! # What it is
//! [`Timing`] is a pure function: of a profile, of a seed, and of which commands were submitted when. It has no
//! clock, no threads and no bytes. Its owner submits commands with the time, asks when something happens next,
//! and advances. A disk is an event simulation of its arm, its caches and its queue (`disk`, `schedule`,
//! `destage`, `mechanics`, `geometry`); a flash drive, of its dies and channels (`flash`). [`reproduce`] runs
//! the published experiments on a profile.
//!
//! # Invariants
//! 1. The same submissions give the same events, whatever the steps of `advance`.
//! 2. No command is done before its bytes could have passed the head, its channel or the wire.
//! 3. Each write is reported on the medium once; of two writes to a sector, the older one first.
//!
//! # Why not simpler
//! A fixed penalty for each partial sector is wrong by a factor of ten in either direction: published slowdowns for
//! the same family of drives range from 2.75 to 62 times. Which it is depends on what the write cache does.

mod command;
mod destage;
mod disk;
mod experiment;
mod flash;
mod geometry;
mod kept;
mod mechanics;
mod mutant;
mod read_cache;
mod schedule;
mod write_cache;

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::profile::Profile;
pub use command::{Command, CommandKind, Event, Statistics};
use disk::{Disk, DiskState};
pub use experiment::{Experiment, PHYBS_PASSES, Reproduced, reproduce};
use flash::{Flash, FlashState};
pub use geometry::{Geometry, SectorPosition};
pub use mechanics::Access;

/// The timing model of one drive: commands go in with the time of their submission, events come out.
#[derive(Debug)]
pub struct Timing {
    profile: Arc<Profile>,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
}

/// The state of a drive, to be stored while the program does not run: head position, cache contents, waiting
/// commands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimingState(State);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Disk(Box<DiskState>),
    Flash(Box<FlashState>),
}

impl Timing {
    /// A drive that has just been switched on.
    ///
    /// # Panics
    /// If the profile has neither a disk nor flash, which [`Profile::parse`] never returns.
    #[must_use]
    pub fn new(profile: Arc<Profile>, seed: u64) -> Timing {
        let engine = match (&profile.disk, &profile.flash) {
            (Some(disk), _) => Engine::Disk(Box::new(Disk::new(&profile, disk, seed))),
            (_, Some(flash)) => Engine::Flash(Box::new(Flash::new(&profile, flash, seed))),
            _ => panic!("profile {} has neither a disk nor flash", profile.name),
        };
        Timing { profile, engine }
    }

    /// A drive in the state that [`Timing::state`] returned.
    ///
    /// # Errors
    /// `Corrupt` if no drive of this profile can be in that state.
    pub fn restore(profile: Arc<Profile>, state: TimingState) -> Result<Timing> {
        let engine = match (&profile.disk, &profile.flash, state.0) {
            (Some(disk), _, State::Disk(state)) => {
                Disk::restore(&profile, disk, *state).map(|d| Engine::Disk(Box::new(d)))
            }
            (_, Some(flash), State::Flash(state)) => {
                Flash::restore(&profile, flash, *state).map(|f| Engine::Flash(Box::new(f)))
            }
            _ => None,
        };
        match engine {
            Some(engine) => Ok(Timing { profile, engine }),
            None => Err(Error::corrupt(format!(
                "no drive of profile {} can be in the kept state",
                profile.name
            ))),
        }
    }

    /// Submits a command. Time never goes back: an earlier `now` counts as the latest one so far. Anything past
    /// the last sector is cut off.
    pub fn submit(&mut self, now: u64, command: Command) {
        match &mut self.engine {
            Engine::Disk(disk) => disk.submit(now, command),
            Engine::Flash(flash) => flash.submit(now, command),
        }
    }

    /// When [`Timing::advance`] may next return an event; `None`: not before another command.
    #[must_use]
    pub fn next_event_at(&self) -> Option<u64> {
        match &self.engine {
            Engine::Disk(disk) => disk.next_at(),
            Engine::Flash(flash) => flash.next_at(),
        }
    }

    /// When a command may be done next; `None`: not before another command. A caller that only waits for
    /// commands needs no other time: what happens behind the cache can be fetched later and is the same.
    #[must_use]
    pub fn next_done_at(&self) -> Option<u64> {
        match &self.engine {
            Engine::Disk(disk) => disk.next_done_at(),
            Engine::Flash(flash) => flash.next_done_at(),
        }
    }

    /// Advances to `now`; appends the events so far, in time order.
    pub fn advance(&mut self, now: u64, out: &mut Vec<Event>) {
        match &mut self.engine {
            Engine::Disk(disk) => disk.run(now),
            Engine::Flash(flash) => flash.run(now),
        }
        let told = self.told();
        while told.front().is_some_and(|e| e.at() <= now) {
            out.extend(told.pop_front());
        }
    }

    fn told(&mut self) -> &mut VecDeque<Event> {
        match &mut self.engine {
            Engine::Disk(disk) => &mut disk.state.told,
            Engine::Flash(flash) => &mut flash.state.told,
        }
    }

    /// The state to store while the program does not run.
    #[must_use]
    pub fn state(&self) -> TimingState {
        TimingState(match &self.engine {
            Engine::Disk(disk) => State::Disk(Box::new(disk.state.clone())),
            Engine::Flash(flash) => State::Flash(Box::new(flash.state.clone())),
        })
    }

    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        match &self.engine {
            Engine::Disk(disk) => &disk.state.statistics,
            Engine::Flash(flash) => &flash.state.statistics,
        }
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// The layout of a disk; `None` for flash.
    #[must_use]
    pub fn geometry(&self) -> Option<&Geometry> {
        match &self.engine {
            Engine::Disk(disk) => Some(&disk.mechanics.geometry),
            Engine::Flash(_) => None,
        }
    }

    /// Starts recording what passes under the head: for tests and pictures.
    pub fn record_accesses(&mut self) {
        if let Engine::Disk(disk) = &mut self.engine {
            disk.record();
        }
    }

    /// What has passed under the head since [`Timing::record_accesses`] or the last call.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        match &mut self.engine {
            Engine::Disk(disk) => disk.take_record(),
            Engine::Flash(_) => Vec::new(),
        }
    }

    /// Plants a mistake.
    #[cfg(test)]
    fn plant(&mut self, mutant: Option<mutant::Mutant>) {
        if let Engine::Disk(disk) = &mut self.engine {
            disk.plant(mutant);
        }
    }
}

#[cfg(test)]
mod tests;
