//! Writing behind: the records of a stream are written before their txg is synced.
//!
//! # What it is
//! A sequential writer rarely rewrites earlier records. Full records that are stored uncompressed, in
//! the clear or encrypted, are therefore allocated, and their writes begun, while their txg is still open. So
//! devices are busy while the previous txg is finished, and a long stream does not need a txg for each
//! part that fits into memory: of a record that is written only the pointer is still dirty, and the
//! cache may keep or drop its bytes. The sync only puts the pointers into their parents.
//!
//! The range `from..next` of the stream was written in sequence in this layer and is not begun yet. Its
//! blocks are begun in order, so that a file lies on disk in the order it was written.
//! ```text
//!   Data --begun--> Begun --all its piece is written--> Written      (crate::dirty::Block)
//!    ^                |                                    |
//!    +---changed or dropped: what was begun is abandoned---+
//! ```
//!
//! # Invariants
//! 1. A pointer in the layer leads to the block's current content: a change or a free of the block
//!    abandons the pointer.
//! 2. What was abandoned is freed when the txg is synced, not before: its write may be in flight. Until then
//!    it is charged, so that the space which one txg can waste is bounded like its dirty bytes.
//! 3. Once a dirty block of a layer was replaced or dropped, or changed after it was begun, the layer is
//!    not written behind any more.
//! 4. Nothing is counted as born before the txg is synced.
//! 5. Blocks that are deduplicated are never written behind: the dedup tables are those of the syncing txg.
//!
//! # Crash argument
//! As for all blocks of a txg: they go to free space, and nothing leads to them before its uberblock.
//! The sync waits for them before it installs the tree that refers to them.
//!
//! # Concurrency
//! A piece is taken with the dnode locked and begun without the lock; the txg is held meanwhile. A
//! change of a block in between makes a new buffer (the one being written has a second owner), which is
//! noticed when the pointers are noted. The thread that completes the write of a piece notes that it is
//! written; once the layer is frozen, only the sync waits for it.
//!
//! # Source
//! OpenZFS also writes some blocks in open context: module/zfs/dmu.c (`dmu_sync`),
//! module/zfs/dmu_direct.c (`dmu_write_direct`), module/zfs/dbuf.c (`dbuf_unoverride`) @be7657e3. It
//! does so for fsync and for O_DIRECT, not for streams.

use std::ops::Range;
use std::sync::Arc;

use base::BlkId;
use phys::blkptr::BlkPtrPhys;
use zio::{Bookmark, Prepared, Run, UnderWay, WriteRequest};

use crate::dirty::{Block, Charge, Dirty, Fields, charge_of};
use crate::dnode::State;
use crate::{Dnode, ObjsetProps, Tx};

/// The blocks of an object that were written in sequence: `head..next`. The last one may be filled piece by piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    head: u64,
    next: u64,
}

impl Stream {
    /// Notes that blocks are written; returns whether they continue the stream.
    fn advance(&mut self, written: &Range<u64>) -> bool {
        let goes_on = [self.next, self.next.saturating_sub(1)].contains(&written.start);
        if !goes_on {
            self.head = written.start;
        }
        self.next = written.end;
        goes_on
    }

    /// The part of the stream up to and including a block of `blksz` bytes; outside it, that block alone.
    pub(crate) fn run(self, blkid: u64, blksz: u64) -> Run {
        let is_in = (self.head..self.next).contains(&blkid);
        let blocks = if is_in { blkid - self.head + 1 } else { 1 };
        Run {
            bytes: blocks * blksz,
            object_bytes: u64::MAX,
        }
    }
}

/// The write-behind state of a layer; see the module.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    from: u64,
    pub(crate) stream: Stream,
    is_closed: bool,
    under_way: Vec<UnderWay>,
    abandoned: Vec<BlkPtrPhys>,
}

impl Behind {
    /// Notes that blocks were written; `stream` is the object's, which may have begun in an earlier layer.
    fn advance(&mut self, stream: &mut Stream, written: &Range<u64>) {
        let is_first = self.stream.next == 0;
        if !stream.advance(written) || is_first {
            self.from = written.start;
        }
        self.stream = *stream;
    }

    /// Takes what is not begun of the stream, if it is at least `least` blocks.
    fn take(&mut self, least: u64) -> Range<u64> {
        let taken = self.from..self.stream.next;
        if self.is_closed || taken.end - taken.start < least {
            return 0..0;
        }
        self.from = self.stream.next;
        taken
    }

    /// Notes that a block changes or is dropped; returns what is still charged for it.
    pub(crate) fn abandon(&mut self, block: Block) -> Charge {
        self.is_closed = true;
        match block {
            Block::Data(_) | Block::Rewritten(_) | Block::Cloned(_) => Charge::default(),
            Block::Begun(_, bp) | Block::Written(bp) => {
                let waste = Charge::waiting(charge_of(bp.asize() as usize));
                self.abandoned.push(*bp);
                waste
            }
        }
    }

    /// The layer is not written behind any more.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Blocks that were begun and are not referenced.
    pub(crate) fn abandoned(&self) -> &[BlkPtrPhys] {
        &self.abandoned
    }

    /// The writes that the sync has to wait for.
    pub(crate) fn take_under_way(&mut self) -> Vec<UnderWay> {
        std::mem::take(&mut self.under_way)
    }
}

/// Blocks that are begun together.
type Piece = Vec<(u64, Prepared)>;
/// A block, and where it was written.
type Written = (u64, BlkPtrPhys);

