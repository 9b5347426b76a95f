//! Writing: blocks go into the layer of the transaction; nothing is written to disk here.
//!
//! # Concurrency
//! Part of a block that is on disk only is changed in three steps: read it without the lock, take
//! the lock, see that nothing happened in between that made the bytes outdated.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_write`), module/zfs/dbuf.c (`dbuf_dirty`),
//! module/zfs/dnode.c (`dnode_set_blksz`, `dnode_free_range`) @be7657e3.

use base::{BlkId, Buf, Error, ErrorKind, Result};
use phys::BlkPtrPhys;

use crate::dirty::Dirty;
use crate::dnode::{Change, State, View};
use crate::dnode_read::Found;
use crate::image::{check_blksz, round_blksz};
use crate::tree::Walk;
use crate::{Dnode, OBJECT_END, SpillChange, Tx};

impl Dnode {
    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// What reading the first and the last block met, if they are written in part only;
    /// `InvalidInput` behind the first block of an object whose block size is no power of two;
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_write")]
    pub fn write(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let blksz = self.blksz();
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % blksz) as usize;
            let len = rest.len().min(blksz as usize - start);
            let (now, later) = rest.split_at(len);
            let blkid = BlkId(at / blksz);
            if len as u64 == blksz {
                self.write_block(tx, blkid, Buf::copy_of(now))?;
            } else {
                let range = start..start + len;
                self.modify_block(tx, blkid, |block| block[range].copy_from_slice(now))?;
            }
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    /// Replaces a whole block, without copying it. `data` is as long as a block.
    ///
    /// # Errors
    /// As [`write`](Dnode::write).
    #[doc(alias = "dmu_assign_arcbuf")]
    pub fn write_block(&self, tx: &Tx, blkid: BlkId, data: Buf) -> Result<()> {
        self.change(tx, |_, change| {
            let blksz = change.layer.fields.blksz;
            assert_eq!(data.len() as u64, blksz, "block {blkid} of object {}", self.id());
            self.put(change, blkid.0, data)
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
        self.change_block(tx, blkid.0, |_, change, base| {
            if let Some(own) = change.layer.blocks.get_mut(&blkid.0) {
                // The base is this very buffer: a second owner would force a copy.
                drop(base);
                return Ok(f(own.make_mut()));
            }
            let blksz = change.layer.fields.blksz as usize;
            let mut buf = base.unwrap_or_else(|| Buf::zeroed(blksz));
            assert_eq!(buf.len(), blksz, "block {blkid} of object {}", self.id());
            check_reach(&change.layer.fields, blkid.0)?;
            let result = f(buf.make_mut());
            self.put(change, blkid.0, buf)?;
            Ok(result)
        })?
    }

    fn put(&self, change: Change<'_>, blkid: u64, data: Buf) -> Result<()> {
        let Change { layer, charge } = change;
        check_reach(&layer.fields, blkid)?;
        layer.fields.maxblkid = layer.fields.maxblkid.max(blkid);
        *charge += data.len() as i64;
        if let Some(old) = layer.blocks.insert(blkid, data) {
            *charge -= old.len() as i64;
        }
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
                Found::Disk => match read.take() {
                    Some((changes, content)) if changes == state.changes => content,
                    _ => {
                        let changes = state.changes;
                        let (_ticket, walk) = self.walk(&mut state);
                        drop(state);
                        read = Some((changes, self.read_from_tree(walk, blkid)?));
                        continue;
                    }
                },
            };
            return self.change_locked(&mut state, tx, |state, change| f(state, change, base));
        }
    }
}

/// Only objects whose block size is a power of two have more than one block.
fn check_reach(fields: &crate::dirty::Fields, blkid: u64) -> Result<()> {
    if blkid == 0 || fields.blksz.is_power_of_two() {
        return Ok(());
    }
    Err(Error::invalid(format!("block {blkid} of an object with blocks of {}", fields.blksz)))
}

