//! When an emulated drive's commands are done: mechanics and caches, without any bytes.

mod command;
mod geometry;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use base::Result;
use serde::{Deserialize, Serialize};

use crate::profile::Profile;
pub use command::{Command, CommandKind, Event, Statistics};
pub use geometry::{Geometry, Place};

/// The timing model of one drive: commands go in with the time of their submission, events come out.
///
/// It is a pure function of its profile, its seed and what was submitted when; it may be advanced in any steps.
#[derive(Debug)]
pub struct Timing {
    profile: Arc<Profile>,
    state: State,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    free_at: u64,
    seed: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    statistics: Statistics,
}

/// A drive's state, to be kept while the program does not run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimingState(State);

impl Timing {
    /// A drive that has just been switched on.
    #[must_use]
    pub fn new(profile: Arc<Profile>, seed: u64) -> Timing {
        let state = State {
            free_at: 0,
            seed,
            events: BinaryHeap::new(),
            sequence: 0,
            statistics: Statistics::default(),
        };
        Timing { profile, state }
    }

    /// A drive as [`Timing::state`] left it.
    ///
    /// # Errors
    /// `Corrupt` if no drive of this profile can be in that state.
    pub fn restore(profile: Arc<Profile>, state: TimingState) -> Result<Timing> {
        Ok(Timing {
            profile,
            state: state.0,
        })
    }

    /// A command reaches the drive. Times never go back: an earlier `now` counts as the latest one.
    pub fn submit(&mut self, now: u64, command: Command) {
        let bytes =
            u64::from(command.sectors) * u64::from(self.profile.identify.logical_sector_bytes);
        let ns = bytes * 10 + geometry::ns_of_us(self.profile.interface.command_overhead_us);
        let at = self.state.free_at.max(now) + ns;
        self.state.free_at = at;
        self.tell(Event::Done {
            tag: command.tag,
            at,
        });
        if command.kind == CommandKind::Write {
            self.tell(Event::Destaged {
                tag: command.tag,
                at,
            });
        }
    }

    fn tell(&mut self, event: Event) {
        self.state.sequence += 1;
        let entry = (event.at(), self.state.sequence, event);
        self.state.events.push(Reverse(entry));
    }

    /// When [`Timing::advance`] may have something to say next; `None`: not before another command.
    #[must_use]
    pub fn next_event_at(&self) -> Option<u64> {
        self.state.events.peek().map(|e| e.0.0)
    }

    /// When a command may be done next; `None`: not before another command. Who only waits for commands needs no other
    /// time: what happens behind the cache can be asked for later and is the same.
    #[must_use]
    pub fn next_done_at(&self) -> Option<u64> {
        self.next_event_at()
    }

    /// Lets time pass until `now`; appends what happened, in the order of time.
    pub fn advance(&mut self, now: u64, out: &mut Vec<Event>) {
        while let Some(Reverse((at, _, event))) = self.state.events.peek().copied() {
            if at > now {
                break;
            }
            self.state.events.pop();
            out.push(event);
        }
    }

    /// What there is to keep while the program does not run.
    #[must_use]
    pub fn state(&self) -> TimingState {
        TimingState(self.state.clone())
    }

    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.state.statistics
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }
}
