//! Writing: blocks go into the layer of the transaction. Only sequential writes go to disk before the
//! txg is synced ([`crate::behind`]).
//!
//! # Concurrency
//! Changing part of a block that is only on disk takes three steps: read it without the lock, take the
//! lock, check that nothing has made the bytes outdated in between.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_write`), module/zfs/dbuf.c (`dbuf_dirty`),
//! module/zfs/dnode.c (`dnode_set_blksz`, `dnode_free_range`) @be7657e3.

use base::{BlkId, Buf, Error, ErrorKind, Result};
use zio::{Prepared, WritePolicy};

use crate::dirty::Block;
use crate::dnode::{Change, State, View};
use crate::dnode_read::Found;
use crate::image::{check_blksz, round_blksz};
use crate::{Dnode, OBJECT_END, Tx};

impl Dnode {
    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// Errors from reading the first and the last block, if they are written only in part;
    /// `InvalidInput` past the first block of an object whose block size is not a power of two;
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_write")]
    pub fn write(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        rt::charge(rt::Work::Copy, data.len() as u64);
        let blksz = self.blksz();
        let policy = (data.len() as u64 >= blksz).then(|| self.leaf_policy());
        let policy = policy.flatten().filter(WritePolicy::writes_behind);
        let copy = |block: &[u8]| match &policy {
            Some(policy) if policy.sums_on_arrival() => Prepared::summed_copy(block),
            Some(_) => Prepared::whole_copy(block),
            None => Buf::copy_of(block).into(),
        };
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % blksz) as usize;
            let len = rest.len().min(blksz as usize - start);
            let (now, later) = rest.split_at(len);
            let blkid = BlkId(at / blksz);
            if len as u64 == blksz {
                self.write_prepared(tx, blkid, copy(now))?;
            } else {
                self.write_part(tx, blkid, start, now)?;
            }
            rest = later;
            at += len as u64;
        }
        if !data.is_empty() {
            self.write_behind(tx, &(offset / blksz..at.div_ceil(blksz)), policy.is_some());
        }
        Ok(())
    }

    /// The policy for file contents; none for other objects.
    fn leaf_policy(&self) -> Option<WritePolicy> {
        let kind = self.state().fields(View::Open).leaf();
        let is_contents = !kind.type_.is_metadata();
        is_contents.then(|| self.context.props().write_policy(&kind))
    }

    /// Replaces a whole block, without copying it. `data` is as long as a block.
    ///
    /// # Errors
    /// As [`write`](Dnode::write).
    #[doc(alias = "dmu_assign_arcbuf")]
    pub fn write_block(&self, tx: &Tx, blkid: BlkId, data: Buf) -> Result<()> {
        self.write_prepared(tx, blkid, data.into())
    }

    fn write_prepared(&self, tx: &Tx, blkid: BlkId, data: Prepared) -> Result<()> {
        self.change(tx, |_, change| {
            let blksz = change.layer.fields.blksz;
            assert_eq!(
                data.len() as u64,
                blksz,
                "block {blkid} of object {}",
                self.id()
            );
            self.put(change, blkid.0, Block::Data(data))
        })?
    }

    /// Changes a block in place.
    ///
    /// # Errors
    /// As [`write`](Dnode::write); `f` has not run then.
    #[doc(alias = "dmu_buf_will_dirty")]
    pub fn modify_block<R>(
        &self,
        tx: &Tx,
        blkid: BlkId,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.change_bytes(tx, blkid, |bytes| match bytes {
            Bytes::There(block) => (f(block), None),
            Bytes::Hole(blksz) => {
                let mut buf = Buf::zeroed(blksz);
                (f(buf.make_mut()), Some(buf))
            }
        })
    }

    /// Writes part of a block, from its byte `start` on.
    fn write_part(&self, tx: &Tx, blkid: BlkId, start: usize, data: &[u8]) -> Result<()> {
        self.change_bytes(tx, blkid, |bytes| match bytes {
            Bytes::There(block) => {
                block[start..start + data.len()].copy_from_slice(data);
                ((), None)
            }
            Bytes::Hole(blksz) => ((), Some(Buf::padded(blksz, start, data))),
        })
    }

    /// Lets `f` change the bytes of a block; what it makes is put into a hole.
    fn change_bytes<R>(
        &self,
        tx: &Tx,
        blkid: BlkId,
        f: impl FnOnce(Bytes<'_>) -> (R, Option<Buf>),
    ) -> Result<R> {
        self.change_block(tx, blkid.0, |_, change, base| {
            if let Some((own, charge)) = change.layer.data_mut(blkid.0) {
                *change.charge += charge;
                // The base is this very buffer: a second owner would force a copy.
                drop(base);
                return Ok(f(Bytes::There(own.make_mut())).0);
            }
            check_reach(&change.layer.fields, blkid.0)?;
            let blksz = change.layer.fields.blksz as usize;
            let (result, block) = match base {
                Some(mut base) => (f(Bytes::There(base.make_mut())).0, Some(base)),
                None => f(Bytes::Hole(blksz)),
            };
            if let Some(block) = block {
                assert_eq!(block.len(), blksz, "block {blkid} of object {}", self.id());
                self.put(change, blkid.0, Block::Data(block.into()))?;
            }
            Ok(result)
        })?
    }

    /// Who wrote the object has its contents in a cache of its own, and is done with it: until it is written to again,
    /// what is dirty need not stay in memory once it is on disk.
    pub fn note_kept_above(&self) {
        let mut state = self.state();
        let State { dirty, frozen, .. } = &mut *state;
        for layer in [dirty, frozen].into_iter().flatten() {
            layer.kept_above = true;
        }
    }

    /// Makes a block dirty as it is, so that it is written once more, by what the properties say now. With
    /// `keeps_birth` its contents stay as old as they are. A hole, and what is dirty in the txg, is left alone; returns
    /// whether the block is now dirty because of this.
    ///
    /// # Errors
    /// As [`write`](Dnode::write).
    #[doc(alias = "dmu_buf_will_rewrite")]
    pub fn rewrite_block(&self, tx: &Tx, blkid: BlkId, keeps_birth: bool) -> Result<bool> {
        self.change_block(tx, blkid.0, |_, change, base| {
            let is_dirty = change.layer.blocks.contains_key(&blkid.0);
            let Some(base) = base.filter(|_| !is_dirty) else {
                return Ok(false);
            };
            let block = match keeps_birth {
                true => Block::Rewritten(base.into()),
                false => Block::Data(base.into()),
            };
            self.put(change, blkid.0, block)?;
            Ok(true)
        })?
    }

    pub(crate) fn put(&self, change: Change<'_>, blkid: u64, block: Block) -> Result<()> {
        let Change { layer, charge } = change;
        check_reach(&layer.fields, blkid)?;
        layer.fields.maxblkid = layer.fields.maxblkid.max(blkid);
        *charge += layer.put_block(blkid, block);
        Ok(())
    }

    /// Runs `f` with the layer of `tx` and the content of a block; None if it is a hole.
    fn change_block<R>(
        &self,
        tx: &Tx,
        blkid: u64,
        f: impl FnOnce(&mut State, Change<'_>, Option<Buf>) -> R,
    ) -> Result<R> {
        self.context.announce(tx);
        let mut read: Option<(u64, Option<Buf>)> = None;
        loop {
            let mut state = self.state();
            let base = match state.locate(View::of(tx), blkid) {
                Found::Memory(buf) => Some(buf),
                Found::Zeros => None,
                found @ (Found::Stored(_) | Found::Disk) => match read.take() {
                    Some((changes, content)) if changes == state.changes => content,
                    _ => {
                        let changes = state.changes;
                        let (_ticket, walk) = self.walk(&mut state);
                        drop(state);
                        read = Some((changes, self.read_found(&found, walk, blkid)?));
                        continue;
                    }
                },
            };
            return self.change_locked(&mut state, tx, |state, change| f(state, change, base));
        }
    }
}

/// The bytes of a block that is changed.
enum Bytes<'a> {
    There(&'a mut [u8]),
    /// None, of a block of so many bytes.
    Hole(usize),
}

/// Only objects whose block size is a power of two have more than one block, and none reaches 2^64 bytes.
fn check_reach(fields: &crate::dirty::Fields, blkid: u64) -> Result<()> {
    if blkid >= u64::MAX / fields.blksz.max(1) {
        let what = format!("block {blkid} is behind the end of all objects");
        return Err(Error::corrupt(what));
    }
    if blkid == 0 || fields.blksz.is_power_of_two() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "block {blkid} of an object with blocks of {}",
        fields.blksz
    )))
}

