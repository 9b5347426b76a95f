//! What prevents writing to a pool: an active feature that is not maintained here.

use std::fmt;

/// Why a pool is opened read-only, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The feature's guid.
    pub guid: String,
    /// The feature's description in the pool.
    pub description: String,
    /// Whether a read-only import is possible without it.
    pub is_readable: bool,
}

impl Obstacle {
    /// Guid and description, for lists.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} ({})", self.guid, self.description)
    }
}

/// Why the pool cannot be written, as a clause.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guid = &self.guid;
        write!(f, "it uses feature {guid}, which cannot be kept up yet")
    }
}
