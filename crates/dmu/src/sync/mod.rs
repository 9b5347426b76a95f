//! Writing an objset: one pass over everything that is frozen, level by level.
//!
//! # What it is
//! A pass takes the frozen layers of all dirty dnodes and writes, in this order and in bounded batches
//! over all dnodes: level 0, level 1, up to the top; the blocks of dnodes, and the levels of the
//! meta-dnode above them; the objset block. Only then are the new trees installed, and only when no
//! reader is left in the old ones are the replaced blocks killed.
//!
//! A new pointer for a block's parent is a [`Patch`](work::Patch): patches wait per indirect block, so
//! that an indirect block is loaded, changed and written once, and at most a batch of them is in memory.
//!
//! # Invariants
//! 1. Every block born in a pass is referenced by what the pass installs; every block that is not
//!    referenced any more is killed once. What was begun in open context and abandoned was never born:
//!    it is only freed.
//! 2. In the first pass of a txg nothing is overwritten. Later passes (of the MOS) overwrite blocks born
//!    in this txg in place: new readers are first directed to copies in memory (`State::pending`), and
//!    earlier readers are waited for.
//! 3. In the first pass blocks are begun and not waited for, so that devices write one level while the
//!    next one is built. All of them are written before the new trees are installed: no block is read
//!    while it is in flight.
//! 4. Holes carry the txg of their birth wherever something was there before.
//!
//! # Crash argument
//! Nothing of a pass is reachable before the uberblock that leads to it is written: all writes go to
//! space that was free at the last uberblock.
//!
//! # Concurrency
//! One thread per objset. Open context goes on reading and writing meanwhile.
//!
//! # Source
//! OpenZFS module/zfs/dnode_sync.c, module/zfs/dbuf.c (`dbuf_write`, `dbuf_write_ready`,
//! `dbuf_write_done`), module/zfs/dmu_objset.c (`dmu_objset_sync`) @be7657e3.

mod batch;
mod dnodes;
mod frees;
mod work;

use std::sync::Arc;

use base::{Buf, Result};
use phys::ObjectType;
use phys::blkptr::BlkPtrPhys;
use zio::{Bookmark, Prepared, Run, UnderWay, WriteRequest};

use crate::account::OwnerDeltas;
use crate::dirty::{Block, charge_of};
use crate::objset::Header;
use crate::props::BlockKind;
use crate::{Dnode, Objset, ObjsetProps, Tx};
use batch::{Batch, BlockOwner};
use work::{Patch, Work};

/// `zfs_sync_pass_rewrite`: from this pass on blocks are overwritten in place.
const PASS_REWRITE: u32 = 2;
/// `zfs_sync_pass_dont_compress`: from this pass on overwritten blocks keep their size.
const PASS_DONT_COMPRESS: u32 = 8;

/// One call of [`Objset::sync`].
struct Pass<'a> {
    objset: &'a Objset,
    tx: &'a Tx,
    number: u32,
    props: Arc<ObjsetProps>,
    kills: Vec<BlkPtrPhys>,
    deltas: OwnerDeltas,
    under_way: UnderWay,
    /// Writes that were begun in open context.
    begun: Vec<UnderWay>,
    under_way_bytes: u64,
    /// Bytes charged for the blocks of level 0 that are in flight.
    leaf_bytes: u64,
}

impl Objset {
    /// Writes everything that is frozen or was changed in syncing context, and returns the pointer to
    /// the objset block. `pass` counts from 1 within a txg. To be repeated while
    /// [`needs_sync`](Objset::needs_sync).
    ///
    /// # Errors
    /// Errors from the block store. Nothing is installed then, and the txg cannot be finished.
    #[doc(alias = "dmu_objset_sync")]
    pub fn sync(self: &Arc<Self>, tx: &Tx, pass: u32) -> Result<BlkPtrPhys> {
        assert!(tx.is_syncing(), "objset {} synced with {tx:?}", self.id());
        assert!(pass >= 1, "passes count from 1");
        self.context.forget_announced();
        if pass == 1 {
            self.forget_written();
        }
        let header_dirty = self.take_header_dirty();
        let mut dnodes = self.context.take_frozen();
        if dnodes.is_empty() && !header_dirty {
            return Ok(self.root_bp());
        }
        dnodes.sort_unstable_by_key(|dnode| dnode.id());
        let mut pass = Pass {
            objset: self,
            tx,
            number: pass,
            props: self.props(),
            kills: Vec::new(),
            deltas: OwnerDeltas::default(),
            under_way: UnderWay::default(),
            begun: Vec::new(),
            under_way_bytes: 0,
            leaf_bytes: 0,
        };
        let deltas = pass.run(dnodes)?;
        if let Some(owners) = self.owners()
            && !deltas.is_empty()
        {
            owners.account(self, tx, &deltas)?;
        }
        Ok(self.root_bp())
    }
}

