//! The queue of trees whose blocks are being freed.
//!
//! # What it is
//! Destroying a head at once would mean reading its whole tree of indirect blocks. Instead its root
//! pointer goes on this queue, and each txg frees blocks of the first trees, as many as it has time
//! for. Blocks not freed yet are charged to `$FREE`.
//!
//! # On disk
//! An object of `bptree_entry_phys_t`, with entries `[begin, end)` in use; its bonus has `begin`,
//! `end` and the total size still to be freed. Entry `bptree_obj` of the pool directory refers to
//! it while it exists (feature `async_destroy`).
//!
//! # Invariants
//! 1. The blocks of an entry's tree that were born after its birth_txg and are not before its
//!    bookmark are allocated, and nothing else references them.
//! 2. The bonus has the total size of these blocks over all entries.
//!
//! # Crash argument
//! The bookmark changes in the same txg in which the blocks before it are freed. A block freed in a
//! txg can be reused only after that txg is on disk, so a walk resumed from an older bookmark still
//! finds it intact.
//!
//! # Concurrency
//! In syncing context only.
//!
//! # Source
//! OpenZFS module/zfs/bptree.c, module/zfs/dsl_scan.c (`dsl_process_async_destroys`),
//! module/zfs/dsl_destroy.c (`dsl_async_dataset_destroy`) @be7657e3

use phys::pool_names;
use std::ops::Range;
use std::sync::Arc;
use zap::directory;

use base::{Buf, Error, ErrorKind, ObjectId, Result, Txg};
use dmu::Tx;
use dmu::traverse::{Link, Order, Point, Scope, Step, Stop, Visitor, traverse};
use phys::dsl::{BptreeEntryPhys, BptreePhys};
use phys::{BlkPtrPhys, ObjectType, Phys, ZilHeaderPhys};
use zerocopy::IntoBytes;
use zio::Bookmark;

use crate::dataset::DslDataset;
use crate::dir::Used;
use crate::mos::Mos;
use crate::pool::DslPool;
use crate::size::{Space, apply};
use phys::feature;

/// An open queue.
struct Bptree<'a> {
    mos: &'a Arc<Mos>,
    object: ObjectId,
}

impl Bptree<'_> {
    #[doc(alias = "bptree_alloc")]
    fn alloc(mos: &Mos, tx: &Tx) -> Result<ObjectId> {
        let type_ = ObjectType::N_UINT64_METADATA;
        mos.alloc(
            type_,
            base::SPA_OLD_MAXBLOCKSIZE,
            type_,
            BptreePhys::SIZE,
            tx,
        )
    }

    fn header(&self) -> Result<BptreePhys> {
        let dnode = self.mos.hold(self.object)?;
        let header = BptreePhys::read(&dnode.bonus())?;
        let fits = dnode
            .blksz()
            .saturating_mul(dnode.maxblkid().0.saturating_add(1));
        let fits = fits / BptreeEntryPhys::SIZE as u64;
        let (begin, end) = (header.begin.get(), header.end.get());
        if begin > end || end > fits {
            let object = self.object;
            return Err(Error::corrupt(format!(
                "bptree {object}: entries {begin} to {end}, {fits} fit"
            )));
        }
        Ok(header)
    }

    fn store(&self, header: &BptreePhys, tx: &Tx) -> Result<()> {
        self.mos.hold(self.object)?.set_bonus(tx, header.as_bytes())
    }

    /// Checks that the entries are backed by blocks: a sparse object could claim a practically
    /// endless list.
    fn check_entries(&self, entries: &Range<u64>) -> Result<()> {
        let bytes = BptreeEntryPhys::SIZE as u64;
        let dnode = self.mos.hold(self.object)?;
        dnode.check_dense(entries.start * bytes, (entries.end - entries.start) * bytes)
    }

    fn entry(&self, at: u64) -> Result<BptreeEntryPhys> {
        let mut entry = BptreeEntryPhys::default();
        let dnode = self.mos.hold(self.object)?;
        dnode.read(at * BptreeEntryPhys::SIZE as u64, entry.as_mut_bytes())?;
        Ok(entry)
    }

    fn set_entry(&self, at: u64, entry: &BptreeEntryPhys, tx: &Tx) -> Result<()> {
        let dnode = self.mos.hold(self.object)?;
        dnode.write(tx, at * BptreeEntryPhys::SIZE as u64, entry.as_bytes())
    }

    #[doc(alias = "bptree_add")]
    fn add(&self, bp: BlkPtrPhys, birth_txg: u64, space: Space, tx: &Tx) -> Result<()> {
        let mut header = self.header()?;
        let end = header.end.get();
        let entry = BptreeEntryPhys {
            bp,
            birth_txg: birth_txg.into(),
            ..Default::default()
        };
        self.set_entry(end, &entry, tx)?;
        header.end.set(end + 1);
        add_space(&mut header, space);
        self.store(&header, tx)
    }

    /// Removes the first entry, which is completely freed.
    fn advance(&self, header: &mut BptreePhys, tx: &Tx) -> Result<()> {
        let begin = header.begin.get();
        header.begin.set(begin + 1);
        let bytes = BptreeEntryPhys::SIZE as u64;
        self.mos
            .hold(self.object)?
            .free_range(tx, begin * bytes, bytes)
    }
}

