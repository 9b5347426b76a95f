//! Reading: layers first, then the block tree; many blocks at a time.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_read`), module/zfs/dbuf.c (`dbuf_read`) @be7657e3.

use std::sync::Arc;

use base::{BlkId, Buf, BufSlice, Error, Result, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use phys::blkptr::BlkPtrPhys;
use zio::{Bookmark, Run};

use crate::dirty::Block;
use crate::dnode::{State, Ticket, View};
use crate::prefetch::Progress;
use crate::tree::{Walk, check_len, check_shape};
use crate::{Dnode, SpillChange};

/// Where the content of a block is.
pub(crate) enum Found {
    Memory(Buf),
    Zeros,
    /// Written there, but not yet in the tree, whose block size may differ.
    Stored(BlkPtrPhys),
    /// Where the tree says.
    Disk,
}

impl Found {
    /// Whether the block store has it.
    fn is_stored(&self) -> bool {
        matches!(self, Found::Stored(_) | Found::Disk)
    }
}

/// The part of a block that a read wants.
struct Piece {
    blkid: u64,
    /// Where in the block.
    start: usize,
    len: usize,
}

/// Where the bytes of a piece come from.
enum Source {
    Memory(Buf),
    Zeros,
    Block(BlkPtrPhys, Bookmark),
    /// The pointer has the wrong level or size.
    Misshapen(Error),
}

impl Source {
    fn on_disk(walk: &mut Walk, blkid: u64) -> Result<Source> {
        let bp = walk.bp(0, blkid)?;
        if bp.is_hole() {
            return Ok(Source::Zeros);
        }
        let at = walk.tree.bookmark(0, blkid);
        Ok(match check_shape(&bp, 0, walk.tree.blksz, &at) {
            Ok(()) => Source::Block(bp, at),
            Err(error) => Source::Misshapen(error),
        })
    }

    fn stored(bp: BlkPtrPhys, walk: &Walk, blkid: u64) -> Source {
        if bp.is_hole() {
            Source::Zeros
        } else {
            Source::Block(bp, walk.tree.bookmark(0, blkid))
        }
    }

    fn block(&self) -> Option<(BlkPtrPhys, Bookmark)> {
        match self {
            Source::Block(bp, at) => Some((*bp, *at)),
            _ => None,
        }
    }
}

/// What a range of an object holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// These bytes, in memory shared with the cache or with a dirty layer.
    Data(BufSlice),
    /// This many zeros, which are not stored.
    Hole(usize),
}

impl State {
    /// Where `view` finds block `blkid`.
    pub(crate) fn locate(&self, view: View, blkid: u64) -> Found {
        for layer in self.layers(view) {
            match layer.blocks.get(&blkid) {
                Some(Block::Data(buf) | Block::Rewritten(buf)) => {
                    return Found::Memory(buf.clone().into());
                }
                Some(Block::Begun(buf, _)) => return Found::Memory(buf.clone()),
                Some(Block::Written(bp) | Block::Cloned(bp)) => return Found::Stored(**bp),
                None => {}
            }
            if layer.freed.contains(blkid) {
                return Found::Zeros;
            }
        }
        if blkid > self.image().core.maxblkid.get() {
            return Found::Zeros;
        }
        Found::Disk
    }
}

