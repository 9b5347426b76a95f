//! Giving a removal up: the copies are freed, and the vdev is as before.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_remove_cancel_sync`).

use std::sync::Arc;

use base::{Error, ObjectId, Result};
use dmu::Tx;
use phys::DvaPhys;
use phys::feature::{DEVICE_REMOVAL, OBSOLETE_COUNTS};
use phys::pool_names::{VDEV_TOP_ZAP_COUNTS_ARE_PRECISE, VDEV_TOP_ZAP_OBSOLETE_SM};
use phys::scan::DSS_CANCELED;
use vdev::Vdev;

use super::{Active, object};
use crate::spa::{Inner, Spa};
use crate::vdev_props::ALLOCATING;

/// Blocks of the MOS that giving up writes.
const BLOCKS: u64 = 32;

impl Spa {
    /// Gives up removing a vdev.
    ///
    /// # Errors
    /// `NotFound` if none is being removed; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_remove_cancel")]
    pub fn cancel_remove(&self) -> Result<()> {
        self.check_writable()?;
        let (checked, inner) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        let check = move || {
            if checked.removal.is_active() {
                return Ok(dsl::Verdict::Go);
            }
            Err(Error::not_found("no vdev is being removed"))
        };
        self.dsl().sync_task(
            BLOCKS,
            dsl::SpaceCheck::ExtraReserved,
            move |_, _| check(),
            move |_, tx| inner.cancel_removal(tx),
        )
    }
}

impl Inner {
    /// Gives the removal up. In syncing context, when nothing is being freed.
    pub(super) fn cancel_removal(&self, tx: &Tx) -> Result<()> {
        let active = {
            let mut state = self.removal.state.lock();
            let active = state.active.take().expect("a vdev is being removed");
            state.obsolete.remove(&active.vdev);
            active
        };
        let id = active.vdev;
        let top = self.tree.top(id).expect("it is in the tree");
        self.forget_obsolete(&active, &top, tx)?;
        self.free_copies(&active, tx)?;
        let features = self.features();
        object::free(&self.mos, &features, active.mapping_object, tx)?;
        self.mos.object_free(tx, active.births_object)?;
        features.adjust(DEVICE_REMOVAL, -1, tx)?;
        let zap = ObjectId(top.config().top_zap);
        let allocating = zap::lookup_u64(&self.mos, zap, ALLOCATING)?;
        let is_off = allocating == Some(0);
        top.update(|config| {
            (config.indirect_object, config.indirect_births) = (0, 0);
            (config.removing, config.non_allocating) = (false, is_off);
        });
        if !is_off {
            self.space.set_allocatable(id, true)?;
        }
        self.removal.change_phys(&self.mos, tx, |phys| {
            phys.state.set(DSS_CANCELED);
            phys.end_time.set(rt::wall_clock().secs);
        })?;
        let path = top.config().path.clone();
        let path = path.as_deref().unwrap_or("-");
        let text = format!("{} vdev {id} {path}", self.state.lock().name);
        self.core.log_internal("vdev remove canceled", &text, tx);
        self.tree_changed();
        Ok(())
    }

    /// Frees the records of what became obsolete meanwhile.
    fn forget_obsolete(&self, active: &Active, top: &Vdev, tx: &Tx) -> Result<()> {
        let zap = ObjectId(top.config().top_zap);
        let features = self.features();
        let name = VDEV_TOP_ZAP_COUNTS_ARE_PRECISE;
        if zap::lookup_u64(&self.mos, zap, name)?.is_some_and(|precise| precise != 0) {
            zap::remove(&self.mos, tx, zap, name)?;
            features.adjust(OBSOLETE_COUNTS, -1, tx)?;
        }
        if let Some(map) = self.obsolete_map(active.vdev)? {
            self.maps.free(map, tx)?;
            zap::remove(&self.mos, tx, zap, VDEV_TOP_ZAP_OBSOLETE_SM)?;
            features.adjust(OBSOLETE_COUNTS, -1, tx)?;
        }
        Ok(())
    }

    /// Frees the copies of what is still allocated.
    fn free_copies(&self, active: &Active, tx: &Tx) -> Result<()> {
        let end = active.mapping.max_offset();
        let mut metaslab = 0;
        while let Some(allocated) = self.space.allocated_segments(active.vdev, metaslab)? {
            for (start, size) in allocated.iter().take_while(|(start, _)| *start < end) {
                let size = size.min(end - start);
                for copy in active.mapping.pieces(start, size)? {
                    let dva = DvaPhys::new(copy.vdev, copy.offset, copy.size, false);
                    self.removal.free_range(tx.txg(), &dva, false)?;
                }
            }
            metaslab += 1;
        }
        Ok(())
    }
}