/// Sizes and holes.
impl Dnode {
    /// Changes the block size of an object that has one block at most; its content is kept, cut
    /// off or followed by zeros.
    ///
    /// # Errors
    /// `Unsupported` when the object has more blocks or the pool does not take such large ones.
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
                *charge -= layer.discard_blocks(0, 1) as i64;
                let mut buf = Buf::zeroed(blksz as usize);
                let kept = old.len().min(buf.len());
                buf.make_mut()[..kept].copy_from_slice(&old[..kept]);
                layer.blocks.insert(0, buf);
                *charge += blksz as i64;
            }
            Ok(())
        })?
    }

    /// Makes a hole: whole blocks are freed, the parts at both ends are zeroed. A range that
    /// reaches to the end of the last block truncates the object. `len` may be
    /// [`OBJECT_END`].
    ///
    /// # Errors
    /// What reading the first and the last block met; `NotFound` when the object was freed.
    #[doc(alias = "dmu_free_range")]
    pub fn free_range(&self, tx: &Tx, offset: u64, len: u64) -> Result<()> {
        let fields = self.state().fields(View::of(tx));
        let blksz = fields.blksz;
        let object_end = u128::from(fields.maxblkid + 1) * u128::from(blksz);
        let object_end = u64::try_from(object_end).unwrap_or(OBJECT_END);
        let truncates = offset.saturating_add(len) >= object_end;
        let end = offset.saturating_add(len).min(object_end);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(blksz);
        let behind = if truncates { fields.maxblkid + 1 } else { end / blksz };
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
            *charge -= layer.discard_blocks(first, behind) as i64;
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
        self.modify_block(tx, BlkId(blkid), |block| block[from as usize..to as usize].fill(0))
    }

    fn is_hole(&self, view: View, blkid: u64) -> Result<bool> {
        let mut state = self.state();
        match state.locate(view, blkid) {
            Found::Memory(_) => Ok(false),
            Found::Zeros => Ok(true),
            Found::Disk => {
                let (_ticket, mut walk) = self.walk(&mut state);
                drop(state);
                Ok(walk.bp(0, blkid)?.is_hole())
            }
        }
    }

    /// The offset of the first byte at or behind `offset` that is in a block; None if only holes
    /// follow.
    ///
    /// # Errors
    /// What reading indirect blocks met.
    #[doc(alias = "dmu_offset_next")]
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let mut state = self.state();
        let blksz = state.fields(View::Open).blksz;
        let from = offset / blksz;
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        let on_disk = self.next_disk_data(&mut walk, from)?;
        let state = self.state();
        let layers: Vec<&Dirty> = state.layers(View::Open).collect();
        let in_memory = (0..layers.len()).filter_map(|at| next_visible(&layers[..=at], from)).min();
        let found = [on_disk, in_memory].into_iter().flatten().min();
        drop(state);
        Ok(found.map(|blkid| (blkid * blksz).max(offset)))
    }

    fn next_disk_data(&self, walk: &mut Walk, from: u64) -> Result<Option<u64>> {
        let mut from = from;
        loop {
            let found = walk.search(0, from, &|level, bp| {
                if level == 0 { !bp.is_hole() } else { bp.fill() > 0 }
            })?;
            let Some(blkid) = found else { return Ok(None) };
            let state = self.state();
            let mut ends = state.layers(View::Open).filter_map(|layer| layer.freed.end_of(blkid));
            match ends.next() {
                None => return Ok(Some(blkid)),
                Some(end) => from = end,
            }
        }
    }

    /// The offset of the first byte at or behind `offset` that is in a hole; there is one behind
    /// the last block at the latest.
    ///
    /// # Errors
    /// What reading indirect blocks met.
    #[doc(alias = "dmu_offset_next")]
    pub fn next_hole(&self, offset: u64) -> Result<u64> {
        let mut state = self.state();
        let fields = state.fields(View::Open);
        let (_ticket, mut walk) = self.walk(&mut state);
        drop(state);
        let mut at = offset / fields.blksz;
        while at <= fields.maxblkid {
            match self.layered(at) {
                Some(true) => at += 1,
                Some(false) => break,
                None => {
                    let epbs = walk.tree.epbs();
                    let hole = walk.search(0, at, &|level, bp| {
                        if level == 0 {
                            return bp.is_hole();
                        }
                        let full = 1u64.checked_shl(epbs * u32::from(level));
                        full.is_none_or(|full| bp.fill() < full)
                    })?;
                    let hole = hole.unwrap_or(u64::MAX);
                    if hole == at {
                        break;
                    }
                    let state = self.state();
                    let freed = state.layers(View::Open).filter_map(|l| l.freed.next(at)).min();
                    at = freed.map_or(hole, |freed| freed.min(hole)).min(fields.maxblkid + 1);
                }
            }
        }
        Ok(at.saturating_mul(fields.blksz).max(offset))
    }

    /// Whether the layers know a block to be data, or a hole.
    fn layered(&self, blkid: u64) -> Option<bool> {
        match self.state().locate(View::Open, blkid) {
            Found::Memory(_) => Some(true),
            Found::Zeros => Some(false),
            Found::Disk => None,
        }
    }
}

