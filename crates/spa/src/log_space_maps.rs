//! Log space maps: changes that another host has not yet written to the metaslabs' space maps.
//!
//! # What it is
//! With the feature `log_spacemap` OpenZFS writes all allocations and frees of a txg to one
//! pool-wide space map, the log of that txg, and flushes it to the metaslabs' own maps gradually
//! later. This implementation always writes to the metaslabs' own maps. So logs left by another
//! host are read when the pool is opened for writing; the first txg flushes them and frees them.
//! The feature stays active, as it does there; a host that uses logs starts new ones.
//!
//! # On disk
//! The pool directory names a ZAP: txg -> space map object, whose entries have two words and name
//! their vdev, in units of 512 bytes whatever the vdev's ashift. The ZAP of each top-level vdev
//! names an object with a number for each metaslab: the first txg whose log has changes that its
//! own map lacks, or 0 if there is none.
//!
//! # Crash argument
//! The logs are freed, and the numbers set to 0, in the txg that writes their contents to the
//! metaslabs' maps.
//!
//! # Source
//! OpenZFS `module/zfs/spa_log_spacemap.c` (`spa_ld_log_spacemaps`, `spa_generate_syncing_log_sm`,
//! `spa_flush_metaslabs`), `include/sys/metaslab_impl.h` (`metaslab_unflushed_phys_t`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ObjectId, Result, SPA_MINBLOCKSHIFT, Txg, VdevId};
use dmu::{Objset, Tx};
use metaslab::{Metaslabs, SpaceMapStore, for_each_range};
use phys::pool_names::{LOG_SPACEMAP_ZAP, VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS};
use phys::space_map::SpaceMapRange;
use vdev::{Vdev, VdevTree};

use crate::space_maps::SpaceMaps;
use zap::directory;

/// Bytes of a `metaslab_unflushed_phys_t`.
const ENTRY_BYTES: u64 = 8;

/// The logs of a pool that is being opened.
pub(crate) struct LogSpaceMaps {
    zap: ObjectId,
    logs: BTreeMap<Txg, ObjectId>,
    vdevs: BTreeMap<VdevId, Unflushed>,
}

/// Which metaslabs of a top-level vdev have unflushed changes in the logs.
struct Unflushed {
    /// The object with the numbers; `None` if the vdev never had any.
    object: Option<ObjectId>,
    /// For each metaslab the first txg that its own space map lacks; 0 if it is complete.
    since: Vec<Txg>,
    ms_shift: u32,
}

impl LogSpaceMaps {
    /// The logs of a pool, if there are any, or unflushed txgs are still recorded.
    pub(crate) fn find(mos: &Arc<Objset>, tree: &VdevTree) -> Result<Option<LogSpaceMaps>> {
        let Some(zap) = directory::find(mos, LOG_SPACEMAP_ZAP)? else {
            return Ok(None);
        };
        let mut logs = BTreeMap::new();
        for entry in zap::iter(mos, zap)? {
            let entry = entry?;
            logs.insert(Txg(entry.int_key()?), ObjectId(entry.first_integer));
        }
        let mut vdevs = BTreeMap::new();
        for (id, top) in (0..).map(VdevId).zip(tree.tops()) {
            if let Some(unflushed) = Unflushed::find(mos, &top)? {
                vdevs.insert(id, unflushed);
            }
        }
        let is_there = !logs.is_empty() || vdevs.values().any(Unflushed::is_any);
        Ok(is_there.then_some(LogSpaceMaps { zap, logs, vdevs }))
    }

    /// Replays into the metaslabs the changes that their own space maps lack.
    #[doc(alias = "spa_ld_log_sm_data")]
    pub(crate) fn replay(&self, maps: &SpaceMaps, space: &Metaslabs) -> Result<()> {
        for (txg, object) in &self.logs {
            let replay = |(found, length)| {
                for_each_range(maps, &found, length, &mut |range| {
                    self.replay_range(*txg, range, space)
                })
            };
            maps.open(*object)
                .and_then(|(found, phys)| replay((found, phys.length.get())))
                .within(|| format!("log space map {object} of txg {txg}"))?;
        }
        space.end_replay();
        Ok(())
    }

    fn replay_range(&self, txg: Txg, range: &SpaceMapRange, space: &Metaslabs) -> Result<()> {
        let unit = 1u64 << SPA_MINBLOCKSHIFT;
        let bytes = |units: u64| units.checked_mul(unit);
        let extent = bytes(range.offset).zip(bytes(range.run));
        let (offset, size) = extent.ok_or_else(|| Error::corrupt(format!("entry {range:?}")))?;
        let id = range
            .vdev
            .ok_or_else(|| Error::corrupt(format!("entry {range:?} names no vdev")))?;
        // The vdev has been removed, and its data moved.
        let Some(vdev) = self.vdevs.get(&id) else {
            return Ok(());
        };
        let at = usize::try_from(offset >> vdev.ms_shift).unwrap_or(usize::MAX);
        let since = vdev.since.get(at).copied().unwrap_or_default();
        if txg < since {
            return Ok(());
        }
        space.replay_log_entry(id, range.map_type, offset, size)
    }

    /// Flushes the logs to the metaslabs' own space maps, and frees them. In syncing context,
    /// before the space maps are written.
    #[doc(alias = "spa_cleanup_old_sm_logs")]
    pub(crate) fn retire(
        self,
        mos: &Arc<Objset>,
        maps: &SpaceMaps,
        space: &Metaslabs,
        tx: &Tx,
    ) -> Result<()> {
        space.flush_log_entries(tx.txg());
        for (txg, object) in self.logs {
            maps.free(object, tx)?;
            zap::Zap::open(mos, self.zap)?.remove(tx, zap::Key::Int(txg.0))?;
        }
        for vdev in self.vdevs.into_values().filter(Unflushed::is_any) {
            let zeros = vec![0; vdev.since.len() * ENTRY_BYTES as usize];
            let object = vdev.object.expect("the numbers were read from it");
            mos.hold(object)?.write(tx, 0, &zeros)?;
        }
        Ok(())
    }
}

impl Unflushed {
    #[doc(alias = "spa_ld_unflushed_txgs")]
    fn find(mos: &Arc<Objset>, top: &Vdev) -> Result<Option<Unflushed>> {
        let (zap, ms_shift) = {
            let config = top.config();
            (ObjectId(config.top_zap), config.ms_shift)
        };
        if !top.kind().is_concrete() {
            return Ok(None);
        }
        let found = if zap == ObjectId(0) {
            None
        } else {
            zap::lookup_u64(mos, zap, VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS)?
        };
        let object = found.map(ObjectId).filter(|object| object.0 != 0);
        let mut bytes = vec![0; (top.metaslab_count() * ENTRY_BYTES) as usize];
        if let Some(object) = object {
            mos.hold(object)?.read(0, &mut bytes)?;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let since = words.iter().map(|word| Txg(u64::from_le_bytes(*word)));
        Ok(Some(Unflushed {
            object,
            since: since.collect(),
            ms_shift,
        }))
    }

    fn is_any(&self) -> bool {
        self.since.iter().any(|since| *since != Txg(0))
    }
}
