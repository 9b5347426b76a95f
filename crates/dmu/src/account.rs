//! What the layers above are told while an objset is synced: births, deaths, owners.
//!
//! # What it is
//! The DMU knows which blocks come and go, but not what that means for a dataset: whether a block
//! is freed now or kept for a snapshot, what it costs against a quota, whose file it belongs to.
//! [`BlockAccounting`] and [`OwnerAccounting`] are implemented above (by datasets and file
//! systems).
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_block_born`, `dsl_dataset_block_kill`),
//! module/zfs/dmu_objset.c (`userquota_updates_task`) @be7657e3.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Result, Txg};
use phys::ObjectType;
use phys::blkptr::BlkPtrPhys;
use zio::BlockStore;

use crate::{Objset, Tx};

/// Told about every block that an objset gains and loses. All calls come from the thread that is
/// in [`Objset::sync`], except [`dirtied`](BlockAccounting::dirtied).
pub trait BlockAccounting: Send + Sync {
    /// `bp` is referenced from now on. Never a hole; may be embedded.
    #[doc(alias = "dsl_dataset_block_born")]
    fn born(&self, bp: &BlkPtrPhys, tx: &Tx);

    /// The txg that is about to be synced has one more reference to `bp`, a block of another object. Comes
    /// before anything is freed in that txg.
    ///
    /// # Panics
    /// Outside of datasets, where nothing is cloned: an unknown reference would be freed twice.
    #[doc(alias = "brt_pending_add")]
    fn cloned(&self, bp: &BlkPtrPhys) {
        unreachable!("a clone of {bp:?} outside of a dataset");
    }

    /// `bp` is not referenced any more. Never a hole; may be embedded. Comes after everything that the
    /// same call of `sync` wrote, and after the last reader that could have known `bp` is done.
    #[doc(alias = "dsl_dataset_block_kill")]
    fn kill(&self, bp: &BlkPtrPhys, tx: &Tx);

    /// `bp_get_dsize_sync`: the bytes that `bp` is charged for in dn_used. Differs from asize on
    /// RAID-Z, where parity is deflated away.
    fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        bp.asize()
    }

    /// The first change of the objset in `txg`, before that change: the time to put the objset on the
    /// list of those to be frozen and synced. Called without locks of the objset held, in open or in
    /// syncing context; may be called more than once per txg.
    #[doc(alias = "dsl_dataset_dirty")]
    fn dirtied(&self, txg: Txg) {
        let _ = txg;
    }

    /// A dnode of more than 512 bytes is written (feature `large_dnode`).
    fn large_dnode_written(&self, tx: &Tx) {
        let _ = tx;
    }
}

/// Accounting for objsets outside of any dataset: births cost nothing, killed blocks are freed.
pub struct FreeAtOnce(
    /// Where the blocks are.
    pub Arc<dyn BlockStore>,
);

impl BlockAccounting for FreeAtOnce {
    fn born(&self, _bp: &BlkPtrPhys, _tx: &Tx) {}

    fn kill(&self, bp: &BlkPtrPhys, tx: &Tx) {
        self.0.free(tx.txg(), bp);
    }
}

/// `zfs_file_info_t`: the owners that an object is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "zfs_file_info_t")]
pub struct Owner {
    /// zfi_user
    pub user: u64,
    /// zfi_group
    pub group: u64,
    /// zfi_project
    pub project: u64,
}

/// A change of what an owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerDelta {
    /// Bytes: dn_used plus 512 per dnode.
    pub bytes: i64,
    /// Objects.
    pub objects: i64,
}

/// What one [`Objset::sync`] changed for each owner; entries whose delta is zero are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerDeltas {
    /// By user id.
    pub users: BTreeMap<u64, OwnerDelta>,
    /// By group id.
    pub groups: BTreeMap<u64, OwnerDelta>,
    /// By project id.
    pub projects: BTreeMap<u64, OwnerDelta>,
}

impl OwnerDeltas {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.projects.is_empty()
    }

    pub(crate) fn add(&mut self, owner: Owner, bytes: i64, objects: i64) {
        let entries = [
            (&mut self.users, owner.user),
            (&mut self.groups, owner.group),
            (&mut self.projects, owner.project),
        ];
        for (map, id) in entries {
            let delta = map.entry(id).or_default();
            // A corrupt dnode may claim any number of bytes; then the sums are just as wrong.
            delta.bytes = delta.bytes.wrapping_add(bytes);
            delta.objects = delta.objects.wrapping_add(objects);
            if *delta == OwnerDelta::default() {
                map.remove(&id);
            }
        }
    }
}

/// Space by user, group and project, for objsets that count it.
pub trait OwnerAccounting: Send + Sync {
    /// The owners that an object is charged to; `None` if it is not counted. `spill` is given only when the
    /// bonus is empty although its type is SA.
    #[doc(alias = "zpl_get_file_info")]
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8], spill: Option<&[u8]>) -> Option<Owner>;

    /// Whether objects are counted as well (feature `userobj_accounting`).
    fn counts_objects(&self) -> bool {
        true
    }

    /// Adds what a sync changed, in syncing context, usually to the ZAPs
    /// [`USERUSED_OBJECT`](crate::USERUSED_OBJECT) and its neighbours. After that the objset is
    /// dirty again, and the caller of `sync` must sync it once more.
    ///
    /// # Errors
    /// Errors from reading or changing those objects; any of them ends the txg.
    fn account(&self, objset: &Arc<Objset>, tx: &Tx, deltas: &OwnerDeltas) -> Result<()>;
}