impl Dnode {
    /// The tree on disk, and the ticket to read what it points at.
    pub(crate) fn walk<'a>(&'a self, state: &mut State) -> (Ticket<'a>, Walk) {
        let tree = state.image().tree(self, state.pending.clone());
        let mut walk = Walk::new(tree, Arc::clone(&self.context.store));
        if let Some(path) = &self.path {
            walk = walk.along_path(path, state.version);
        }
        (self.ticket(state), walk)
    }

    /// Reads `out.len()` bytes from `offset` on; zeros in holes and past the last block.
    ///
    /// # Errors
    /// The block store's error for the first block that cannot be read.
    #[doc(alias = "dmu_read")]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        rt::charge(rt::Work::Copy, out.len() as u64);
        let len = out.len() as u64;
        let mut rest = out;
        self.visit(offset, len, &mut |content| {
            let len = match &content {
                Content::Data(bytes) => bytes.len(),
                Content::Hole(len) => *len,
            };
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            match content {
                Content::Data(bytes) => now.copy_from_slice(&bytes),
                Content::Hole(_) => now.fill(0),
            }
            rest = later;
        })
    }

    /// Shows `see` the `len` bytes from `offset` on, block by block, in order and in place in memory:
    /// what [`read`](Dnode::read) would copy.
    ///
    /// # Errors
    /// The block store's error for the first block that cannot be read; `see` was shown everything before it.
    #[doc(alias = "dmu_buf_hold_array")]
    pub fn visit(&self, offset: u64, len: u64, see: &mut dyn FnMut(Content)) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if offset.checked_add(len).is_none() {
            let what = format!("{len} bytes at {offset} of object {}", self.id());
            return Err(Error::corrupt(what));
        }
        let mut state = self.state();
        let blksz = state.fields(View::Open).blksz;
        let blocks = (offset / blksz, (offset + len - 1) / blksz + 1);
        let found: Vec<(Piece, Found)> = split(offset, len, blksz)
            .map(|piece| {
                let found = state.locate(View::Open, piece.blkid);
                (piece, found)
            })
            .collect();
        let is_stored = found.iter().any(|(_, found)| found.is_stored());
        let disk = is_stored.then(|| self.walk(&mut state));
        drop(state);
        let Some((ticket, mut walk)) = disk else {
            for (piece, found) in found {
                see(match found {
                    Found::Memory(buf) => piece.of(buf),
                    Found::Zeros | Found::Stored(_) | Found::Disk => Content::Hole(piece.len),
                });
            }
            return Ok(());
        };
        let result = self.visit_tree(&mut walk, found, blocks, see);
        drop(ticket);
        result
    }

    /// Read-ahead threads fetch the blocks after the first, and those likely to be read next, while this
    /// thread shows blocks to `see`.
    fn visit_tree(
        &self,
        walk: &mut Walk,
        found: Vec<(Piece, Found)>,
        blocks: (u64, u64),
        see: &mut dyn FnMut(Content),
    ) -> Result<()> {
        let blksz = walk.tree.blksz;
        let mut sources = Vec::with_capacity(found.len());
        for (piece, found) in found {
            let source = match found {
                Found::Memory(buf) => Source::Memory(buf),
                Found::Zeros => Source::Zeros,
                Found::Stored(bp) => Source::stored(bp, walk, piece.blkid),
                Found::Disk => Source::on_disk(walk, piece.blkid)?,
            };
            sources.push((piece, source));
        }
        let run = self.read_ahead(walk, &sources, blocks, blksz);
        let at_once = (TOGETHER_BYTES / blksz).max(1) as usize;
        let mut sources = sources.into_iter().peekable();
        let mut result = Ok(());
        while sources.peek().is_some() {
            // Even after an error, every block asked for is waited for: see `read_ahead`.
            let together = sources.by_ref().take(at_once).collect();
            for content in self.read_sources(together, run) {
                result = result.and(content).map(&mut *see);
            }
        }
        result
    }

    fn read_sources(&self, sources: Vec<(Piece, Source)>, run: Run) -> Vec<Result<Content>> {
        let wanted: Vec<_> = sources.iter().filter_map(|(_, s)| s.block()).collect();
        let mut bufs = self.context.store.read_run(&wanted, run).into_iter();
        let content = |(piece, source): (Piece, Source)| match source {
            Source::Memory(buf) => Ok(piece.of(buf)),
            Source::Zeros => Ok(Content::Hole(piece.len)),
            Source::Misshapen(error) => Err(error),
            Source::Block(bp, at) => {
                let buf = bufs.next().expect("one for each block that was wanted")?;
                check_len(&buf, bp.lsize(), &at)?;
                Ok(piece.of(buf))
            }
        };
        sources.into_iter().map(content).collect()
    }

    /// Reads a data block that is not a hole. The caller has a ticket.
    fn read_leaf(&self, bp: &BlkPtrPhys, blksz: u64, at: &Bookmark) -> Result<Buf> {
        check_shape(bp, 0, blksz, at)?;
        let buf = self.context.store.read(bp, at)?;
        check_len(&buf, blksz, at)?;
        Ok(buf)
    }

    /// A data block as it is now; zeros for a hole.
    ///
    /// # Errors
    /// Errors from the block store.
    #[doc(alias = "dmu_buf_hold")]
    pub fn read_block(&self, blkid: BlkId) -> Result<Buf> {
        let mut state = self.state();
        let blksz = state.fields(View::Open).blksz;
        match state.locate(View::Open, blkid.0) {
            Found::Memory(buf) => Ok(buf),
            Found::Zeros => Ok(Buf::zeroed(blksz as usize)),
            found @ (Found::Stored(_) | Found::Disk) => {
                let (_ticket, walk) = self.walk(&mut state);
                drop(state);
                let content = self.read_found(&found, walk, blkid.0)?;
                Ok(content.unwrap_or_else(|| Buf::zeroed(blksz as usize)))
            }
        }
    }

    /// A data block in the block store; None if it is a hole. The caller has a ticket.
    pub(crate) fn read_found(
        &self,
        found: &Found,
        mut walk: Walk,
        blkid: u64,
    ) -> Result<Option<Buf>> {
        let (bp, blksz) = match found {
            Found::Stored(bp) => (*bp, bp.lsize()),
            _ => (walk.bp(0, blkid)?, walk.tree.blksz),
        };
        if bp.is_hole() {
            return Ok(None);
        }
        let at = walk.tree.bookmark(0, blkid);
        self.read_leaf(&bp, blksz, &at).map(Some)
    }

    /// The pointer to a block of the tree or to the spill block, as of the last sync; a hole where there is
    /// none.
    ///
    /// # Errors
    /// Errors from reading the indirect blocks above it.
    pub fn block_pointer(&self, level: u8, blkid: BlkId) -> Result<BlkPtrPhys> {
        let mut state = self.state();
        if level == 0 && blkid == Bookmark::SPILL_BLKID {
            return Ok(state.image().spill.unwrap_or_default());
        }
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        walk.bp(level, blkid.0)
    }

    /// Announces that a range will be read soon.
    #[doc(alias = "dmu_prefetch")]
    pub fn prefetch(&self, offset: u64, len: u64) {
        let mut state = self.state();
        let fields = state.fields(View::Open);
        let first = offset / fields.blksz;
        let last = offset.saturating_add(len.saturating_sub(1)) / fields.blksz;
        let last = last
            .min(fields.maxblkid)
            .min(first.saturating_add(PREFETCH_BLOCKS_MAX));
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        self.prefetch_blocks(&mut walk, first, last + 1, Run::default());
    }

    /// Starts fetching what this read wants after its first block, unless it is in flight already, and
    /// what the next reads will want. Returns the run that this read is part of.
    fn read_ahead(
        &self,
        walk: &mut Walk,
        wanted: &[(Piece, Source)],
        blocks: (u64, u64),
        blksz: u64,
    ) -> Run {
        let end = self.maxblkid().0 + 1;
        // The MOS overwrites blocks in place: that must not race with a read that no thread waits for.
        let progress = if self.context.id.0 == 0 {
            Progress::unknown(blocks.0)
        } else {
            let distance = self.context.store.prefetch_distance();
            self.streams.lock().advance(blocks, blksz, distance)
        };
        let run = Run {
            bytes: progress.run_bytes,
            object_bytes: end.saturating_mul(blksz),
        };
        let missing = progress.fetched.max(blocks.0 + 1);
        let bps: Vec<BlkPtrPhys> = wanted
            .iter()
            .filter(|(piece, _)| piece.blkid >= missing)
            .filter_map(|(_, source)| Some(source.block()?.0))
            .collect();
        if !bps.is_empty() {
            self.context.store.prefetch_run(self.context.id, &bps, run);
        }
        if let Some((from, to)) = progress.fetch {
            self.prefetch_blocks(walk, from, to.min(end), run);
        }
        run
    }

    fn prefetch_blocks(&self, walk: &mut Walk, from: u64, to: u64, run: Run) {
        let mut bps = Vec::new();
        for blkid in from..to {
            match walk.bp(0, blkid) {
                Ok(bp) if bp.is_hole() || bp.is_embedded() => {}
                Ok(bp) => bps.push(bp),
                // The reader of the block gets the error.
                Err(_) => break,
            }
        }
        if !bps.is_empty() {
            self.context.store.prefetch_run(self.context.id, &bps, run);
        }
    }

    /// The spill block, if there is one.
    ///
    /// # Errors
    /// Errors from the block store.
    #[doc(alias = "dmu_spill_hold_existing")]
    pub fn spill(&self) -> Result<Option<Buf>> {
        self.spill_in(View::Open)
    }

    pub(crate) fn spill_in(&self, view: View) -> Result<Option<Buf>> {
        let mut state = self.state();
        for layer in state.layers(view) {
            match &layer.spill {
                SpillChange::Set(buf) => return Ok(Some(buf.clone())),
                SpillChange::Remove => return Ok(None),
                SpillChange::Keep => {}
            }
        }
        let Some(bp) = state.image().spill.filter(|bp| !bp.is_hole()) else {
            return Ok(None);
        };
        let _ticket = self.ticket(&mut state);
        drop(state);
        let at = Bookmark::spill(self.objset_id(), self.id());
        let lsize = bp.lsize();
        let fits = (1..=SPA_OLD_MAXBLOCKSIZE).contains(&lsize);
        if bp.level() != 0 || !fits || !lsize.is_multiple_of(SPA_MINBLOCKSIZE) {
            let what = format!("spill block {at}: level {}, {lsize} bytes", bp.level());
            return Err(Error::corrupt(what));
        }
        let spill = self.context.store.read(&bp, &at)?;
        check_len(&spill, lsize, &at)?;
        Ok(Some(spill))
    }
}

/// Bytes of blocks that are read before the first of them is shown: about what a core's own cache holds.
const TOGETHER_BYTES: u64 = 1 << 20;
/// The most blocks that one call of `prefetch` asks for.
const PREFETCH_BLOCKS_MAX: u64 = 4096;

impl Piece {
    fn of(&self, block: Buf) -> Content {
        Content::Data(block.slice(self.start..self.start + self.len))
    }
}

fn split(offset: u64, len: u64, blksz: u64) -> impl Iterator<Item = Piece> {
    let (mut at, end) = (offset, offset + len);
    std::iter::from_fn(move || {
        let start = at % blksz;
        let len = (blksz - start).min(end - at);
        let piece = Piece {
            blkid: at / blksz,
            start: start as usize,
            len: len as usize,
        };
        at += len;
        (len > 0).then_some(piece)
    })
}
