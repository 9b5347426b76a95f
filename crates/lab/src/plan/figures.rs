//! What was found out about a combination.

use serde::{Deserialize, Serialize};

/// A command's time, and what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Seconds, for all of the data.
    pub seconds: f64,
    /// How busy all cores of the host were, in percent.
    pub processor_percent: f64,
    /// How busy the mechanics of the busiest disk were, in percent.
    pub drive_percent: f64,
}

/// The space of a class of vdevs, in bytes, for all of the data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Used on all its drives together: copies and parity count.
    pub used: f64,
    /// In percent of what there is.
    pub full_percent: f64,
}

/// All figures of a combination, for all of the data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// On the drives.
    pub space: Space,
    /// On those of the special vdev.
    pub special: Option<Space>,
    /// To copy the data in.
    pub copy: Timed,
    /// To list all names.
    pub walk: Timed,
    /// To read all files, in the order in which they are listed.
    pub read: Timed,
    /// To scrub.
    pub scrub: Timed,
    /// To replace a drive that is gone; `None` without redundancy.
    pub replace: Option<Timed>,
    /// Writes that began or ended inside a physical sector, of one part in [`super::Sample::one_in`].
    pub partial_writes: u64,
}

impl Figures {
    /// The space on all drives, in bytes.
    #[must_use]
    pub fn used(&self) -> f64 {
        self.space.used + self.special.map_or(0.0, |special| special.used)
    }

    /// The seconds to list and read everything.
    #[must_use]
    pub fn reading(&self) -> f64 {
        self.walk.seconds + self.read.seconds
    }

    /// The seconds to scrub, and to replace a drive where that is possible.
    pub(crate) fn scrub_and_replace(&self) -> f64 {
        self.scrub.seconds + self.replace.map_or(0.0, |replace| replace.seconds)
    }
}

/// How a combination was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// With these figures.
    Measured(Figures),
    /// The drives are too small for it.
    DoesNotFit,
}
