//! Giving a pool another guid, so that it and a copy of its devices can be told apart.
//!
//! # Crash argument
//! The guid is that of the root of the tree; labels and uberblock carry it to disk like any other change of the
//! tree. Until the uberblock is written there are labels with both guids. An import knows that they are of one
//! pool, since they are of the same device, and takes those that are not newer than the uberblock
//! (`vdev::import`).
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_change_guid`).

use base::{Error, ErrorKind, Guid, Result};
use vdev::{VdevState, VdevTree};

use crate::create::nonzero_random;
use crate::spa::Spa;

impl Spa {
    /// Gives the pool another guid: this one, or a random one.
    ///
    /// # Errors
    /// `InvalidInput` for 0; `NotFound` unless all devices are online, since one that is not would keep the old guid;
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_change_guid")]
    pub fn change_guid(&self, guid: Option<Guid>) -> Result<()> {
        self.check_no_checkpoint()?;
        let new = guid.unwrap_or_else(|| Guid(nonzero_random()));
        if new.0 == 0 {
            return Err(Error::invalid("the guid of a pool is not 0"));
        }
        let old = self.guid();
        self.change_tree(check_online, move |inner, tx| {
            inner.tree.set_guid(new);
            let text = format!("old={} new={}", old.0, new.0);
            inner.core.notify("pool_reguid", None);
            inner.core.log_internal("guid change", &text, tx);
            inner.tree_changed();
            Ok(())
        })
    }
}

fn check_online(tree: &VdevTree) -> Result<()> {
    if tree.state().0 == VdevState::Healthy {
        return Ok(());
    }
    let text = "one or more devices is currently unavailable";
    Err(Error::new(ErrorKind::NotFound, text))
}
