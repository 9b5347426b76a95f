//! How much of what a bookmark referenced was freed since (feature `bookmark_written`).
//!
//! # What it is
//! What a dataset wrote since a bookmark is the growth of its referenced bytes plus all that was freed in between:
//! what the deadlists of later snapshots list from before the bookmark, and what was freed between the bookmark and
//! the snapshot after it. The latter is on no list once the bookmark's snapshot is gone; the bookmark records it.
//!
//! # Invariants
//! 1. A bookmark's freed bytes are those of the blocks that it referenced and the next snapshot, or the head when there
//!    is none, does not.
//! 2. The deadlists of a head and of its clones have a key at the txg of each bookmark before their last snapshot, with
//!    or without a snapshot there.
//! 3. The flag `SNAPSHOT_EXISTS` of a bookmark of its own snapshot is set while that snapshot exists: then the key is
//!    the snapshot's.
//!
//! # Crash argument
//! All of it changes in syncing context, in the txg of what it records.
//!
//! # Source
//! OpenZFS module/zfs/dsl_bookmark.c, dsl_dataset.c (`dsl_dataset_space_written_impl`)

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result, Txg};
use dmu::Tx;
use phys::DslBookmarkPhys;
use phys::dsl::{ZBM_FLAG_HAS_FBN, ZBM_FLAG_SNAPSHOT_EXISTS};
use phys::feature;

use crate::bookmark::DslBookmark;
use crate::dataset::DslDataset;
use crate::deadlist::Deadlist;
use crate::fields::DatasetFields;
use crate::pool::DslPool;
use crate::size::{Space, apply};

impl DslBookmark {
    pub(crate) fn freed(&self) -> Space {
        let phys = &self.phys;
        Space::stored(
            phys.referenced_freed_before_next_snap.get(),
            phys.compressed_freed_before_next_snap.get(),
            phys.uncompressed_freed_before_next_snap.get(),
        )
    }

    fn set_freed(&mut self, freed: Space) {
        set_freed(&mut self.phys, freed);
    }

    /// Whether the snapshot is still there, as far as a bookmark that counts knows.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.phys.flags.get() & ZBM_FLAG_SNAPSHOT_EXISTS != 0
    }

    /// Whether it counts, and its snapshot is the one of `txg`.
    fn counts_at(&self, txg: u64) -> bool {
        self.counts_freed() && self.createtxg.0 == txg
    }
}

fn set_freed(phys: &mut DslBookmarkPhys, freed: Space) {
    let changes = [
        (&mut phys.referenced_freed_before_next_snap, freed.used),
        (&mut phys.compressed_freed_before_next_snap, freed.comp),
        (&mut phys.uncompressed_freed_before_next_snap, freed.uncomp),
    ];
    for (word, bytes) in changes {
        let mut value = 0;
        apply(&mut value, bytes, "bytes freed since a bookmark");
        word.set(value);
    }
}

/// What was freed so far in this sync of what the bookmarks of one txg referenced.
pub(crate) struct FreedSince {
    pub(crate) createtxg: Txg,
    pub(crate) freed: Space,
}

impl DslPool {
    /// Fills in the sizes of a new bookmark of `snap`, if the pool has them.
    #[doc(alias = "dsl_bookmark_set_phys")]
    pub(crate) fn start_counting(
        &self,
        snap: &Arc<DslDataset>,
        phys: &mut DslBookmarkPhys,
    ) -> Result<()> {
        if !self
            .mos()
            .env()
            .feature_is_enabled(feature::BOOKMARK_WRITTEN)
        {
            return Ok(());
        }
        let fields = snap.fields();
        phys.flags.set(ZBM_FLAG_HAS_FBN | ZBM_FLAG_SNAPSHOT_EXISTS);
        phys.referenced_bytes_refd.set(fields.referenced_bytes);
        phys.compressed_bytes_refd.set(fields.compressed_bytes);
        phys.uncompressed_bytes_refd.set(fields.uncompressed_bytes);
        let next = self.dataset_by_object(ObjectId(fields.next_snap_obj))?;
        set_freed(phys, next.with_deadlist(|deadlist| deadlist.space())?);
        Ok(())
    }

    /// Prepares to count what a head frees in the sync that begins.
    pub(crate) fn watch_bookmarks(&self, head: &DslDataset) -> Result<()> {
        let mut watched = Vec::new();
        if self
            .mos()
            .env()
            .feature_is_active(feature::BOOKMARK_WRITTEN)
        {
            let last = head.prev_snap_txg();
            let found = self.load_bookmarks(head)?.into_iter();
            watched = found
                .filter(|it| it.counts_freed() && it.createtxg >= last)
                .map(|it| FreedSince {
                    createtxg: it.createtxg,
                    freed: Space::ZERO,
                })
                .collect();
            watched.dedup_by_key(|it| it.createtxg);
        }
        head.tally.lock().since = watched;
        Ok(())
    }

    /// Records what a head freed in a sync.
    #[doc(alias = "dsl_bookmark_sync_done")]
    pub(crate) fn record_freed(
        &self,
        head: &DslDataset,
        since: &[FreedSince],
        tx: &Tx,
    ) -> Result<()> {
        let since: Vec<_> = since.iter().filter(|it| !it.freed.is_zero()).collect();
        if since.is_empty() {
            return Ok(());
        }
        for mut bookmark in self.load_bookmarks(head)? {
            let found = since.iter().find(|it| it.createtxg == bookmark.createtxg);
            if let Some(found) = found.filter(|_| bookmark.counts_freed()) {
                bookmark.set_freed(bookmark.freed() + found.freed);
                self.update_bookmark(head, &bookmark, tx)?;
            }
        }
        Ok(())
    }

