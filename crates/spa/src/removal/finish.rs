//! The end of a removal: the vdev has no devices from now on, but a mapping.
//!
//! # Concurrency
//! A reader that began before goes on with the old devices; if these are closed meanwhile, it begins again (see
//! `VdevTree`).
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`vdev_remove_complete`, `vdev_remove_complete_sync`,
//! `spa_finish_removal`).

use std::sync::Arc;

use base::{Guid, ObjectId, Result, VdevId};
use dmu::Tx;
use phys::pool_names::VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS;
use phys::scan::DSS_FINISHED;
use vdev::{Vdev, VdevConfig, VdevKind};

use super::{NO_VDEV, Removal};
use crate::spa::Inner;

impl Inner {
    /// Everything is copied: in the first pass of a txg.
    #[doc(alias = "vdev_remove_complete_sync")]
    pub(super) fn finish_removal(&self, tx: &Tx) -> Result<()> {
        self.removal.sync_progress(&self.mos, tx)?;
        let active = self.removal.state.lock().active.take();
        let active = active.expect("a vdev is being removed");
        let id = active.vdev;
        let top = self.tree.top(id).expect("it is in the tree");
        self.give_space_back(id, &top, tx)?;
        self.let_devices_go(&top, tx)?;
        let before = self.removal.last_removed();
        let indirect = indirect_in_place_of(&top, before);
        indirect.set_mapping(Arc::new(active.mapping));
        self.tree.replace_top(id, indirect);
        self.space.remove_vdev(id);
        self.removal.change_phys(&self.mos, tx, |phys| {
            phys.prev_indirect_vdev.set(id.0);
            phys.state.set(DSS_FINISHED);
            phys.end_time.set(rt::wall_clock().secs);
        })?;
        let text = format!("{} vdev {id}", self.state.lock().name);
        self.core
            .notify("vdev_remove_dev", self.tree.top(id).as_deref());
        self.core.log_internal("vdev remove completed", &text, tx);
        self.tree_changed();
        Ok(())
    }

    /// Frees the space maps of a vdev that leaves the pool.
    pub(super) fn give_space_back(&self, id: VdevId, top: &Vdev, tx: &Tx) -> Result<()> {
        self.maps.destroy_array(id, top.metaslab_count(), tx)?;
        let zap = ObjectId(top.config().top_zap);
        if zap == ObjectId(0) {
            return Ok(());
        }
        let name = VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS;
        if let Some(object) = zap::lookup_u64(&self.mos, zap, name)? {
            if object != 0 {
                self.mos.object_free(tx, ObjectId(object))?;
            }
            zap::remove(&self.mos, tx, zap, name)?;
        }
        Ok(())
    }

    /// Frees what the MOS has of the devices of a vdev; their labels are emptied when that is on disk.
    pub(super) fn let_devices_go(&self, top: &Arc<Vdev>, tx: &Tx) -> Result<()> {
        for device in top.devices() {
            self.forget_device(&device, tx)?;
        }
        Ok(())
    }
}

impl Removal {
    fn last_removed(&self) -> Option<VdevId> {
        let phys = self.phys()?;
        let last = phys.prev_indirect_vdev.get();
        (last != NO_VDEV).then_some(VdevId(last))
    }
}

#[doc(alias = "vdev_remove_replace_with_indirect")]
fn indirect_in_place_of(top: &Vdev, before: Option<VdevId>) -> Arc<Vdev> {
    let config = {
        let old = top.config();
        VdevConfig {
            ms_shift: old.ms_shift,
            ashift: old.ashift,
            asize: old.asize,
            non_allocating: old.non_allocating,
            alloc_bias: old.alloc_bias,
            top_zap: old.top_zap,
            indirect_object: old.indirect_object,
            indirect_births: old.indirect_births,
            prev_indirect_vdev: before,
            create_txg: old.create_txg,
            ..VdevConfig::default()
        }
    };
    let guid = Guid(rt::random_u64().max(1));
    Vdev::new(VdevKind::Indirect, guid, config, Vec::new())
}