impl Dirty {
    /// Takes what is not begun of the stream; returns the blocks in it that were written whole.
    fn take_piece(&mut self, least_bytes: u64) -> Piece {
        let least = least_bytes.div_ceil(self.fields.blksz).max(1);
        let taken = self.behind.take(least);
        let ready = |blkid| match self.blocks.get(&blkid) {
            Some(Block::Data(data)) if data.is_whole() => Some((blkid, data.clone())),
            _ => None,
        };
        taken.filter_map(ready).collect()
    }

    /// Notes where a piece is being written; blocks that have changed meanwhile are abandoned.
    fn note_begun(&mut self, piece: Piece, bps: &[BlkPtrPhys]) -> Charge {
        let mut charge = Charge::default();
        for ((blkid, data), bp) in piece.into_iter().zip(bps) {
            let begun = Block::Begun(data.clone().into(), Box::new(*bp));
            match self.blocks.get_mut(&blkid) {
                Some(Block::Data(now)) if now.is_same(&data) => {
                    charge += begun.charge() - Block::Data(data).charge();
                    self.blocks.insert(blkid, begun);
                }
                _ => charge += self.behind.abandon(begun),
            }
        }
        charge
    }

    /// Blocks have been written: their bytes need not be kept.
    fn note_written(&mut self, blocks: &[Written]) -> Charge {
        let mut charge = Charge::default();
        for (blkid, written) in blocks {
            let Some(block) = self.blocks.get_mut(blkid) else {
                continue;
            };
            if matches!(block, Block::Begun(_, bp) if **bp == *written) {
                charge -= block.charge();
                *block = Block::Written(Box::new(*written));
                charge += block.charge();
            }
        }
        charge
    }
}

impl Dnode {
    /// Notes that blocks were written; if full records among them are `ready` to be stored, begins to
    /// write those that form a stream.
    pub(crate) fn write_behind(&self, tx: &Tx, written: &Range<u64>, ready: bool) {
        let Some(groups) = tx.groups() else { return };
        let store = &self.context.store;
        let (piece, fields, stream) = {
            let mut state = self.state();
            let State { dirty, stream, .. } = &mut *state;
            let Some(layer) = dirty else { return };
            layer.behind.advance(stream, written);
            if !ready {
                return;
            }
            let piece = layer.take_piece(groups.write_behind_bytes());
            if piece.is_empty() || !store.has_spare() {
                return;
            }
            (piece, layer.fields.clone(), *stream)
        };
        let props = self.context.props();
        if !props.write_policy(&fields.leaf()).writes_behind() {
            // The properties have changed since: the sync looks for blocks in the dedup tables, this does not.
            return;
        }
        let request = |(blkid, data): &(u64, Prepared)| WriteRequest {
            run: stream.run(*blkid, fields.blksz),
            ..self.leaf(&fields, &props, *blkid, data)
        };
        let requests = piece.iter().map(request);
        let mut under_way = UnderWay::behind();
        let begun = store.begin_batch(tx.txg(), requests.collect(), &mut under_way);
        let Ok(bps) = begun else {
            // They are still dirty: the sync will write them, or report why not.
            return;
        };
        let blkids = piece.iter().map(|(blkid, _)| *blkid);
        let places: Arc<[Written]> = blkids.zip(bps.iter().copied()).collect();
        self.recharge(|layer| {
            let mut charge = layer.note_begun(piece, &bps);
            let (dnode, written) = (self.me(), Arc::clone(&places));
            let then = move || dnode.recharge(|layer| layer.note_written(&written));
            if !under_way.then(then) && under_way.is_written() {
                charge += layer.note_written(&places);
            }
            layer.behind.under_way.retain(|piece| !piece.is_written());
            layer.behind.under_way.push(under_way);
            charge
        });
        groups.pause_behind();
    }

    /// Runs `f` on the layer of the open txg, if there is one, and applies the change of charge it returns.
    fn recharge(&self, f: impl FnOnce(&mut Dirty) -> Charge) {
        let mut state = self.state();
        if let Some(layer) = &mut state.dirty {
            let charge = f(layer);
            layer.charge(charge);
            self.context.recharge(charge);
        }
    }

    fn leaf(
        &self,
        fields: &Fields,
        props: &ObjsetProps,
        blkid: u64,
        data: &Prepared,
    ) -> WriteRequest {
        let kind = fields.leaf();
        let policy = props.write_policy(&kind);
        let bookmark = Bookmark::new(self.objset_id(), self.id(), 0, BlkId(blkid));
        WriteRequest::new(data.clone(), policy, kind.type_.raw(), bookmark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(writes: &[Range<u64>], blkid: u64) -> u64 {
        let mut stream = Stream::default();
        for written in writes {
            stream.advance(written);
        }
        stream.run(blkid, 4096).bytes / 4096
    }

    #[test]
    fn blocks_one_after_the_other_are_a_run() {
        assert_eq!(run_of(&[0..1, 1..2, 2..8], 6), 7);
        // Filled piece by piece.
        assert_eq!(run_of(&[3..4, 3..4, 3..5, 4..5, 5..6], 5), 3);
        // A block outside the stream is a run of its own.
        assert_eq!(run_of(&[0..8, 8..16], 20), 1);
    }

    #[test]
    fn blocks_here_and_there_are_none() {
        let sparse: Vec<Range<u64>> = (0..60).map(|n| n * 8..n * 8 + 1).collect();
        assert_eq!(run_of(&sparse, 59 * 8), 1);
        assert_eq!(run_of(&[0..100, 50..51], 50), 1);
    }
}