impl Pass<'_> {
    fn run(&mut self, dnodes: Vec<Arc<Dnode>>) -> Result<OwnerDeltas> {
        let mut works: Vec<Work> = dnodes.into_iter().map(Work::begin).collect();
        let begun = works.iter_mut().map(|work| std::mem::take(&mut work.begun));
        self.begun = begun.flatten().collect();
        self.write_trees(&mut works)?;
        for work in &mut works {
            self.finish_dnode(work)?;
        }
        let mut meta = self.write_dnodes(&works)?;
        let root = self.write_objset(&works, &meta)?;
        self.wait_under_way()?;
        self.install(&works, &mut meta, root);
        for kill in std::mem::take(&mut self.kills) {
            self.objset.context.accounting.kill(&kill, self.tx);
        }
        for bp in works.iter().flat_map(|work| work.layer.behind.abandoned()) {
            self.objset.context.store.free(self.tx.txg(), bp);
        }
        Ok(std::mem::take(&mut self.deltas))
    }

    /// Whether blocks may be overwritten in place.
    fn overwrites(&self) -> bool {
        self.number >= PASS_REWRITE
    }

    /// Writes all levels of all objects below their dnodes.
    fn write_trees(&mut self, works: &mut [Work]) -> Result<()> {
        for work in works.iter_mut() {
            self.apply_frees(work)?;
            self.grow(work);
            if self.overwrites() {
                work.show_pending()?;
            }
        }
        self.write_leaves(works)?;
        self.write_indirects(works)
    }

    fn write_leaves(&mut self, works: &mut [Work]) -> Result<()> {
        let mut batch = Batch::default();
        for at in 0..works.len() {
            let layer = Arc::clone(&works[at].layer);
            if layer.freeing {
                continue;
            }
            for (&blkid, block) in &layer.blocks {
                let (data, keeps_birth) = match block {
                    Block::Data(data) => (data, None),
                    Block::Rewritten(data) => {
                        let old = works[at].walk.bp(0, blkid)?;
                        (
                            data,
                            Some(old.birth())
                                .filter(|birth| !old.is_hole() && *birth <= self.tx.txg()),
                        )
                    }
                    Block::Begun(_, bp) | Block::Written(bp) | Block::Cloned(bp) => {
                        self.leaf_bytes += block.charge().total().unsigned_abs();
                        self.adopt(&mut works[at], blkid, **bp);
                        continue;
                    }
                };
                let old = self.rewritable(&mut works[at], 0, blkid)?;
                let request = WriteRequest {
                    keeps_birth,
                    ..self.request(&works[at], 0, blkid, data.clone(), 1, old)
                };
                batch.push(
                    BlockOwner {
                        work: at,
                        level: 0,
                        blkid,
                    },
                    request,
                );
                if batch.is_full() {
                    self.flush(&mut batch, works)?;
                }
            }
            if let crate::SpillChange::Set(data) = &layer.spill {
                let request = self.spill_request(&works[at], data.clone());
                batch.push(BlockOwner::spill(at), request);
                if batch.is_full() {
                    self.flush(&mut batch, works)?;
                }
            }
        }
        self.flush(&mut batch, works)
    }

    /// Takes over a block that was begun in open context, or cloned.
    fn adopt(&self, work: &mut Work, blkid: u64, bp: BlkPtrPhys) {
        if !bp.is_hole() {
            self.objset.context.accounting.born(&bp, self.tx);
        }
        let keep_birth = false;
        work.patch(0, blkid, Patch { bp, keep_birth });
    }

    /// Writes the indirect blocks that have patches, and patches their parents.
    fn write_indirects(&mut self, works: &mut [Work]) -> Result<()> {
        let levels = works
            .iter()
            .map(|work| work.walk.tree.nlevels)
            .max()
            .unwrap_or(1);
        let mut batch = Batch::default();
        for level in 1..levels {
            for at in 0..works.len() {
                let changed = works[at].take_patches(level);
                for (index, (&blkid, patches)) in changed.iter().enumerate() {
                    if index % PREFETCH_BLOCKS == 0 && !self.overwrites() {
                        let next = changed.keys().skip(index).take(PREFETCH_BLOCKS);
                        works[at].prefetch(level, next);
                    }
                    let request = self.patched(&mut works[at], level, blkid, patches)?;
                    let place = BlockOwner {
                        work: at,
                        level,
                        blkid,
                    };
                    match request {
                        Err(hole) => works[at].patch(level, blkid, hole),
                        Ok(request) => batch.push(place, request),
                    }
                    if batch.is_full() {
                        self.flush(&mut batch, works)?;
                    }
                }
            }
            self.flush(&mut batch, works)?;
        }
        Ok(())
    }

    /// An indirect block with its patches applied: to be written, or a hole.
    fn patched(
        &mut self,
        work: &mut Work,
        level: u8,
        blkid: u64,
        patches: &work::BlockPatches,
    ) -> Result<Result<WriteRequest, Patch>> {
        let node = work.walk.node(level, blkid)?;
        let mut buf = node.to_buf(work.walk.tree.lsize(level) as usize);
        let entries = crate::tree::entries_mut(buf.make_mut());
        for (&index, patch) in patches {
            entries[index] = self.settle(work, &entries[index], patch);
        }
        let present = entries.iter().filter(|bp| !bp.is_hole());
        // A corrupt pointer may have any fill count.
        let (count, fill) = present.fold((0u64, 0u64), |(n, fill), bp| {
            (n + 1, fill.saturating_add(bp.fill()))
        });
        if count == 0 {
            // Keeps the birth of freed children, so that an incremental send sees them as freed.
            let keep_birth = entries.iter().any(|bp| bp.birth().0 != 0);
            return Ok(Err(self.hole(work, level, keep_birth)));
        }
        let old = self.rewritable(work, level, blkid)?;
        Ok(Ok(self.request(work, level, blkid, buf.into(), fill, old)))
    }

    fn hole(&self, work: &Work, level: u8, keep_birth: bool) -> Patch {
        let type_ = work.new.core.type_;
        let lsize = work.walk.tree.lsize(level);
        let bp = BlkPtrPhys::new_hole(type_, level, lsize, self.tx.txg());
        Patch { bp, keep_birth }
    }

    /// The pointer to store in place of `old`. Accounts the space, and queues `old` to be killed.
    fn settle(&mut self, work: &mut Work, old: &BlkPtrPhys, patch: &Patch) -> BlkPtrPhys {
        let mut bp = patch.bp;
        if bp.is_hole() {
            let born = self.props.hole_birth && (patch.keep_birth || old.birth().0 != 0);
            let type_ = work.new.core.type_;
            bp = if born {
                BlkPtrPhys::new_hole(type_, bp.level(), bp.lsize(), self.tx.txg())
            } else {
                BlkPtrPhys::default()
            };
        }
        if !is_in_place(old, &bp, self.tx) {
            self.bury(work, old);
            self.charge(work, &bp);
        }
        bp
    }

    /// Takes a block that is not referenced any more off the object's space, and queues it to be killed.
    fn bury(&mut self, work: &mut Work, bp: &BlkPtrPhys) {
        if !bp.is_hole() {
            work.used_bytes -= self.objset.context.accounting.dsize(bp) as i64;
            self.kills.push(*bp);
        }
    }

    fn charge(&self, work: &mut Work, bp: &BlkPtrPhys) {
        if !bp.is_hole() {
            work.used_bytes += self.objset.context.accounting.dsize(bp) as i64;
        }
    }

    /// The pointer of a block that may be overwritten in place.
    fn rewritable(&self, work: &mut Work, level: u8, blkid: u64) -> Result<Option<BlkPtrPhys>> {
        if !self.overwrites() {
            return Ok(None);
        }
        let old = work.walk.bp(level, blkid)?;
        Ok(self.if_rewritable(old))
    }

    fn if_rewritable(&self, old: BlkPtrPhys) -> Option<BlkPtrPhys> {
        let own = !old.is_hole() && !old.is_embedded() && old.allocation_birth() == self.tx.txg();
        (own && self.overwrites() && self.objset.has_written(&old)).then_some(old)
    }

    fn request(
        &self,
        work: &Work,
        level: u8,
        blkid: u64,
        data: Prepared,
        fill: u64,
        rewrite: Option<BlkPtrPhys>,
    ) -> WriteRequest {
        let kind = BlockKind {
            level,
            ..work.layer.fields.leaf()
        };
        let bookmark = work.walk.tree.bookmark(level, blkid);
        let run = match level {
            0 => work.layer.behind.stream.run(blkid, data.len() as u64),
            _ => Run::default(),
        };
        WriteRequest {
            run,
            kept_above: level == 0 && work.layer.kept_above,
            ..self.request_of(&kind, bookmark, data, fill, rewrite)
        }
    }

    fn spill_request(&self, work: &Work, data: Buf) -> WriteRequest {
        let kind = BlockKind {
            type_: work.new.bonus_type(),
            level: 0,
            is_spill: true,
            checksum: None,
            compress: None,
            storage: None,
        };
        let bookmark = Bookmark::spill(self.objset.id(), work.dnode.id());
        let old = work.old.spill.and_then(|old| self.if_rewritable(old));
        self.request_of(&kind, bookmark, data.into(), 1, old)
    }

    fn request_of(
        &self,
        kind: &BlockKind,
        bookmark: Bookmark,
        data: Prepared,
        fill: u64,
        rewrite: Option<BlkPtrPhys>,
    ) -> WriteRequest {
        let mut policy = self.props.write_policy(kind);
        if rewrite.is_some() && self.number >= PASS_DONT_COMPRESS {
            policy.compress = compress::Algorithm::Off;
        }
        WriteRequest {
            data,
            policy,
            object_type: kind.type_.raw(),
            level: kind.level,
            fill,
            bookmark,
            rewrite,
            keeps_birth: None,
            run: Run::default(),
            kept_above: false,
        }
    }

    /// Writes a batch and patches the parents with the new pointers.
    fn flush(&mut self, batch: &mut Batch, works: &mut [Work]) -> Result<()> {
        let (places, requests) = batch.take();
        if requests.is_empty() {
            return Ok(());
        }
        let (leaves, bps) = self.write(requests)?;
        assert_eq!(places.len(), bps.len(), "one pointer per block");
        for (place, bp) in places.into_iter().zip(bps) {
            let work = &mut works[place.work];
            if place.is_spill() {
                work.new_spill = Some(bp);
            } else {
                work.patch(
                    place.level,
                    place.blkid,
                    Patch {
                        bp,
                        keep_birth: false,
                    },
                );
            }
        }
        self.leaf_bytes += leaves;
        Ok(())
    }

    /// Writes blocks; also returns what those of level 0 among them were charged.
    fn write(&mut self, requests: Vec<WriteRequest>) -> Result<(u64, Vec<BlkPtrPhys>)> {
        let leaves = requests
            .iter()
            .filter(|r| r.level == 0)
            .map(|r| charge_of(r.data.len()))
            .sum();
        let olds: Vec<_> = requests.iter().map(|request| request.rewrite).collect();
        let context = &self.objset.context;
        let bps = if self.overwrites() {
            context.store.write_batch(self.tx.txg(), requests)?
        } else {
            self.make_room_under_way(&requests)?;
            let txg = self.tx.txg();
            context
                .store
                .begin_batch(txg, requests, &mut self.under_way)?
        };
        for (bp, old) in bps.iter().zip(olds) {
            self.objset.note_written(bp);
            let in_place = old.is_some_and(|old| is_in_place(&old, bp, self.tx));
            if !bp.is_hole() && !in_place {
                context.accounting.born(bp, self.tx);
            }
        }
        Ok((leaves, bps))
    }

    /// Bounds the memory that writes in flight take: waits for all of them if the limit is reached.
    fn make_room_under_way(&mut self, requests: &[WriteRequest]) -> Result<()> {
        let bytes: u64 = requests.iter().map(bytes_under_way).sum();
        if self.under_way_bytes + bytes > UNDER_WAY_BYTES {
            self.wait_under_way()?;
        }
        self.under_way_bytes += bytes;
        Ok(())
    }

    /// Waits until all blocks of the pass are written.
    fn wait_under_way(&mut self) -> Result<()> {
        self.under_way_bytes = 0;
        self.under_way.wait()?;
        for mut begun in std::mem::take(&mut self.begun) {
            begun.wait()?;
        }
        let leaves = std::mem::take(&mut self.leaf_bytes);
        self.objset.context.written(leaves);
        Ok(())
    }

    fn write_objset(&mut self, works: &[Work], meta: &Work) -> Result<BlkPtrPhys> {
        let (data, old) = {
            let mut header = self.objset.header.lock();
            dnodes::store_slot(&mut header.phys.meta_dnode, Some(&meta.new));
            for work in works {
                if let Some(slot) = Objset::special_slot(&mut header, work.dnode.id()) {
                    dnodes::store_slot(slot, Some(&work.new).filter(|image| image.exists));
                }
            }
            let Header { phys, size, root } = &*header;
            (Buf::copy_of(phys.form(*size)), *root)
        };
        let kind = BlockKind {
            type_: ObjectType::OBJSET,
            level: 0,
            is_spill: false,
            checksum: None,
            compress: None,
            storage: None,
        };
        let rewrite = self.if_rewritable(old);
        let bookmark = Bookmark::root(self.objset.id());
        let request = self.request_of(&kind, bookmark, data.into(), meta.new.fill(), rewrite);
        let (_, mut bps) = self.write(vec![request])?;
        let bp = bps.pop().expect("one pointer per block");
        assert!(
            !bp.is_hole() && !bp.is_embedded(),
            "the objset block is a block"
        );
        if !old.is_hole() && !is_in_place(&old, &bp, self.tx) {
            self.kills.push(old);
        }
        Ok(bp)
    }

    /// Makes the new trees visible, and waits for the readers of the old ones.
    fn install(&mut self, works: &[Work], meta: &mut Work, root: BlkPtrPhys) {
        works.iter().for_each(Work::install);
        {
            let mut cache = self.objset.cache.lock();
            meta.install();
            cache.generation += 1;
            for work in works {
                if work.layer.allocated {
                    cache.unsynced.remove(&work.dnode.id());
                }
                if work.layer.freeing {
                    cache.remove(work.dnode.id());
                }
            }
        }
        self.objset.header.lock().root = root;
        works.iter().for_each(|work| work.dnode.drain_readers());
        meta.dnode.drain_readers();
        let left = works.iter().map(Work::charged_beyond_blocks).sum();
        self.objset.context.written(left);
    }
}

/// Most bytes of memory that the blocks in flight of one pass may take, beyond what they were charged.
const UNDER_WAY_BYTES: u64 = 24 << 20;

/// Bytes of memory that a block takes while in flight, beyond what it was charged.
fn bytes_under_way(request: &WriteRequest) -> u64 {
    let is_as_it_was = request.level == 0 && request.policy.compress == compress::Algorithm::Off;
    if is_as_it_was {
        0
    } else {
        request.data.len() as u64
    }
}

/// Indirect blocks fetched at a time.
const PREFETCH_BLOCKS: usize = 64;

/// Whether `new` is `old`, overwritten in place.
fn is_in_place(old: &BlkPtrPhys, new: &BlkPtrPhys, tx: &Tx) -> bool {
    let is_new = |bp: &BlkPtrPhys| bp.allocation_birth() == tx.txg();
    let block = |bp: &BlkPtrPhys| !bp.is_hole() && !bp.is_embedded() && is_new(bp);
    block(old) && block(new) && old.identity() == new.identity()
}
