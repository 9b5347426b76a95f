//! The arm, the head and the rotating disk.

use serde::{Deserialize, Serialize};

use super::geometry::{Geometry, SectorPosition, ns_of_ms};
use super::mutant::Mutant;
use crate::profile::{DiskFigures, Profile};

/// One pass of physical sectors under the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The first physical sector.
    pub sector: u64,
    /// How many physical sectors.
    pub sectors: u64,
    /// When the first one began to pass.
    pub from: u64,
    /// When the last one had passed.
    pub until: u64,
    /// Whether it was written.
    pub write: bool,
}

/// The head's track, and the phase of rotation at time 0 in nanoseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) track: u64,
    pub(super) phase: u64,
}

/// The time to bring the head to a sector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) seek_ns: u64,
    pub(super) wait_ns: u64,
}

impl Reach {
    pub(super) fn ns(self) -> u64 {
        self.seek_ns + self.wait_ns
    }
}

/// The unchanging part of the mechanics.
#[derive(Debug)]
pub(super) struct Mechanics {
    pub(super) geometry: Geometry,
    settle_ns: u64,
    mutant: Option<Mutant>,
}

impl Mechanics {
    pub(super) fn new(profile: &Profile, disk: &DiskFigures) -> Mechanics {
        Mechanics {
            geometry: Geometry::new(profile, disk),
            settle_ns: ns_of_ms(disk.write_settle_ms),
            mutant: None,
        }
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, mutant: Option<Mutant>) {
        self.mutant = mutant;
    }

    /// Whether this mistake was planted.
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        cfg!(test) && self.mutant == Some(mutant)
    }

    /// Time from `at` until `place` begins to pass the head.
    pub(super) fn reach(&self, head: &Head, at: u64, place: &SectorPosition, write: bool) -> Reach {
        let mut seek_ns = self.geometry.seek_ns(head.track, place.track);
        if write && seek_ns > 0 {
            seek_ns += self.settle_ns;
        }
        if self.is(Mutant::SeeksAreFree) {
            seek_ns = 0;
        }
        let turn = self.geometry.turn_ns();
        let angle = (at + seek_ns + head.phase) % turn;
        let mut wait_ns = if place.angle >= angle {
            place.angle - angle
        } else {
            place.angle + turn - angle
        };
        if self.is(Mutant::RotationIsFree) {
            wait_ns = 0;
        }
        Reach { seek_ns, wait_ns }
    }

    /// How long `sectors` starting at `place` take to pass.
    pub(super) fn pass_ns(&self, place: &SectorPosition, sectors: u64) -> u64 {
        let ns = self.geometry.pass_ns(place, sectors);
        if self.is(Mutant::TransfersAreHalved) {
            ns / 2
        } else {
            ns
        }
    }

    /// The track of the last of `sectors` starting at `place`.
    pub(super) fn last_track(&self, place: &SectorPosition, sector: u64, sectors: u64) -> u64 {
        if place.index + sectors <= place.per_track {
            place.track
        } else {
            self.geometry.locate(sector + sectors - 1).track
        }
    }
}
