//! The events of all pools, for `zpool events`.
//!
//! # What it is
//! The kernel keeps the last events in memory. Here a session that has a pool open keeps them below the state
//! folder: once a second, and when it closes the pool. So a later command, or one that runs beside it, can show them.
//!
//! # On disk
//! `events`: the number that the next event gets (u64, little endian), and for each event, oldest first, its length
//! (u32) and the event, an nvlist in XDR. At most [`KEPT_MAX`] are kept. It is replaced by renaming, under a lock on
//! `events.lock`. What cannot be read counts as none.
//!
//! # Source
//! OpenZFS module/zfs/fm.c (`zfs_zevent_post`, `zfs_zevent_insert`, `zfs_zevent_drain_all`).

use std::path::PathBuf;

use base::{Error, Result};
use machine::{FileLock, LockMode, Patience};
use nvpair::NvList;
use spa::Spa;

use crate::pools::Pools;

/// `zfs_zevent_len_max`: events that are kept.
const KEPT_MAX: usize = 512;
/// Longer events are not read: the longest parts of one are paths and command lines.
const EVENT_MAX_BYTES: usize = 1 << 20;
/// How long to wait for another session that is changing the same file, in ns.
const LOCK_WAIT_NS: u64 = 10_000_000_000;
/// The number of an event.
const EID: &str = "eid";

struct Kept {
    next: u64,
    events: Vec<NvList>,
}

impl Kept {
    fn parse(bytes: &[u8]) -> Kept {
        let mut kept = Kept {
            next: 1,
            events: Vec::new(),
        };
        let Some((next, mut rest)) = bytes.split_first_chunk::<8>() else {
            return kept;
        };
        kept.next = u64::from_le_bytes(*next);
        while let Some((length, more)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((event, more)) = more.split_at_checked(length.min(EVENT_MAX_BYTES)) else {
                break;
            };
            let Ok(event) = nvpair::decode_xdr(event) else {
                break;
            };
            kept.events.push(event);
            rest = more;
        }
        kept
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.next.to_le_bytes().to_vec();
        let from = self.events.len().saturating_sub(KEPT_MAX);
        for event in &self.events[from..] {
            let event = nvpair::encode_xdr(event);
            if let Ok(length) = u32::try_from(event.len()) {
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(&event);
            }
        }
        bytes
    }
}

impl Pools {
    /// The events that are kept, oldest first, with their numbers.
    #[must_use]
    pub fn events(&self) -> Vec<(u64, NvList)> {
        let kept = read(self);
        let numbered = |event: NvList| Some((event.get_u64(EID)?, event));
        kept.events.into_iter().filter_map(numbered).collect()
    }

    /// Discards the events that are kept. Returns how many these were.
    ///
    /// # Errors
    /// Errors of writing the state folder.
    #[doc(alias = "zfs_ioc_events_clear")]
    pub fn clear_events(&self) -> Result<usize> {
        let mut count = 0;
        change(self, |kept| {
            count = kept.events.len();
            kept.events.clear();
        })?;
        Ok(count)
    }
}

/// Keeps the events of an open pool.
pub(crate) fn keep_events(pools: &Pools, spa: &Spa) -> Result<()> {
    let events = spa.take_events();
    if events.is_empty() {
        return Ok(());
    }
    change(pools, |kept| {
        for event in events {
            kept.events.push(event.with(EID, kept.next));
            kept.next += 1;
        }
    })
}

fn read(pools: &Pools) -> Kept {
    Kept::parse(&std::fs::read(path(pools)).unwrap_or_default())
}

fn path(pools: &Pools) -> PathBuf {
    pools.state().join("events")
}

fn change(pools: &Pools, edit: impl FnOnce(&mut Kept)) -> Result<()> {
    let path = path(pools);
    let within = |e: std::io::Error| Error::from(e).within(path.display());
    let patience = Patience {
        wait_ns: LOCK_WAIT_NS,
        on_wait: &|what| pools.observer().waiting(what),
    };
    let lock = path.with_extension("lock");
    let _lock = FileLock::take(&lock, LockMode::Exclusive, "the events", &patience)?;
    let mut kept = read(pools);
    edit(&mut kept);
    let new = path.with_extension("new");
    std::fs::write(&new, kept.bytes()).map_err(within)?;
    std::fs::rename(&new, &path).map_err(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_read_again_and_rubbish_is_none() {
        let event = |eid: u64| {
            NvList::new()
                .with("version", 0u8)
                .with("pool_context", 6i32)
                .with("time", vec![eid as i64, 7])
                .with(EID, eid)
        };
        let kept = Kept {
            next: 1_001,
            events: (1..=1_000).map(event).collect(),
        };
        let bytes = kept.bytes();
        let again = Kept::parse(&bytes);
        assert_eq!(again.next, 1_001);
        assert_eq!(again.events, kept.events[1_000 - KEPT_MAX..]);
        let cut = Kept::parse(&bytes[..bytes.len() - 1]);
        assert_eq!(cut.events.len(), KEPT_MAX - 1);
        assert!(Kept::parse(b"rubbish").events.is_empty());
        assert!(Kept::parse(&[0xff; 64]).events.is_empty());
    }
}
