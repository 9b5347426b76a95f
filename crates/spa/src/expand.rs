//! Growing vdevs with their devices: what `zpool online -e` and `autoexpand=on` do.
//!
//! # What it is
//! A top-level vdev can use as much of each device as its smallest device offers, once all of them
//! are present. Its config records how much it uses (`asize`); metaslabs keep their size, so it
//! grows by whole metaslabs.
//!
//! # On disk
//! Labels 2 and 3 are at the end of a device: on a device that has grown they are rewritten at the
//! new end (`renew_end_labels` of `vdev::import`) when the pool is next opened for writing.
//!
//! # Crash argument
//! Labels 0 and 1 stay where they are; the usual write order of labels and uberblock makes the new
//! size part of the txg. Nothing is allocated beyond the old size until the pool is reopened, when
//! that txg and all labels are on disk.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_open`, `vdev_expand`, `vdev_copy_uberblocks`), `module/zfs/spa.c`
//! (`spa_async_autoexpand`).

use base::{Guid, Result};
use phys::PropValue;
use vdev::VdevTree;

use crate::spa::Spa;

impl Spa {
    /// Whether top-level vdevs grow to what their devices offer whenever the pool is opened.
    #[must_use]
    pub fn autoexpand(&self) -> bool {
        self.inner.props.get("autoexpand") == Some(PropValue::Number(1))
    }

    /// Grows the top-level vdevs that `is_wanted` selects to what their devices offer; returns
    /// whether any grew. The space is usable when the pool is next opened.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "vdev_expand")]
    pub fn expand(&self, is_wanted: &dyn Fn(Guid) -> bool) -> Result<bool> {
        let tops = self.inner.tree.tops().into_iter();
        let mut growing: Vec<_> = tops
            .filter(|top| is_wanted(top.guid()))
            .filter_map(|top| Some((VdevTree::asize_to_grow_to(&top)?, top)))
            .collect();
        growing.retain(|(asize, top)| {
            let ms_shift = top.config().ms_shift;
            asize >> ms_shift > top.metaslab_count()
        });
        if growing.is_empty() {
            return Ok(false);
        }
        self.in_sync(move |inner, _| {
            for (asize, top) in &growing {
                top.update(|config| config.asize = *asize);
            }
            let mut state = inner.state.lock();
            state.config_dirty = true;
            state.labels_dirty = true;
            Ok(())
        })?;
        Ok(true)
    }
}
