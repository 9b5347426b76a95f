//! Promoting a clone: it takes over the snapshots up to its origin.
//!
//! # What it is
//! The snapshots of the origin's directory up to and including the origin move to the clone's
//! directory; the origin's head becomes a clone of that snapshot. No block moves; only the charge
//! for blocks born in the moved snapshots does.
//!
//! ```text
//! before   A: a1 -- a2 -- a3 -- A      after   B: a1 -- a2 -- b1 -- B
//!                    \                                   \
//!                 B: b1 -- B                          A: a3 -- A
//! ```
//! Here a1 and a2 are *shared*, b1 and B the *clone's*, a3 and A the *origin's*.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_promote_check`, `dsl_dataset_promote_sync`)
//! @be7657e3

use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, Result, Txg};
use dmu::Tx;
use phys::dsl::DS_FLAG_NOPROMOTE;
use phys::pool_names::DD_FIELD_SNAPSHOT_COUNT;

use crate::dataset::DslDataset;
use crate::dir::{DslDir, Used};
use crate::names::NAME_BYTES_MAX;
use crate::pool::DslPool;
use crate::size::Space;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

/// The datasets that a promotion involves, and what it moves.
struct Promotion {
    clone: Arc<DslDataset>,
    /// Snapshots that move, newest (the clone's origin) first.
    shared: Vec<Arc<DslDataset>>,
    /// The clone and its snapshots, newest first.
    of_clone: Vec<Arc<DslDataset>>,
    /// The origin's head and its snapshots after the branch point, newest first.
    of_origin: Vec<Arc<DslDataset>>,
    /// The snapshot that the origin's head was cloned from.
    origin_origin: Option<Arc<DslDataset>>,
}

/// The accounts after the promotion.
struct Moved {
    /// Charged from now on to the clone's directory instead of the origin's.
    space: Space,
    /// ds_unique_bytes of the clone's origin.
    unique: u64,
    /// Bytes charged to the clone's directory for snapshots.
    clone_used_snap: i64,
    /// Bytes charged to the origin's directory for snapshots.
    origin_used_snap: i64,
}

impl Promotion {
    fn origin(&self) -> &Arc<DslDataset> {
        &self.shared[0]
    }

    fn origin_head(&self) -> &Arc<DslDataset> {
        &self.of_origin[0]
    }

    /// The oldest in the clone's chain: the dataset that follows the origin there.
    fn after_origin(&self) -> &Arc<DslDataset> {
        self.of_clone
            .last()
            .expect("the clone itself is among them")
    }
}

impl DslPool {
    /// Promotes a clone.
    ///
    /// # Errors
    /// `InvalidInput` when it is not a clone; `Exists` when both have a snapshot of the same name;
    /// `Busy` when a snapshot to be moved is in use; `NoSpace` when it does not fit in the clone's
    /// directory.
    #[doc(alias = "dsl_dataset_promote")]
    pub fn promote(&self, name: &str) -> Result<()> {
        let snaps = {
            let _config = self.config().read();
            let ds = self.find_dataset(name)?;
            if ds.is_snapshot() {
                0
            } else {
                self.snap_entries(&ds)?.len() as u64
            }
        };
        let (checked, name) = (name.to_string(), name.to_string());
        let check = move |pool: &DslPool, tx: &Tx| {
            let promotion = pool.promotion(&checked)?;
            if tx.is_syncing() {
                pool.promote_check(&promotion)?;
            }
            Ok(Verdict::Go)
        };
        self.sync_task(2 + snaps, SpaceCheck::Reserved, check, move |pool, tx| {
            let promotion = pool.promotion(&name)?;
            let moved = pool.promote_space(&promotion)?;
            pool.promote_sync(&promotion, &moved, tx)
        })
    }

    #[doc(alias = "promote_hold")]
    fn promotion(&self, name: &str) -> Result<Promotion> {
        let clone = self.find_dataset(name)?;
        let dir = clone.dir();
        if clone.is_snapshot() || !self.is_clone(&dir.fields()) {
            return Err(Error::invalid(format!("{name} is not a clone")));
        }
        let origin = ObjectId(dir.fields().origin_obj);
        let shared = self.chain(origin, None)?;
        let origin_dir = shared[0].dir();
        let head = ObjectId(origin_dir.fields().head_dataset_obj);
        Ok(Promotion {
            of_clone: self.chain(clone.object(), None)?,
            of_origin: self.chain(head, Some(origin))?,
            origin_origin: match origin_dir.fields().origin_obj {
                0 => None,
                object => Some(self.dataset_by_object(ObjectId(object))?),
            },
            clone,
            shared,
        })
    }

