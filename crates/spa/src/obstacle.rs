//! What stands in the way of writing to a pool.
//!
//! # What it is
//! Active features that are not kept up here say so themselves ([`Features::obstacles`]). One thing has no
//! feature flag, although a writer that does not know it does harm: `multihost`, whose heartbeat other hosts
//! wait for.
//!
//! # Source
//! OpenZFS `module/zfs/mmp.c`.

use std::fmt;
use std::sync::Arc;

use base::Result;
use dmu::Objset;
use phys::uberblock::{MMP_MAGIC, UberblockPhys};

use crate::features::Features;
use crate::props::{PoolProps, PropValue};

/// The pool property; off unless it was set.
const MULTIHOST: &str = "multihost";

/// A heartbeat comes each second (`zfs_multihost_interval`); one as old as this is of a host that is gone
/// (`zfs_multihost_fail_intervals` and `zfs_multihost_import_intervals` of them, generously).
const RECENT_SECS: u64 = 60;

/// Why a pool is opened read-only, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// An active feature.
    Feature {
        /// Its guid.
        guid: String,
        /// What the pool says it is.
        description: String,
        /// Whether a read-only import can do without it.
        is_readable: bool,
    },
    /// `multihost=on`.
    Multihost {
        /// Another host whose heartbeat is recent.
        in_use_by: Option<String>,
    },
}

impl Obstacle {
    /// Whether a read-only import can do without it.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match self {
            Obstacle::Feature { is_readable, .. } => *is_readable,
            Obstacle::Multihost { .. } => true,
        }
    }

    /// What it is, for lists.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Obstacle::Feature {
                guid, description, ..
            } => format!("{guid} ({description})"),
            Obstacle::Multihost { .. } => "multihost=on".to_owned(),
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
            Obstacle::Multihost { in_use_by } => {
                f.write_str(
                    "its multihost property is on, which cannot be kept up yet, nor set to off: \
                     other hosts would not see that the pool is in use (`zpool set multihost=off` \
                     with OpenZFS lifts this)",
                )?;
                match in_use_by {
                    Some(host) => write!(f, "; it is in use by {host}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// All that stands in the way, features first.
pub(crate) fn find(
    mos: &Arc<Objset>,
    features: &Features,
    beat: &Heartbeat<'_>,
) -> Result<Vec<Obstacle>> {
    let mut obstacles = features.obstacles()?;
    let multihost = PoolProps::open(mos)?.get(MULTIHOST);
    if multihost.is_some_and(|value| value != PropValue::Number(0)) || beat.is_there() {
        let in_use_by = beat.in_use_by();
        obstacles.push(Obstacle::Multihost { in_use_by });
    }
    Ok(obstacles)
}

/// What labels and uberblock say of a host that has the pool open with multihost.
pub(crate) struct Heartbeat<'a> {
    pub(crate) uberblock: &'a UberblockPhys,
    /// Name and id of the host that had it last, if it is another one and has not exported it.
    pub(crate) foreign: Option<(&'a str, u64)>,
}

impl Heartbeat<'_> {
    /// Whether the uberblock was written by a host with multihost on: only then it has a delay.
    fn is_there(&self) -> bool {
        self.uberblock.mmp_magic.get() == MMP_MAGIC && self.uberblock.mmp_delay.get() != 0
    }

    fn in_use_by(&self) -> Option<String> {
        let (name, id) = self.foreign.filter(|_| self.is_there())?;
        let now_secs = rt::wall_clock().secs;
        let age_secs = now_secs.saturating_sub(self.uberblock.timestamp.get());
        (age_secs <= RECENT_SECS).then(|| {
            format!("host '{name}' (hostid {id:x}), whose last heartbeat is {age_secs} s old")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recent_heartbeat_of_another_host_names_it() {
        let mut uberblock = UberblockPhys::default();
        uberblock.mmp_magic.set(MMP_MAGIC);
        uberblock.mmp_delay.set(1_000_000_000);
        let other = Some(("tower", 0xbeef));
        let named =
            |uberblock: &UberblockPhys, foreign| Heartbeat { uberblock, foreign }.in_use_by();
        let now = rt::wall_clock().secs;
        uberblock.timestamp.set(now - 3);
        let text = named(&uberblock, other).unwrap();
        assert!(
            text.starts_with("host 'tower' (hostid beef), whose last heartbeat is "),
            "{text}"
        );
        assert_eq!(
            named(&uberblock, None),
            None,
            "this host's own, or exported"
        );
        uberblock.timestamp.set(now - RECENT_SECS - 10);
        assert_eq!(named(&uberblock, other), None, "long ago");
        // A host without multihost leaves no delay.
        uberblock.timestamp.set(now);
        uberblock.mmp_delay.set(0);
        assert_eq!(named(&uberblock, other), None);
    }
}