    /// Adds to a head's new deadlist the keys of bookmarks since the snapshot before the one that is being taken:
    /// that of the latter is there, and no blocks on the list can be from later.
    #[doc(alias = "dsl_bookmark_snapshotted")]
    pub(crate) fn add_bookmark_keys(
        &self,
        head: &DslDataset,
        prev_snap_txg: u64,
        deadlist: &mut Deadlist,
        tx: &Tx,
    ) -> Result<()> {
        if !self
            .mos()
            .env()
            .feature_is_active(feature::BOOKMARK_WRITTEN)
        {
            return Ok(());
        }
        let found = self.load_bookmarks(head)?.into_iter();
        let mut keys: Vec<u64> = found
            .filter(|it| it.counts_freed() && it.createtxg.0 > prev_snap_txg)
            .map(|it| it.createtxg.0)
            .collect();
        keys.dedup();
        keys.into_iter()
            .try_for_each(|key| deadlist.add_key(key, tx))
    }

    /// Settles the bookmarks of a snapshot that is being destroyed, and of the time before it. Returns whether one
    /// still needs the snapshot's key in deadlists.
    #[doc(alias = "dsl_bookmark_ds_destroyed")]
    pub(crate) fn snapshot_leaves_bookmarks(
        &self,
        snap: &Arc<DslDataset>,
        fields: &DatasetFields,
        tx: &Tx,
    ) -> Result<bool> {
        if !self
            .mos()
            .env()
            .feature_is_active(feature::BOOKMARK_WRITTEN)
        {
            return Ok(false);
        }
        let Some(head) = self.head_of(&snap.dir())? else {
            return Ok(false);
        };
        let next = self.dataset_by_object(ObjectId(fields.next_snap_obj))?;
        let (from, own) = (fields.prev_snap_txg, fields.creation_txg);
        let mut keeps_key = false;
        for mut bookmark in self.load_bookmarks(&head)? {
            let txg = bookmark.createtxg.0;
            if bookmark.counts_at(own) {
                let flags = bookmark.phys.flags.get() & !ZBM_FLAG_SNAPSHOT_EXISTS;
                bookmark.phys.flags.set(flags);
                keeps_key = true;
            } else if bookmark.counts_freed() && (from..own).contains(&txg) {
                // The snapshot after it is `next` from now on.
                let more = next.with_deadlist(|deadlist| deadlist.space_range(0, txg))?;
                bookmark.set_freed(bookmark.freed() + more);
            } else {
                continue;
            }
            self.update_bookmark(&head, &bookmark, tx)?;
        }
        Ok(keeps_key)
    }

    /// Removes the key of a bookmark that is gone from the deadlists of its head and of clones, unless another
    /// bookmark or a snapshot has it.
    pub(crate) fn remove_bookmark_key(
        &self,
        head: &Arc<DslDataset>,
        gone: &DslBookmark,
        tx: &Tx,
    ) -> Result<()> {
        let txg = gone.createtxg.0;
        if !gone.counts_freed() || gone.has_snapshot() || txg >= head.fields().prev_snap_txg {
            return Ok(());
        }
        if self
            .load_bookmarks(head)?
            .iter()
            .any(|it| it.counts_at(txg))
        {
            return Ok(());
        }
        self.remove_clones_key(&head.dir(), txg, tx)?;
        head.with_deadlist(|deadlist| deadlist.remove_key(txg, tx))
    }

    /// Another dataset follows `origin`, whose bookmarks `head` has: what it freed is counted anew.
    #[doc(alias = "dsl_bookmark_next_changed")]
    pub(crate) fn recount_freed(
        &self,
        head: &DslDataset,
        origin: &DslDataset,
        tx: &Tx,
    ) -> Result<()> {
        if !self
            .mos()
            .env()
            .feature_is_active(feature::BOOKMARK_WRITTEN)
        {
            return Ok(());
        }
        let fields = origin.fields();
        let next = self.dataset_by_object(ObjectId(fields.next_snap_obj))?;
        let freed = next.with_deadlist(|deadlist| deadlist.space())?;
        for mut bookmark in self.load_bookmarks(head)? {
            if bookmark.counts_at(fields.creation_txg) {
                bookmark.set_freed(freed);
                self.update_bookmark(head, &bookmark, tx)?;
            }
        }
        Ok(())
    }

    /// What was written to `new` since `bookmark`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` when it is not from before `new`, `Unsupported` when it records no sizes.
    #[doc(alias = "dsl_dataset_space_written_bookmark")]
    pub fn space_written_since_bookmark(
        &self,
        bookmark: &str,
        new: &Arc<DslDataset>,
    ) -> Result<Space> {
        let _config = self.config().read();
        let (head, found) = self.find_bookmark(bookmark)?;
        if !self.is_before(new, &head, found.createtxg)? {
            let text = format!("{bookmark} is not from before the data set");
            return Err(Error::invalid(text));
        }
        let unknown = || Error::new(ErrorKind::Unsupported, format!("{bookmark} has no sizes"));
        let referenced = found.referenced().ok_or_else(unknown)?;
        let (later, _) = self.freed_later(found.createtxg.0, new)?;
        Ok(new.fields().referenced() - referenced + later + found.freed())
    }
}