fn add_space(header: &mut BptreePhys, change: Space) {
    let words = [&mut header.bytes, &mut header.comp, &mut header.uncomp];
    for (word, by) in words
        .into_iter()
        .zip([change.used, change.comp, change.uncomp])
    {
        let mut value = word.get();
        apply(&mut value, by, "bptree space");
        word.set(value);
    }
}

impl DslPool {
    /// Frees a head's tree; the directory is charged for nothing after that.
    pub(crate) fn free_tree(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        self.destroy_zil(ds, tx)?;
        let min_txg = ds.prev_snap_txg();
        if self.mos().env().feature_is_enabled(feature::ASYNC_DESTROY) {
            self.log(ds, "destroy", &format!("(bptree, mintxg={min_txg})"), tx)?;
            return self.free_tree_later(ds, tx);
        }
        let text = format!("(synchronous, mintxg={min_txg})");
        self.log(ds, "destroy", &text, tx)?;
        self.free_tree_now(ds, tx)
    }

    /// Frees a tree in this txg, however long that takes: the pool may not have a queue.
    #[doc(alias = "old_synchronous_dataset_destroy")]
    fn free_tree_now(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let scope = Scope {
            objset: Bookmark::DESTROYED_OBJSET,
            min_txg: ds.prev_snap_txg(),
            order: Order::Post,
            resume: None,
            always_accounts: false,
        };
        let mut freed = AtOnce(Freed::new(self, tx));
        match traverse(&ds.root_bp(), &scope, &mut freed) {
            Err(Stop { error: Some(e), .. }) => return Err(e),
            Err(Stop { error: None, .. }) => unreachable!("it does not pause"),
            Ok(()) => {}
        }
        self.diduse_space(&ds.dir(), Used::Head, -freed.0.space);
        Ok(())
    }

    /// Puts a head's tree on the queue.
    #[doc(alias = "dsl_async_dataset_destroy")]
    fn free_tree_later(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        let queue = *self.bptree.lock();
        let object = match queue {
            Some(object) => object,
            None => {
                mos.env().feature_incr(feature::ASYNC_DESTROY, tx)?;
                let object = Bptree::alloc(mos, tx)?;
                directory::add(mos.objset(), pool_names::BPTREE_OBJ, object, tx)?;
                *self.bptree.lock() = Some(object);
                object
            }
        };
        let dir = ds.dir();
        let space = dir.fields().space();
        let fields = ds.fields();
        assert!(
            fields.unique_bytes.cast_signed() == space.used || !cfg!(test),
            "{} has {} bytes to itself, its directory uses {}",
            dir.name(),
            fields.unique_bytes,
            space.used
        );
        Bptree { mos, object }.add(fields.bp(), fields.prev_snap_txg, space, tx)?;
        self.diduse_space(&dir, Used::Head, -space);
        self.diduse_space(self.free_dir()?, Used::Head, space);
        Ok(())
    }

    /// Frees the blocks of a head's intent log, which are not in any account.
    fn destroy_zil(&self, ds: &Arc<DslDataset>, tx: &Tx) -> Result<()> {
        let header = ds.objset()?.zil_header();
        if header != ZilHeaderPhys::default() {
            zil::destroy_sync(self.log_store().as_ref(), ds.objset_id(), &header, tx)?;
        }
        Ok(())
    }

