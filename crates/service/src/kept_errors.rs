//! Errors that sessions have met in a pool and that cannot be recorded in the pool itself.
//!
//! # What it is
//! The kernel keeps error counters in memory as long as a pool is imported, and damaged blocks until the
//! next txg moves them into the pool's error log. Here every session opens the pool anew, so the counters,
//! and the damaged blocks that read-only sessions have met, are kept below the state folder until export. A
//! session gets what is kept when it opens the pool, and on closing it keeps what is not in the log;
//! `zpool clear` discards the counters.
//!
//! # On disk
//! `errors/GUID.json`: `{"devices": {"GUID": [read, write, checksum, slow]}, "blocks": [[objset, object, level,
//! blkid, birth]]}`. It is replaced by renaming, under a lock on `errors/GUID.lock`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::{BlkId, Guid, ObjectId, ObjsetId, Result, Txg};
use machine::{FileLock, LockMode, Patience};
use serde_json::{Value, json};
use spa::Spa;
use zio::Bookmark;

use crate::pools::Pools;

/// How long to wait for another session that is changing the same file, in ns.
const LOCK_WAIT_NS: u64 = 10_000_000_000;

/// What went wrong with a device, by kind.
pub(crate) type Counts = [u64; 4];

/// Errors found in a pool and not cleared yet.
#[derive(Debug, Default)]
pub(crate) struct KeptErrors {
    /// By guid: failed reads, failed writes, checksum errors, slow commands.
    pub(crate) devices: BTreeMap<u64, Counts>,
    /// Unreadable blocks that are not in the pool's error log, with their birth txgs.
    blocks: BTreeMap<Bookmark, Txg>,
}

impl KeptErrors {
    fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.blocks.is_empty()
    }

    fn parse(text: &str) -> KeptErrors {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let mut kept = KeptErrors::default();
        let devices = value["devices"].as_object();
        for (guid, counts) in devices.into_iter().flatten() {
            let count = |i: usize| counts[i].as_u64().unwrap_or(0);
            if let Ok(guid) = guid.parse() {
                kept.devices.insert(guid, [0, 1, 2, 3].map(count));
            }
        }
        let blocks = value["blocks"].as_array().into_iter().flatten();
        kept.blocks = blocks.filter_map(parse_block).collect();
        kept
    }

    fn to_json(&self) -> Value {
        let devices: serde_json::Map<String, Value> = self
            .devices
            .iter()
            .map(|(guid, counts)| (guid.to_string(), json!(counts)))
            .collect();
        let blocks = self.blocks.iter();
        let blocks: Vec<Value> = blocks
            .map(|(b, birth)| json!([b.objset.0, b.object.0, b.level, b.blkid.0, birth.0]))
            .collect();
        json!({ "devices": devices, "blocks": blocks })
    }
}

fn parse_block(value: &Value) -> Option<(Bookmark, Txg)> {
    let at = Bookmark {
        objset: ObjsetId(value[0].as_u64()?),
        object: ObjectId(value[1].as_u64()?),
        level: value[2].as_i64()?,
        blkid: BlkId(value[3].as_u64()?),
    };
    Some((at, Txg(value[4].as_u64()?)))
}

/// What is kept of a pool; empty if it cannot be read.
pub(crate) fn kept_errors(pools: &Pools, pool: Guid) -> KeptErrors {
    KeptErrors::parse(&std::fs::read_to_string(path(pools, pool)).unwrap_or_default())
}

/// Discards what is kept of a pool.
pub(crate) fn forget_errors(pools: &Pools, pool: Guid) {
    let _ = std::fs::remove_file(path(pools, pool));
}

/// Discards the counters of some devices.
pub(crate) fn forget_devices(
    pools: &Pools,
    pool: Guid,
    is_one: impl Fn(Guid) -> bool,
) -> Result<()> {
    change(pools, pool, |kept| {
        kept.devices.retain(|guid, _| !is_one(Guid(*guid)));
    })
}

/// Passes what is kept of a pool to the pool just opened.
pub(crate) fn hand_over(pools: &Pools, pool: &Spa) {
    pool.note_errors(kept_errors(pools, pool.guid()).blocks);
}

/// Keeps the errors that are not in the pool's log, and resets the pool's counters.
pub(crate) fn keep_met(pools: &Pools, pool: &Spa) -> Result<()> {
    let devices = take_counters(pool);
    let blocks = pool.take_errors();
    if devices.is_empty() && blocks == kept_errors(pools, pool.guid()).blocks {
        return Ok(());
    }
    change(pools, pool.guid(), |kept| {
        add_counters(kept, &devices);
        // Read-only sessions may run concurrently, so they only add; a writer has the pool to itself, and
        // replaces the list.
        if !pool.is_readonly() {
            kept.blocks.clear();
        }
        kept.blocks.extend(blocks);
    })
}

fn take_counters(pool: &Spa) -> BTreeMap<u64, Counts> {
    let mut devices = BTreeMap::new();
    pool.parts().tree().root().visit(&mut |vdev| {
        let stats = vdev.stats().snapshot();
        let counts: Counts = [
            stats.read_errors,
            stats.write_errors,
            stats.checksum_errors,
            stats.slow_ios,
        ];
        if counts != Counts::default() {
            devices.insert(vdev.guid().0, counts);
            vdev.stats().clear_errors();
        }
    });
    devices
}

fn add_counters(kept: &mut KeptErrors, devices: &BTreeMap<u64, Counts>) {
    for (guid, counts) in devices {
        let sum = kept.devices.entry(*guid).or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
}

fn path(pools: &Pools, pool: Guid) -> PathBuf {
    pools
        .state()
        .join("errors")
        .join(format!("{}.json", pool.0))
}

fn change(pools: &Pools, pool: Guid, edit: impl FnOnce(&mut KeptErrors)) -> Result<()> {
    let path = path(pools, pool);
    let within = |e: std::io::Error| base::Error::from(e).within(path.display());
    let patience = Patience {
        wait_ns: LOCK_WAIT_NS,
        on_wait: &|what| pools.observer().waiting(what),
    };
    let lock = path.with_extension("lock");
    let _lock = FileLock::take(&lock, LockMode::Exclusive, "the error log", &patience)?;
    let mut kept = kept_errors(pools, pool);
    edit(&mut kept);
    if kept.is_empty() {
        forget_errors(pools, pool);
        return Ok(());
    }
    let new = path.with_extension("new");
    std::fs::write(&new, kept.to_json().to_string()).map_err(within)?;
    std::fs::rename(&new, &path).map_err(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let block = |level| Bookmark {
            objset: ObjsetId(43),
            object: ObjectId(7),
            level,
            blkid: BlkId(u64::MAX - 1),
        };
        let kept = KeptErrors {
            devices: BTreeMap::from([(u64::MAX, [1, 2, 3, 4])]),
            blocks: BTreeMap::from([(block(0), Txg(7)), (block(-1), Txg(u64::MAX))]),
        };
        let again = KeptErrors::parse(&kept.to_json().to_string());
        assert_eq!(again.devices, kept.devices);
        assert_eq!(again.blocks, kept.blocks);
        assert!(KeptErrors::parse("rubbish").is_empty());
    }
}