/// Sizes and holes.
impl Dnode {
    /// Changes the block size of an object that has at most one block; its content is kept, cut off or
    /// padded with zeros.
    ///
    /// # Errors
    /// `Unsupported` when the object has more blocks or the pool does not support blocks this large.
    #[doc(alias = "dnode_set_blksz")]
    pub fn set_blksz(&self, tx: &Tx, blksz: u64) -> Result<()> {
        check_blksz(blksz, &self.context.props())?;
        let blksz = round_blksz(blksz);
        if blksz == self.blksz() {
            return Ok(());
        }
        self.change_block(tx, 0, |state, change, base| {
            let Change { layer, charge } = change;
            if layer.fields.maxblkid != 0 {
                let what = format!("block size of object {}, which has more blocks", self.id());
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            layer.fields.blksz = blksz;
            state.changes += 1;
            if let Some(old) = base {
                *charge += layer.discard_blocks(0, 1);
                let kept = old.len().min(blksz as usize);
                let buf = Buf::padded(blksz as usize, 0, &old[..kept]);
                *charge += layer.put_block(0, Block::Data(buf.into()));
            }
            Ok(())
        })?
    }

    /// Makes a hole: whole blocks are freed, the parts at both ends are zeroed. A range that
    /// reaches to the end of the last block truncates the object. `len` may be
    /// [`OBJECT_END`].
    ///
    /// # Errors
    /// Errors from reading the first and the last block; `NotFound` when the object was freed.
    #[doc(alias = "dmu_free_range")]
    pub fn free_range(&self, tx: &Tx, offset: u64, len: u64) -> Result<()> {
        let (blksz, maxblkid) = {
            let state = self.state();
            let fields = state.fields(View::of(tx));
            (fields.blksz, fields.maxblkid)
        };
        let object_end = u128::from(maxblkid + 1) * u128::from(blksz);
        let object_end = u64::try_from(object_end).unwrap_or(OBJECT_END);
        let truncates = offset.saturating_add(len) >= object_end;
        let end = offset.saturating_add(len).min(object_end);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(blksz);
        let behind = if truncates { maxblkid + 1 } else { end / blksz };
        if !offset.is_multiple_of(blksz) {
            let base = offset / blksz * blksz;
            self.zero_part(tx, offset / blksz, offset - base, (end - base).min(blksz))?;
        }
        if !truncates && !end.is_multiple_of(blksz) && end / blksz >= first {
            self.zero_part(tx, end / blksz, 0, end % blksz)?;
        }
        if first >= behind {
            return Ok(());
        }
        let behind = if truncates { u64::MAX } else { behind };
        self.change(tx, |state, change| {
            let Change { layer, charge } = change;
            *charge += layer.discard_blocks(first, behind);
            layer.freed.insert(first, behind);
            if truncates {
                layer.fields.maxblkid = first.saturating_sub(1);
            }
            state.changes += 1;
        })
    }

    /// Zeroes part of a block unless it is a hole.
    #[doc(alias = "dnode_partial_zero")]
    fn zero_part(&self, tx: &Tx, blkid: u64, from: u64, to: u64) -> Result<()> {
        if self.is_hole(View::of(tx), blkid)? {
            return Ok(());
        }
        self.modify_block(tx, BlkId(blkid), |block| {
            block[from as usize..to as usize].fill(0);
        })
    }

    fn is_hole(&self, view: View, blkid: u64) -> Result<bool> {
        let mut state = self.state();
        match state.locate(view, blkid) {
            Found::Memory(_) => Ok(false),
            Found::Zeros => Ok(true),
            Found::Stored(bp) => Ok(bp.is_hole()),
            Found::Disk => {
                let (_ticket, mut walk) = self.walk(&mut state);
                drop(state);
                Ok(walk.bp(0, blkid)?.is_hole())
            }
        }
    }
}
