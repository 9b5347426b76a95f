//! What prevents writing to a pool: an active feature that is not maintained here, or a version before features.

use std::fmt;

/// Why a pool is opened read-only, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// An active feature.
    Feature {
        /// The feature's guid.
        guid: String,
        /// The feature's description in the pool.
        description: String,
        /// Whether a read-only import is possible without it.
        is_readable: bool,
    },
    /// The version of a pool without feature flags, 1 to 28.
    OldVersion(u64),
}

impl Obstacle {
    /// Whether a read-only import is possible.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match self {
            Obstacle::Feature { is_readable, .. } => *is_readable,
            Obstacle::OldVersion(_) => true,
        }
    }

    /// Guid and description of a feature, for lists.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Obstacle::Feature {
                guid, description, ..
            } => format!("{guid} ({description})"),
            Obstacle::OldVersion(version) => format!("version {version}"),
        }
    }
}

/// Why the pool cannot be written, as a clause.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Feature { guid, .. } => {
                write!(f, "it uses feature {guid}, which cannot be kept up yet")
            }
            Obstacle::OldVersion(version) => {
                write!(
                    f,
                    "it is of version {version}, and only version 5000 can be written ('zpool upgrade')"
                )
            }
        }
    }
}