    /// The snapshots from `newest` back to, but without, `end`; by default to the origin of its
    /// directory.
    #[doc(alias = "snaplist_make")]
    fn chain(&self, newest: ObjectId, end: Option<ObjectId>) -> Result<Vec<Arc<DslDataset>>> {
        let mut chain = Vec::new();
        let mut at = self.dataset_by_object(newest)?;
        let end = end.unwrap_or_else(|| ObjectId(at.dir().fields().origin_obj));
        loop {
            let before = ObjectId(at.fields().prev_snap_obj);
            chain.push(at.clone());
            if before == end {
                return Ok(chain);
            }
            let lost = || format!("the snapshots before {newest} do not lead to {end}");
            at = self.snapshot_before(&at).within(lost)?;
        }
    }

    #[doc(alias = "dsl_dataset_promote_check")]
    fn promote_check(&self, promotion: &Promotion) -> Result<()> {
        let clone = &promotion.clone;
        if clone.fields().has_flag(DS_FLAG_NOPROMOTE) {
            return Err(Error::new(
                ErrorKind::CrossDevice,
                "the clone may not be promoted",
            ));
        }
        self.check_roots_stay(&clone.dir(), &promotion.origin().dir())?;
        let clone_name = clone.dir().name();
        let mut conflicts = Vec::new();
        for snap in &promotion.shared {
            snap.check_not_held(0)?;
            let name = self.snapname(snap)?;
            if clone_name.len() + 1 + name.len() > NAME_BYTES_MAX {
                return Err(Error::new(
                    ErrorKind::NameTooLong,
                    format!("{clone_name}@{name}"),
                ));
            }
            if self.snap_lookup(clone, &name)?.is_some() {
                conflicts.push(name);
            }
        }
        if !conflicts.is_empty() {
            let text = format!("both have snapshots named {}", conflicts.join(", "));
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let branch_txg = Txg(promotion.origin().fields().creation_txg);
        self.check_bookmarks_move(promotion.origin_head(), clone, branch_txg)?;
        let moved = self.promote_space(promotion)?;
        let space = u64::try_from(moved.space.used).map_err(|_| {
            let bytes = moved.space.used;
            Error::corrupt(format!("the snapshots of {clone_name} take {bytes} bytes"))
        })?;
        self.transfer_possible(&promotion.origin().dir(), &clone.dir(), space)
    }

    /// Blocks born with a snapshot are those it references, less those of its predecessor, plus its
    /// deadlist. Summed over all snapshots that move, that leaves the referenced bytes of the
    /// newest, less those of the oldest one's predecessor, plus all deadlists.
    fn promote_space(&self, promotion: &Promotion) -> Result<Moved> {
        let origin = promotion.origin();
        let since = origin.fields().prev_snap_txg;
        let unique = promotion
            .after_origin()
            .with_deadlist(|dl| dl.space_range(since, u64::MAX))?;
        let mut space = origin.fields().referenced();
        for snap in &promotion.shared {
            if snap.fields().prev_snap_obj != 0 {
                space += snap.with_deadlist(|dl| dl.space())?;
            }
        }
        if let Some(before) = &promotion.origin_origin {
            space -= before.fields().referenced();
        }
        let dead_since = |list: &[Arc<DslDataset>], txg: u64| -> Result<i64> {
            let mut total = 0i64;
            for ds in list {
                let dead = ds.with_deadlist(|dl| dl.space_range(txg, u64::MAX))?;
                total = total.wrapping_add(dead.used);
            }
            Ok(total)
        };
        let origin_txg = promotion.origin_head().dir().state().origin_txg;
        let branch_txg = origin.fields().creation_txg;
        Ok(Moved {
            space,
            unique: unique.used.cast_unsigned(),
            clone_used_snap: dead_since(&promotion.shared, origin_txg)?
                .wrapping_add(dead_since(&promotion.of_clone, origin_txg)?),
            origin_used_snap: dead_since(&promotion.of_origin, branch_txg)?,
        })
    }

    #[doc(alias = "dsl_dataset_promote_sync")]
    fn promote_sync(&self, promotion: &Promotion, moved: &Moved, tx: &Tx) -> Result<()> {
        let origin = promotion.origin().clone();
        let (dir, origin_dir) = (promotion.clone.dir(), origin.dir());
        let old_next = origin.fields().next_snap_obj;
        self.promote_root(&dir, &origin_dir, tx)?;
        self.turn_branch(promotion, old_next, tx)?;
        self.swap_origins(promotion, &dir, &origin_dir, tx)?;
        let branch_txg = Txg(origin.fields().creation_txg);
        self.move_bookmarks(promotion.origin_head(), &promotion.clone, branch_txg, tx)?;
        self.recount_freed(&promotion.clone, &origin, tx)?;
        let heads = (promotion.origin_head().object(), promotion.clone.object());
        self.move_errors(heads.0, heads.1, branch_txg, tx)?;
        for snap in &promotion.shared {
            self.move_snapshot(promotion, snap, &dir, &origin_dir, old_next, tx)?;
        }
        self.move_space(&dir, moved.space, moved.clone_used_snap);
        self.move_space(&origin_dir, -moved.space, moved.origin_used_snap);
        origin.state().fields.unique_bytes = moved.unique;
        self.dirty_dataset(&origin);
        self.remove_livelist(&dir, tx)?;
        self.remove_livelist(&origin_dir, tx)?;
        self.notify_props()?;
        self.log(&promotion.clone, "promote", "", tx)
    }

    /// Makes the clone's branch the origin's successor; the other branch becomes a clone.
    fn turn_branch(&self, promotion: &Promotion, old_next: u64, tx: &Tx) -> Result<()> {
        let origin = promotion.origin();
        let new_next = promotion.after_origin().object().0;
        origin.state().fields.next_snap_obj = new_next;
        self.dirty_dataset(origin);
        let clones = origin.fields().next_clones_obj;
        if clones != 0 {
            self.mos().zap_int_remove(ObjectId(clones), new_next, tx)?;
            self.mos()
                .zap_int_add(ObjectId(clones), old_next, old_next, tx)?;
        }
        Ok(())
    }

    /// The clone's directory takes over the other directory's origin, whose new origin is the
    /// branch point.
    fn swap_origins(
        &self,
        promotion: &Promotion,
        dir: &Arc<DslDir>,
        origin_dir: &Arc<DslDir>,
        tx: &Tx,
    ) -> Result<()> {
        let origin = promotion.origin();
        let (grand_origin, grand_txg) = {
            let state = origin_dir.state();
            (state.fields.origin_obj, state.origin_txg)
        };
        {
            let mut state = dir.state();
            state.fields.origin_obj = grand_origin;
            state.origin_txg = grand_txg;
        }
        {
            let mut state = origin_dir.state();
            state.fields.origin_obj = origin.object().0;
            state.origin_txg = origin.fields().creation_txg;
        }
        self.dirty_dir(dir);
        self.dirty_dir(origin_dir);

        let mos = self.mos();
        let (head, other) = (
            promotion.clone.object().0,
            promotion.origin_head().object().0,
        );
        mos.zap_int_remove(ObjectId(origin_dir.fields().clones), head, tx)?;
        if let Some(grand) = &promotion.origin_origin {
            let grand_clones = self.clones_zap(&grand.dir(), tx)?;
            mos.zap_int_add(grand_clones, head, head, tx)?;
            mos.zap_int_remove(grand_clones, other, tx)?;
        }
        let clones = self.clones_zap(dir, tx)?;
        mos.zap_int_add(clones, other, other, tx)
    }

    fn move_snapshot(
        &self,
        promotion: &Promotion,
        snap: &Arc<DslDataset>,
        dir: &Arc<DslDir>,
        origin_dir: &Arc<DslDir>,
        old_next: u64,
        tx: &Tx,
    ) -> Result<()> {
        let mos = self.mos();
        let name = self.snapname(snap)?;
        let names = |head: &DslDataset| ObjectId(head.fields().snapnames_zapobj);
        self.touch_snapshots(origin_dir, tx)?;
        mos.zap_remove(names(promotion.origin_head()), &name, tx)?;
        self.adjust_count(origin_dir, DD_FIELD_SNAPSHOT_COUNT, -1, tx)?;
        mos.zap_add(names(&promotion.clone), &name, snap.object().0, tx)?;
        self.adjust_count(dir, DD_FIELD_SNAPSHOT_COUNT, 1, tx)?;
        {
            let mut state = snap.state();
            state.fields.dir_obj = dir.object().0;
            state.dir = dir.clone();
        }
        self.dirty_dataset(snap);

        // Clones of the snapshot are now registered with the clone's directory.
        let next_clones = snap.fields().next_clones_obj;
        if next_clones == 0 {
            return Ok(());
        }
        for object in mos.zap_set_members(ObjectId(next_clones))? {
            if object == old_next {
                continue;
            }
            let first = self.dataset_by_object(ObjectId(object))?;
            let head = first.dir().fields().head_dataset_obj;
            mos.zap_int_remove(ObjectId(origin_dir.fields().clones), head, tx)?;
            mos.zap_int_add(self.clones_zap(dir, tx)?, head, head, tx)?;
        }
        Ok(())
    }

    /// Charges `space` to a directory, such that its snapshots are charged `used_snap` afterwards.
    fn move_space(&self, dir: &Arc<DslDir>, space: Space, used_snap: i64) {
        let fields = dir.fields();
        let of_snaps = match fields.has_breakdown() {
            true => used_snap.wrapping_sub(fields.used_by(Used::Snap).cast_signed()),
            false => 0,
        };
        let only_used = Space {
            used: of_snaps,
            ..Space::ZERO
        };
        self.diduse_space(dir, Used::Snap, only_used);
        self.diduse_space(dir, Used::Head, space - only_used);
    }
}