/// The first block of the last layer that the layers above it do not hide.
fn next_visible(layers: &[&Dirty], from: u64) -> Option<u64> {
    let (last, above) = layers.split_last()?;
    let mut from = from;
    loop {
        let (&blkid, _) = last.blocks.range(from..).next()?;
        match above.iter().find_map(|layer| layer.freed.end_of(blkid)) {
            None => return Some(blkid),
            Some(end) => from = end,
        }
    }
}

/// Bonus and spill.
impl Dnode {
    /// The bonus bytes.
    #[must_use]
    pub fn bonus(&self) -> Vec<u8> {
        self.state().fields(View::Open).bonus.to_vec()
    }

    /// dn_bonuslen
    #[must_use]
    pub fn bonus_len(&self) -> usize {
        self.state().fields(View::Open).bonus.len()
    }

    /// The most bonus bytes that fit, next to the spill pointer if there is one.
    #[must_use]
    #[doc(alias = "DN_MAX_BONUS_LEN")]
    pub fn max_bonus_len(&self) -> usize {
        let state = self.state();
        let has_spill = state.fields(View::Open).has_spill;
        self.room(&state, has_spill)
    }

    fn room(&self, state: &State, has_spill: bool) -> usize {
        let mut core = state.image.core;
        core.flags &= !phys::dnode::DNODE_FLAG_SPILL_BLKPTR;
        let spill = if has_spill { size_of::<BlkPtrPhys>() } else { 0 };
        core.max_bonuslen().saturating_sub(spill)
    }

    /// Replaces the bonus bytes and their number.
    ///
    /// # Errors
    /// `InvalidInput` when they do not fit; `NotFound` when the object was freed.
    #[doc(alias = "dmu_set_bonus")]
    pub fn set_bonus(&self, tx: &Tx, bonus: &[u8]) -> Result<()> {
        self.modify_bonus(tx, |bytes| {
            bytes.clear();
            bytes.extend_from_slice(bonus);
        })
    }

    /// Changes the bonus bytes, and their number if `f` does.
    ///
    /// # Errors
    /// As [`set_bonus`](Dnode::set_bonus); nothing is changed then.
    pub fn modify_bonus<R>(&self, tx: &Tx, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        self.change(tx, |state, change| {
            let fields = &mut change.layer.fields;
            let mut bytes = fields.bonus.to_vec();
            let result = f(&mut bytes);
            let room = self.room(state, fields.has_spill);
            if bytes.len() > room {
                let what = format!("bonus of {} bytes, room for {room}", bytes.len());
                return Err(Error::invalid(what));
            }
            fields.bonus = bytes.into();
            Ok(result)
        })?
    }

    /// Whether there is a spill block.
    #[must_use]
    pub fn has_spill(&self) -> bool {
        self.state().fields(View::Open).has_spill
    }

    /// Writes a spill block: a multiple of 512 bytes, at most 128 KiB.
    ///
    /// # Errors
    /// `InvalidInput` when the bonus leaves no room for its pointer.
    #[doc(alias = "dmu_spill_hold_by_bonus")]
    pub fn set_spill(&self, tx: &Tx, spill: Buf) -> Result<()> {
        let len = spill.len() as u64;
        let fits = (1..=base::SPA_OLD_MAXBLOCKSIZE).contains(&len) && len.is_multiple_of(512);
        assert!(fits, "spill block of {len} bytes");
        self.change(tx, |state, change| {
            let bonus = change.layer.fields.bonus.len();
            if bonus + size_of::<BlkPtrPhys>() > self.room(state, false) {
                return Err(Error::invalid(format!("bonus of {bonus} bytes next to a spill block")));
            }
            change.layer.fields.has_spill = true;
            if let SpillChange::Set(old) = &change.layer.spill {
                *change.charge -= old.len() as i64;
            }
            *change.charge += len as i64;
            change.layer.spill = SpillChange::Set(spill);
            Ok(())
        })?
    }

    /// Frees the spill block.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_rm_spill")]
    pub fn remove_spill(&self, tx: &Tx) -> Result<()> {
        self.change(tx, |_, change| {
            change.layer.fields.has_spill = false;
            if let SpillChange::Set(old) = &change.layer.spill {
                *change.charge -= old.len() as i64;
            }
            change.layer.spill = SpillChange::Remove;
        })
    }
}
