//! The state of a vdev and the reason for it; the state of a pool in its labels.

use std::fmt;

/// `pool_state_t`: what a label says about its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "pool_state_t")]
pub enum PoolState {
    /// In use, or was when its machine stopped.
    Active,
    /// Exported: free to be imported anywhere.
    Exported,
    /// Destroyed, but not overwritten.
    Destroyed,
    /// The device is a hot spare.
    Spare,
    /// The device is a cache.
    L2Cache,
}

impl PoolState {
    /// The number on disk.
    #[must_use]
    pub fn raw(self) -> u64 {
        self as u64
    }

    /// From the number on disk; `None` for states that are never written to disk.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        [
            Self::Active,
            Self::Exported,
            Self::Destroyed,
            Self::Spare,
            Self::L2Cache,
        ]
        .into_iter()
        .find(|state| state.raw() == raw)
    }
}

/// `vdev_state_t`: how well a vdev can be used, from worst to best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "vdev_state_t")]
pub enum VdevState {
    /// Not opened yet.
    Closed = 1,
    /// Taken offline by the administrator.
    Offline,
    /// Pulled out.
    Removed,
    /// Could not be opened.
    CantOpen,
    /// Given up after too many errors, or on request.
    Faulted,
    /// Works, but something in or below it does not.
    Degraded,
    /// Fine.
    #[default]
    Healthy,
}

impl VdevState {
    /// The number in a `vdev_stat_t`.
    #[must_use]
    pub fn raw(self) -> u64 {
        self as u64
    }

    /// The word shown to users.
    #[must_use]
    #[doc(alias = "zpool_state_to_name")]
    pub fn word(self) -> &'static str {
        match self {
            VdevState::Closed => "CLOSED",
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::CantOpen => "UNAVAIL",
            VdevState::Faulted => "FAULTED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Healthy => "ONLINE",
        }
    }

    /// Whether it can be read and written at all.
    #[must_use]
    #[doc(alias = "vdev_is_dead")]
    pub fn is_usable(self) -> bool {
        self >= VdevState::Degraded
    }
}

impl fmt::Display for VdevState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// `vdev_aux_t`: why a vdev is in its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "vdev_aux_t")]
#[expect(missing_docs, reason = "the names of vdev_aux_t say it")]
pub enum VdevAux {
    #[default]
    None,
    OpenFailed,
    CorruptData,
    NoReplicas,
    BadGuidSum,
    TooSmall,
    BadLabel,
    VersionNewer,
    VersionOlder,
    UnsupFeat,
    Spared,
    ErrExceeded,
    IoFailure,
    BadLog,
    External,
    SplitPool,
    BadAshift,
    ExternalPersist,
    Active,
    ChildrenOffline,
    AshiftTooBig,
}

impl VdevAux {
    /// The number in a `vdev_stat_t`.
    #[must_use]
    pub fn raw(self) -> u64 {
        self as u64
    }

    /// The word in a config, for the reasons that are kept there.
    #[must_use]
    pub(crate) fn label_word(self) -> Option<&'static str> {
        match self {
            VdevAux::ErrExceeded => Some("err_exceeded"),
            VdevAux::External => Some("external"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_openzfs() {
        assert_eq!(VdevState::Closed.raw(), 1);
        assert_eq!(VdevState::Healthy.raw(), 7);
        assert_eq!(VdevAux::AshiftTooBig.raw(), 20);
        assert_eq!(VdevAux::ErrExceeded.raw(), 11);
        assert_eq!(PoolState::from_raw(4), Some(PoolState::L2Cache));
        assert_eq!(PoolState::from_raw(5), None);
    }
}
