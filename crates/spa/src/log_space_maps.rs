//! Log space maps: what another host has not yet written into the space maps of the metaslabs.
//!
//! # What it is
//! With the feature `log_spacemap` OpenZFS writes all that a txg allocates and frees into one space map of the
//! pool, the log of that txg, and takes it over into the metaslabs' own maps bit by bit later. Here every txg
//! writes into the metaslabs' own maps. So logs that are found are read when the pool is opened for writing,
//! the first txg takes them over, and frees them. The feature stays active, as it does there; a host that
//! keeps logs begins new ones.
//!
//! # On disk
//! The pool directory names a ZAP: by txg a space map object, whose entries have two words and name their
//! vdev; they count sectors of 512 bytes whatever the vdev's are. The ZAP of each top-level vdev names an
//! object with a number for each metaslab: the txg from which on the logs have what its own map has not, or 0
//! when no log concerns it.
//!
//! # Crash argument
//! The logs go, and the numbers become 0, in the txg that writes what they say into the metaslabs' maps.
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

/// Which metaslabs of a top-level vdev the logs concern.
struct Unflushed {
    /// Where that stands; nothing if no log ever concerned it.
    object: Option<ObjectId>,
    /// For each metaslab the first txg that its own space map lacks; 0: it lacks none.
    since: Vec<Txg>,
    ms_shift: u32,
}

impl LogSpaceMaps {
    /// The logs of a pool, if there are any, or were.
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

    /// Tells the metaslabs what their own space maps lack.
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
        // What was on a vdev that was removed is elsewhere by now.
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

    /// Takes the logs over into the metaslabs' own space maps, and frees them. In syncing context, before the
    /// space maps are written.
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
        let object = found.map(ObjectId);
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