    /// Whether blocks of destroyed datasets are still to be freed.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        let listed = self.free_bpobj().is_ok_and(|list| !list.is_empty());
        let clones = directory::find(self.mos().objset(), pool_names::DELETED_CLONES);
        let cloned = clones.is_ok_and(|set| set.is_some());
        listed || cloned || self.bptree.lock().is_some()
    }

    /// Bytes that destroyed datasets still occupy (`$FREE`): `zpool get freeing`.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free_dir().map_or(0, |dir| dir.fields().used_bytes)
    }

    /// Frees blocks of destroyed datasets: as many as this txg has time for. Called in pass 1,
    /// after the tasks.
    ///
    /// # Errors
    /// Any error from the MOS. Trees with unreadable blocks are left on the queue.
    #[doc(alias = "dsl_process_async_destroys")]
    pub fn process_async_destroys(&self, tx: &Tx) -> Result<()> {
        let mut freed = Freed::new(self, tx);
        let list = self.free_bpobj()?;
        let mut finished = true;
        if !list.is_empty() {
            finished = list.drain(tx, &mut |bp, _| Ok(freed.free(bp, true)))?;
        }
        let queue = *self.bptree.lock();
        if let Some(object) = queue.filter(|_| finished) {
            self.process_bptree(object, &mut freed, tx)?;
        }
        self.process_deleted_clones(&mut freed, tx)?;
        if !freed.space.is_zero() {
            self.diduse_space(self.free_dir()?, Used::Head, -freed.space);
        }
        Ok(())
    }

    fn process_bptree(&self, object: ObjectId, freed: &mut Freed<'_>, tx: &Tx) -> Result<()> {
        let bptree = Bptree {
            mos: self.mos(),
            object,
        };
        let mut header = bptree.header()?;
        let before = freed.space;
        // Set once a tree could not be read: its entry stays, and so do the entries after it.
        let mut stuck = false;
        let entries = header.begin.get()..header.end.get();
        bptree.check_entries(&entries)?;
        for at in entries {
            let mut entry = bptree.entry(at)?;
            let scope = Scope {
                objset: Bookmark::DESTROYED_OBJSET,
                min_txg: Txg(entry.birth_txg.get()),
                order: Order::Post,
                resume: Point::from_phys(&entry.bookmark),
                always_accounts: false,
            };
            match traverse(&entry.bp, &scope, freed) {
                Ok(()) if stuck => {
                    // No block is born after this txg, so a later walk finds nothing to free.
                    entry.birth_txg.set(u64::MAX);
                    bptree.set_entry(at, &entry, tx)?;
                }
                Ok(()) => bptree.advance(&mut header, tx)?,
                Err(Stop {
                    error: Some(error), ..
                }) if !is_damage(error.kind()) => return Err(error),
                Err(Stop { at: point, error }) => {
                    let bookmark = point.map(|point| point.to_phys(Bookmark::DESTROYED_OBJSET));
                    entry.bookmark = bookmark.unwrap_or_default();
                    bptree.set_entry(at, &entry, tx)?;
                    if error.is_none() {
                        break;
                    }
                    stuck = true;
                }
            }
        }
        add_space(&mut header, before - freed.space);
        bptree.store(&header, tx)?;
        if header.begin == header.end {
            self.mos().env().feature_decr(feature::ASYNC_DESTROY, tx)?;
            directory::remove(self.mos().objset(), pool_names::BPTREE_OBJ, tx)?;
            self.mos().free_object(object, tx)?;
            *self.bptree.lock() = None;
        }
        Ok(())
    }
}

/// Whether the error means on-disk damage, as opposed to a failure of the whole pool.
fn is_damage(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Corrupt | ErrorKind::Unsupported
    )
}

/// Blocks freed in this txg.
pub(crate) struct Freed<'a> {
    pool: &'a DslPool,
    txg: Txg,
    count: u64,
    space: Space,
}

impl<'a> Freed<'a> {
    fn new(pool: &'a DslPool, tx: &Tx) -> Freed<'a> {
        Freed {
            pool,
            txg: tx.txg(),
            count: 0,
            space: Space::ZERO,
        }
    }

    /// Frees a block, unless it is time to pause.
    fn free(&mut self, bp: &BlkPtrPhys, may_pause: bool) -> Step {
        if may_pause && self.should_pause() {
            return Step::Pause;
        }
        self.free_now(bp);
        Step::Continue
    }

    pub(crate) fn should_pause(&self) -> bool {
        self.pool.mos().env().destroy_should_pause(self.count)
    }

    pub(crate) fn free_now(&mut self, bp: &BlkPtrPhys) {
        let env = self.pool.mos().env();
        if !bp.is_embedded() {
            env.free_sync(self.txg, bp);
        }
        self.space += Space::of_block(env, bp);
        self.count += 1;
    }
}

impl Visitor for Freed<'_> {
    fn read(&mut self, link: &Link<'_>) -> Result<Buf> {
        self.pool.store().read_keyless(link.bp, &link.at)
    }

    fn leave(&mut self, link: &Link<'_>) -> Step {
        self.free(link.bp, link.at.level == 0)
    }
}

/// Frees without a pause.
struct AtOnce<'a>(Freed<'a>);

impl Visitor for AtOnce<'_> {
    fn read(&mut self, link: &Link<'_>) -> Result<Buf> {
        self.0.read(link)
    }

    fn leave(&mut self, link: &Link<'_>) -> Step {
        self.0.free_now(link.bp);
        Step::Continue
    }
}
